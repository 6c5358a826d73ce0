//! `agent -m`: say something into a session, and wait for the turn that comes of it.

use std::time::Duration;

use serde_json::json;

use super::context::{Context, Place, block_on, no_model_hint};
use super::holder::OwnDaemon;
use super::output::{self, Done, Failed, note};
use super::run::{Came, Form, ask_and_wait, follow, unexpected};
use crate::daemon::{Client, Heard, Obeyed, Reply, Request};
use crate::store::{Reader, RunRecord, database_in};

/// A message that was told to a run which then failed goes on to a run of its own: how often that
/// is looked for, and in which distance.
const MOVED_LOOKS: usize = 40;
const MOVED_EVERY: Duration = Duration::from_millis(50);

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// What to say; `/new`, `/reset` and `/stop` at its beginning are commands
    #[arg(short, long, value_name = "TEXT")]
    message: String,
    /// Into which session, by its key or its id
    #[arg(long, value_name = "KEY", default_value = "main")]
    session: String,
    /// Do not wait for the answer; needs a running `serve`
    #[arg(long)]
    detach: bool,
    /// Print the run object
    #[arg(long)]
    json: bool,
}

pub(super) fn agent(context: &Context, args: &Args) -> Done {
    let place = Place::from(context.config()?);
    let form = if args.json { Form::Programs } else { Form::People };
    if let (Form::People, Some(hint)) = (form, place.config.as_ref().and_then(no_model_hint)) {
        note(&hint);
    }
    let own = if args.detach { OwnDaemon::Never } else { OwnDaemon::IfNeeded };
    let (message, session) = (args.message.clone(), Some(args.session.clone()));
    let request = Request::Agent { message, session };
    block_on(ask_and_wait(&place, own, form, &request, async |client, reply| match reply {
        Reply::Obeyed(obeyed) => tell_obeyed(&obeyed, form).map(Came::Said),
        Reply::Heard(heard) if args.detach => tell_heard(&heard, form).map(Came::Said),
        Reply::Heard(heard) => to_its_end(client, &place, form, *heard).await.map(Came::of),
        reply => Err(unexpected(&reply)),
    }))?
}

/// Shows how the run goes that has the message. One that fails before it has heard it passes it on
/// to another one: then that is waited for.
async fn to_its_end(
    mut client: Client,
    place: &Place,
    form: Form,
    heard: Heard,
) -> Result<Option<RunRecord>, Failed> {
    let mut run_id = heard.run_id;
    loop {
        let Some(record) = follow(client, place, form, &run_id).await? else {
            return Ok(None);
        };
        let moved = match record.error {
            None => None,
            Some(_) => moved(place, &heard.message_id, &run_id).await?,
        };
        let Some(next) = moved else { return Ok(Some(record)) };
        client = Client::connect(&place.state_dir).await?;
        client.ask(&Request::Follow { run_id: next.clone() }).await?;
        run_id = next;
    }
}

/// Where the message went that was with `run_id`, if it went.
async fn moved(place: &Place, message: &str, run_id: &str) -> Result<Option<String>, Failed> {
    let reader = Reader::open(&database_in(&place.state_dir))?;
    for _ in 0..MOVED_LOOKS {
        match reader.letter(message)? {
            Some((run, _)) if run != run_id => return Ok(Some(run)),
            // Heard, or given up with its run.
            Some((_, state)) if state != "failed" => return Ok(None),
            Some(_) | None => tokio::time::sleep(MOVED_EVERY).await,
        }
    }
    Ok(None)
}

fn tell_heard(heard: &Heard, form: Form) -> Done {
    match form {
        Form::Programs => output::json(heard),
        Form::People => output::say(&heard.run_id),
    }
}

fn tell_obeyed(obeyed: &Obeyed, form: Form) -> Done {
    let Obeyed { command, session_key, session_id, run_ids } = obeyed;
    match form {
        Form::Programs => output::json(&json!({
            "command": command, "session_key": session_key, "session_id": session_id,
            "cancelled": run_ids,
        })),
        Form::People => {
            let ended = output::counted(run_ids.len(), "run");
            output::say(&format!("{command}: session {session_key} ({session_id}), {ended} ended"))
        }
    }
}
