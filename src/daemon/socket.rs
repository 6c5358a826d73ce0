//! The address of the control socket, also in deep folders.
//!
//! A kernel address of a Unix socket has room for 107 bytes. A longer path is reached through an
//! open handle of its folder, whose name under `/proc/self/fd` is short.

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};

use serde::Serialize;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{UnixListener, UnixStream};

const PATH_BYTES_MAX: usize = 107;
const NAME: &str = "punctual.sock";

/// Listens in `state_dir`. Only the holder of the folder's lock may: what an earlier holder left
/// there is taken away.
pub(super) fn listen(state_dir: &Path) -> std::io::Result<UnixListener> {
    use std::os::unix::fs::PermissionsExt as _;
    let path = state_dir.join(NAME);
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(Address::of(state_dir)?.path)?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Connects to whoever listens in `state_dir`.
pub(super) async fn connect(state_dir: &Path) -> std::io::Result<UnixStream> {
    let address = Address::of(state_dir)?;
    UnixStream::connect(&address.path).await
}

/// Takes the socket's file away, when its listener ends.
pub(super) fn remove(state_dir: &Path) {
    // If it stays, the next holder takes it away.
    drop(std::fs::remove_file(state_dir.join(NAME)));
}

/// Writes `what` as a line of JSON.
pub(super) async fn write_line(
    stream: &mut UnixStream,
    what: &impl Serialize,
) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(what)?;
    line.push(b'\n');
    stream.write_all(&line).await
}

struct Address {
    path: PathBuf,
    /// Keeps the short name alive.
    _folder: Option<File>,
}

impl Address {
    fn of(state_dir: &Path) -> std::io::Result<Self> {
        let path = state_dir.join(NAME);
        if path.as_os_str().len() <= PATH_BYTES_MAX {
            return Ok(Self { path, _folder: None });
        }
        let folder = File::open(state_dir)?;
        let path = PathBuf::from(format!("/proc/self/fd/{}/{NAME}", folder.as_raw_fd()));
        Ok(Self { path, _folder: Some(folder) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_deep_folder_is_reached_too() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("d".repeat(120)).join("e".repeat(120));
        std::fs::create_dir_all(&deep).unwrap();
        let listener = listen(&deep).unwrap();
        let (accepted, connected) = tokio::join!(listener.accept(), connect(&deep));
        accepted.unwrap();
        connected.unwrap();
        remove(&deep);
        assert!(!deep.join(NAME).exists());
    }
}
