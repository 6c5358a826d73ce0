//! A program that gets the run as JSON on its standard input.
//!
//! It runs like a job's commands: in a tree of its own that ends with it, with an allow list of the
//! environment and a limit. What it does is not known here: only where it did not start, or says by
//! exit code 75 that it could do nothing yet, is it asked again.

use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::letter::Letter;
use super::sent::Sent;
use crate::process::{
    Confinement, Errors, Exit, Household, Spec, StartError, SupervisorPath, base_environment,
};

/// `EX_TEMPFAIL` of `sysexits.h`.
const TRY_AGAIN: i32 = 75;

/// From TERM to KILL.
const STOP_GRACE: Duration = Duration::from_secs(5);

/// How much of its output is kept to say what went wrong.
const OUTPUT_BYTES_MAX: usize = 4096;

/// How much of that is shown.
const WORDS_CHARS_MAX: usize = 200;

/// What it needs beside its arguments.
pub(super) struct Place<'a> {
    pub(super) folder: &'a Path,
    pub(super) state_dir: &'a Path,
    pub(super) supervisor: &'a SupervisorPath,
}

/// Starts `argv` and waits for its end.
pub(super) async fn send(
    letter: &Letter,
    argv: &[String],
    timeout: Duration,
    place: &Place<'_>,
) -> Sent {
    let input = match input_of(letter, place.state_dir) {
        Ok(input) => input,
        Err(why) => return Sent::not_yet(why),
    };
    let mut env = base_environment();
    env.extend([
        ("PUNCTUAL_DELIVERY_ID".to_owned(), letter.delivery_id.clone()),
        ("PUNCTUAL_JOB".to_owned(), letter.job().to_owned()),
        ("PUNCTUAL_STATE".to_owned(), letter.state().to_owned()),
    ]);
    let spec = Spec {
        argv: argv.to_vec(),
        cwd: place.folder.to_owned(),
        env,
        output_bytes_max: OUTPUT_BYTES_MAX,
        errors: Errors::WithOutput,
        confinement: Confinement::Off,
    };
    let household = Household::new(place.supervisor.clone(), letter.id());
    let sent = run(&household, spec, &input.0, timeout).await;
    household.end_all(STOP_GRACE).await;
    sent
}

async fn run(household: &Household, spec: Spec, input: &Path, timeout: Duration) -> Sent {
    let child = match household.start_reading(spec, input).await {
        Ok(child) => child,
        Err(error @ (StartError::Supervisor { .. } | StartError::Ended { .. })) => {
            return Sent::not_yet(error.to_string());
        }
        Err(error) => return Sent::Refused(error.to_string()),
    };
    let ended = child.wait_output(timeout).await;
    let words = ended.output.text.split_whitespace().collect::<Vec<_>>().join(" ");
    let words: String = words.chars().take(WORDS_CHARS_MAX).collect();
    let said = |what: String| if words.is_empty() { what } else { format!("{what}: {words}") };
    match ended.exit {
        Exit::Code(0) => Sent::Arrived,
        Exit::Code(TRY_AGAIN) => Sent::not_yet(said(format!("exit code {TRY_AGAIN}"))),
        Exit::Code(code) => Sent::Refused(said(format!("exit code {code}"))),
        Exit::Signal(signal) => Sent::Lost(said(format!("ended by signal {signal}"))),
        Exit::Unknown => Sent::Lost(said("how it ended is not known".into())),
        Exit::TimedOut => {
            let limit = humantime::format_duration(timeout);
            Sent::Lost(said(format!("it took longer than {limit}")))
        }
    }
}

/// The run as a file, which is taken away with this.
struct Input(PathBuf);

impl Drop for Input {
    fn drop(&mut self) {
        drop(std::fs::remove_file(&self.0));
    }
}

fn input_of(letter: &Letter, state_dir: &Path) -> Result<Input, String> {
    use std::os::unix::fs::DirBuilderExt as _;
    let folder = state_dir.join("outbox");
    let path = folder.join(format!("{}.json", letter.delivery_id));
    let write = || {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        let mut options = std::fs::File::options();
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&path)?;
        std::io::Write::write_all(&mut file, &letter.json()?)
    };
    let written = write().map_err(|error| format!("write {}: {error}", path.display()));
    // Also what was only begun.
    let input = Input(path);
    written.map(|()| input)
}
