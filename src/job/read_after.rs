//! `[after]`: the jobs whose end starts this one.

use super::id::JobId;
use super::parse::{Reader, has_refused};
use super::prompt::Mention;
use super::spec::{AfterSpec, When};

/// `[after]`, if it can be used. That the jobs it names are there is looked at when all files have
/// been read.
pub(super) fn after(reader: &mut Reader<'_>) -> Option<AfterSpec> {
    let node = reader.node;
    let table = node.get("after")?.table()?;
    if node.get("schedule").is_some() {
        let help = "keep [schedule] or [after]".to_owned();
        reader.refuse("after", "a job is due by its schedule or after others, not both", help);
    }
    let key = "after.jobs";
    let written = node.texts(key).unwrap_or_default();
    if written.is_empty() && !has_refused(table) {
        reader.refuse(key, "[after] names no jobs", None);
    }
    let mut jobs = Vec::new();
    for (name, at) in written {
        match name.parse::<JobId>() {
            Ok(job) if jobs.contains(&job) => {
                reader.problems.push(at.error(key, format!("the job `{name}` is named twice")));
            }
            Ok(job) => {
                let problem = at.error(key, format!("there is no job `{name}`"));
                reader.mentions.push(Mention { job: name.to_owned(), problem });
                jobs.push(job);
            }
            Err(message) => reader.problems.push(at.error(key, message)),
        }
    }
    let when = node.text("after.when").and_then(|word| word.parse().ok());
    Some(AfterSpec { jobs, when: when.unwrap_or(When::Succeeded) })
}
