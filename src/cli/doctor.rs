//! `doctor`: whether this machine and this configuration can do the work.

use std::time::Duration;

use serde_json::json;
use url::Url;

use super::context::{Context, block_on, no_model_hint};
use super::doctor_mcp::try_server;
use super::output::{self, Done, code};
use super::sandbox::{Whole, offer};
use crate::config::{Api, Config, ProviderConfig, load_jobs};
use crate::hooks::Hooks;
use crate::job::{FILE_BYTES_MAX, read_text};
use crate::process::{
    Confinement, Errors, Exit, Household, Spec, SupervisorPath, base_environment,
};
use crate::provider::Script;
use crate::store::{QueryLimits, Reader, database_in};

/// How long a provider's address may take to accept a connection.
const CONNECT_WITHIN: Duration = Duration::from_secs(3);

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Print for programs
    #[arg(long)]
    json: bool,
}

/// One look.
struct Finding {
    what: String,
    how: How,
    words: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    Good,
    /// It works, but perhaps not as meant.
    Doubtful,
    Bad,
}

impl How {
    fn word(self) -> &'static str {
        match self {
            Self::Good => "ok",
            Self::Doubtful => "note",
            Self::Bad => "bad",
        }
    }
}

pub(super) fn doctor(context: &Context, args: &Args) -> Done {
    let config = context.config()?;
    let mut findings = vec![jobs(&config), state_folder(&config), history(&config), zones(&config)];
    findings.push(block_on(supervisor())?);
    findings.push(hooks(&config));
    findings.push(sandbox());
    for (id, provider) in config.providers() {
        findings.push(block_on(reach(id, provider))?);
    }
    for (name, server) in &config.mcp {
        let tried = block_on(try_server(&config, name, server))?;
        findings.push(finding(&format!("MCP server {name}"), tried));
    }
    if let Some(hint) = no_model_hint(&config) {
        findings.push(Finding { what: "model".into(), how: How::Doubtful, words: hint });
    }
    let bad = findings.iter().any(|finding| finding.how == How::Bad);
    if args.json {
        let list: Vec<_> = findings
            .iter()
            .map(|it| json!({ "what": it.what, "how": it.how.word(), "words": it.words }))
            .collect();
        output::json(&list)?;
    } else {
        for it in &findings {
            output::say(&format!("{:<4} {}: {}", it.how.word(), it.what, it.words))?;
        }
    }
    Ok(if bad { code::FAILED.into() } else { std::process::ExitCode::SUCCESS })
}

fn finding(what: &str, result: Result<String, String>) -> Finding {
    match result {
        Ok(words) => Finding { what: what.into(), how: How::Good, words },
        Err(words) => Finding { what: what.into(), how: How::Bad, words },
    }
}

fn jobs(config: &Config) -> Finding {
    let set = load_jobs(config);
    if let Some(problem) = &set.folder {
        return finding("jobs", Err(format!("{}: {}", problem.file.display(), problem.message)));
    }
    if set.invalid.is_empty() {
        return finding("jobs", Ok(format!("{} in {}", set.jobs.len(), config.jobs_dir.display())));
    }
    let names: Vec<_> = set.invalid.keys().cloned().collect();
    finding("jobs", Err(format!("invalid: {}; see `punctual validate`", names.join(", "))))
}

fn state_folder(config: &Config) -> Finding {
    let path = &config.state_dir;
    if !path.exists() {
        return finding("state folder", Ok(format!("{} will be made", path.display())));
    }
    let probe = path.join(format!(".doctor-{}", std::process::id()));
    let result = std::fs::write(&probe, b"").and_then(|()| std::fs::remove_file(&probe));
    finding(
        "state folder",
        result
            .map(|()| format!("{} is writable", path.display()))
            .map_err(|error| format!("{} cannot be written: {error}", path.display())),
    )
}

