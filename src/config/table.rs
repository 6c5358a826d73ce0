//! Every key of `config.toml`.

use crate::job::keys::{Key, Kind, Support, Zero};
use crate::job::table::{BLOCKS, COUNT_MAX, ENV, JOB, REASONING, RETENTION, THINKING, TIME, key};
use Kind::{Amount, Any, Bool, Integer, Map, Table, Tables, Text, TextMap, Texts, Words};
use Support::{Later, Now};

/// The keys of `config.toml`.
pub(crate) static CONFIG: &[Key] = &[
    key("jobs_dir", Text, r#""jobs""#, Now, "The folder of the job files."),
    key("state_dir", Text, r#""state""#, Now, "The folder of the database and the sessions."),
    key("timezone", Text, r#""UTC""#, Now, "The zone of jobs that name none."),
    key(
        "timezone_database",
        Words(&["newest", "bundled", "system"]),
        r#""newest""#,
        Now,
        "The built-in database, the host's, or the newer one.",
    ),
    key("scheduler", Table(SCHEDULER), "{}", Now, "How runs are started and ended."),
    key("lanes", Map(&Integer(1, 100_000)), "{}", Now, "Named lanes with a width."),
    key("agents", Table(AGENTS), "{}", Now, "What holds for every turn."),
    key("models", Table(MODELS), "{}", Now, "Where models are."),
    key("session", Table(SESSION), "{}", Now, "Sessions."),
    key("diagnostics", Table(DIAGNOSTICS), "{}", Now, "The look-out for stuck sessions."),
    key("gateway", Table(GATEWAY), "", Later, "JSON-RPC, event streams, dashboard."),
    key("targets", Map(&Table(TARGET)), "{}", Now, "Where replies and alerts can be sent."),
    key("security", Table(SECURITY), "{}", Now, "What is trusted."),
    key("calendars", TextMap, "{}", Now, "Files of dates or ranges, one a line, for `exclude`."),
    key("mcp", Table(MCP), "{}", Now, "MCP servers: tools of other programs."),
    key("skills", Table(SKILLS), "{}", Now, "Where skills are."),
    key("harnesses", Map(&Any), "", Later, "Other programs that drive a turn."),
    key("hooks", Tables(HOOKS), "", Now, "Commands that look in or step in."),
    key("defaults", Table(JOB), "", Now, "Job tables that every job starts from."),
    key("ceilings", Table(CEILINGS), "", Now, "What no job may exceed."),
    key("budget", Table(BUDGET), "", Now, "What all jobs may cost."),
    key("heartbeat", Table(HEARTBEAT), "", Now, "A ping of `serve` itself."),
    key(
        "retention",
        Table(RETENTION),
        "{}",
        Now,
        "How much history is kept, of jobs that do not say.",
    ),
];

static SCHEDULER: &[Key] = &[
    key(
        "max_concurrent_runs",
        Integer(0, 100_000),
        "8",
        Now,
        "Width of the global lane; 0 = none.",
    ),
    key("reload", Words(&["watch", "manual"]), r#""watch""#, Now, "How changed files are noticed."),
    key("shutdown_grace", TIME, r#""30s""#, Now, "How long runs may go on after a stop signal."),
    key("cleanup_timeout", TIME, r#""20s""#, Now, "The clean-up after the end of a run, in all."),
    key("setup_timeout", TIME, r#""1m""#, Now, "From a run's lanes to its turn, at most."),
];

static AGENTS: &[Key] = &[key("defaults", Table(AGENT_DEFAULTS), "{}", Now, "Of every turn.")];

static AGENT_DEFAULTS: &[Key] = &[
    key("model", Text, "", Now, "provider/model or an alias, for jobs that name none."),
    key("fallbacks", Texts, "[]", Now, "Models to go on with when one fails, for jobs without."),
    key(
        "timeout",
        Kind::Duration(Zero::Unlimited),
        "",
        Now,
        "The limit of a whole agent run, \"0s\" = unlimited; absent: 48h.",
    ),
    key("thinking", Words(THINKING), r#""off""#, Now, "How much it thinks."),
    key("verbose", Bool, "false", Now, "Tool summaries in the result."),
    key("trace", Bool, "false", Now, "Whether every request and answer is kept."),
    key("reasoning", Words(REASONING), r#""off""#, Now, "Whether thoughts are shown."),
    key("block_streaming", Words(BLOCKS), r#""off""#, Now, "When partial replies are told."),
];

static MODELS: &[Key] = &[
    key("aliases", TextMap, "{}", Now, "Other names of provider/model."),
    key("providers", Map(&Table(PROVIDER)), "{}", Now, "The places that answer."),
];

static PROVIDER: &[Key] = &[
    key(
        "api",
        Words(&["openai", "anthropic", "ollama", "script", "embedded"]),
        "",
        Now,
        "What it speaks.",
    ),
    key("base_url", Text, "", Now, "Where it is; default: the API's own place."),
    key("script", Text, "", Now, "For `api = \"script\"`: the file of answers."),
    key("api_key", Text, "", Now, "The key; better by one of the next two."),
    key("api_key_env", Text, "", Now, "The environment variable that holds it."),
    key("api_key_file", Text, "", Now, "The file that holds it."),
    key("auth", Tables(AUTH), "", Now, "Several keys, tried in order, in place of the one."),
    key("timeout", TIME, "", Now, "The limit of one request, and a stream's idle window."),
    key("first_token_timeout", TIME, "", Now, "The limit of the wait for the first token."),
    key(
        "models",
        Map(&Table(MODEL)),
        "{}",
        Now,
        "Its models; with none listed, any name is taken.",
    ),
];

static AUTH: &[Key] = &[
    key("name", Text, "", Now, "What it is called; stored with each attempt, unlike the key."),
    key("api_key", Text, "", Now, "The key; better by one of the next two."),
    key("api_key_env", Text, "", Now, "The environment variable that holds it."),
    key("api_key_file", Text, "", Now, "The file that holds it."),
];

static MODEL: &[Key] = &[
    key("context_window", Integer(256, COUNT_MAX), "", Now, "Tokens; absent: 32768."),
    key("max_output_tokens", Integer(1, COUNT_MAX), "", Now, "Tokens of one answer."),
    key("price", Table(PRICE), "", Now, "USD per million tokens; absent: cost unknown."),
];

static PRICE: &[Key] = &[
    key("input", Amount, "", Now, "Input tokens."),
    key("output", Amount, "", Now, "Output tokens."),
    key("cache_read", Amount, "", Now, "Tokens read from a cache."),
    key("cache_write", Amount, "", Now, "Tokens written to a cache."),
];

static SESSION: &[Key] = &[
    key("queue", Table(QUEUE), "{}", Now, "Messages that arrive while a session is busy."),
    key("write_lock", Table(WRITE_LOCK), "{}", Now, "The lock beside a transcript."),
];

static QUEUE: &[Key] = &[
    key(
        "mode",
        Words(&["steer", "followup", "collect", "interrupt"]),
        r#""steer""#,
        Now,
        "What becomes of them.",
    ),
    key("cap", Integer(1, 100_000), "20", Now, "How many wait."),
    key("debounce", TIME, r#""500ms""#, Now, "The quiet before a collected turn."),
];

static WRITE_LOCK: &[Key] =
    &[key("acquire_timeout", TIME, r#""1m""#, Now, "How long a writer waits for it.")];

static DIAGNOSTICS: &[Key] = &[
    key("enabled", Bool, "true", Now, "Whether it looks."),
    key("stuck_session_warn", TIME, r#""2m""#, Now, "Silence that is reported."),
    key(
        "stuck_session_abort",
        TIME,
        "",
        Now,
        "Silence that is ended; absent: max(5m, 3 × stuck_session_warn).",
    ),
];

static GATEWAY: &[Key] = &[
    key("bind", Text, r#""127.0.0.1:7077""#, Later, "Where it listens."),
    key("token", Text, "", Later, "The token of acting calls."),
    key("token_env", Text, "", Later, "The environment variable that holds it."),
    key("token_file", Text, "", Later, "The file that holds it."),
];

static TARGET: &[Key] = &[
    key("kind", Words(&["webhook", "slack", "email", "file", "command"]), "", Now, "What it is."),
    key("timeout", TIME, "", Now, "How long one try to send may take; absent: 30s."),
    key("url", Text, "", Now, "Of webhook and slack: the address; better by one of the next two."),
    key("url_env", Text, "", Now, "The environment variable that holds it."),
    key("url_file", Text, "", Now, "The file that holds it."),
    key("secret", Text, "", Now, "Of a webhook: signs the body; better by one of the next two."),
    key("secret_env", Text, "", Now, "The environment variable that holds it."),
    key("secret_file", Text, "", Now, "The file that holds it."),
    key("headers", TextMap, "", Now, "Of a webhook: more headers."),
    key("host", Text, "", Now, "Of email: the mail server."),
    key("port", Integer(1, 65_535), "", Now, "Its port; absent: 587, 465 or 25, by `tls`."),
    key(
        "tls",
        Words(&["starttls", "tls", "none"]),
        "",
        Now,
        "How the way there is kept private; absent: starttls.",
    ),
    key("ca_file", Text, "", Now, "A certificate to trust besides the usual ones."),
    key("user", Text, "", Now, "Whom the mail server knows us as."),
    key("password", Text, "", Now, "And by what; better by one of the next two."),
    key("password_env", Text, "", Now, "The environment variable that holds it."),
    key("password_file", Text, "", Now, "The file that holds it."),
    key("from", Text, "", Now, "The sender."),
    key("to", Texts, "", Now, "The receivers."),
    key("path", Text, "", Now, "Of a file: a template of its path."),
    key("argv", Texts, "", Now, "Of a command: program and arguments; gets the run as JSON."),
];

static SECURITY: &[Key] = &[
    key(
        "install_policy",
        Words(&["allow", "warn", "block"]),
        r#""warn""#,
        Now,
        "Whether `skills install` and `update` may: silently, with words, or not at all.",
    ),
    key(
        "allow_hosts",
        Texts,
        "[]",
        Now,
        "Private hosts that may be reached, by name or address, with or without a port.",
    ),
];

static MCP: &[Key] = &[key("servers", Map(&Table(MCP_SERVER)), "{}", Now, "The servers by name.")];

static MCP_SERVER: &[Key] = &[
    key("command", Texts, "", Now, "Program and arguments of one that is started for each run."),
    key("env", Table(ENV), "{}", Now, "What it sees beside what the job's commands see."),
    key("url", Text, "", Now, "The address of one that runs already (streamable HTTP)."),
    key("url_env", Text, "", Now, "The environment variable that holds it."),
    key("url_file", Text, "", Now, "The file that holds it."),
    key("token", Text, "", Now, "Of a `url`: the bearer token; better by one of the next two."),
    key("token_env", Text, "", Now, "The environment variable that holds it."),
    key("token_file", Text, "", Now, "The file that holds it."),
    key("headers", TextMap, "{}", Now, "Of a `url`: more headers."),
    key("headers_env", TextMap, "{}", Now, "Headers, and the variables that hold their values."),
    key("headers_file", TextMap, "{}", Now, "Headers, and the files that hold their values."),
    key("tools", Texts, "", Now, "Patterns of the tools that are offered; absent: all."),
    key("timeout", TIME, "", Now, "One call, never above the job's `tool_timeout`."),
    key("idle_timeout", TIME, "", Now, "One call's wait for an answer or a sign of progress."),
    key("start_timeout", TIME, r#""30s""#, Now, "From its start to the list of its tools."),
];

static SKILLS: &[Key] = &[
    key("dirs", Texts, "[]", Now, "Folders of skills; the first that has one is meant."),
    key("entries", Map(&Table(SKILL)), "{}", Now, "What is set for skills, by their names."),
];

static SKILL: &[Key] =
    &[key("env", Table(ENV), "", Now, "Added to the environment of runs that have this skill.")];

static HOOKS: &[Key] = &[
    key("on", Text, "", Now, "The point, such as before_tool_call."),
    key("command", Texts, "", Now, "Program and arguments; JSON on its input and its output."),
    key("name", Text, "", Now, "What it is called in the history; absent: the program's name."),
    key("priority", Integer(-1_000_000, 1_000_000), "0", Now, "High before low."),
    key(
        "timeout",
        TIME,
        "",
        Now,
        "How long it may take; absent, and at most: 15s, of an observer 30s.",
    ),
];

static CEILINGS: &[Key] = &[
    key("max_usd", Amount, "", Now, "The cost of a run in USD."),
    key("max_tokens", Integer(1, COUNT_MAX), "", Now, "The tokens of a run."),
    key("timeout", TIME, "", Now, "The time of a run."),
    key("tools", Texts, "", Now, "The tools on offer."),
    key("exec_allow", Texts, "", Now, "The commands of `exec`."),
    key(
        "sandbox",
        Words(&["strict", "workspace", "off"]),
        "",
        Now,
        "The laxest `sandbox`; \"strict\" also where a job names none.",
    ),
    key("network", Words(&["on", "off"]), "", Now, "\"off\": none for any job's tools."),
];

static BUDGET: &[Key] =
    &[key("max_usd_per_day", Amount, "", Now, "The cost of a day, all jobs together, in USD.")];

static HEARTBEAT: &[Key] = &[
    key("url", Text, "", Now, "Where to ping."),
    key("url_env", Text, "", Now, "The environment variable that holds it."),
    key("url_file", Text, "", Now, "The file that holds it."),
    key("every", TIME, r#""1m""#, Now, "How often; at least 10s."),
];
