//! Reading a file that somebody named: a real one, and not without end.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

/// The largest job, configuration, prompt or script file that is read.
pub const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// The bytes of `path`. A pipe or a device could hold the reader up for ever, and a huge file fill
/// the memory: both are refused before anything is read.
pub fn read_bytes(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let found = std::fs::metadata(path)?;
    if !found.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "this is not a file"));
    }
    let too_large = |bytes: u64| {
        let words = format!("{bytes} bytes, at most {bytes_max} are read");
        io::Error::new(io::ErrorKind::FileTooLarge, words)
    };
    if found.len() > bytes_max {
        return Err(too_large(found.len()));
    }
    // It may have grown since; and files of the kernel's have no length.
    let mut bytes = Vec::new();
    File::open(path)?.take(bytes_max + 1).read_to_end(&mut bytes)?;
    let length = bytes.len() as u64;
    if length > bytes_max { Err(too_large(length)) } else { Ok(bytes) }
}

/// The text of `path`, as [`read_bytes`] reads it.
pub fn read_text(path: &Path, bytes_max: u64) -> io::Result<String> {
    let invalid = |_| io::Error::new(io::ErrorKind::InvalidData, "this is not UTF-8 text");
    String::from_utf8(read_bytes(path, bytes_max)?).map_err(invalid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_real_files_of_a_sane_size_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, "12345").unwrap();
        assert_eq!(read_text(&path, 5).unwrap(), "12345");
        let words = |path: &Path, max| read_text(path, max).unwrap_err().to_string();
        assert_eq!(words(&path, 4), "5 bytes, at most 4 are read");
        assert_eq!(words(dir.path(), 4), "this is not a file");
        assert_eq!(words(Path::new("/dev/zero"), 4), "this is not a file");
        let pipe = dir.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert_eq!(words(&pipe, 4), "this is not a file");
        assert!(words(Path::new("/proc/self/status"), 4).contains("at most 4"));
        std::fs::write(&path, [0xff]).unwrap();
        assert_eq!(words(&path, 4), "this is not UTF-8 text");
    }
}
