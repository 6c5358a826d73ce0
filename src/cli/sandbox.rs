//! What this kernel makes of `sandbox`, in words.

use crate::config::JobSet;
use crate::job::Sandbox;
use crate::process::{Filters, Offer, offered};

/// How many jobs are named.
const NAMED_MAX: usize = 3;

/// Which of the jobs cannot run here for their sandbox, if any.
pub(super) fn cannot_run(jobs: &JobSet) -> Option<String> {
    let lack = offered().lacks_for_strict()?;
    let strict: Vec<_> = jobs
        .jobs
        .values()
        .filter(|spec| spec.agent().is_some_and(|it| it.sandbox.mode == Sandbox::Strict))
        .map(|spec| spec.id.as_str())
        .collect();
    if strict.is_empty() {
        return None;
    }
    let more = if strict.len() > NAMED_MAX { ", …" } else { "" };
    let names: Vec<_> = strict.iter().take(NAMED_MAX).copied().collect();
    Some(format!("strict jobs cannot run here: {}{more}: {lack}", names.join(", ")))
}

/// What the kernel offers, and what each mode means with that.
pub(super) fn offer() -> (Whole, String) {
    let offer = offered();
    let Offer { landlock, filters } = offer;
    let landlock = landlock.map_or("no Landlock".to_owned(), |it| format!("Landlock {it}"));
    let filters = match filters {
        Filters::Some => "filters of system calls",
        Filters::None => "no filters of system calls",
    };
    let gaps = offer.gaps();
    let workspace = match gaps.as_slice() {
        [] => "`workspace` is held".to_owned(),
        gaps => format!("of `workspace`: {}", gaps.join("; ")),
    };
    let strict = match offer.lacks_for_strict() {
        None => "`strict` is held".to_owned(),
        Some(lack) => format!("`strict` jobs do not run: {lack}"),
    };
    let whole = if offer.lacks_for_strict().is_none() { Whole::Yes } else { Whole::No };
    (whole, format!("{landlock}, {filters}; {workspace}; {strict}"))
}

/// Whether every mode is held here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Whole {
    Yes,
    No,
}
