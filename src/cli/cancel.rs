//! `cancel JOB|RUN`: end what runs.

use super::context::{Context, Named, block_on};
use super::output::{self, Done, Failed};
use crate::daemon::{Client, ControlError, Reply, Request, Target};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// A job's id (all its active runs), the beginning of a run's, or a session's key or id
    what: String,
    /// Print for programs
    #[arg(long)]
    json: bool,
}

pub(super) fn cancel(context: &Context, args: &Args) -> Done {
    let place = context.place()?;
    let history = place.history()?;
    let jobs = place.jobs().unwrap_or_default();
    let is_session = match (&history, args.what.strip_prefix("session:")) {
        (_, Some(_)) => true,
        (Some(reader), None) => reader.knows_session(&args.what)?,
        (None, None) => false,
    };
    let target = match Context::named(&args.what, &jobs, history.as_ref()) {
        Ok(Named::Job(job)) => Target::Job(job),
        Ok(Named::Run(run_id)) => Target::Run(run_id),
        Err(_) if is_session => {
            let name = args.what.strip_prefix("session:").unwrap_or(&args.what);
            Target::Session(name.to_owned())
        }
        Err(unknown) => return Err(unknown),
    };
    let reply = block_on(async {
        let mut client = Client::connect(&place.state_dir).await?;
        client.ask(&Request::Cancel { target }).await?;
        client.next().await
    })?;
    let run_ids = match reply {
        Ok(Some(Reply::Cancelled { run_ids })) => run_ids,
        Ok(Some(Reply::Refused { message, .. })) => return Err(Failed::refused(message)),
        // Nobody holds the state folder, so nothing runs.
        Err(ControlError::NotRunning) => Vec::new(),
        Ok(_) => return Err(Failed::refused("the running punctual process gave no answer")),
        Err(error) => return Err(Failed::unasked(&error)),
    };
    if args.json {
        output::json(&serde_json::json!({ "cancelled": run_ids }))?;
    } else {
        for run_id in &run_ids {
            output::say(run_id)?;
        }
    }
    if run_ids.is_empty() {
        return Err(Failed::refused(format!("nothing of `{}` is active", args.what)));
    }
    Ok(std::process::ExitCode::SUCCESS)
}
