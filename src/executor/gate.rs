//! The gate: a command that decides, before any model is called, whether a run does anything.
//!
//! It is part of the set-up: the run has its lanes, its clock does not run yet, and its row is
//! still `queued`. A gate that says no costs nothing but its own time.

use sha2::{Digest as _, Sha256};

use super::checks::with_words;
use super::holdings::Holdings;
use super::run::{Executor, Ticket};
use super::stop::Stop;
use crate::job::{GateSpec, RunIf, hex};
use crate::process::{Confinement, Ended, Errors, Exit, Spec};
use crate::run::{ErrorKind, Failure, Limit, Phase};

/// The exit code that means no, whatever the mode.
const SKIP: i32 = 10;

/// How much of what it prints is kept, and tells one output from another.
const OUTPUT_BYTES_MAX: usize = 1024 * 1024;

/// What a gate that said yes has left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Answer {
    /// What it printed.
    pub(super) output: String,
    /// What tells that from another output, where that is asked for.
    pub(super) digest: Option<String>,
}

impl Executor {
    /// Asks the gate. Whatever it starts belongs to the run and ends with it.
    pub(super) async fn ask(
        &self,
        ticket: &Ticket,
        gate: &GateSpec,
        holdings: &mut Holdings,
    ) -> Result<(), Stop> {
        self.settle_in(ticket, holdings).await?;
        self.learn_secrets(&ticket.spec, holdings)?;
        let Some(site) = holdings.site(ticket) else { return Ok(()) };
        let spec = Spec {
            argv: gate.argv.clone(),
            cwd: site.workdir,
            env: site.env,
            output_bytes_max: OUTPUT_BYTES_MAX,
            errors: Errors::Apart,
            confinement: Confinement::Off,
        };
        let child =
            holdings.household.start(spec).await.map_err(|error| failed(&error.to_string()))?;
        let ended = child.wait_output(gate.timeout).await;
        if ended.exit == Exit::TimedOut {
            child.end(ticket.spec.limits.stop_grace).await;
        }
        let digest = match gate.run_if {
            RunIf::Changed => Some(digest(&ended)),
            RunIf::ExitZero | RunIf::Output => None,
        };
        let last = match &digest {
            Some(_) => self.last_digest(ticket).await?,
            None => None,
        };
        judge(gate, &ended, digest.as_deref(), last.as_deref())?;
        tracing::info!(printed = ended.output.bytes_total, "the gate says yes");
        // It goes to a model, as what a tool says does.
        let output = holdings.masker.mask(&ended.output.text).into_owned();
        holdings.gate = Some(Answer { output, digest });
        Ok(())
    }

    /// What the gate printed before the job's last success.
    async fn last_digest(&self, ticket: &Ticket) -> Result<Option<String>, Stop> {
        let (store, job) = (self.store.clone(), ticket.spec.id.clone());
        let read = tokio::task::spawn_blocking(move || store.reader()?.gate_digest(&job));
        let read = read.await.map_err(|error| failed(&error.to_string()))?;
        Ok(read?)
    }
}

/// Whether it says yes.
fn judge(
    gate: &GateSpec,
    ended: &Ended,
    digest: Option<&str>,
    last: Option<&str>,
) -> Result<(), Failure> {
    if ended.exit == Exit::Code(SKIP) {
        return Err(no(&with_words(format!("it exited with {SKIP}"), &ended.errors.text)));
    }
    if let Some(how) = ended.exit.complaint(&[0], gate.timeout) {
        let failure = failed(&with_words(how, &ended.errors.text));
        return Err(match ended.exit {
            Exit::TimedOut => failure.by_limit(Limit::Setup, Some(gate.timeout)),
            Exit::Code(_) | Exit::Signal(_) | Exit::Unknown => failure,
        });
    }
    match gate.run_if {
        RunIf::Output if ended.output.text.trim().is_empty() => Err(no("it printed nothing")),
        RunIf::Changed if digest == last => {
            Err(no("it printed the same as before the last success"))
        }
        RunIf::ExitZero | RunIf::Output | RunIf::Changed => Ok(()),
    }
}

fn no(why: &str) -> Failure {
    Failure::new(ErrorKind::Gate, format!("the gate says no: {why}")).in_phase(Phase::Gate)
}

fn failed(why: &str) -> Failure {
    Failure::new(ErrorKind::GateFailed, format!("the gate failed: {why}")).in_phase(Phase::Gate)
}

fn digest(ended: &Ended) -> String {
    let mut digest = Sha256::new();
    digest.update(ended.output.bytes_total.to_be_bytes());
    digest.update(&ended.output.text);
    hex(&digest.finalize())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::job::GateOutput;
    use crate::process::Output;

    fn ended(exit: Exit, text: &str) -> Ended {
        let output = Output { text: text.into(), bytes_total: text.len() as u64, truncated: false };
        Ended { exit, output, errors: Output::default() }
    }

    #[test]
    fn three_modes_and_every_way_to_end() {
        use ErrorKind::{Gate, GateFailed};
        use RunIf::{Changed, ExitZero, Output};
        let old = digest(&ended(Exit::Code(0), "rows: 3"));
        let table = [
            (ExitZero, Exit::Code(0), "", None),
            (ExitZero, Exit::Code(10), "yes", Some(Gate)),
            (ExitZero, Exit::Code(1), "", Some(GateFailed)),
            (Output, Exit::Code(0), "3 rows", None),
            (Output, Exit::Code(0), " \n", Some(Gate)),
            (Output, Exit::Code(10), "3 rows", Some(Gate)),
            (Output, Exit::Code(2), "3 rows", Some(GateFailed)),
            (Changed, Exit::Code(0), "rows: 4", None),
            (Changed, Exit::Code(0), "rows: 3", Some(Gate)),
            (Changed, Exit::Code(0), "", None),
            (Changed, Exit::Code(10), "rows: 4", Some(Gate)),
            (Changed, Exit::Signal(9), "rows: 4", Some(GateFailed)),
            (ExitZero, Exit::TimedOut, "", Some(GateFailed)),
            (ExitZero, Exit::Unknown, "", Some(GateFailed)),
        ];
        for (run_if, exit, text, expected) in table {
            let timeout = Duration::from_secs(3);
            let gate = GateSpec { argv: vec![], run_if, output: GateOutput::Passed, timeout };
            let ended = ended(exit, text);
            let new = digest(&ended);
            let found = judge(&gate, &ended, Some(&new), Some(&old)).err();
            assert_eq!(found.as_ref().map(|it| it.kind), expected, "{run_if} {exit:?} {text:?}");
            let limit = found.and_then(|it| it.limit_ms);
            assert_eq!(limit, (exit == Exit::TimedOut).then_some(3000));
        }
        // Before the first success anything is news.
        let gate = GateSpec {
            argv: vec![],
            run_if: Changed,
            output: GateOutput::Passed,
            timeout: Duration::ZERO,
        };
        assert!(judge(&gate, &ended(Exit::Code(0), ""), Some("x"), None).is_ok());
    }
}
