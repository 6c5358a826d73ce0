//! Job files and configurations as people write them, right and wrong.

use std::fmt::Write;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

use punctual::config::{
    self, AgentTimeout, Api, Config, Diagnostics, JobSet, ModelConfig, Price, Retention, Scheduler,
    Sources, Thresholds,
};
use punctual::job::report::{self, Color};
use punctual::job::{self, Environment, Limits, Problem, Prompt, RunTimeout};
use serde_json::{Value, json};

fn cases() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/job_files")
}

fn sources(folder: &Path) -> Sources {
    Sources {
        config_paths: vec!["config.toml".into()],
        state_dir: None,
        environment: Environment::fixed([
            ("LOCAL_KEY", "sk-local-0123456789"),
            ("PG_SECRET", "hunter22"),
            ("SHORT", "abc"),
            ("HC_DAILY", "https://hc.example/daily"),
        ]),
        current_dir: folder.to_owned(),
    }
}

fn load(folder: &Path) -> (Config, JobSet) {
    let (config, warnings) = config::load(&sources(folder)).expect("a sound configuration");
    assert_eq!(warnings, []);
    let jobs = config::load_jobs(&config);
    (config, jobs)
}

/// One line per problem, with paths below `folder`.
fn listed(problems: &[Problem], folder: &Path) -> String {
    let mut out = String::new();
    for problem in problems {
        let file = problem.file.strip_prefix(folder).unwrap_or(&problem.file);
        let key = problem.key.as_deref().unwrap_or("-");
        let severity = if problem.is_error() { "" } else { "warning: " };
        let (line, column) = (problem.line, problem.column);
        let message = problem.message.replace(&format!("{}/", folder.display()), "");
        let file = file.display();
        writeln!(out, "{file}:{line}:{column} [{key}] {severity}{message}").unwrap();
        if let Some(help) = &problem.help {
            writeln!(out, "    {help}").unwrap();
        }
    }
    out
}

fn assert_listed(name: &str, text: &str) {
    insta::with_settings!({
        snapshot_path => "cases/job_files",
        prepend_module_to_snapshot => false,
        omit_expression => true,
    }, { insta::assert_snapshot!(name, text) });
}

/// A folder with `config.toml` and job files.
fn folder(config: &str, jobs: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("config.toml"), config).unwrap();
    std::fs::create_dir(folder.path().join("jobs")).unwrap();
    for (name, text) in jobs {
        std::fs::write(folder.path().join("jobs").join(name), text).unwrap();
    }
    folder
}

const MODEL: &str =
    "models.providers.local.api = \"openai\"\nagents.defaults.model = \"local/m\"\n";

#[test]
fn every_problem_of_every_file_is_in_one_report_and_the_good_job_stays() {
    let folder = cases().join("broken");
    let (_, set) = load(&folder);
    let jobs: Vec<_> = set.jobs.keys().map(ToString::to_string).collect();
    assert_eq!(jobs, ["good"]);
    let files = std::fs::read_dir(folder.join("jobs")).unwrap().count();
    assert_eq!(set.invalid.len() + set.jobs.len(), files);
    assert!(set.invalid.values().flatten().any(Problem::is_error));
    assert_listed("broken", &listed(&set.problems(), &folder));
}

#[test]
fn a_report_shows_the_line_and_points_at_the_place() {
    let folder = cases().join("broken");
    let (_, set) = load(&folder);
    let shown: Vec<_> = ["cron-place", "template", "empty"]
        .iter()
        .flat_map(|stem| set.invalid[*stem].clone())
        .collect();
    let text = report::render(&shown, Color::Plain);
    assert_listed("report", &text.replace(&format!("{}/", folder.display()), ""));
    assert_ne!(report::render(&shown, Color::Ansi), text);
    assert_eq!(report::render(&[], Color::Plain), "");
}

#[test]
fn every_problem_of_a_configuration_is_in_one_report() {
    let folder = cases().join("configs");
    for (file, snapshot) in [("wrong.toml", "wrong-config"), ("later.toml", "later-config")] {
        let sources = Sources { config_paths: vec![file.into()], ..sources(&folder) };
        let problems = config::load(&sources).expect_err("nothing in it is right");
        assert_listed(snapshot, &listed(&problems, &folder));
    }
    let sources = Sources { config_paths: vec!["absent.toml".into()], ..sources(&folder) };
    let problems = config::load(&sources).expect_err("it was named");
    assert_eq!(
        listed(&problems, &folder),
        "absent.toml:1:1 [-] cannot read this file: No such file or directory (os error 2)\n"
    );
}

