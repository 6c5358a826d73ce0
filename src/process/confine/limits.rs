//! What a fenced command may take of the machine.
//!
//! There is no limit of memory here: a limit of the address space (`RLIMIT_AS`) counts what is only
//! reserved, and node alone reserves tens of gigabytes. Memory is for a control group to bound.

use std::io;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// One file: above any report, below any disk.
const FILE_BYTES_MAX: u64 = 8 * 1024 * 1024 * 1024;

/// Open files of one process: more than a build needs, less than the kernel's own table.
const OPEN_FILES_MAX: u64 = 65_536;

/// How many more threads there may be than the machine has when the command starts. The kernel
/// counts all of the user's, not only those of the run, so the limit moves with them; it stops a
/// fork bomb long before the machine does. Root is not counted.
const MORE_THREADS_MAX: u64 = 2_048;

pub(super) fn set() -> io::Result<()> {
    no_core_files()?;
    at_most(Resource::RLIMIT_FSIZE, FILE_BYTES_MAX)?;
    at_most(Resource::RLIMIT_NOFILE, OPEN_FILES_MAX)?;
    if let Some(threads) = threads() {
        at_most(Resource::RLIMIT_NPROC, threads + MORE_THREADS_MAX)?;
    }
    Ok(())
}

/// A core file holds whatever the process knew, its secrets too.
pub(super) fn no_core_files() -> io::Result<()> {
    at_most(Resource::RLIMIT_CORE, 0)
}

/// A limit that is lower already stays.
fn at_most(resource: Resource, limit: u64) -> io::Result<()> {
    let (soft, hard) = getrlimit(resource)?;
    Ok(setrlimit(resource, soft.min(limit), hard.min(limit))?)
}

/// How many there are on the machine, by all users.
fn threads() -> Option<u64> {
    let load = std::fs::read_to_string("/proc/loadavg").ok()?;
    load.split_ascii_whitespace().nth(3)?.split_once('/')?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_kernel_says_how_many_threads_there_are() {
        assert!(super::threads().unwrap() > 1);
    }
}
