//! Mounts over what is closed inside of a folder that is writable.
//!
//! Rules alone could only leave the whole folder above it closed too. The mounts are ours alone,
//! and what is confined cannot change them: Landlock forbids that.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::statvfs::{FsFlags, statvfs};
use nix::unistd::{getgid, getuid};

use super::Fence;

const NOTHING: Option<&str> = None;

/// Closes what is closed below a writable folder.
pub(super) fn close(fence: &Fence) -> io::Result<()> {
    let closed: Vec<_> = fence.inside(&fence.closed).collect();
    // What is not there could be made.
    for path in &closed {
        fs::symlink_metadata(path)?;
    }
    apart()?;
    // Kept open, since the way there may soon be covered; opened only here, since a folder of the
    // world before cannot be mounted in this one.
    let own: Vec<_> =
        fence.own.iter().map(|path| Ok((path, File::open(path)?))).collect::<io::Result<_>>()?;
    for path in closed {
        let roots = fence.writable.iter().filter(|root| path.starts_with(root));
        let Some(root) = roots.min_by_key(|root| root.components().count()) else { continue };
        // A folder above it could be moved away, and another put in its place, unless it is a
        // mount too.
        let above: Vec<_> =
            path.ancestors().skip(1).take_while(|above| *above != root.as_path()).collect();
        for folder in above.into_iter().rev() {
            bind(folder, folder)?;
        }
        if fence.hidden.contains(path) {
            cover(path, &own)?;
        } else {
            bind(path, path)?;
        }
        remount(path, MsFlags::MS_RDONLY)?;
        for (own, file) in own.iter().filter(|(own, _)| own.starts_with(path)) {
            bind(&PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd())), own)?;
        }
    }
    Ok(())
}

/// Puts an empty folder over `path`, with places in it for our own folders.
fn cover(path: &Path, own: &[(&PathBuf, File)]) -> io::Result<()> {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(Some("tmpfs"), path, Some("tmpfs"), flags, Some("size=64k,mode=755"))?;
    for (own, _) in own.iter().filter(|(own, _)| own.starts_with(path)) {
        fs::create_dir_all(own)?;
    }
    Ok(())
}

/// Mounts of our own from here on: as root at once, as anybody else in a world where we are root.
fn apart() -> io::Result<()> {
    let (user, group) = (getuid(), getgid());
    match unshare(CloneFlags::CLONE_NEWNS) {
        Ok(()) => {}
        Err(Errno::EPERM) => {
            unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS)?;
            fs::write("/proc/self/setgroups", "deny")?;
            fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
            fs::write("/proc/self/gid_map", format!("{group} {group} 1"))?;
        }
        Err(error) => return Err(error.into()),
    }
    // What is mounted here stays here.
    let flags = MsFlags::MS_REC | MsFlags::MS_SLAVE;
    Ok(mount(NOTHING, "/", NOTHING, flags, NOTHING)?)
}

fn bind(from: &Path, path: &Path) -> io::Result<()> {
    let flags = MsFlags::MS_BIND | MsFlags::MS_REC;
    Ok(mount(Some(from), path, NOTHING, flags, NOTHING)?)
}

/// Keeps the other flags: who is not root outside may not lift them.
fn remount(path: &Path, flags: MsFlags) -> io::Result<()> {
    let known = [
        (FsFlags::ST_NOSUID, MsFlags::MS_NOSUID),
        (FsFlags::ST_NODEV, MsFlags::MS_NODEV),
        (FsFlags::ST_NOEXEC, MsFlags::MS_NOEXEC),
        (FsFlags::ST_NOATIME, MsFlags::MS_NOATIME),
        (FsFlags::ST_NODIRATIME, MsFlags::MS_NODIRATIME),
        (FsFlags::ST_RELATIME, MsFlags::MS_RELATIME),
    ];
    let now = statvfs(path)?.flags();
    let mut flags = flags | MsFlags::MS_REMOUNT | MsFlags::MS_BIND;
    flags.extend(known.into_iter().filter(|(is, _)| now.contains(*is)).map(|(_, keep)| keep));
    Ok(mount(NOTHING, path, NOTHING, flags, NOTHING)?)
}
