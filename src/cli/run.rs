//! `run JOB`: now, with the same code, lanes and limits as at its time.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::context::{Context, no_model_hint};
use super::live::{Live, Show};
use super::output::{self, Done, Failed, code, note};
use super::serve::runtime;
use crate::clock::SystemClock;
use crate::config::Config;
use crate::daemon::{
    Client, ControlError, Daemon, Kind, LockError, OpenError, Reply, Request, Stopped, Target,
};
use crate::process::SupervisorPath;
use crate::store::{Reader, RunRecord, database_in};

/// Another process may hold the state folder and not answer yet, or not any more.
const REACH_WITHIN: Duration = Duration::from_secs(10);

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
        match reach(&config, args).await? {
            (client, None) => follow(client, &config, args).await,
            (client, Some(daemon)) => {
                let done = follow(client, &config, args).await;
                // It ends by itself once nothing runs; a run that was cut is tidied first.
                let stopped = daemon.await.map_err(|error| Failed::broken(&error))??;
                tracing::debug!(?stopped, "the daemon of this run has ended");
                done
            }
        }
    })
}

type Serving = tokio::task::JoinHandle<std::io::Result<Stopped>>;

/// The process that holds the state folder: a running one, or this one.
async fn reach(config: &Config, args: &Args) -> Result<(Client, Option<Serving>), Failed> {
    let reaching = async {
        loop {
            match Client::connect(&config.state_dir).await {
                Ok(client) => return Ok((client, None)),
                Err(ControlError::NotRunning) if args.detach => {
                    return Err(Failed::refused("--detach needs a running `punctual serve`"));
                }
                Err(ControlError::NotRunning) => {}
                Err(error) => return Err(error.into()),
            }
            let clock = Arc::new(SystemClock);
            let supervisor = SupervisorPath::current_exe();
            match Daemon::open(config.clone(), Kind::Run, clock, supervisor).await {
                Ok(daemon) => {
                    let listening = daemon.listen()?;
                    let serving = tokio::spawn(daemon.serve(listening));
                    return Ok((Client::connect(&config.state_dir).await?, Some(serving)));
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

async fn follow(mut client: Client, config: &Config, args: &Args) -> Done {
    let request = Request::Run { job: args.job.clone(), slot: args.slot, force: args.force };
    client.ask(&request).await?;
    let run_id = match client.next().await? {
        Some(Reply::Accepted { run_id }) => run_id,
        Some(Reply::Refused { reason, message }) => {
            return Err(match reason.as_str() {
                "unknown" | "invalid" => Failed::usage(message),
                _ => Failed::refused(message),
            });
        }
        other => return Err(Failed::refused(format!("no answer to the request: {other:?}"))),
    };
    if args.detach {
        return output::say(&run_id);
    }
    let mut live = Live::start(if args.json { Show::Nothing } else { Show::Alone });
    let record = loop {
        let reply = tokio::select! {
            reply = client.next() => reply?,
            _ = tokio::signal::ctrl_c() => {
                live.say("cancelling; once more to leave at once");
                cancel(config, &run_id).await?;
                tokio::select! {
                    reply = client.next() => reply?,
                    _ = tokio::signal::ctrl_c() => return Ok(code::CANCELLED.into()),
                }
            }
        };
        match reply {
            Some(Reply::Event(event)) => live.show(&event),
            Some(Reply::Ended(record)) => break *record,
            Some(_) => {}
            // The process ended under the run: what it stored is what there is.
            None => break stored(config, &run_id)?,
        }
    };
    live.end();
    print(&record, args)
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
        note(&summary(record));
    }
    Ok(output::exit_code(record))
}

/// One line about how a run ended.
pub(super) fn summary(record: &RunRecord) -> String {
    let took = record.duration_ms.and_then(|ms| u64::try_from(ms).ok()).unwrap_or(0);
    let took = output::length(Duration::from_millis(took));
    let cleanup = record.cleanup.as_ref().map_or("none", |cleanup| cleanup.outcome.as_str());
    let tokens = |count: Option<i64>| count.map_or("?".to_owned(), |count| count.to_string());
    let words = format!(
        "run {} {} after {took} · {} tools · {} + {} tokens · clean-up {cleanup}",
        record.run_id,
        record.state,
        record.tools.calls,
        tokens(record.usage.input_tokens),
        tokens(record.usage.output_tokens),
    );
    match &record.error {
        Some(error) => format!(
            "{words}
{}: {}",
            error.kind, error.message
        ),
        None => words,
    }
}
