//! Which system calls a fenced command may not make.
//!
//! Landlock bounds TCP only, and no named sockets on most kernels; sockets are therefore refused
//! where they are made. A pair of connected sockets is no way out and stays allowed.

use std::collections::BTreeMap;

use nix::libc;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};

use super::{Closing, ConfineError, Demand, Fence, Network, View};

/// The numbers of the calls of 64-bit x86 with 32-bit addresses begin here: the same calls again.
const X32: i64 = 0x4000_0000;

/// Other processes' keys, and memory that is shared by number, have no path that Landlock knows.
const BY_NUMBER: &[libc::c_long] = &[
    libc::SYS_add_key,
    libc::SYS_keyctl,
    libc::SYS_request_key,
    libc::SYS_msgget,
    libc::SYS_semget,
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_msgrcv,
    libc::SYS_msgsnd,
    libc::SYS_mq_open,
];

/// Modes, owners and times of files, which no rule bounds to a folder: refused altogether to the
/// strictly confined where there are no mounts that would.
const OF_FILES: &[libc::c_long] = &[
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chmod,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chown,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lchown,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_utime,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_utimes,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_futimesat,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fchmodat2,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_utimensat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    SETXATTRAT,
    REMOVEXATTRAT,
];

/// The same numbers on all architectures; newer than the list of names.
const SETXATTRAT: libc::c_long = 463;
const REMOVEXATTRAT: libc::c_long = 466;

/// Refuses what `fence` leaves no room for, from now on.
pub(super) fn filter(fence: &Fence, closing: Closing) -> Result<(), ConfineError> {
    let Some(refused) = refused(fence, closing) else { return Ok(()) };
    // A ring would make sockets without a call.
    let rings = BTreeMap::from([(libc::SYS_io_uring_setup, Vec::new())]);
    let applied = program(rings, libc::ENOSYS)
        .and_then(|rings| seccompiler::apply_filter(&rings))
        .and_then(|()| program(refused, libc::EACCES))
        .and_then(|refused| seccompiler::apply_filter(&refused));
    match (applied, fence.demand) {
        // Where the kernel has no filters, whoever may go without goes on.
        (Err(_), Demand::AsOffered) => Ok(()),
        (result, _) => result.map_err(ConfineError::Calls),
    }
}

type Refused = BTreeMap<libc::c_long, Vec<SeccompRule>>;

fn refused(fence: &Fence, closing: Closing) -> Option<Refused> {
    let sockets = match (fence.view, fence.network) {
        (View::Everything, Network::On) => return None,
        (_, Network::Off) => Vec::new(),
        (View::System, Network::On) => vec![named_sockets()],
    };
    let mut refused = BTreeMap::from([(libc::SYS_socket, sockets)]);
    if fence.view == View::System {
        refused.extend(BY_NUMBER.iter().map(|&call| (call, Vec::new())));
    }
    if fence.view == View::System && closing == Closing::ByRules {
        refused.extend(OF_FILES.iter().map(|&call| (call, Vec::new())));
    }
    Some(refused)
}

fn named_sockets() -> SeccompRule {
    let family = u64::from(libc::AF_UNIX.unsigned_abs());
    let is_unix = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, family)
        .expect("a call has a first argument");
    SeccompRule::new(vec![is_unix]).expect("a rule with a condition")
}

fn program(refused: Refused, error: i32) -> Result<BpfProgram, seccompiler::Error> {
    let mut rules = refused.clone();
    if cfg!(target_arch = "x86_64") {
        rules.extend(refused.into_iter().map(|(call, rules)| (call | X32, rules)));
    }
    let refusal = SeccompAction::Errno(error.unsigned_abs());
    let here = std::env::consts::ARCH.try_into()?;
    Ok(SeccompFilter::new(rules, SeccompAction::Allow, refusal, here)?.try_into()?)
}
