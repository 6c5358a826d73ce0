//! `serve`: run the jobs at their times.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{broadcast, oneshot};
use tokio::task::JoinHandle;

use super::LogFormat;
use super::context::{Context, block_on, no_model_hint, now, report, warn};
use super::live::{Live, Show, summary};
use super::output::{Done, Failed, Voice, code, counted, length, local, note};
use super::scheduled::pause;
use super::times::zone_of;
use crate::clock::SystemClock;
use crate::config::Config;
use crate::daemon::{Daemon, Kind, LockError, OpenError, StateLock, Stopped, is_terminal};
use crate::process::{self, SupervisorPath};
use crate::run::{RunEvent, RunId};
use crate::store::{Reader, RunRecord, database_in};

/// How often a folder that another process holds is tried again.
const TRY_AGAIN: Duration = Duration::from_millis(200);

/// Lines of a reply that are shown; the whole of it is in the history.
const REPLY_LINES_MAX: usize = 5;

/// How long the last lines may take to be shown.
const LAST_WORDS_WITHIN: Duration = Duration::from_secs(1);

/// Due times shown at the start.
const SHOWN_MAX: usize = 20;

/// What was due so short a time ago is due now, and not missed.
const JUST_NOW: SignedDuration = SignedDuration::from_secs(10);

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Wait while another `serve` holds the state folder, and take over when it ends
    #[arg(long)]
    standby: bool,
}

pub(super) fn serve(context: &Context, args: &Args) -> Done {
    let (config, warnings) = context.config_with_warnings()?;
    warn(&warnings);
    process::adopt_orphans()?;
    let stopped = block_on(async {
        let Some(daemon) = open(config, args.standby).await? else { return Ok(Stopped::Done) };
        introduce(&daemon, context);
        let listening = daemon.listen()?;
        let watching = Watching::start(&daemon, context);
        // On a worker, not on the thread that waits here: each wake-up of an idle daemon would
        // otherwise wake both.
        let stopped = tokio::spawn(daemon.serve(listening)).await??;
        watching.end().await;
        Ok::<_, Failed>(stopped)
    })??;
    Ok(match stopped {
        Stopped::Done | Stopped::OutOfGrace => ExitCode::SUCCESS,
        Stopped::AtOnce => code::CANCELLED.into(),
    })
}

/// Takes the state folder. A `run` in it ends by itself, so that is waited for; a `serve` in it is
/// a refusal, unless this one was told to stand by. `None`: it was stopped while it waited.
async fn open(mut config: Config, standby: bool) -> Result<Option<Daemon>, Failed> {
    loop {
        let supervisor = SupervisorPath::current_exe();
        let clock = Arc::new(SystemClock);
        match Daemon::open(config.clone(), Kind::Serve, clock, supervisor).await {
            Err(OpenError::Lock(LockError::Held { path, holder }))
                if standby || holder.as_ref().is_some_and(|it| it.kind == Kind::Run) =>
            {
                let who = holder.map_or_else(|| "another process".to_owned(), |it| it.to_string());
                note(&format!("standing by until {who} has ended"));
                tokio::select! {
                    free = until_free(&path) => free?,
                    stop = asked_to_stop() => return stop.map(|()| None),
                }
                // The files may have changed meanwhile; if they cannot be used, say so.
                config =
                    config.read_again().map_err(|problems| Failed::usage(report(&problems)))?.0;
            }
            Err(error @ OpenError::Lock(LockError::Held { .. })) => {
                let hint = "stop that one first, or wait for it with --standby";
                return Err(Failed::refused(format!("{error}; {hint}")));
            }
            result => {
                let broken = |error| Failed::usage(super::output::chain(&error));
                return result.map(Some).map_err(broken);
            }
        }
    }
}

/// Returns at the first signal to stop.
async fn asked_to_stop() -> Result<(), Failed> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}

/// Waits until nobody holds the folder. Whoever takes it first then has it.
async fn until_free(state_dir: &Path) -> Result<(), Failed> {
    loop {
        match StateLock::acquire(state_dir, Kind::Serve) {
            Ok(_released_at_once) => return Ok(()),
            Err(LockError::Held { .. }) => tokio::time::sleep(TRY_AGAIN).await,
            Err(error) => return Err(Failed::usage(super::output::chain(&error))),
        }
    }
}

