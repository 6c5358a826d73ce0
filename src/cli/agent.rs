//! `agent -m`: say something into a session, and wait for the turn that comes of it.

use std::time::Duration;

use serde_json::json;

use super::context::{Context, Place, block_on, no_model_hint};
use super::holder::{self, OwnDaemon};
use super::output::{self, Done, Failed, code, note};
use super::run::{Form, follow, print, print_sent, stored};
use crate::daemon::{Client, ControlError, Heard, Obeyed, Reply, Request};
use crate::store::{Reader, RunRecord, database_in};

/// How many processes may leave between being reached and taking the request.
const REACHED_MAX: usize = 20;

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

/// What came of a message.
enum Answer {
    Heard(Heard),
    Obeyed(Obeyed),
}

pub(super) fn agent(context: &Context, args: &Args) -> Done {
    let place = Place::from(context.config()?);
    let form = if args.json { Form::Programs } else { Form::People };
    if let (Form::People, Some(hint)) = (form, place.config.as_ref().and_then(no_model_hint)) {
        note(&hint);
    }
    block_on(async {
        for _ in 0..REACHED_MAX {
            let own = if args.detach { OwnDaemon::Never } else { OwnDaemon::IfNeeded };
            let (mut client, mut daemon) = holder::reach(&place, own).await?;
            let done = match ask(&mut client, args).await {
                Ok(None) => continue,
                Ok(Some(Answer::Obeyed(obeyed))) => tell_obeyed(&obeyed, form),
                Ok(Some(Answer::Heard(heard))) if args.detach => tell_heard(&heard, form),
                Ok(Some(Answer::Heard(heard))) => {
                    match to_its_end(client, &place, form, heard).await {
                        Ok(None) => {
                            if let Some(own) = daemon {
                                own.close_row().await;
                            }
                            return Ok(code::CANCELLED.into());
                        }
                        Ok(Some(record)) => {
                            print(&record, form)?;
                            if let Some(daemon) = daemon.take() {
                                daemon.ended().await?;
                            }
                            print_sent(&stored(&place, &record.run_id)?, form)
                        }
                        Err(failed) => Err(failed),
                    }
                }
                Err(failed) => Err(failed),
            };
            if let Some(daemon) = daemon {
                daemon.ended().await?;
            }
            return done;
        }
        Err(Failed::refused("whoever holds the state folder leaves before it answers"))
    })?
}

/// Says it; `None` if the process left before it took the request.
async fn ask(client: &mut Client, args: &Args) -> Result<Option<Answer>, Failed> {
    let (message, session) = (args.message.clone(), Some(args.session.clone()));
    let asked = match client.ask(&Request::Agent { message, session }).await {
        Ok(()) => client.next().await,
        Err(error) => Err(error),
    };
    match asked {
        Ok(Some(Reply::Heard(heard))) => Ok(Some(Answer::Heard(*heard))),
        Ok(Some(Reply::Obeyed(obeyed))) => Ok(Some(Answer::Obeyed(*obeyed))),
        Ok(Some(Reply::Refused { reason, message })) => match reason.as_str() {
            "gone" => Ok(None),
            _ => Err(holder::refusal(&reason, message)),
        },
        Ok(None) | Err(ControlError::Io(_)) => Ok(None),
        Ok(other) => Err(Failed::refused(format!("no answer to the request: {other:?}"))),
        Err(error) => Err(error.into()),
    }
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
