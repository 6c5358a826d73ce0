//! The file: TOML, so that people can read it and a version control can show what has changed.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::seen::{SeenCommand, SeenFile};
use super::wording::TakenRequest;
use crate::job::{JobId, read_text};
use crate::run::{ErrorKind, Limit, State};
use crate::tools::TakenCall;
use crate::turn::{Known, Material, Variables};

/// The version of the format that is written, and the newest that is read.
pub const VERSION: u32 = 1;

/// Longer files are no recordings of a run: an answer has at most 16 MiB, most have a few KiB.
const FILE_BYTES_MAX: u64 = 64 << 20;

const HEAD: &str = "\
# One run of this job, recorded. `punctual test JOB` runs it again without a model and says what
# is different; `punctual test JOB --record` records it anew.
";

/// A recorded run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cassette {
    /// See [`VERSION`].
    pub version: u32,
    /// Whose run.
    pub job: String,
    /// When it was recorded.
    pub recorded_at: Timestamp,
    /// What its prompt could name.
    pub variables: Variables,
    /// And of what was said before.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub known: Known,
    /// What was read for its prompt.
    #[serde(default, skip_serializing_if = "is_empty")]
    pub material: Material,
    /// What models were asked, and what answered them.
    #[serde(default, rename = "request")]
    pub requests: Vec<TakenRequest>,
    /// What tools were called.
    #[serde(default, rename = "call", skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<TakenCall>,
    /// What was seen of files.
    #[serde(default, rename = "file", skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<SeenFile>,
    /// How the commands of checks ended.
    #[serde(default, rename = "command", skip_serializing_if = "Vec::is_empty")]
    pub commands: Vec<SeenCommand>,
    /// What the host found.
    #[serde(default, rename = "check", skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<TakenCheck>,
    /// How it ended. Last, so that a file that was cut shows it.
    pub end: End,
}

fn is_empty(material: &Material) -> bool {
    *material == Material::default()
}

fn is_nothing(known: &Known) -> bool {
    *known == Known::default()
}

/// A check and its result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TakenCheck {
    /// What it is called.
    pub name: String,
    /// Whether it passed.
    pub passed: bool,
    /// If not: what was expected, and what was found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// How a run ended, and what it took.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct End {
    /// Its state.
    pub state: State,
    /// What it answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply: Option<String>,
    /// Why it did not succeed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_kind: Option<ErrorKind>,
    /// That in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_message: Option<String>,
    /// The limit that ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
    /// Prompt tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_tokens: Option<i64>,
    /// Answer tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_tokens: Option<i64>,
    /// US dollars, by the prices of the configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usd: Option<f64>,
    /// Tool calls that failed.
    pub tool_errors: i64,
    /// Tool calls that were refused.
    pub denied_calls: i64,
    /// How many checks are above.
    pub checks: usize,
    /// How many tool calls are above.
    pub calls: usize,
    /// How many requests are above. Whoever cuts the file cuts this.
    pub requests: usize,
}

