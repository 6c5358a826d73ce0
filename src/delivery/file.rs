//! A file: whole or not there at all.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use super::letter::Letter;
use super::sent::Sent;

/// Writes the text of `letter` to the file that `template` names, in `folder`.
pub(super) async fn send(letter: &Letter, template: &str, folder: &Path) -> Sent {
    let path = match letter.fill_in(template) {
        Ok(path) if path.contains('\0') => return Sent::Refused("the path has a NUL in it".into()),
        Ok(path) => folder.join(path),
        Err(why) => return Sent::Refused(why),
    };
    let (text, id) = (letter.text(), letter.delivery_id.clone());
    let written = tokio::task::spawn_blocking(move || {
        write_whole(&path, &text, &id).map_err(|error| format!("write {}: {error}", path.display()))
    });
    match written.await {
        Ok(Ok(())) => Sent::Arrived,
        Ok(Err(why)) => Sent::Refused(why),
        Err(error) => Sent::Lost(error.to_string()),
    }
}

/// Beside its place first, then over it: a reader sees the old file or the whole new one, and what
/// is there survives a power cut.
fn write_whole(path: &Path, text: &str, id: &str) -> io::Result<()> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "this names no file"));
    };
    fs::create_dir_all(folder)?;
    let beside: PathBuf = folder.join(format!(".{}.{id}", name.to_string_lossy()));
    let written = write_synced(&beside, text).and_then(|()| fs::rename(&beside, path));
    if written.is_err() {
        // There may be nothing to take away.
        drop(fs::remove_file(&beside));
    }
    written?;
    File::open(folder)?.sync_all()
}

fn write_synced(path: &Path, text: &str) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(text.as_bytes())?;
    if !text.ends_with('\n') {
        file.write_all(b"\n")?;
    }
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_as_a_whole_and_a_failure_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b/report.md");
        write_whole(&path, "one", "id-1").unwrap();
        write_whole(&path, "two\n", "id-2").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "two\n");
        let beside = |folder: &Path| fs::read_dir(folder).unwrap().count();
        assert_eq!(beside(path.parent().unwrap()), 1);

        let folder = dir.path().join("taken");
        fs::create_dir_all(folder.join("report.md/full")).unwrap();
        assert!(write_whole(&folder.join("report.md"), "text", "id-3").is_err());
        assert_eq!(beside(&folder), 1, "what was begun is gone");
        assert!(write_whole(Path::new("/"), "text", "id-4").is_err());
    }
}
