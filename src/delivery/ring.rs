//! One ring of a switch: its address, its words, its tries.

use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use secrecy::ExposeSecret as _;
use url::Url;

use super::http::{Http, Request};
use super::sent::Sent;
use crate::config::Config;
use crate::executor::Ended;
use crate::job::{JobId, Masker, SecretText, with_sources};
use crate::run::{ErrorKind, State};

/// How long one try may take, from the name's lookup to the answer.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Waits before the second and the third try, which is the last: news of this kind does not keep.
const WAITS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(3)];

/// What a switch is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Call {
    signal: Signal,
    /// What tells the beginning and the end of one run from those of others.
    rid: Option<String>,
    /// One line for people.
    body: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Signal {
    Start,
    Fine,
    Failed,
    /// With this exit code, which is not 0.
    Exit(u8),
}

impl Call {
    /// `serve` lives.
    pub(super) fn beat() -> Self {
        Self { signal: Signal::Fine, rid: None, body: "punctual serve".into() }
    }

    pub(super) fn is_failure(&self) -> bool {
        match self.signal {
            Signal::Start | Signal::Fine => false,
            Signal::Failed | Signal::Exit(_) => true,
        }
    }

    fn url(&self, base: &str) -> Result<Url, String> {
        let mut url = Url::parse(base.trim()).map_err(|_| "its address is not a URL")?;
        let below = match self.signal {
            Signal::Start => Some("start".to_owned()),
            Signal::Fine => None,
            Signal::Failed => Some("fail".to_owned()),
            Signal::Exit(code) => Some(code.to_string()),
        };
        if let Some(below) = below {
            let mut segments = url.path_segments_mut().map_err(|()| "its address has no path")?;
            segments.pop_if_empty().push(&below);
        }
        if let Some(rid) = &self.rid {
            url.query_pairs_mut().append_pair("rid", rid);
        }
        Ok(url)
    }
}

/// The clock of a run has begun to run.
pub(super) fn start_of(job: &JobId, run_id: &str) -> Call {
    let body = format!("{job} started, run {run_id}");
    Call { signal: Signal::Start, rid: rid(run_id), body }
}

/// A run is over; `None` for an end that is nobody's news.
pub(super) fn call_of(job: &JobId, run_id: &str, end: Ended) -> Option<Call> {
    let Ended { state, kind, exit_code } = end;
    let (signal, word) = match (state, kind) {
        (State::Succeeded, _) => (Signal::Fine, state.as_str()),
        // The job was looked at, and there was nothing to do.
        (State::Cancelled, Some(ErrorKind::Gate)) => (Signal::Fine, "skipped"),
        (State::Queued | State::Running | State::Cancelled, _) => return None,
        (State::Failed, Some(ErrorKind::CommandFailed)) => {
            let code = exit_code.and_then(|code| u8::try_from(code).ok()).filter(|code| *code > 0);
            (code.map_or(Signal::Failed, Signal::Exit), state.as_str())
        }
        (State::Failed | State::TimedOut | State::Interrupted, _) => {
            (Signal::Failed, state.as_str())
        }
    };
    let kind = kind.map(|kind| format!(": {kind}")).unwrap_or_default();
    let body = format!("{job} {word}{kind}, run {run_id}");
    Some(Call { signal, rid: rid(run_id), body })
}

/// The id of a run in the form in which such servers want it: the same number, written as a UUID.
fn rid(run_id: &str) -> Option<String> {
    let number: u128 = ulid::Ulid::from_string(run_id).ok()?.into();
    let hex = format!("{number:032x}");
    let parts = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
    Some(parts.join("-"))
}

/// Rings; what goes wrong is said without the address.
pub(super) async fn rung(
    http: &Http,
    config: &Config,
    url: &SecretText,
    call: &Call,
) -> Result<(), String> {
    let base = url.read(&config.environment).map_err(|error| with_sources(&error))?;
    let masker = Masker::new([("url of the ping".to_owned(), base.clone())]);
    let url = call.url(base.expose_secret())?;
    let mut waits = WAITS.into_iter();
    loop {
        let why = match once(http, config, &url, &call.body).await {
            Sent::Arrived => return Ok(()),
            Sent::NotYet { why, after: _ } => match waits.next() {
                Some(wait) => {
                    tokio::time::sleep(wait).await;
                    continue;
                }
                None => why,
            },
            Sent::Refused(why) | Sent::Lost(why) | Sent::Cancelled(why) => why,
        };
        return Err(masker.mask(&why).into_owned());
    }
}

async fn once(http: &Http, config: &Config, url: &Url, body: &str) -> Sent {
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    let request = Request {
        url: url.as_str(),
        headers: HeaderMap::from_iter([(CONTENT_TYPE, plain)]),
        body: body.as_bytes().to_vec(),
        timeout: TIMEOUT,
    };
    let sent = tokio::time::timeout(TIMEOUT, http.post(request, &config.allow_hosts)).await;
    sent.unwrap_or_else(|_| {
        Sent::Lost(format!("no answer within {}", humantime::format_duration(TIMEOUT)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: &str = "01kb0000000000000000000000";

    fn called(base: &str, call: &Call) -> String {
        call.url(base).unwrap().into()
    }

    #[test]
    fn each_end_has_its_address() {
        use ErrorKind::{Cancelled, CommandFailed, Deadline, Gate, Replaced};
        let job: JobId = "j".parse().unwrap();
        let table = [
            (State::Succeeded, None, Some(0), Some("")),
            // An exit code that the job calls a success is one.
            (State::Succeeded, None, Some(3), Some("")),
            (State::Cancelled, Some(Gate), None, Some("")),
            (State::Cancelled, Some(Cancelled), None, None),
            (State::Cancelled, Some(Replaced), None, None),
            (State::Failed, Some(CommandFailed), Some(3), Some("/3")),
            (State::Failed, Some(CommandFailed), None, Some("/fail")),
            (State::Failed, Some(CommandFailed), Some(0), Some("/fail")),
            (State::TimedOut, Some(Deadline), None, Some("/fail")),
            (State::Interrupted, Some(ErrorKind::Shutdown), None, Some("/fail")),
        ];
        for (state, kind, exit_code, expected) in table {
            let call = call_of(&job, RUN, Ended { state, kind, exit_code });
            let url = call.map(|call| called("https://hc.example/u", &call));
            let rid = rid(RUN).unwrap();
            let expected = expected.map(|it| format!("https://hc.example/u{it}?rid={rid}"));
            assert_eq!(url, expected, "{state} {kind:?} {exit_code:?}");
        }
    }

    #[test]
    fn an_address_keeps_what_it_has() {
        let start = start_of(&"j".parse().unwrap(), RUN);
        let rid = rid(RUN).unwrap();
        assert_eq!(rid.len(), 36);
        assert_eq!(
            called("https://hc.example/key/name/?create=1", &start),
            format!("https://hc.example/key/name/start?create=1&rid={rid}")
        );
        assert_eq!(called("https://hc.example/b?x=1", &Call::beat()), "https://hc.example/b?x=1");
    }
}