#[test]
fn the_files_with_every_key_load_without_a_word() {
    let folder = cases().join("good");
    let (config, set) = load(&folder);
    assert_eq!(set.problems(), []);
    assert!(set.is_valid());
    let effective: serde_json::Map<_, _> =
        set.jobs.iter().map(|(id, job)| (id.to_string(), job.effective.clone())).collect();
    let text = serde_json::to_string_pretty(&effective).unwrap();
    assert_listed("effective", &text.replace(&format!("{}/", folder.display()), ""));
    assert_eq!(config.state_dir, folder.join("state"));
    assert_eq!(config.scheduler.max_concurrent_runs, NonZeroUsize::new(4));
    assert_eq!(config.agent.timeout, AgentTimeout::Configured(Duration::from_hours(2)));
    assert_eq!(config.run_ceiling(), Duration::from_hours(1));
    assert_eq!(config.retention, Retention { runs: Some(5000), days: Some(365) });
    let local = &config.providers()["local"];
    assert_eq!(local.api.base_url(), "http://127.0.0.1:8080/v1");
    let price = Price { input: 0.5, output: 1.0, cache_read: 0.0, cache_write: 0.0 };
    let model = ModelConfig {
        context_window: Some(32768),
        max_output_tokens: Some(4096),
        price: Some(price),
    };
    assert_eq!(local.models["default"], model);
    assert_eq!(config.providers()["canned"].api, Api::Script(folder.join("answers.toml")));
    let text = std::fs::read_to_string(folder.join("config.toml")).unwrap()
        + &std::fs::read_to_string(folder.join("jobs/everything.toml")).unwrap()
        + &std::fs::read_to_string(folder.join("jobs/combined.toml")).unwrap();
    let written = |path: &str| {
        let name = path.rsplit('.').next().unwrap();
        let keys = [format!("\n{name} = "), format!(" {name} = ")];
        let forms = keys.into_iter().chain([format!("{name}]\n"), format!("{name}]]\n")]);
        forms.into_iter().any(|form| text.contains(&form))
    };
    let all = keys(&config::schema(), "").into_iter().chain(keys(&job::schema(), ""));
    let missing: Vec<_> =
        all.filter(|key| !key.later && !written(&key.path)).map(|key| key.path).collect();
    // The other ways to say when and what.
    assert_eq!(missing, ["schedule.at", "agent.prompt_file"]);
}

/// A key of a schema.
struct SchemaKey {
    path: String,
    later: bool,
    schema: Value,
}

/// Every key below `schema`; of a table that is for later, only the table.
fn keys(schema: &Value, path: &str) -> Vec<SchemaKey> {
    let mut all = Vec::new();
    for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}{name}");
        let later = schema["description"].as_str().unwrap().ends_with("Not supported yet.");
        let inner = match &schema["additionalProperties"] {
            _ if later || path == "defaults" => Vec::new(),
            inner @ Value::Object(_) => keys(inner, &format!("{path}.name.")),
            _ => keys(schema, &format!("{path}.")),
        };
        if inner.is_empty() {
            all.push(SchemaKey { path, later, schema: schema.clone() });
        } else {
            all.extend(inner);
        }
    }
    all
}

/// A value that such a key can have, as TOML.
fn sample(key: &SchemaKey) -> String {
    let fixed = match key.path.as_str() {
        "schedule.cron" => "0 9 * * *",
        "schedule.at" => "2027-01-01T09:00",
        "schedule.timezone" => "Europe/Berlin",
        "schedule.start_at" | "schedule.end_at" => "2027-01-01",
        "lane" => "warehouse",
        "agent.model" => "report",
        "agent.prompt_file" => "prompts/every.md",
        "agent.workdir" | "command.workdir" => ".",
        "output.schema" => "report.schema.json",
        "env.secret.name.env" => "LOCAL_KEY",
        "env.secret.name.file" => "../cloud.key",
        "agents.defaults.model" => "name/m",
        "models.providers.name.api" => "ollama",
        "models.providers.name.base_url" => "https://models.example/v1",
        "models.providers.name.script" => "answers.toml",
        "targets.name.url" | "ping.url" | "heartbeat.url" => "https://hooks.example",
        "ping.url_env" | "heartbeat.url_env" => "HC_DAILY",
        "ping.url_file" => "../hook.url",
        "heartbeat.url_file" => "hook.url",
        "targets.name.from" => "cron@example.com",
        "alert.to" => "ops",
        _ => "",
    };
    let schema = &key.schema;
    match key.path.as_str() {
        "gate.command" | "command.argv" | "after.jobs" | "targets.name.argv" => {
            return "[\"true\"]".to_owned();
        }
        "targets.name.to" => return "[\"ops@example.com\"]".to_owned(),
        "alert.on" => return "[\"failed\"]".to_owned(),
        "matrix" => return "{ a = [\"b\"] }".to_owned(),
        _ => {}
    }
    if !fixed.is_empty() {
        return format!("\"{fixed}\"");
    }
    for value in [&schema["default"], &schema["examples"][0], &schema["enum"][0]] {
        if !value.is_null() && !value.is_object() {
            return value.to_string();
        }
    }
    match schema["type"].as_str() {
        Some("string") => "\"text\"".to_owned(),
        Some("integer") => schema["minimum"].to_string(),
        Some("number") => "1.5".to_owned(),
        Some("array") => "[]".to_owned(),
        Some("boolean") => "true".to_owned(),
        _ => "{}".to_owned(),
    }
}

