//! Jobs and model scripts that several files of tests use.

use jiff::Timestamp;
use serde_json::Value;

/// A configuration that means the same on every machine: its zone and its zone database are said.
/// `warehouse` is a lane for one run.
pub const BERLIN: &str = r#"
timezone = "Europe/Berlin"
timezone_database = "bundled"

[lanes]
warehouse = 1

[agents.defaults]
model = "local/m"

[models.providers.local]
api = "script"
script = "model.toml"
"#;

/// Every second, without tools.
pub const EVERY_SECOND: &str =
    "[schedule]\ncron = \"* * * * * *\"\n[agent]\nprompt = \"go\"\ntools = []\n";

/// A job without tools.
pub const PLAIN: &str = "[agent]\nprompt = \"go\"\ntools = []\n";

/// A job with a schedule. `top` are keys of the job.
pub fn due(top: &str, schedule: &str) -> String {
    format!("{top}\n[schedule]\n{schedule}\n{PLAIN}")
}

/// A job whose only tool is `exec`, without a bound on what it runs. `top` are keys of the job.
pub fn by_hand(prompt: &str, top: &str, limits: &str) -> String {
    format!(
        "{top}\n[agent]\nprompt = \"{prompt}\"\ntools = [\"exec\"]\nexec_allow = [\"*\"]\n\
         [limits]\n{limits}\n"
    )
}

/// Such a job, whose commands are confined by nothing: what they do is the test's own business.
pub fn unconfined(job: &str) -> String {
    job.replacen("[agent]\n", "[agent]\nsandbox = \"off\"\n", 1)
}

/// The same without anything but limits.
pub fn exec_job(limits: &str) -> String {
    by_hand("go", "", limits)
}

/// A model that answers at once.
pub const FINE: &str = "[[rule]]\nstep = [{ text = \"fine\" }]\n";

/// A model that keeps a tool running, for those prompts that say so.
pub const MANY: &str = r#"
[[rule]]
when = { contains = "sleep", turn = 0 }
step = [{ tool = { name = "exec", arguments = { command = "sleep 60" } } }]
[[rule]]
when = { contains = "stubborn", turn = 0 }
step = [{ tool = { name = "exec", arguments = { command = "(trap '' TERM; while :; do sleep 0.2; done) & echo begun" } } }]
[[rule]]
when = { contains = "deaf", turn = 0 }
step = [{ tool = { name = "exec", arguments = { command = "trap '' TERM; while :; do sleep 0.2; done" } } }]
[[rule]]
when = { contains = "brief" }
step = [{ delay = "700ms" }, { text = "brief" }]
[[rule]]
when = { contains = "hang" }
step = [{ text = "so far" }, { hang = true }]
[[rule]]
step = [{ text = "fine" }]
"#;

/// A script that runs `command` and then says what came of it.
pub fn exec_script(command: &str) -> String {
    let arguments = toml_text(command);
    format!(
        "[[rule]]\nwhen = {{ turn = 0 }}\n\
         step = [{{ tool = {{ name = \"exec\", arguments = {{ command = {arguments} }} }} }}]\n\
         [[rule]]\nstep = [{{ text = \"{{{{ results[-1].content }}}}\" }}]\n"
    )
}

/// JSON and TOML quote what is used here in the same way.
fn toml_text(text: &str) -> String {
    Value::from(text).to_string()
}

/// A key with a beginning that occurs nowhere else.
pub const KEY: &str = "sk-zebra-0123456789-abcdefghij";

/// A job that is due once, at `at`, without tools. `retry` are keys of `[retry]`.
pub fn once_at(at: Timestamp, prompt: &str, retry: &str) -> String {
    format!(
        "[schedule]\nat = \"{at:.3}\"\n[agent]\nprompt = \"{prompt}\"\ntools = []\n\
         [retry]\n{retry}\n"
    )
}

/// The first whole second that is at least one second away.
pub fn soon() -> Timestamp {
    Timestamp::from_second(Timestamp::now().as_second() + 2).unwrap()
}
