//! Archives: only plain files and folders come out of one, below its own folder, within limits.

use std::fs::{self, File};
use std::io::{self, Read, Seek as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Component, Path, PathBuf};

use super::{BYTES_MAX, FILES_MAX, NotInstalled};

/// How a gzip file begins.
const GZIP: &[u8] = &[0x1f, 0x8b];

/// Unpacks the archive at `path` into the folder `into`; what it is is told by its content.
pub(super) fn unpack(path: &Path, into: &Path) -> Result<(), NotInstalled> {
    let failed = |error: &dyn std::fmt::Display| {
        NotInstalled::while_doing(&format!("unpack {}", path.display()), error)
    };
    let mut file = File::open(path).map_err(|error| failed(&error))?;
    let mut begins = [0; 2];
    let known = file.read(&mut begins).map_err(|error| failed(&error))?;
    file.rewind().map_err(|error| failed(&error))?;
    let mut out = Out { into: into.to_owned(), files: 0, bytes: 0 };
    let done = match &begins[..known] {
        GZIP => untar(flate2::read::MultiGzDecoder::new(file), &mut out),
        _ => untar(file, &mut out),
    };
    done.map_err(|error| failed(&error))
}

fn untar(from: impl Read, out: &mut Out) -> io::Result<()> {
    // The headers count too: an archive of nothing but names has an end.
    let mut archive = tar::Archive::new(from.take(2 * BYTES_MAX));
    for entry in archive.entries()? {
        let mut entry = entry?;
        let path = entry.path()?.into_owned();
        let kind = entry.header().entry_type();
        let mode = entry.header().mode().unwrap_or(0);
        match kind {
            tar::EntryType::Directory => out.folder(&path)?,
            tar::EntryType::Regular | tar::EntryType::Continuous => {
                out.file(&path, mode, &mut entry)?;
            }
            tar::EntryType::XGlobalHeader | tar::EntryType::XHeader => {}
            _ => return Err(refused(&path, "is a link or a device")),
        }
    }
    Ok(())
}

/// Where it goes, and how much there is already.
struct Out {
    into: PathBuf,
    files: usize,
    bytes: u64,
}

impl Out {
    fn folder(&mut self, path: &Path) -> io::Result<()> {
        self.count()?;
        fs::create_dir_all(self.place(path)?)
    }

    fn file(&mut self, path: &Path, mode: u32, from: &mut dyn Read) -> io::Result<()> {
        self.count()?;
        let place = self.place(path)?;
        fs::create_dir_all(place.parent().unwrap_or(&self.into))?;
        // There are no links below: everything there was made here.
        let mut file = File::create_new(&place).map_err(|error| refused(path, error))?;
        // However well it was packed.
        let left = BYTES_MAX - self.bytes;
        self.bytes += io::copy(&mut from.take(left + 1), &mut file)?;
        if self.bytes > BYTES_MAX {
            return Err(refused(path, format!("is too much: over {BYTES_MAX} bytes in all")));
        }
        let mode = if mode & 0o111 == 0 { 0o644 } else { 0o755 };
        file.set_permissions(fs::Permissions::from_mode(mode))
    }

    fn count(&mut self) -> io::Result<()> {
        self.files += 1;
        if self.files > FILES_MAX {
            return Err(io::Error::other(format!("it has over {FILES_MAX} entries")));
        }
        Ok(())
    }

    fn place(&self, path: &Path) -> io::Result<PathBuf> {
        let inside =
            |part: &Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
        if !path.components().all(|part| inside(&part)) {
            return Err(refused(path, "leads out of it"));
        }
        Ok(self.into.join(path))
    }
}

fn refused(path: &Path, why: impl std::fmt::Display) -> io::Error {
    io::Error::other(format!("`{}` {why}", path.display().to_string().escape_debug()))
}