fn job_text(path: &str, name: &str, value: &str) -> String {
    let at = path.rsplit_once('.').map_or(String::new(), |(table, _)| format!("{table}."));
    let mut text = format!("{at}{name} = {value}\n");
    let table = path.split_once('.').map_or("", |(table, _)| table);
    let needs = [("gate", "command"), ("command", "argv"), ("after", "jobs")];
    for (table, key) in needs.into_iter().filter(|it| it.0 == table && it.1 != name) {
        writeln!(text, "{table}.{key} = [\"true\"]").unwrap();
    }
    if table == "alert" && name != "to" {
        text += "alert.to = \"ops\"\n";
    }
    if table == "ping" && !path.ends_with(name) {
        text += "ping.url_env = \"HC_DAILY\"\n";
    }
    if path == "alert.stale_after" {
        text += "alert.on = [\"stale\"]\nschedule.cron = \"0 9 * * *\"\n";
    }
    let is_prompt = ["agent.prompt", "agent.prompt_file"].contains(&path) && path.ends_with(name);
    if table != "command" && !is_prompt {
        text += "agent.prompt = \"hello\"\n";
    }
    let says_when = ["schedule.cron", "schedule.every", "schedule.at"].contains(&path);
    if path.starts_with("schedule.") && !(says_when && path.ends_with(name)) {
        text += "schedule.cron = \"0 9 * * *\"\n";
    }
    text
}

fn job_problems(config: &Config, text: &str) -> Vec<Problem> {
    let file = cases().join("good/jobs/sample.toml");
    let id = "sample".parse().unwrap();
    let parsed = config.with_surroundings(|around| job::parse(&id, &file, text, around));
    let warnings = |parsed: Vec<job::Parsed>| parsed.into_iter().flat_map(|it| it.warnings);
    parsed.map_or_else(|problems| problems, |parsed| warnings(parsed).collect())
}

fn config_problems(path: &str, name: &str, value: &str) -> Vec<Problem> {
    let at = path.rsplit_once('.').map_or(String::new(), |(table, _)| format!("{table}."));
    let mut text = format!("{at}{name} = {value}\n");
    let about_api = path == "models.providers.name.api" && path.ends_with(name);
    if path == "models.providers.name.script" {
        text += "models.providers.name.api = \"script\"\n";
        if !path.ends_with(name) {
            text += "models.providers.name.script = \"answers.toml\"\n";
        }
    } else if let Some(key) = path.strip_prefix("targets.name.") {
        text += &target_around(key);
    } else if !about_api {
        text += "models.providers.name.api = \"openai\"\n";
    }
    if path == "heartbeat.every" {
        text += "heartbeat.url_env = \"HC_DAILY\"\n";
    }
    let folder = folder(&text, &[]);
    std::fs::write(folder.path().join("answers.toml"), "rule = []\n").unwrap();
    std::fs::write(folder.path().join("hook.url"), "https://hooks.example\n").unwrap();
    match config::load(&sources(folder.path())) {
        Ok((_, warnings)) => warnings,
        Err(problems) => problems,
    }
}

