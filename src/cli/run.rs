//! `run JOB`: now, with the same code, lanes and limits as at its time.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::context::{Context, no_model_hint, now, runtime};
use super::live::{Live, Show, summary};
use super::output::{self, Done, Failed, code, note};
use crate::clock::{SystemClock, to_millis};
use crate::config::Config;
use crate::daemon::{
    Client, ControlError, Daemon, Kind, LockError, OpenError, Reply, Request, Stopped, Target,
};
use crate::process::SupervisorPath;
use crate::store::{Reader, RunRecord, Store, database_in};

/// Another process may hold the state folder and not answer yet, or not any more.
const REACH_WITHIN: Duration = Duration::from_secs(10);

/// How many processes may leave between being reached and taking the request.
const REACHED_MAX: usize = 20;

/// How long the row of a run that is left behind may take to be closed.
const CLOSE_WITHIN: Duration = Duration::from_secs(1);

#[derive(Debug, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of the command line")]
pub(super) struct Args {
    /// The job's id
    job: String,
    /// Fill in the prompt's variables as for this slot (RFC 3339)
    #[arg(long, value_name = "TIME")]
    slot: Option<Timestamp>,
    /// Send nothing afterwards
    #[arg(long)]
    no_deliver: bool,
    /// Also when the job is disabled
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
    if !args.json
        && let Some(hint) = no_model_hint(&config)
    {
        note(&hint);
    }
    runtime()?.block_on(async {
        for _ in 0..REACHED_MAX {
            let (mut client, daemon) = reach(&config, args).await?;
            let done = match ask(&mut client, args).await {
                Ok(Some(run_id)) if args.detach => output::say(&run_id),
                Ok(Some(run_id)) => match follow(client, &config, args, &run_id).await {
                    // Its own daemon, if there is one, is not waited for either: the processes of
                    // the run end with it.
                    Ok(None) => {
                        if let Some(own) = daemon {
                            own.close_row().await;
                        }
                        return Ok(code::CANCELLED.into());
                    }
                    Ok(Some(code)) => Ok(code),
                    Err(failed) => Err(failed),
                },
                Ok(None) => continue,
                Err(failed) => Err(failed),
            };
            if let Some(daemon) = daemon {
                // It ends by itself once nothing runs; a run that was cut is tidied first.
                let stopped = daemon.serving.await.map_err(|error| Failed::broken(&error))??;
                tracing::debug!(?stopped, "the daemon of this run has ended");
            }
            return done;
        }
        Err(Failed::refused("whoever holds the state folder leaves before it answers"))
    })
}

/// The daemon of this very process.
struct Own {
    serving: tokio::task::JoinHandle<std::io::Result<Stopped>>,
    store: Store,
}

impl Own {
    /// The run that is left behind in mid clean-up does not stay open in the history.
    async fn close_row(&self) {
        let closing = self.store.close_open_runs(to_millis(now()));
        match tokio::time::timeout(CLOSE_WITHIN, closing).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => note(&output::chain(&error)),
            Err(_) => note("the database took too long: the next start closes the run's row"),
        }
    }
}

/// The process that holds the state folder: a running one, or this one.
async fn reach(config: &Config, args: &Args) -> Result<(Client, Option<Own>), Failed> {
    let reaching = async {
        loop {
            match Client::connect(&config.state_dir).await {
                Ok(client) => return Ok((client, None)),
                Err(ControlError::NotRunning) if args.detach => {
                    return Err(Failed::refused("--detach needs a running `punctual serve`"));
                }
                Err(ControlError::NotRunning) => {}
                Err(error) => return Err(Failed::unasked(&error)),
            }
            let clock = Arc::new(SystemClock);
            let supervisor = SupervisorPath::current_exe();
            match Daemon::open(config.clone(), Kind::Run, clock, supervisor).await {
                Ok(daemon) => {
                    let listening = daemon.listen()?;
                    let store = daemon.store();
                    let serving = tokio::spawn(daemon.serve(listening));
                    let client = Client::connect(&config.state_dir).await?;
                    return Ok((client, Some(Own { serving, store })));
                }
                // It is just starting or just ending.
                Err(OpenError::Lock(LockError::Held { .. })) => {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                Err(error) => return Err(Failed::usage(output::chain(&error))),
            }
        }
    };
    tokio::time::timeout(REACH_WITHIN, reaching).await.map_err(|_| {
        Failed::refused("the state folder is in use by a process that does not answer")
    })?
}

/// Asks for the run; `None` if the process left before it took the request.
async fn ask(client: &mut Client, args: &Args) -> Result<Option<String>, Failed> {
    let request = Request::Run { job: args.job.clone(), slot: args.slot, force: args.force };
    let asked = match client.ask(&request).await {
        Ok(()) => client.next().await,
        Err(error) => Err(error),
    };
    match asked {
        Ok(Some(Reply::Accepted { run_id })) => Ok(Some(run_id)),
        Ok(Some(Reply::Refused { reason, message })) => match reason.as_str() {
            "gone" => Ok(None),
            "unknown" => Err(Failed::usage(format!(
                "{message} (a running `serve` knows only the files that it read at its start)"
            ))),
            "invalid" => Err(Failed::usage(message)),
            _ => Err(Failed::refused(message)),
        },
        Ok(None) | Err(ControlError::Io(_)) => Ok(None),
        Ok(other) => Err(Failed::refused(format!("no answer to the request: {other:?}"))),
        Err(error) => Err(error.into()),
    }
}

/// Shows how the run goes until it has ended, or until somebody will not even wait for its
/// clean-up: then there is no exit code of its own.
async fn follow(
    mut client: Client,
    config: &Config,
    args: &Args,
    run_id: &str,
) -> Result<Option<ExitCode>, Failed> {
    let mut interrupts = signal(SignalKind::interrupt())?;
    let mut hangups = signal(SignalKind::hangup())?;
    let mut interrupted = false;
    let mut live = Live::start(if args.json { Show::Nothing } else { Show::Alone });
    let record = loop {
        let reply = tokio::select! {
            reply = next(&mut client) => reply?,
            () = either(&mut interrupts, &mut hangups) => {
                if interrupted {
                    return Ok(None);
                }
                interrupted = true;
                live.say("cancelling; once more to leave at once");
                cancel(config, run_id).await?;
                continue;
            }
        };
        match reply {
            Some(Reply::Event(event)) => live.show(&event),
            Some(Reply::Ended(record)) => break *record,
            Some(_) => {}
            // The process ended under the run: what it stored is what there is.
            None => break stored(config, run_id)?,
        }
    };
    live.end();
    print(&record, args).map(Some)
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

async fn cancel(config: &Config, run_id: &str) -> Result<(), Failed> {
    let mut client = Client::connect(&config.state_dir).await?;
    client.ask(&Request::Cancel { target: Target::Run(run_id.to_owned()) }).await?;
    client.next().await?;
    Ok(())
}

fn stored(config: &Config, run_id: &str) -> Result<RunRecord, Failed> {
    let reader = Reader::open(&database_in(&config.state_dir))?;
    reader
        .run(run_id)?
        .ok_or_else(|| Failed::refused(format!("run {run_id} is not in the history")))
}

fn print(record: &RunRecord, args: &Args) -> Done {
    if args.json {
        output::json(record)?;
    } else {
        if let Some(reply) = &record.reply {
            output::say(reply)?;
        }
        // It has a provider's own words in it.
        note(&output::safe(&summary(record), output::on_terminal()));
    }
    Ok(output::exit_code(record))
}