/// A cassette that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CassetteError {
    /// It cannot be read.
    #[error("failed to read the cassette {path}")]
    Read {
        /// Which one.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// It cannot be written.
    #[error("failed to write the cassette {path}")]
    Write {
        /// Which one.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Another version of punctual wrote it.
    #[error("the cassette {path} is of version {found}, and this punctual reads up to {VERSION}")]
    Newer {
        /// Which one.
        path: PathBuf,
        /// Its version.
        found: i64,
    },
    /// It is another job's.
    #[error("the cassette {path} is of the job `{found}`, not of `{wanted}`")]
    OfAnother {
        /// Which one.
        path: PathBuf,
        /// Whose it says it is.
        found: String,
        /// Whose it should be.
        wanted: JobId,
    },
    /// It was cut, or edited to what is none.
    #[error("the cassette {path} is damaged: {why}")]
    Damaged {
        /// Which one.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
}

/// Where the cassette of a job is: beside its file.
pub fn cassette_path(job_file: &Path, job: &JobId) -> PathBuf {
    job_file.with_file_name(format!("{job}.cassette"))
}

impl Cassette {
    /// Reads the cassette of `job`; `None` if there is none.
    pub fn read(path: &Path, job: &JobId) -> Result<Option<Self>, CassetteError> {
        match read_text(path, FILE_BYTES_MAX) {
            Ok(text) => Self::parse(&text, path, job).map(Some),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(CassetteError::Read { path: path.to_owned(), source }),
        }
    }

    fn parse(text: &str, path: &Path, job: &JobId) -> Result<Self, CassetteError> {
        let path = path.to_owned();
        let damaged = |why: String| CassetteError::Damaged { path: path.clone(), why };
        let words = |error: toml::de::Error| damaged(in_one_line(&error, text));
        let table: toml::Table = toml::from_str(text).map_err(words)?;
        match table.get("version").and_then(toml::Value::as_integer) {
            Some(found) if found > i64::from(VERSION) => {
                return Err(CassetteError::Newer { path, found });
            }
            Some(1..) => {}
            _ => return Err(damaged("it has no version".to_owned())),
        }
        match table.get("job").and_then(toml::Value::as_str) {
            Some(found) if found != job.as_str() => {
                let (found, wanted) = (found.to_owned(), job.clone());
                return Err(CassetteError::OfAnother { path, found, wanted });
            }
            _ => {}
        }
        let cassette: Self = toml::from_str(text).map_err(words)?;
        let unanswered = cassette.requests.iter().position(|it| it.answer.is_none());
        if let Some(at) = unanswered {
            return Err(damaged(format!("request {} has no answer", at + 1)));
        }
        let End { checks, calls, requests, .. } = &cassette.end;
        let counted = [
            ("requests", *requests, cassette.requests.len()),
            ("tool calls", *calls, cassette.calls.len()),
            ("checks", *checks, cassette.checks.len()),
        ];
        match counted.into_iter().find(|(_, said, there)| said != there) {
            Some((what, said, there)) => {
                Err(damaged(format!("its end counts {said} {what}, and {there} are there")))
            }
            None => Ok(cassette),
        }
    }

    /// Writes it, all or nothing.
    pub fn write(&self, path: &Path) -> Result<(), CassetteError> {
        let failed = |source| CassetteError::Write { path: path.to_owned(), source };
        let text = self.text().map_err(|error| failed(std::io::Error::other(error)))?;
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(".new");
        // Not a dot file: a name that nobody expects would be left unseen.
        let fresh = path.with_file_name(name);
        let put = || {
            let mut file = std::fs::File::create(&fresh)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            std::fs::rename(&fresh, path)
        };
        put().map_err(|source| {
            // What is there is of no use.
            drop(std::fs::remove_file(&fresh));
            failed(source)
        })
    }

    fn text(&self) -> Result<String, toml::ser::Error> {
        Ok(format!("{HEAD}{}", toml::to_string_pretty(self)?))
    }
}

/// What the TOML reader found, without the picture of the place that it draws.
fn in_one_line(error: &toml::de::Error, text: &str) -> String {
    let words = error.message().lines().collect::<Vec<_>>().join(" ");
    match error.span() {
        Some(span) if span.start > 0 => {
            let before = text.get(..span.start).unwrap_or(text);
            format!("line {}: {words}", before.matches('\n').count() + 1)
        }
        _ => words,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::provider::{Break, Dialect, FaultClass, Traffic};
    use crate::skill::{LeftOut, Offered, Snapshot};
    use crate::tools::Verdict;
    use crate::turn::BootstrapFile;

    fn cassette(words: &str) -> Cassette {
        let at = "2026-11-30T09:00:00Z".parse().unwrap();
        let some = Some(words.to_owned());
        let broke = Some(Break { class: FaultClass::Network, message: words.to_owned() });
        let answer = Traffic {
            api: Dialect::OpenAi,
            status: Some(200),
            content_type: "text/event-stream".to_owned(),
            retry_after: Some(1.5),
            body: words.to_owned(),
            broke,
        };
        let message = super::super::wording::TakenMessage {
            role: "tool".to_owned(),
            tool: some.clone(),
            text: words.to_owned(),
            beside: some.clone(),
        };
        let request = TakenRequest {
            model: "local/m".to_owned(),
            max_output_tokens: Some(9),
            context_window: Some(8192),
            kept: 0,
            system: some.clone(),
            tools: some.clone(),
            messages: vec![message],
            answer: Some(answer),
        };
        let arguments = json!({"null": null, "words": words, "n": 1.5});
        let call = TakenCall {
            tool: words.to_owned(),
            arguments: arguments.as_object().unwrap().clone(),
            verdict: Verdict::TimedOut,
            exit_code: Some(-1),
            output_bytes: 7,
            content: words.to_owned(),
        };
        let end = End {
            state: State::Failed,
            reply: some.clone(),
            error_kind: Some(ErrorKind::CheckFailed),
            error_message: some.clone(),
            limit: Some(Limit::Budget),
            input_tokens: Some(1),
            output_tokens: None,
            usd: Some(0.25),
            tool_errors: 1,
            denied_calls: 0,
            checks: 1,
            calls: 1,
            requests: 1,
        };
        Cassette {
            version: VERSION,
            job: "j".to_owned(),
            recorded_at: at,
            variables: Variables {
                due_at: at,
                slot_start: at,
                slot_end: at,
                vars: BTreeMap::new(),
                matrix: BTreeMap::new(),
            },
            known: Known {
                gate_output: some.clone(),
                previous_reply: words.to_owned(),
                replies: BTreeMap::from([(words.to_owned(), words.to_owned())]),
            },
            material: material(words),
            requests: vec![request],
            calls: vec![call],
            files: vec![SeenFile::new(Path::new("a"), None, false)],
            commands: vec![SeenCommand { argv: vec![words.to_owned()], complaint: some.clone() }],
            checks: vec![TakenCheck { name: words.to_owned(), passed: false, detail: some }],
            end,
        }
    }

    fn material(words: &str) -> Material {
        let (name, words) = (String::new, || words.to_owned());
        let offered = Offered { name: name(), description: words(), file: words() };
        let left_out = LeftOut { name: name(), why: words() };
        Material {
            skills: Snapshot { offered: vec![offered], left_out: vec![left_out] },
            bootstrap: vec![BootstrapFile { name: name(), text: words(), note: Some(words()) }],
        }
    }

    fn again(cassette: &Cassette) -> Cassette {
        let text = cassette.text().unwrap();
        let id = "j".parse().unwrap();
        Cassette::parse(&text, Path::new("j.cassette"), &id).unwrap_or_else(|error| {
            panic!("{error}: {text}");
        })
    }

    #[test]
    fn what_a_server_sends_comes_back_byte_for_byte() {
        let table = [
            "data: {\"a\":\"b\"}\r\n\r\n",
            "\n\ndata: 'a' \"\"\" \'\'\' \\n\t\u{7f}\0\u{1b}",
            "\u{feff}data: é\r",
            "",
        ];
        for words in table {
            assert_eq!(again(&cassette(words)), cassette(words), "{words:?}");
        }
    }

    proptest! {
        #[test]
        fn whatever_is_written_is_read_again(words in any::<String>()) {
            prop_assert_eq!(again(&cassette(&words)), cassette(&words));
        }
    }
}