/// What a target needs beside this key.
fn target_around(key: &str) -> String {
    let needs: &[(&str, &str)] = match key {
        "url" | "url_env" | "url_file" => &[("kind", "\"slack\"")],
        "path" => &[("kind", "\"file\"")],
        "argv" => &[("kind", "\"command\"")],
        "kind" | "timeout" | "headers" | "secret" | "secret_env" | "secret_file" => {
            &[("kind", "\"webhook\""), ("url", "\"https://hooks.example\"")]
        }
        _ => &[
            ("kind", "\"email\""),
            ("host", "\"mail.example\""),
            ("from", "\"cron@example.com\""),
            ("to", "[\"ops@example.com\"]"),
            ("user", "\"cron\""),
            ("password", "\"hunter-2-hunter\""),
        ],
    };
    let is_password = key.starts_with("password");
    let others = needs.iter().filter(|(name, _)| *name != key);
    let others = others.filter(|(name, _)| !(is_password && *name == "password"));
    others.fold(String::new(), |text, (name, value)| {
        text + &format!("targets.name.{name} = {value}\n")
    })
}

#[test]
fn every_key_of_the_schemas_is_accepted_or_refused_by_its_name() {
    let (config, _) = load(&cases().join("good"));
    let mut seen = 0;
    let mut check = |key: &SchemaKey, problems: Vec<Problem>| {
        let name = key.path.rsplit('.').next().unwrap();
        let messages: Vec<_> = problems
            .into_iter()
            .filter(|problem| problem.message != "`exec` is not among `tools`: this allows nothing")
            .map(|problem| problem.message.replace(['[', ']'], ""))
            .map(|message| message.replace("models.providers.name.", ""))
            .collect();
        let expected = key.later.then(|| format!("`{name}` is not supported yet"));
        assert_eq!(messages, Vec::from_iter(expected), "{}", key.path);
        seen += 1;
    };
    for key in keys(&job::schema(), "") {
        let name = key.path.rsplit('.').next().unwrap();
        check(&key, job_problems(&config, &job_text(&key.path, name, &sample(&key))));
    }
    for key in keys(&config::schema(), "") {
        let name = key.path.rsplit('.').next().unwrap();
        check(&key, config_problems(&key.path, name, &sample(&key)));
    }
    assert!(seen > 100, "{seen} keys");
}

#[test]
fn a_job_has_its_own_fallbacks_or_those_of_the_configuration() {
    let config = "agents.defaults.model = \"local/m\"\n\
                  agents.defaults.fallbacks = [\"spare\", \"local/m\", \"local/other\"]\n\
                  models.aliases.spare = \"other/m\"\n\
                  models.providers.local.api = \"openai\"\n\
                  models.providers.other.api = \"ollama\"\n";
    let table = [
        ("none", "", ["other/m", "local/other"].as_slice()),
        ("strict", "fallbacks = []", &[]),
        ("own", "fallbacks = [\"local/own\", \"spare\"]", &["local/own", "other/m"]),
        ("itself", "model = \"spare\"", &["local/m", "local/other"]),
        ("loop", "model = \"spare\"\nfallbacks = [\"other/m\", \"local/m\"]", &["local/m"]),
    ];
    let texts: Vec<_> = table
        .iter()
        .map(|(id, keys, _)| (format!("{id}.toml"), format!("[agent]\nprompt = \"x\"\n{keys}\n")))
        .collect();
    let jobs: Vec<_> = texts.iter().map(|(file, text)| (file.as_str(), text.as_str())).collect();
    let folder = folder(config, &jobs);
    let (_, set) = load(folder.path());
    for (id, _, expected) in table {
        let job = &set.jobs[&id.parse().unwrap()];
        let fallbacks: Vec<_> =
            job.agent().unwrap().fallbacks.iter().map(ToString::to_string).collect();
        assert_eq!(fallbacks, expected, "{id}");
        assert_eq!(job.effective["agent"]["fallbacks"], json!(expected), "{id}");
    }
    assert_eq!(
        listed(&set.problems(), folder.path()),
        "jobs/loop.toml:4:13 [agent.fallbacks] warning: the model itself is among its fallbacks: \
         that one is left out\n"
    );
}

