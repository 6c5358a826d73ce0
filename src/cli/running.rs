//! The process that holds the state folder, asked how things are.

use std::path::Path;

use super::context::block_on;
use super::output::{Failed, note};
use crate::config::{Config, JobSet, Reload};
use crate::daemon::{Client, ControlError, Reply, Request, Status};
use crate::job::digest;

/// How things are there; `None` if nobody holds the folder.
pub(super) fn status(state_dir: &Path) -> Result<Option<Box<Status>>, Failed> {
    let reply = block_on(async {
        let mut client = Client::connect(state_dir).await?;
        client.ask(&Request::Status).await?;
        client.next().await
    })?;
    match reply {
        Ok(Some(Reply::Status(status))) => Ok(Some(status)),
        Ok(_) | Err(ControlError::NotRunning) => Ok(None),
        Err(error) => Err(Failed::unasked(&error)),
    }
}

/// What to say when the files are not what the running process goes by.
pub(super) fn stale(running: &Status, jobs: &JobSet, reload: Reload) -> Option<String> {
    let how = match reload {
        Reload::Watch => "it takes them over after 2s of quiet, or by `punctual reload`",
        Reload::Manual => "`punctual reload` has it take them over",
    };
    (running.definitions != digest(jobs.jobs.values())).then(|| {
        let pid = running.pid;
        format!("the job files have changed since `serve` (pid {pid}) read them: {how}")
    })
}

/// Says so, if there is such a process and it can be asked. What a verb came for does not fail
/// over this.
pub(super) fn warn_if_stale(config: &Config, jobs: &JobSet) {
    if let Ok(Some(running)) = status(&config.state_dir)
        && let Some(words) = stale(&running, jobs, config.scheduler.reload)
    {
        note(&words);
    }
}
