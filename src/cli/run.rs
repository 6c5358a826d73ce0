//! `run JOB`: now, with the same code, lanes and limits as at its time.

use std::process::ExitCode;

use jiff::Timestamp;
use serde_json::json;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::context::{Context, Place, block_on, no_model_hint, report};
use super::holder::{self, OwnDaemon};
use super::live::{Live, Show, summary};
use super::next::instant;
use super::output::{self, Done, Failed, code, note};
use super::scheduled::Scheduled;
use super::show::delivered;
use super::times::{before, nearest_dues};
use crate::config::{Config, load_jobs};
use crate::daemon::{Client, ControlError, Reply, Request, Target};
use crate::run::{ErrorKind, PayloadKind};
use crate::store::{Reader, RunRecord, database_in};

/// For whom a run is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// For people, while it goes on.
    People,
    /// For programs, when it is over.
    Programs,
}

#[derive(Debug, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of the command line")]
pub(super) struct Args {
    /// The job's id
    job: String,
    /// Fill in the prompt's variables as for this due time: a time in the job's zone, or RFC 3339
    #[arg(long, value_name = "TIME")]
    slot: Option<String>,
    /// Send nothing afterwards
    #[arg(long)]
    no_deliver: bool,
    /// Also when the job is disabled, paused or held
    #[arg(long)]
    force: bool,
    /// Do not wait for its end; needs a running `serve`
    #[arg(long)]
    detach: bool,
    /// Print the run object
    #[arg(long)]
    json: bool,
}

pub(super) fn run(context: &Context, args: &Args) -> Done {
    let config = context.config()?;
    let slot = args.slot.as_deref().map(|text| slot(text, &args.job, &config)).transpose()?;
    let place = Place::from(config);
    let form = if args.json { Form::Programs } else { Form::People };
    if !args.json
        && let Some(hint) = place.config.as_ref().and_then(no_model_hint)
    {
        note(&hint);
    }
    let own = if args.detach { OwnDaemon::Never } else { OwnDaemon::IfNeeded };
    let Args { job, force, no_deliver, .. } = args;
    let request = Request::Run { job: job.clone(), slot, force: *force, no_deliver: *no_deliver };
    block_on(ask_and_wait(&place, own, form, &request, async |client, reply| {
        let Reply::Accepted { run_id } = reply else { return Err(unexpected(&reply)) };
        match form {
            _ if !args.detach => follow(client, &place, form, &run_id).await.map(Came::of),
            Form::Programs => output::json(&json!({ "run_id": run_id })).map(Came::Said),
            Form::People => output::say(&run_id).map(Came::Said),
        }
    }))?
}

/// What came of what was asked for.
pub(super) enum Came {
    /// It has been said; nobody waits for more.
    Said(ExitCode),
    /// The run is over.
    Ended(Box<RunRecord>),
    /// Somebody will not even wait for its clean-up.
    Left,
}

impl Came {
    pub(super) fn of(record: Option<RunRecord>) -> Self {
        record.map_or(Self::Left, |record| Self::Ended(Box::new(record)))
    }
}

/// Asks whoever holds the state folder, if need be this very process, and tells what `wait` has
/// found to have come of it.
pub(super) async fn ask_and_wait(
    place: &Place,
    own: OwnDaemon,
    form: Form,
    request: &Request,
    wait: impl AsyncFn(Client, Reply) -> Result<Came, Failed>,
) -> Done {
    for _ in 0..holder::REACHED_MAX {
        let (mut client, mut daemon) = holder::reach(place, own).await?;
        let came = match holder::say(&mut client, request).await {
            Ok(None) => continue,
            Ok(Some(reply)) => wait(client, reply).await,
            Err(failed) => Err(failed),
        };
        let done = match came {
            Ok(Came::Said(code)) => Ok(code),
            // Its own daemon, if there is one, is not waited for either: the processes of the run
            // end with it.
            Ok(Came::Left) => {
                if let Some(own) = daemon {
                    own.close_row().await;
                }
                return Ok(code::CANCELLED.into());
            }
            Ok(Came::Ended(record)) => {
                print(&record, form)?;
                if let Some(daemon) = daemon.take() {
                    daemon.ended().await?;
                }
                print_sent(&stored(place, &record.run_id)?, form)
            }
            Err(failed) => Err(failed),
        };
        if let Some(daemon) = daemon {
            daemon.ended().await?;
        }
        return done;
    }
    Err(holder::nobody_stays())
}

