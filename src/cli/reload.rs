//! `reload`: have the running process read its files again.

use std::process::ExitCode;

use super::context::{Context, block_on};
use super::output::{self, Done, Failed, counted, note};
use crate::daemon::{Client, ControlError, Reloaded, Reply, Request};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Print for programs
    #[arg(long)]
    json: bool,
}

pub(super) fn reload(context: &Context, args: &Args) -> Done {
    // Whether the configuration can be used is the other process's to say.
    let place = context.place()?;
    let reply = block_on(async {
        let mut client = Client::connect(&place.state_dir).await?;
        client.ask(&Request::Reload).await?;
        client.next().await
    })?;
    match reply {
        Ok(Some(Reply::Reloaded(told))) if args.json => output::json(&told),
        Ok(Some(Reply::Reloaded(told))) => say(&told),
        Ok(Some(Reply::Refused { reason, message })) => {
            Err(super::holder::refusal(&reason, message))
        }
        Err(ControlError::NotRunning) => Err(Failed::refused(
            "`punctual serve` does not run here: it reads the files when it starts",
        )),
        Ok(_) => Err(Failed::refused("the running punctual process gave no answer")),
        Err(error) => Err(Failed::unasked(&error)),
    }
}

fn say(told: &Reloaded) -> Done {
    let Reloaded { changed, added, removed, invalid } = told;
    for (what, jobs) in [("changed", changed), ("added", added), ("removed", removed)] {
        for job in jobs {
            output::say(&format!("{what} {job}"))?;
        }
    }
    for (job, why) in invalid {
        output::say(&format!("invalid {job}: {why}"))?;
    }
    if changed.len() + added.len() + removed.len() == 0 {
        note("nothing has changed");
    }
    if !invalid.is_empty() {
        let many = counted(invalid.len(), "file");
        note(&format!(
            "{many} cannot be used: a job that was read before goes on as it was then; one that \
             was not starts nothing"
        ));
    }
    Ok(ExitCode::SUCCESS)
}