#[test]
fn a_misspelt_key_is_told_the_right_one_at_every_level() {
    let (config, _) = load(&cases().join("good"));
    let misspelt = |name: &str| format!("{}{}", &name[..name.len() - 1], "ze");
    for key in keys(&job::schema(), "") {
        let name = key.path.rsplit('.').next().unwrap();
        let wrong = misspelt(name);
        let problems = job_problems(&config, &job_text(&key.path, &wrong, "1"));
        let [problem] = problems.as_slice() else { panic!("{}: {problems:?}", key.path) };
        assert_eq!(problem.message, format!("unknown key `{wrong}`"));
        let help = problem.help.as_deref().unwrap();
        // Two letters say too little about which key was meant.
        assert!(name.len() < 4 || help.contains(&format!("`{name}`")), "{wrong}: {help}");
    }
    for key in keys(&config::schema(), "") {
        let name = key.path.rsplit('.').next().unwrap();
        let wrong = misspelt(name);
        let problems = config_problems(&key.path, &wrong, "1");
        let known = problems.iter().find(|p| p.message == format!("unknown key `{wrong}`"));
        assert!(known.is_some(), "{}: {problems:?}", key.path);
    }
}

/// Every key that has a default, with it. What is for later has none yet.
fn defaults(schema: &Value) -> Vec<(String, Value)> {
    let all = keys(schema, "").into_iter().filter(|key| !key.later);
    // Tables that mean something else when they are there at all.
    let absent = ["gate.", "command.", "after.", "alert.", "ping.", "heartbeat."];
    let all = all.filter(|key| !absent.iter().any(|table| key.path.starts_with(table)));
    let with_value = all.filter_map(|key| Some((key.path, key.schema.get("default")?.clone())));
    with_value.filter(|(_, value)| *value != json!({})).collect()
}

/// The same as a file that says all of them; JSON and TOML write what is used here alike.
fn written_out(defaults: &[(String, Value)]) -> String {
    defaults.iter().fold(String::new(), |text, (key, value)| text + &format!("{key} = {value}\n"))
}