/// An answer to something else.
pub(super) fn unexpected(reply: &Reply) -> Failed {
    Failed::refused(format!("no answer to the request: {reply:?}"))
}

/// The due time that `text` names.
pub(super) fn slot(text: &str, job: &str, config: &Config) -> Result<Timestamp, Failed> {
    let jobs = load_jobs(config);
    if let Some(problems) = jobs.folder.as_ref().map(std::slice::from_ref) {
        return Err(Failed::usage(report(problems)));
    }
    let scheduled = Scheduled::find(job, config, &jobs)?;
    let Some(schedule) = &scheduled.schedule else {
        return Err(Failed::usage(format!("--slot: `{job}` has no schedule, so it has no slots")));
    };
    let at = instant("--slot", text, &scheduled.zone)?;
    if schedule.next_after(before(at)).is_some_and(|due| due.at == at) {
        return Ok(at);
    }
    let near = nearest_dues(schedule, at, &scheduled.zone);
    Err(Failed::usage(format!("--slot `{text}` is no due time of `{job}`: {near}")))
}

/// Shows how the run goes until it has ended, or until somebody will not even wait for its
/// clean-up: then there is no exit code of its own.
pub(super) async fn follow(
    mut client: Client,
    place: &Place,
    form: Form,
    run_id: &str,
) -> Result<Option<RunRecord>, Failed> {
    let mut interrupts = signal(SignalKind::interrupt())?;
    let mut hangups = signal(SignalKind::hangup())?;
    let mut interrupted = false;
    let mut live = Live::start(match form {
        Form::Programs => Show::Nothing,
        Form::People => Show::Alone,
    });
    let record = loop {
        let reply = tokio::select! {
            reply = next(&mut client) => reply?,
            () = either(&mut interrupts, &mut hangups) => {
                if interrupted {
                    return Ok(None);
                }
                interrupted = true;
                live.say("cancelling; once more to leave at once");
                cancel(place, run_id).await?;
                continue;
            }
        };
        match reply {
            Some(Reply::Event(event)) => live.show(&event),
            Some(Reply::Ended(record)) => break *record,
            Some(_) => {}
            // The process ended under the run: what it stored is what there is.
            None => break stored(place, run_id)?,
        }
    };
    live.end();
    Ok(Some(record))
}

/// Ctrl-C, or a terminal that was closed.
async fn either(interrupts: &mut Signal, hangups: &mut Signal) {
    tokio::select! {
        _ = interrupts.recv() => {}
        _ = hangups.recv() => {}
    }
}

/// What comes next; a connection that breaks is at its end, however it broke.
async fn next(client: &mut Client) -> Result<Option<Reply>, Failed> {
    match client.next().await {
        Err(ControlError::Io(_)) => Ok(None),
        reply => reply.map_err(Failed::from),
    }
}

async fn cancel(place: &Place, run_id: &str) -> Result<(), Failed> {
    let mut client = Client::connect(&place.state_dir).await?;
    client.ask(&Request::Cancel { target: Target::Run(run_id.to_owned()) }).await?;
    client.next().await?;
    Ok(())
}

fn stored(place: &Place, run_id: &str) -> Result<RunRecord, Failed> {
    let reader = Reader::open(&database_in(&place.state_dir))?;
    reader
        .run(run_id)?
        .ok_or_else(|| Failed::refused(format!("run {run_id} is not in the history")))
}

/// What a person is shown as soon as it is known.
fn print(record: &RunRecord, form: Form) -> Result<(), Failed> {
    if form == Form::Programs {
        return Ok(());
    }
    // A failure's words come with the summary.
    let is_said = record.error.is_none();
    for payload in record.payloads.iter().filter(|it| is_said || it.kind != PayloadKind::Error) {
        output::say(&payload.text)?;
    }
    // It has a provider's own words in it.
    note(&output::safe(&summary(record), output::on_terminal()));
    Ok(())
}

/// The rest: what has become of what is sent. The process that was there for the run has sent it.
fn print_sent(record: &RunRecord, form: Form) -> Done {
    let gated = record.error.as_ref().is_some_and(|error| error.kind == ErrorKind::Gate);
    if gated && form == Form::Programs {
        let run_id = &record.run_id;
        output::json(&json!({ "decision": "skipped", "reason": "gate", "run_id": run_id }))?;
    } else if form == Form::Programs {
        output::json(record)?;
    } else {
        for delivery in &record.deliveries {
            let words = format!("delivery {}", delivered(delivery));
            note(&output::safe(&words, output::on_terminal()));
        }
    }
    Ok(output::exit_code(record))
}
