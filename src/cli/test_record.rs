//! `test JOB --record`: once for real, and what was said and done is kept.

use std::process::ExitCode;
use std::sync::Arc;

use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::broadcast::error::RecvError;

use super::context::{Place, block_on, no_model_hint, now};
use super::live::{Live, Show, summary};
use super::output::{self, Done, Failed, note};
use super::run;
use super::running;
use super::scheduled::Scheduled;
use super::test::Args;
use crate::cassette::{Deck, cassette_path};
use crate::clock::{SystemClock, to_millis};
use crate::config::{Config, JobSet};
use crate::daemon::{Rehearsal, Rehearsed, variables_of};
use crate::process::{SupervisorPath, adopt_orphans};
use crate::run::CancelReason;
use crate::store::database_in;

pub(super) fn record(config: &Config, jobs: &JobSet, job: &str, args: &Args) -> Done {
    let scheduled = Scheduled::find(job, config, jobs)?;
    if scheduled.spec.agent().is_none() {
        let words =
            format!("`{job}` is a command: it asks no model, so there is nothing to record");
        return Err(Failed::usage(words));
    }
    refuse(&scheduled, config, args)?;
    if !args.json
        && let Some(hint) = no_model_hint(config)
    {
        note(&hint);
    }
    let slot = args.slot.as_deref().map(|text| run::slot(text, job, config)).transpose()?;
    let spec = Arc::new(scheduled.spec.clone());
    let variables = variables_of(&spec, scheduled.schedule.as_ref(), slot, to_millis(now()));
    let path = cassette_path(&spec.file, &spec.id);
    let Rehearsed { record, cassette } = block_on(async {
        adopt_orphans()?;
        let (clock, supervisor) = (Arc::new(SystemClock), SupervisorPath::current_exe());
        let deck = Deck::recording(database_in(&config.state_dir));
        let rehearsal = Rehearsal::of(config, spec, variables, deck, clock, supervisor).await?;
        // A whole run is a large future.
        Box::pin(watched(rehearsal, args)).await
    })??;
    let unkept = match (&record.error, cassette) {
        (Some(_), _) => Some("only a run that succeeds is kept".to_owned()),
        (None, Err(error)) => Some(error.to_string()),
        (None, Ok(cassette)) => cassette.write(&path).map(|()| None)?,
    };
    if args.json {
        output::json(&json!({
            "job": job, "cassette": path, "kept": unkept.is_none(), "why_not": unkept,
            "run": record,
        }))?;
    } else {
        if let Some(reply) = &record.reply {
            output::say(reply)?;
        }
        note(&output::safe(&summary(&record), output::on_terminal()));
        match &unkept {
            None => note(&format!("kept as {}", path.display())),
            Some(why) => note(&format!("nothing is kept: {why}")),
        }
    }
    match (record.error.is_some(), unkept.is_some()) {
        (false, true) => Ok(output::code::FAILED.into()),
        // A gate that says no is no failure, but nothing was recorded either.
        (true, true) if output::exit_code(&record) == ExitCode::SUCCESS => {
            Ok(output::code::REFUSED.into())
        }
        _ => Ok(output::exit_code(&record)),
    }
}

/// What is decided about the job as such holds here too: its commands run for real.
fn refuse(scheduled: &Scheduled<'_>, config: &Config, args: &Args) -> Result<(), Failed> {
    let (id, hint) = (&scheduled.spec.id, "--force records it all the same");
    if !args.force {
        if !scheduled.spec.enabled {
            return Err(Failed::refused(format!("`{id}` is disabled; {hint}")));
        }
        if let Some(why) = scheduled.pause() {
            return Err(Failed::refused(format!("`{id}` is paused ({why}); {hint}")));
        }
    }
    let place = Place::from(config.clone());
    let status = running::status(&place.state_dir)?;
    let runs = status.iter().flat_map(|status| &status.runs);
    match runs.into_iter().find(|run| run.job == id.as_str()) {
        Some(run) => {
            Err(Failed::refused(format!("`{id}` is already running (run {})", run.run_id)))
        }
        None => Ok(()),
    }
}

/// Drives the run and shows how it goes; Ctrl-C, or a terminal that was closed, cancels it.
async fn watched(rehearsal: Rehearsal, args: &Args) -> Result<Rehearsed, Failed> {
    let kinds = [SignalKind::interrupt(), SignalKind::hangup(), SignalKind::terminate()];
    let [mut interrupts, mut hangups, mut terminations] =
        [signal(kinds[0])?, signal(kinds[1])?, signal(kinds[2])?];
    let mut live = Live::start(if args.json { Show::Nothing } else { Show::Alone });
    let (watchdog, mut events) = (rehearsal.watchdog(), rehearsal.bus().listen());
    let mut hears = true;
    let run = rehearsal.run();
    tokio::pin!(run);
    let rehearsed = loop {
        tokio::select! {
            rehearsed = &mut run => break rehearsed?,
            event = events.recv(), if hears => match event {
                Ok(event) => live.show(&event),
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => hears = false,
            },
            _ = interrupts.recv() => watchdog.cancel(CancelReason::Person),
            _ = hangups.recv() => watchdog.cancel(CancelReason::Person),
            _ = terminations.recv() => watchdog.cancel(CancelReason::Shutdown),
        }
    };
    live.end();
    Ok(rehearsed)
}
