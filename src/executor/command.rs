//! A command in place of a model turn: the same limits, clean-up, checks and rows.

use std::time::Duration;

use super::checks::with_words;
use super::holdings::Holdings;
use super::run::{Executor, Ticket};
use super::stop::Stop;
use super::watchdog::Watchdog;
use crate::job::CommandSpec;
use crate::process::{Confinement, Errors, Spec};
use crate::run::{ErrorKind, Failure, Phase};

/// How much of what it prints is kept: half from its start, half from its end.
const OUTPUT_BYTES_MAX: usize = 1024 * 1024;

impl Executor {
    /// Runs the command of the job to its end, in the run's workspace. Its reply is what it prints
    /// on standard output.
    pub(super) async fn command(
        &self,
        ticket: &Ticket,
        command: &CommandSpec,
        watchdog: &Watchdog,
        holdings: &mut Holdings,
    ) -> Result<String, Stop> {
        watchdog.entered(Phase::Workspace);
        let workdir = watchdog.guard(self.settle_in(ticket, holdings)).await??;
        watchdog.entered(Phase::Auth);
        self.learn_secrets(&ticket.spec, holdings)?;
        let env = holdings.site(ticket).map(|site| site.env).unwrap_or_default();
        let spec = Spec {
            argv: command.argv.clone(),
            cwd: workdir,
            env,
            output_bytes_max: OUTPUT_BYTES_MAX,
            errors: Errors::Apart,
            confinement: Confinement::Off,
        };
        watchdog.entered(Phase::Tool);
        let started = watchdog.guard(holdings.household.start(spec)).await?;
        let child = started.map_err(|error| failed(&error.to_string()))?;
        // Kept, so that what it has printed is there also when it is cut.
        let child = holdings.command.insert(child);
        let ended = watchdog.guard(child.wait_output(Duration::MAX)).await?;
        holdings.exit_code = ended.exit.code();
        watchdog.entered(Phase::Output);
        match ended.exit.complaint(&command.ok_exit, Duration::MAX) {
            None => Ok(holdings.masker.mask(&ended.output.text).into_owned()),
            Some(how) => Err(failed(&with_words(how, &ended.errors.text)).into()),
        }
    }
}

fn failed(why: &str) -> Failure {
    Failure::new(ErrorKind::CommandFailed, format!("the command failed: {why}"))
}
