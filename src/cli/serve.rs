//! `serve`: run the jobs at their times.

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::broadcast;

use super::LogFormat;
use super::context::{Context, no_model_hint, now, report, runtime, warn};
use super::live::{Live, Show, summary};
use super::output::{Done, Failed, Voice, code, counted, length, local, note};
use crate::clock::SystemClock;
use crate::config::Config;
use crate::daemon::{Daemon, Holder, Kind, LockError, OpenError, Stopped, is_terminal};
use crate::process::SupervisorPath;
use crate::run::{RunEvent, RunId};
use crate::store::{Reader, RunRecord, database_in};

/// How often a folder that a `run` holds is tried again.
const TRY_AGAIN: Duration = Duration::from_millis(200);

/// Lines of a reply that are shown; the whole of it is in the history.
const REPLY_LINES_MAX: usize = 5;

/// Due times shown at the start.
const SHOWN_MAX: usize = 20;

#[derive(Debug, clap::Args)]
pub(super) struct Args {}

pub(super) fn serve(context: &Context, _: &Args) -> Done {
    let (config, warnings) = context.config_with_warnings()?;
    warn(&warnings);
    let stopped = runtime()?.block_on(async {
        let daemon = open(config).await?;
        introduce(&daemon);
        let listening = daemon.listen()?;
        if context.log_format == LogFormat::Text {
            let state_dir = daemon.config().state_dir.clone();
            tokio::spawn(watch(daemon.events(), state_dir, context.voice.clone()));
        }
        // On a worker, not on the thread that waits here: each wake-up of an idle daemon would
        // otherwise wake both.
        tokio::spawn(daemon.serve(listening)).await?.map_err(Failed::from)
    })?;
    Ok(match stopped {
        Stopped::Quietly | Stopped::OutOfGrace => ExitCode::SUCCESS,
        Stopped::AtOnce => code::CANCELLED.into(),
    })
}

/// Takes the state folder. A `serve` in it is a refusal; a `run` in it ends, so that is waited for.
async fn open(config: Config) -> Result<Daemon, Failed> {
    let mut told = false;
    loop {
        let supervisor = SupervisorPath::current_exe();
        let clock = Arc::new(SystemClock);
        match Daemon::open(config.clone(), Kind::Serve, clock, supervisor).await {
            Err(OpenError::Lock(LockError::Held {
                holder: Some(Holder { kind: Kind::Run, pid }),
                ..
            })) => {
                if !told {
                    note(&format!("standing by until `punctual run` (pid {pid}) has ended"));
                    told = true;
                }
                tokio::time::sleep(TRY_AGAIN).await;
            }
            Err(error @ OpenError::Lock(LockError::Held { .. })) => {
                return Err(Failed::refused(format!("{error}; stop that one first")));
            }
            result => return result.map_err(|error| Failed::usage(super::output::chain(&error))),
        }
    }
}

/// What will run and when.
fn introduce(daemon: &Daemon) {
    let config = daemon.config();
    if !daemon.problems.is_empty() {
        note(&report(&daemon.problems));
    }
    note(&format!(
        "punctual {} · {}, {} invalid · times in {} · time zones {} ({})",
        env!("CARGO_PKG_VERSION"),
        counted(daemon.jobs(), "job"),
        daemon.invalid(),
        config.timezone.name(),
        config.zones.version(),
        config.zones.origin(),
    ));
    if let Some(hint) = no_model_hint(config) {
        note(&hint);
    }
    let start = now();
    let mut shown = 0;
    for (due, spec) in daemon.upcoming().filter(|(_, spec)| spec.enabled) {
        let zone =
            spec.schedule.as_ref().and_then(|it| it.schedule.zone()).unwrap_or(&config.timezone);
        if shown == SHOWN_MAX {
            note("  …");
            break;
        }
        shown += 1;
        let when = match Duration::try_from(due.duration_since(start)) {
            Ok(left) => format!("in {}", length(left)),
            Err(_) => "now: it was missed".to_owned(),
        };
        let text = spec.schedule.as_ref().map(|it| it.text.as_str()).unwrap_or_default();
        note(&format!("  {:<20} {}  {when}  ({text})", spec.id, local(due, zone.rules())));
    }
    if shown == 0 {
        note("  no enabled job has a schedule");
    }
}

/// Shows what runs do while they do it, and the row that each leaves.
async fn watch(mut events: broadcast::Receiver<Arc<RunEvent>>, state_dir: PathBuf, voice: Voice) {
    let mut runs: HashMap<RunId, Live> = HashMap::new();
    loop {
        let event = match events.recv().await {
            Ok(event) => event,
            Err(broadcast::error::RecvError::Lagged(_)) => continue,
            Err(broadcast::error::RecvError::Closed) => return,
        };
        let live = runs
            .entry(event.run_id.clone())
            .or_insert_with(|| Live::start(Show::Among(voice.clone())));
        live.show(&event);
        if is_terminal(&event)
            && let Some(live) = runs.remove(&event.run_id)
        {
            let (run_id, state_dir) = (event.run_id.clone(), state_dir.clone());
            let read =
                move || Reader::open(&database_in(&state_dir)).ok()?.run(run_id.as_str()).ok()?;
            if let Ok(Some(record)) = tokio::task::spawn_blocking(read).await {
                tell_end(&live, &record);
            }
        }
    }
}

fn tell_end(live: &Live, record: &RunRecord) {
    live.say(&summary(record));
    let text = record.reply.as_deref().unwrap_or_default();
    for line in text.lines().filter(|line| !line.trim().is_empty()).take(REPLY_LINES_MAX) {
        live.say(&format!("  {line}"));
    }
    live.say(&format!("stored: punctual show {}", record.run_id));
}