fn history(config: &Config) -> Finding {
    let path = database_in(&config.state_dir);
    if !path.exists() {
        return finding("database", Ok("not made yet".into()));
    }
    let count = || {
        let mut reader = Reader::open(&path)?;
        let table = reader.query("SELECT count(*) FROM v1_runs", QueryLimits::default())?;
        let sound = reader.quick_check()?;
        Ok::<_, crate::store::StoreError>((table.rows[0][0].clone(), sound))
    };
    finding(
        "database",
        match count() {
            Ok((runs, sound)) if sound == "ok" => Ok(format!("{runs} runs, sound")),
            Ok((_, damage)) => Err(format!("damaged: {damage}")),
            Err(error) => Err(output::chain(&error)),
        },
    )
}

fn zones(config: &Config) -> Finding {
    let words = format!("{} ({})", config.zones.version(), config.zones.origin());
    finding("time zones", Ok(words))
}

/// The hooks in the order in which they are asked, and whether their programs are there.
fn hooks(config: &Config) -> Finding {
    let listed = Hooks::of_config(&config.hooks).listed();
    let words: Vec<_> = listed.iter().map(|it| format!("{} {}", it.on, it.name)).collect();
    let is_missing =
        |program: &&str| program.contains('/') && !std::path::Path::new(program).exists();
    let programs = config.hooks.iter().filter_map(|it| it.argv.first().map(String::as_str));
    let missing: Vec<_> = programs.filter(is_missing).collect();
    finding(
        "hooks",
        match (words.as_slice(), missing.as_slice()) {
            ([], _) => Ok("none".into()),
            (words, []) => Ok(words.join(", ")),
            (_, missing) => Err(format!("not there: {}", missing.join(", "))),
        },
    )
}

/// A real command through the real supervisor.
async fn supervisor() -> Finding {
    let run = async {
        let household = Household::new(SupervisorPath::current_exe(), "doctor");
        let spec = Spec {
            argv: vec!["true".into()],
            cwd: std::env::temp_dir(),
            env: base_environment(),
            output_bytes_max: 1024,
            errors: Errors::WithOutput,
            confinement: Confinement::Off,
        };
        let child = household.start(spec).await.map_err(|error| error.to_string())?;
        let ended = child.wait_output(Duration::from_secs(10)).await;
        household.end_all(Duration::ZERO).await;
        if ended.exit == Exit::Code(0) {
            Ok("a command runs and ends".into())
        } else {
            Err(format!("`true` ended with {:?}", ended.exit))
        }
    };
    finding("processes", run.await)
}

/// What the kernel makes of `sandbox`.
fn sandbox() -> Finding {
    let (whole, words) = offer();
    let how = match whole {
        Whole::Yes => How::Good,
        Whole::No => How::Doubtful,
    };
    Finding { what: "sandbox".into(), how, words }
}

async fn reach(id: &str, provider: &ProviderConfig) -> Finding {
    let what = format!("provider {id}");
    match &provider.api {
        Api::Script(path) => {
            let read = read_text(path, FILE_BYTES_MAX).map_err(|error| error.to_string());
            let parsed =
                read.and_then(|text| Script::parse(&text).map_err(|error| error.to_string()));
            finding(&what, parsed.map(|_| format!("the script {}", path.display())))
        }
        Api::Embedded => {
            finding(&what, Err("answered by another program, which embeds this".into()))
        }
        Api::Http { base_url, .. } => finding(&what, connect(base_url).await),
    }
}

async fn connect(url: &Url) -> Result<String, String> {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    let port = url.port_or_known_default().unwrap_or(80);
    let connecting = tokio::net::TcpStream::connect((host, port));
    match tokio::time::timeout(CONNECT_WITHIN, connecting).await {
        Ok(Ok(_)) => Ok(format!("{url} accepts connections")),
        Ok(Err(error)) => Err(format!("{url}: {error}")),
        Err(_) => Err(format!("{url} did not answer within 3s")),
    }
}