/// What will run and when.
fn introduce(daemon: &Daemon, context: &Context) {
    let say = |words: &str| match context.log_format {
        LogFormat::Text => note(words),
        LogFormat::Json => tracing::info!("{words}"),
    };
    let config = daemon.config();
    if !daemon.problems.is_empty() {
        say(&report(&daemon.problems));
    }
    say(&format!(
        "punctual {} · {}, {} invalid · times in {} · time zones {} ({})",
        env!("CARGO_PKG_VERSION"),
        counted(daemon.jobs(), "job"),
        daemon.invalid(),
        config.timezone.name(),
        config.zones.version(),
        config.zones.origin(),
    ));
    if let Some(hint) = no_model_hint(config) {
        say(&hint);
    }
    let start = now();
    // Only which jobs are paused is asked: the list is no reason not to serve.
    let history = Context::history(config).ok().flatten();
    let known = history.and_then(|reader| reader.jobs().ok()).unwrap_or_default();
    let mut shown = 0;
    for (due, spec) in daemon.upcoming().filter(|(_, spec)| spec.enabled) {
        let zone = zone_of(spec.schedule.as_ref(), config);
        if shown == SHOWN_MAX {
            say("  …");
            break;
        }
        shown += 1;
        let held = known.iter().find(|it| it.job == spec.id.as_str());
        let pause = pause(held, zone);
        let when = match (pause, Duration::try_from(due.duration_since(start))) {
            (Some(pause), _) => format!("held: it is paused ({pause})"),
            (None, Ok(left)) => format!("in {}", length(left)),
            (None, Err(_)) if start.duration_since(due) <= JUST_NOW => "now".to_owned(),
            (None, Err(_)) => "now: it was missed".to_owned(),
        };
        let text = spec.schedule.as_ref().map(|it| it.text.as_str()).unwrap_or_default();
        say(&format!("  {:<20} {}  {when}  ({text})", spec.id, local(due, zone.rules())));
    }
    if shown == 0 {
        say("  no enabled job has a schedule");
    }
}

/// Shows what runs do while they do it, and the row that each leaves. Log lines in JSON are for
/// programs, which find the same in the history: then nothing is shown.
struct Watching(Option<(oneshot::Sender<()>, JoinHandle<()>)>);

impl Watching {
    fn start(daemon: &Daemon, context: &Context) -> Self {
        if context.log_format == LogFormat::Json {
            return Self(None);
        }
        let (ending, ended) = oneshot::channel();
        let state_dir = daemon.config().state_dir.clone();
        let watch = watch(daemon.events(), ended, state_dir, context.voice.clone());
        Self(Some((ending, tokio::spawn(watch))))
    }

    /// Shows what has happened until now, and no more.
    async fn end(self) {
        if let Some((ending, watching)) = self.0 {
            drop(ending);
            // A terminal that does not take it is not waited for.
            drop(tokio::time::timeout(LAST_WORDS_WITHIN, watching).await);
        }
    }
}

async fn watch(
    mut events: broadcast::Receiver<Arc<RunEvent>>,
    mut ended: oneshot::Receiver<()>,
    state_dir: PathBuf,
    voice: Voice,
) {
    let mut runs: HashMap<RunId, Live> = HashMap::new();
    let mut reader = None;
    loop {
        let event = tokio::select! {
            biased;
            event = events.recv() => event,
            _ = &mut ended => return,
        };
        let event = match event {
            Ok(event) => event,
            Err(broadcast::error::RecvError::Lagged(_)) => continue,
            Err(broadcast::error::RecvError::Closed) => return,
        };
        let begin = || Live::start(Show::Among(voice.clone()));
        let live = runs.entry(event.run_id.clone()).or_insert_with(begin);
        live.show(&event);
        if is_terminal(&event)
            && let Some(live) = runs.remove(&event.run_id)
        {
            let (run_id, database) = (event.run_id.clone(), database_in(&state_dir));
            let open = reader.take();
            let read = move || {
                let reader = open.map_or_else(|| Reader::open(&database), Ok).ok()?;
                let record = reader.run(run_id.as_str()).ok()?;
                Some((reader, record))
            };
            let Ok(Some((open, record))) = tokio::task::spawn_blocking(read).await else {
                continue;
            };
            reader = Some(open);
            if let Some(record) = record {
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