fn humantime(text: &str) -> Duration {
    humantime::parse_duration(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn the_defaults_of_the_schemas_are_those_of_the_code() {
    let (of_jobs, of_config) = (defaults(&job::schema()), defaults(&config::schema()));
    assert!(of_jobs.len() >= 22 && of_config.len() >= 22, "{of_jobs:#?} {of_config:#?}");
    let job = "agent.prompt = \"x\"\nschedule.cron = \"@daily\"\n";
    let folder = folder(MODEL, &[("a.toml", job)]);
    let (config, set) = load(folder.path());
    let mut silent = set.jobs[&"a".parse().unwrap()].clone();
    assert_eq!(silent.limits, Limits::default());
    assert_eq!(config.scheduler, Scheduler::default());
    assert_eq!(config.jobs_dir, folder.path().join("jobs"));
    assert_eq!(config.state_dir, folder.path().join("state"));

    // Whoever writes every default down says nothing new.
    std::fs::write(folder.path().join("config.toml"), MODEL.to_owned() + &written_out(&of_config))
        .unwrap();
    std::fs::write(folder.path().join("jobs/a.toml"), job.to_owned() + &written_out(&of_jobs))
        .unwrap();
    let (spoken_config, set) = load(folder.path());
    let mut spoken = set.jobs[&"a".parse().unwrap()].clone();
    assert_eq!(spoken.effective, silent.effective);
    for it in [&mut silent, &mut spoken] {
        it.effective = Value::Null;
    }
    assert_eq!(format!("{spoken:#?}"), format!("{silent:#?}"));
    assert_eq!(format!("{spoken_config:#?}"), format!("{config:#?}"));

    // Defaults that depend on something are told in words.
    let said = |schema: &Value, path: &str| {
        let key = keys(schema, "").into_iter().find(|key| key.path == path).unwrap();
        key.schema["description"].as_str().unwrap().to_owned()
    };
    let words = said(&job::schema(), "limits.timeout");
    let ceiling = words.split_once("absent: ").unwrap().1.split_once(',').unwrap().0;
    assert_eq!(humantime(ceiling), config.run_ceiling());
    let words = said(&config::schema(), "diagnostics.stuck_session_abort");
    let (least, times) = words.split_once("max(").unwrap().1.split_once(", ").unwrap();
    let times: u32 = times.split_once(' ').unwrap().0.parse().unwrap();
    assert_eq!(Thresholds::of_warn(Duration::ZERO).abort, humantime(least));
    assert_eq!(Thresholds::of_warn(100 * MINUTE).abort, 100 * times * MINUTE);
    assert_eq!(config.diagnostics, Diagnostics::On(Thresholds::default()));
}

/// Whether a text names this value first.
fn names(text: &str, value: &Value) -> bool {
    let duration = |text: &str| humantime::parse_duration(text.trim()).ok();
    let mut words = text.split(", ");
    match value {
        Value::Number(number) => {
            let digits: String =
                text.replace(',', "").chars().take_while(char::is_ascii_digit).collect();
            digits == number.to_string()
        }
        Value::Array(items) => {
            items.iter().all(|it| words.next().is_some_and(|word| names(word, it)))
        }
        Value::String(item) => {
            let word = words.next().unwrap_or_default();
            word == item || duration(item).is_some() && duration(word) == duration(item)
        }
        _ => false,
    }
}

#[test]
fn the_readme_and_a_new_job_state_the_same_defaults() {
    let all: Vec<_> =
        defaults(&job::schema()).into_iter().chain(defaults(&config::schema())).collect();
    let readme =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md")).unwrap();
    // A key, and in brackets behind it a number or a length of time.
    let stated = regex::Regex::new(r"`(?:\[[a-z_.]+\] )?([a-z_]+)` \((\d[^;)]*)").unwrap();
    let mut found = Vec::new();
    for stated in stated.captures_iter(&readme) {
        let is_meant = |path: &&(String, Value)| path.0.rsplit('.').next() == Some(&stated[1]);
        let Some((path, value)) = all.iter().find(is_meant) else { continue };
        assert!(names(&stated[2], value), "{path}: {} in README.md, {value}", &stated[2]);
        found.push(path.as_str());
    }
    found.sort_unstable();
    found.dedup();
    assert_eq!(
        found,
        [
            "diagnostics.stuck_session_warn",
            "limits.max_tokens",
            "limits.max_turns",
            "limits.stop_grace",
            "limits.tool_timeout",
            "retry.backoff",
            "retry.max_attempts",
            "retry.pause_after",
            "session.write_lock.acquire_timeout",
        ]
    );
    for (path, before) in [
        ("agent.tools", "\"read\"]            # absent: "),
        ("schedule.catchup", "is a misfire: `"),
    ] {
        let value = &all.iter().find(|it| it.0 == path).unwrap().1;
        let after = readme.split_once(before).unwrap().1;
        let stated = after.split([';', '`']).next().unwrap();
        assert!(names(stated, value), "{path}: {stated} in README.md, {value}");
    }

    // The run's own limit has no single default.
    let stated = readme.split_once("not while it waits for a lane; absent: ").unwrap().1;
    let folder = folder(MODEL, &[]);
    let ceiling = load(folder.path()).0.run_ceiling();
    assert_eq!(humantime(stated.split_once(';').unwrap().0), ceiling);

    // What a new job shows behind `#` is what holds without it, but for what is an example.
    let shown = job::scaffold(&"fresh".parse().unwrap());
    let mut table = "";
    let mut found = Vec::new();
    for line in shown.lines() {
        if let Some(name) = line.trim_start_matches("# ").strip_prefix('[') {
            table = name.split_once(']').unwrap().0;
        }
        let Some((name, value)) = line.strip_prefix("# ").and_then(|it| it.split_once(" = "))
        else {
            continue;
        };
        let path = if table.is_empty() { name.to_owned() } else { format!("{table}.{name}") };
        let value: toml::Table = format!("it = {value}").parse().unwrap();
        let value = serde_json::to_value(&value["it"]).unwrap();
        match all.iter().find(|it| it.0 == path) {
            Some((_, default)) if *default != json!([]) => {
                assert_eq!(value, *default, "{path}");
                found.push(path);
            }
            _ => {}
        }
    }
    assert_eq!(
        found,
        [
            "schedule.catchup",
            "schedule.overlap",
            "agent.tools",
            "limits.max_turns",
            "limits.max_tokens",
            "retry.max_attempts",
            "retry.backoff",
            "retry.pause_after",
        ]
    );
}

#[test]
fn defaults_lie_under_every_job_by_key() {
    let config = format!(
        "{MODEL}[defaults]\nlabels = {{ a = \"1\", b = \"2\" }}\nagent.tools = [\"read\", \"list\"]\n\
         agent.prompt = \"default\"\nlimits.max_turns = 3\nlimits.timeout = \"5m\"\n"
    );
    let own = "labels.b = \"3\"\nagent.tools = [\"grep\"]\nagent.prompt_file = \"p.md\"\n\
               limits.timeout = \"1m\"\n";
    let folder = folder(&config, &[("own.toml", own), ("none.toml", ""), ("p.md", "hello")]);
    let (_, set) = load(folder.path());
    assert_eq!(listed(&set.problems(), folder.path()), "");
    let job = &set.jobs[&"own".parse().unwrap()];
    let labels = [("a", "1"), ("b", "3")].map(|(k, v)| (k.to_owned(), v.to_owned()));
    assert_eq!(job.labels, labels.into());
    assert_eq!(job.agent().unwrap().tools, ["grep"]);
    assert_eq!(job.agent().unwrap().prompt, Prompt::File(folder.path().join("jobs/p.md")));
    assert_eq!((job.limits.max_turns, job.limits.timeout), (3, RunTimeout::After(MINUTE)));
    let job = &set.jobs[&"none".parse().unwrap()];
    assert_eq!(job.agent().unwrap().prompt, Prompt::Inline("default".into()));
    assert_eq!(job.limits.timeout, RunTimeout::After(5 * MINUTE));
}

const MINUTE: Duration = Duration::from_mins(1);

#[test]
fn an_error_in_defaults_is_one_error_of_the_configuration() {
    let config = format!(
        "{MODEL}[defaults]\nlane = \"x\"\nagent.tools = [\"fly\"]\nlimits.timout = \"5m\"\n"
    );
    let folder =
        folder(&config, &[("a.toml", "agent.prompt = \"x\""), ("b.toml", "agent.prompt = \"x\"")]);
    let problems = config::load(&sources(folder.path())).unwrap_err();
    assert_eq!(
        listed(&problems, folder.path()),
        "config.toml:4:8 [lane] there is no lane `x`\n    name it under [lanes] in config.toml\n\
         config.toml:5:16 [agent.tools] there is no tool `fly`\n    \
         there are read, write, edit, list, grep, exec, http_get, message, history, subturn\n\
         config.toml:6:8 [defaults.limits.timout] unknown key `timout`\n    did you mean `timeout`?\n"
    );
}

#[test]
fn a_calendar_is_read_line_by_line_and_its_content_is_part_of_the_definition() {
    let config = format!("{MODEL}[calendars]\nhouse = \"lists/house.txt\"\n");
    let job = "agent.prompt = \"x\"\nschedule.cron = \"@daily\"\nschedule.exclude = [\"house\"]\n";
    let own = job.replace("[\"house\"]", "[\"2026-12-25\", \"2026-12-24\"]");
    let folder = folder(&config, &[("a.toml", job), ("b.toml", &own)]);
    let list = folder.path().join("lists/house.txt");
    std::fs::create_dir(list.parent().unwrap()).unwrap();
    let read = |text: &str| {
        std::fs::write(&list, text).unwrap();
        let (_, set) = load(folder.path());
        assert_eq!(listed(&set.problems(), folder.path()), "");
        ["a", "b"].map(|id| set.jobs[&id.parse().unwrap()].clone())
    };
    let [by_calendar, by_dates] = read("# feast\n 2026-12-24..2026-12-25 # two\r\n\n");
    assert_eq!(by_calendar.effective["schedule"]["exclude"], json!(["2026-12-24..2026-12-25"]));
    assert_eq!(by_calendar.effective, by_dates.effective);
    let [longer, unchanged] = read("2026-12-24..2026-12-26\n");
    assert_ne!(longer.definition_hash, by_calendar.definition_hash);
    assert_eq!(unchanged.definition_hash, by_dates.definition_hash);

    std::fs::write(&list, "2026-12-24\n  2026-13-01\n2026-12-24 2026-12-25\n").unwrap();
    let problems = config::load(&sources(folder.path())).unwrap_err();
    assert_eq!(
        listed(&problems, folder.path()),
        "lists/house.txt:2:3 [-] `2026-13-01` is not a date (such as 2026-12-24, or \
         2026-12-24..2027-01-02)\n\
         lists/house.txt:3:1 [-] `2026-12-24 2026-12-25` is not a date (such as 2026-12-24, or \
         2026-12-24..2027-01-02)\n"
    );
    std::fs::write(&list, "2026-12-24\n".repeat(5000)).unwrap();
    let problems = config::load(&sources(folder.path())).unwrap_err();
    assert_eq!(
        listed(&problems, folder.path()),
        "lists/house.txt:4097:1 [-] a calendar has at most 4096 dates or ranges\n"
    );
}

#[test]
fn a_written_start_is_the_anchor_of_an_interval() {
    let jobs = [(
        "a.toml",
        "agent.prompt = \"x\"\n[schedule]\nevery = \"6h\"\nstart_at = \"2026-12-01T03:00\"\n\
         timezone = \"Europe/Berlin\"\nend_at = \"2026-12-01\"\n",
    )];
    let (_, set) = load(folder(MODEL, &jobs).path());
    let schedule = set.jobs[&"a".parse().unwrap()].schedule.as_ref().unwrap();
    let due: Vec<_> = schedule.schedule.upcoming(jiff::Timestamp::UNIX_EPOCH).take(9).collect();
    let due: Vec<_> = due.iter().map(|due| due.at.to_string()).collect();
    let expected = ["02", "08", "14", "20"].map(|hour| format!("2026-12-01T{hour}:00:00Z"));
    assert_eq!(due, expected);
}

#[test]
fn a_later_config_file_wins_by_key() {
    let folder = folder("timezone = \"Europe/Berlin\"\n[lanes]\na = 1\nb = 2\n", &[]);
    std::fs::create_dir(folder.path().join("site")).unwrap();
    std::fs::write(folder.path().join("site/over.toml"), "jobs_dir = \"j\"\nlanes.b = 5\n")
        .unwrap();
    let paths = vec!["config.toml".into(), "site/over.toml".into()];
    let (config, _) =
        config::load(&Sources { config_paths: paths, ..sources(folder.path()) }).unwrap();
    assert_eq!(config.jobs_dir, folder.path().join("site/j"));
    assert_eq!(config.timezone.name(), "Europe/Berlin");
    let lanes = [("a", 1), ("b", 5)].map(|(k, v)| (k.to_owned(), NonZeroUsize::new(v).unwrap()));
    assert_eq!(config.lanes, lanes.into());
}

#[test]
fn without_a_file_the_built_in_defaults_hold_and_a_missing_folder_is_not_an_empty_one() {
    let folder = tempfile::tempdir().unwrap();
    let sources = Sources { config_paths: Vec::new(), ..sources(folder.path()) };
    let (config, warnings) = config::load(&sources).unwrap();
    assert_eq!((config.files.len(), warnings), (0, Vec::new()));
    assert_eq!(config.jobs_dir, folder.path().join("jobs"));
    let set = config::load_jobs(&config);
    assert!(!set.is_valid());
    assert_eq!(set.folder.unwrap().file, folder.path().join("jobs"));
}

#[test]
fn one_definition_has_one_hash_however_it_is_written() {
    let spelled = "[limits]\nmax_turns = 30\ntool_timeout = \"600s\"\n[agent]\nmodel = \"local/m\"\nprompt = 'x'\n";
    let hashes = |a: &str| {
        let jobs = [("a.toml", a), ("b.toml", a), ("c.toml", "agent.prompt = \"y\"")];
        let (_, set) = load(folder(MODEL, &jobs).path());
        ["a", "b", "c"].map(|id| set.jobs[&id.parse().unwrap()].definition_hash.clone())
    };
    let [a, b, c] = hashes("agent.prompt = \"x\"");
    assert_eq!([&a, &b, &c], hashes(spelled).each_ref());
    assert!(a != c && a != b, "two jobs that say the same are two definitions");
    assert_eq!(a.len(), 64);
}

#[test]
fn a_new_job_is_valid_as_it_stands_and_starts_nothing() {
    let id = "fresh".parse().unwrap();
    let folder = folder(MODEL, &[("fresh.toml", &job::scaffold(&id))]);
    let (_, set) = load(folder.path());
    assert_eq!(listed(&set.problems(), folder.path()), "");
    assert!(!set.jobs[&id].enabled);
}

#[test]
fn an_unusable_secret_never_shows_its_value() {
    let config = "[models.providers.a]\napi = \"openai\"\napi_key = \"sk-very-secret\"\n\
                  base_url = \"https://user:hunter2@models.example\"\napi_kye_env = \"X\"\n";
    let folder = folder(config, &[]);
    let problems = config::load(&sources(folder.path())).unwrap_err();
    let text = listed(&problems, folder.path()) + &report::render(&problems, Color::Plain);
    assert!(!text.contains("sk-very-secret"), "{text}");
    assert!(!text.contains("hunter2"), "{text}");
    let wrong =
        "[models.providers.a]\napi = \"openai\"\napi_key = \"sk-very-secret\"\napi_key = 5\n";
    std::fs::write(folder.path().join("config.toml"), wrong).unwrap();
    let problems = config::load(&sources(folder.path())).unwrap_err();
    let text = report::render(&problems, Color::Plain);
    assert!(text.contains("duplicate key") && !text.contains("sk-very-secret"), "{text}");
}
