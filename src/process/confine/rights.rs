//! What root, and whoever becomes root, may not.

use std::io;

use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set, set_capabilities,
    set_no_new_privs,
};

/// What root keeps: to read and change the files of others within its fence, as a run of a daemon
/// that runs as root may have to. All else (mounts, modules, devices, other users' processes) is
/// given up.
const KEPT: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID);

/// No program that is started from here on gives more rights than there are.
pub(super) fn nothing_new() -> io::Result<()> {
    Ok(set_no_new_privs(true)?)
}

/// What this process may now.
pub(super) fn held() -> io::Result<CapabilitySet> {
    Ok(capabilities(None)?.permitted)
}

/// Gives up all but a few of `before`.
pub(super) fn keep_few(before: CapabilitySet) -> io::Result<()> {
    // A kernel without ambient capabilities has none to clear.
    let _ = clear_ambient_capability_set();
    let kept = before.intersection(KEPT);
    let sets =
        CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
    Ok(set_capabilities(None, sets)?)
}
