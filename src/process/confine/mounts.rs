//! A view of the files in which all is read-only but what a fence leaves open.
//!
//! Rules bind who opens, makes and moves files; they know nothing of modes, owners and times, and
//! where something in a writable folder is closed they can only leave the whole folder above it
//! closed. Mounts can do both. They are ours alone, and what is confined cannot change them:
//! Landlock forbids that.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{getgid, getuid};

use super::{Demand, Fence};

const NOTHING: Option<&str> = None;

/// Makes everything read-only but what `fence` says.
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
    let mounts = mounts()?;
    for (place, flags) in &mounts {
        match (remount(place, *flags | MsFlags::MS_RDONLY), fence.demand) {
            (Err(error), Demand::All) => return Err(error),
            // One that is covered by another, or whose server does not answer.
            (Err(_), Demand::AsOffered) | (Ok(()), _) => {}
        }
    }
    for path in fence.writable.iter().filter(|path| path.exists()) {
        bind(path, path)?;
        remount(path, flags_of(&mounts, path))?;
        let inside = mounts.iter().filter(|(place, _)| place != path && place.starts_with(path));
        for (place, flags) in inside {
            remount(place, *flags)?;
        }
    }
    for path in closed {
        close_inside(fence, path, &own, flags_of(&mounts, path))?;
    }
    for (path, file) in &own {
        bind(&PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd())), path)?;
        remount(path, flags_of(&mounts, path))?;
    }
    Ok(())
}

/// Closes what lies in a writable folder.
fn close_inside(
    fence: &Fence,
    path: &Path,
    own: &[(&PathBuf, File)],
    flags: MsFlags,
) -> io::Result<()> {
    let roots = fence.writable.iter().filter(|root| path.starts_with(root));
    let Some(root) = roots.min_by_key(|root| root.components().count()) else { return Ok(()) };
    // A folder above it could be moved away, and another put in its place, unless it is a mount
    // too.
    let above: Vec<_> = path.ancestors().skip(1).take_while(|it| *it != root.as_path()).collect();
    for folder in above.into_iter().rev() {
        bind(folder, folder)?;
    }
    if fence.hidden.iter().any(|hidden| hidden == path) {
        cover(path, own)
    } else {
        bind(path, path)?;
        remount(path, flags | MsFlags::MS_RDONLY)
    }
}

/// Puts an empty folder over `path`, with places in it for our own folders.
fn cover(path: &Path, own: &[(&PathBuf, File)]) -> io::Result<()> {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(Some("tmpfs"), path, Some("tmpfs"), flags, Some("size=64k,mode=755"))?;
    for (own, _) in own.iter().filter(|(own, _)| own.starts_with(path)) {
        fs::create_dir_all(own)?;
    }
    remount(path, flags | MsFlags::MS_RDONLY)
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

fn remount(path: &Path, flags: MsFlags) -> io::Result<()> {
    let flags = flags | MsFlags::MS_REMOUNT | MsFlags::MS_BIND;
    Ok(mount(NOTHING, path, NOTHING, flags, NOTHING)?)
}

/// Every mount and its flags, which have to stay: who is not root outside may not lift them.
fn mounts() -> io::Result<Vec<(PathBuf, MsFlags)>> {
    let table = fs::read_to_string("/proc/self/mountinfo")?;
    Ok(table.lines().filter_map(parsed).collect())
}

fn parsed(line: &str) -> Option<(PathBuf, MsFlags)> {
    let mut fields = line.split(' ').skip(4);
    let (place, options) = (fields.next()?, fields.next()?);
    let flags = options.split(',').map(|option| match option {
        "ro" => MsFlags::MS_RDONLY,
        "nosuid" => MsFlags::MS_NOSUID,
        "nodev" => MsFlags::MS_NODEV,
        "noexec" => MsFlags::MS_NOEXEC,
        "noatime" => MsFlags::MS_NOATIME,
        "nodiratime" => MsFlags::MS_NODIRATIME,
        "relatime" => MsFlags::MS_RELATIME,
        _ => MsFlags::empty(),
    });
    Some((unescaped(place), flags.fold(MsFlags::empty(), |all, one| all | one)))
}

/// Spaces and the like are written as `\040`.
fn unescaped(field: &str) -> PathBuf {
    let mut bytes = Vec::new();
    let mut rest = field.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let code = after.get(..3).and_then(|code| std::str::from_utf8(code).ok());
        let code = code.filter(|_| first == b'\\').and_then(|it| u8::from_str_radix(it, 8).ok());
        bytes.push(code.unwrap_or(first));
        rest = if code.is_some() { &after[3..] } else { after };
    }
    std::ffi::OsString::from_vec(bytes).into()
}

/// The flags of the mount on which `path` is.
fn flags_of(mounts: &[(PathBuf, MsFlags)], path: &Path) -> MsFlags {
    let around = mounts.iter().filter(|(place, _)| path.starts_with(place));
    // Of two on the same place the later one covers the other.
    around
        .max_by_key(|(place, _)| place.components().count())
        .map_or(MsFlags::empty(), |(_, flags)| *flags)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_table_is_read_with_its_escapes() {
        let line = "31 1 8:1 / /mnt/a\\040b\\134c ro,nosuid,relatime shared:1 - ext4 /dev/sda rw";
        let flags = MsFlags::MS_RDONLY | MsFlags::MS_NOSUID | MsFlags::MS_RELATIME;
        assert_eq!(parsed(line), Some(("/mnt/a b\\c".into(), flags)));
        assert_eq!(parsed("31 1"), None);
    }
}
