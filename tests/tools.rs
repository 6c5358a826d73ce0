//! The native tools on real folders and with real commands.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use punctual::process::{
    Confinement, Household, RUN_MARKER, SupervisorPath, TreeEnd, base_environment,
};
use punctual::provider::{ToolCall, ToolDefinition};
use punctual::tools::{
    Arguments, ExecPolicy, SentTexts, Tool, ToolContext, ToolOutcome, ToolSet, Updates, Verdict,
    Workspace,
};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A workspace in a folder that has more in it, so that there is somewhere to escape to.
struct Desk {
    outside: TempDir,
    context: ToolContext,
    run_id: String,
}

impl Desk {
    fn new(name: &str, exec_allow: &[&str]) -> Self {
        let outside = tempfile::tempdir().unwrap();
        let root = outside.path().join("work");
        fs::create_dir(&root).unwrap();
        fs::write(outside.path().join("secret"), "secret\n").unwrap();
        let protected: Vec<PathBuf> =
            ["jobs", "state", "config.toml"].iter().map(|one| root.join(one)).collect();
        let run_id = format!("{name}-{}", std::process::id());
        let supervisor = SupervisorPath::at(env!("CARGO_BIN_EXE_punctual"));
        let context = ToolContext {
            workspace: Arc::new(Workspace::open(&root, &protected).unwrap()),
            household: Household::new(supervisor, run_id.as_str()),
            env: base_environment(),
            exec_policy: ExecPolicy::from_patterns(exec_allow).unwrap(),
            confinement: Confinement::Off,
            tool_timeout: Duration::from_secs(20),
            stop_grace: Duration::from_millis(300),
            sent: SentTexts::default(),
            updates: Updates::default(),
        };
        Self { outside, context, run_id }
    }

    fn root(&self) -> &Path {
        self.context.workspace.path()
    }

    fn file(&self, path: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.root().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path
    }

    async fn call(&self, name: &str, arguments: Value) -> ToolOutcome {
        call(&ToolSet::native(ToolSet::NATIVE).unwrap(), name, arguments, &self.context).await
    }

    async fn says(&self, name: &str, arguments: Value) -> (Verdict, String) {
        let outcome = self.call(name, arguments).await;
        (outcome.verdict, outcome.content)
    }

    fn marked(&self) -> usize {
        let entry = format!("{RUN_MARKER}={}", self.run_id);
        let carries = |path: PathBuf| {
            fs::read(path.join("environ"))
                .is_ok_and(|all| all.split(|&byte| byte == 0).any(|one| one == entry.as_bytes()))
        };
        fs::read_dir("/proc").unwrap().flatten().filter(|entry| carries(entry.path())).count()
    }
}

async fn call(set: &ToolSet, name: &str, arguments: Value, context: &ToolContext) -> ToolOutcome {
    let Value::Object(arguments) = arguments else { panic!("arguments are an object") };
    set.call(&ToolCall { id: "1".into(), name: name.into(), arguments }, context).await
}

fn ok(text: &str) -> (Verdict, String) {
    (Verdict::Ok, text.into())
}

#[tokio::test]
async fn files_are_read_written_edited_listed_and_searched() {
    let desk = Desk::new("files", &[]);
    let wrote = desk.says("write", json!({"path": "a/b/c.txt", "content": "one\ntwo\n"})).await;
    assert_eq!(wrote, ok("wrote 8 bytes to `a/b/c.txt`"));
    assert_eq!(desk.says("read", json!({"path": "a/b/c.txt"})).await, ok("one\ntwo\n"));
    let absolute = desk.root().join("a/./b/c.txt");
    let second = json!({"path": absolute.to_str().unwrap(), "offset": 2});
    assert_eq!(desk.says("read", second).await, ok("two\n"));
    let first = json!({"path": "a/../a/b/c.txt", "limit": 1});
    assert_eq!(desk.says("read", first).await, ok("one\n\n[… more; read on with offset 2 …]"));
    let edit = json!({"path": "a/b/c.txt", "old": "two", "new": "2"});
    assert_eq!(desk.says("edit", edit).await, ok("replaced the text at line 2 of `a/b/c.txt`"));
    assert_eq!(fs::read_to_string(absolute).unwrap(), "one\n2\n");
    symlink("a", desk.root().join("link")).unwrap();
    assert_eq!(desk.says("list", json!({"path": "."})).await, ok("a/\nlink@"));
    assert_eq!(desk.says("list", json!({"path": "link/b"})).await, ok("c.txt (6 bytes)"));
    let found = desk.says("grep", json!({"pattern": "^o.e$"})).await;
    assert_eq!(found, ok("a/b/c.txt:1: one"));
    let found = desk.says("grep", json!({"pattern": "2", "path": "a/b/c.txt"})).await;
    assert_eq!(found, ok("a/b/c.txt:2: 2"));
    assert_eq!(desk.says("grep", json!({"pattern": "nowhere"})).await, ok("no matches"));
}

#[tokio::test]
async fn mistakes_are_explained_to_the_model() {
    let desk = Desk::new("mistakes", &["*"]);
    desk.file("twice", "x x");
    desk.file("binary", b"ab\0cd");
    desk.file("folder/file", "");
    nix::unistd::mkfifo(&desk.root().join("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    for (name, arguments, words) in [
        ("read", json!({}), "missing field `path`"),
        ("read", json!({"path": 1}), "expected a string"),
        ("read", json!({"path": "none"}), "there is no `none`"),
        ("read", json!({"path": "folder"}), "`folder` is a folder; `list` shows it"),
        ("read", json!({"path": "binary"}), "is not text: 5 bytes of binary data"),
        ("read", json!({"path": "pipe"}), "is not a regular file"),
        ("read", json!({"path": "twice", "offset": 5}), "has no line 5"),
        ("write", json!({"path": "folder", "content": ""}), "`folder`: "),
        ("write", json!({"path": ".", "content": ""}), "does not name a file"),
        ("write", json!({"path": "twice/x", "content": ""}), "`twice/x`: "),
        ("write", json!({"path": "pipe", "content": ""}), "not a regular file"),
        ("write", json!({"path": "new/../x", "content": ""}), "goes back out"),
        ("edit", json!({"path": "twice", "old": "x", "new": "y"}), "more than once"),
        ("edit", json!({"path": "twice", "old": "z", "new": "y"}), "does not occur"),
        ("edit", json!({"path": "binary", "old": "zz", "new": "y"}), "does not occur"),
        ("list", json!({"path": "twice"}), "`twice`: "),
        ("grep", json!({"pattern": "("}), "the pattern is wrong"),
        ("grep", json!({"pattern": "x", "path": "none"}), "there is no `none`"),
        ("exec", json!({"command": "true", "timeout": "soon"}), "no length of time"),
        ("exec", json!({"command": "x".repeat(70_000)}), "longer than"),
    ] {
        let (verdict, content) = desk.says(name, arguments.clone()).await;
        assert_eq!(verdict, Verdict::Error, "{name} {arguments}: {content}");
        assert!(content.contains(words), "{name} {arguments}: {content}");
    }
    assert_eq!(fs::read_to_string(desk.root().join("twice")).unwrap(), "x x");
}

#[tokio::test]
async fn there_is_no_way_out_of_the_workspace() {
    let desk = Desk::new("escape", &[]);
    let secret = desk.outside.path().join("secret");
    let root = desk.root().to_owned();
    symlink(&secret, root.join("absolute")).unwrap();
    symlink("../secret", root.join("relative")).unwrap();
    symlink("..", root.join("up")).unwrap();
    symlink("/proc/self/root", root.join("proc")).unwrap();
    symlink("../new", root.join("dangling")).unwrap();
    let climbing = format!("{}/../secret", root.display());
    let beside = format!("{}-beside", root.display());
    let ways = [
        "../secret",
        "/etc/passwd",
        "absolute",
        "relative",
        "up/secret",
        "proc/etc/passwd",
        climbing.as_str(),
        beside.as_str(),
        secret.to_str().unwrap(),
    ];
    for path in ways {
        for (name, arguments) in [
            ("read", json!({"path": path})),
            ("write", json!({"path": path, "content": "x"})),
            ("edit", json!({"path": path, "old": "secret", "new": "x"})),
            ("list", json!({"path": path})),
            ("grep", json!({"path": path, "pattern": "secret"})),
        ] {
            let (verdict, content) = desk.says(name, arguments).await;
            assert_eq!(verdict, Verdict::Denied, "{name} {path}: {content}");
            assert!(content.ends_with("is outside the workspace"), "{name} {path}: {content}");
        }
    }
    for path in ["dangling", "up/new", "../new", "up/new/deep"] {
        let (verdict, content) = desk.says("write", json!({"path": path, "content": "x"})).await;
        assert_eq!(verdict, Verdict::Denied, "{path}: {content}");
    }
    assert_eq!(fs::read_to_string(secret).unwrap(), "secret\n");
    assert!(!desk.outside.path().join("new").exists());
    assert_eq!(desk.says("grep", json!({"pattern": "secret"})).await, ok("no matches"));
}

#[tokio::test]
async fn what_belongs_to_the_scheduler_is_never_written() {
    let desk = Desk::new("protected", &[]);
    let job = desk.file("jobs/daily.toml", "every = \"1h\"\n");
    let config = desk.file("config.toml", "x = 1\n");
    symlink("jobs", desk.root().join("elsewhere")).unwrap();
    symlink("config.toml", desk.root().join("settings")).unwrap();
    fs::hard_link(&config, desk.root().join("twin")).unwrap();
    for path in [
        "jobs/daily.toml",
        "jobs/new.toml",
        "jobs/deep/er/new.toml",
        "./jobs/../jobs/new.toml",
        "elsewhere/new.toml",
        "config.toml",
        "settings",
        "state/punctual.db",
        "state",
    ] {
        let (verdict, content) = desk.says("write", json!({"path": path, "content": "x"})).await;
        assert_eq!(verdict, Verdict::Denied, "{path}: {content}");
        assert!(content.ends_with("belongs to the scheduler; a run cannot change it"), "{content}");
    }
    let edit = json!({"path": "elsewhere/daily.toml", "old": "1h", "new": "1s"});
    assert_eq!(desk.says("edit", edit).await.0, Verdict::Denied);
    let twin = json!({"path": "twin", "content": "mine"});
    assert_eq!(desk.says("write", twin).await, ok("wrote 4 bytes to `twin`"));
    assert_eq!(fs::read_to_string(&config).unwrap(), "x = 1\n", "a hard link is cut, not followed");
    assert_eq!(desk.says("read", json!({"path": "jobs/daily.toml"})).await, ok("every = \"1h\"\n"));
    assert!(!desk.root().join("jobs/deep").exists() && !desk.root().join("state").exists());
    assert_eq!(fs::read_dir(job.parent().unwrap()).unwrap().count(), 1);
    let near = json!({"path": "jobs-of-mine/x", "content": "x"});
    assert_eq!(desk.says("write", near).await.0, Verdict::Ok);
}

#[tokio::test]
async fn a_file_is_replaced_whole_and_keeps_its_mode() {
    let desk = Desk::new("atomic", &[]);
    let path = desk.file("run.sh", "old");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o751)).unwrap();
    let reader = fs::File::open(&path).unwrap();
    let edit = json!({"path": "run.sh", "old": "old", "new": "new"});
    assert_eq!(desk.says("edit", edit).await.0, Verdict::Ok);
    assert_eq!(
        std::io::read_to_string(reader).unwrap(),
        "old",
        "who reads it sees one or the other"
    );
    assert_eq!(fs::read_to_string(&path).unwrap(), "new");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o751);
    let names: Vec<_> =
        fs::read_dir(desk.root()).unwrap().flatten().map(|one| one.file_name()).collect();
    assert_eq!(names, ["run.sh"], "no temporary file is left");
}

#[tokio::test]
async fn results_are_bounded() {
    let desk = Desk::new("bounded", &["*"]);
    desk.file("big", "0123456789abcdef\n".repeat(100_000));
    desk.file("line", "x".repeat(1_000_000));
    for number in 0..1200 {
        desk.file(&format!("many/{number:04}"), "");
    }
    let read = desk.call("read", json!({"path": "big"})).await;
    assert!(read.content.len() < 66 * 1024);
    assert!(
        read.content.ends_with("[… more; read on with offset 3856 …]"),
        "{}",
        read.content.len()
    );
    let found = desk.call("grep", json!({"pattern": "."})).await.content;
    assert!(found.lines().count() == 201 && found.ends_with("[… more was not searched …]"));
    let long = desk.call("grep", json!({"pattern": "x$", "path": "line"})).await.content;
    assert_eq!(long, format!("line:1: {}…", "x".repeat(300)));
    let listed = desk.call("list", json!({"path": "many"})).await.content;
    assert!(listed.ends_with("0999 (0 bytes)\n[… 200 more …]"));
    let printed = desk.call("exec", json!({"command": "cat big"})).await;
    assert_eq!((printed.verdict, printed.output_bytes), (Verdict::Ok, 1_700_000));
    assert!(printed.content.len() < 66 * 1024 && printed.content.contains("bytes omitted"));
    desk.context.household.end_all(Duration::ZERO).await;
}

#[tokio::test]
async fn commands_give_output_and_exit_code() {
    let desk = Desk::new("exec", &["*"]);
    desk.file("a.txt", "");
    let outcome = |content: &str, verdict, exit_code, output_bytes| ToolOutcome {
        content: content.into(),
        verdict,
        exit_code,
        output_bytes,
    };
    for (command, want) in [
        ("ls", outcome("a.txt\n", Verdict::Ok, Some(0), 6)),
        ("echo out; echo err >&2", outcome("out\nerr\n", Verdict::Ok, Some(0), 8)),
        ("test -f none", outcome("[exit code 1]", Verdict::Error, Some(1), 0)),
        ("printf x; exit 3", outcome("x\n[exit code 3]", Verdict::Error, Some(3), 1)),
        ("kill -9 $$", outcome("[ended by signal 9]", Verdict::Error, None, 0)),
        ("cat", outcome("", Verdict::Ok, Some(0), 0)),
        ("echo ${OPENAI_API_KEY:-none}", outcome("none\n", Verdict::Ok, Some(0), 5)),
    ] {
        assert_eq!(desk.call("exec", json!({"command": command})).await, want, "{command}");
    }
    assert_eq!(desk.context.household.end_all(Duration::ZERO).await, TreeEnd::default());
}

#[tokio::test]
async fn a_command_that_takes_too_long_is_ended_with_all_that_it_started() {
    let mut desk = Desk::new("slow", &["*"]);
    let command = "trap '' TERM; setsid sleep 60 & echo begun; sleep 61; sleep 62";
    let slow = desk.call("exec", json!({"command": command, "timeout": "500ms"})).await;
    assert_eq!((slow.verdict, slow.exit_code), (Verdict::TimedOut, None));
    assert!(slow.content.starts_with("begun\n[timed out after 500ms; "), "{}", slow.content);
    assert_eq!(desk.marked(), 0, "it is gone when the model is told");
    desk.context.tool_timeout = Duration::from_millis(400);
    let slow = desk.call("exec", json!({"command": "exec sleep 60", "timeout": "1h"})).await;
    assert_eq!(slow.content, "[timed out after 400ms; 1 processes were ended]");
    let end = desk.context.household.end_all(Duration::ZERO).await;
    assert!(end.killed >= 3 && end.left.is_empty(), "{end:?}");
    assert_eq!(desk.marked(), 0);
}

#[tokio::test]
async fn a_background_command_lives_until_the_end_of_the_run() {
    let desk = Desk::new("background", &["*"]);
    let outcome = desk.says("exec", json!({"command": "setsid sleep 60 & echo hi"})).await;
    assert_eq!(outcome, ok("hi\n"));
    assert_eq!(desk.marked(), 1);
    let end = desk.context.household.end_all(Duration::from_millis(300)).await;
    assert_eq!(end, TreeEnd { killed: 1, left: vec![] });
    assert_eq!(desk.marked(), 0);
}

#[tokio::test]
async fn commands_are_allowed_by_pattern_or_denied_at_once() {
    let desk = Desk::new("denied", &[]);
    let denied = desk.says("exec", json!({"command": "touch made"})).await;
    assert_eq!(denied, (Verdict::Denied, "commands are not allowed here".into()));
    let desk = Desk::new("allowed", &["echo *", "wc *"]);
    assert_eq!(desk.says("exec", json!({"command": "echo 'a b' | wc -c"})).await, ok("4\n"));
    for command in ["touch made", "echo x > made", "echo `touch made`", "echo x\ntouch made"] {
        let (verdict, content) = desk.says("exec", json!({"command": command})).await;
        assert_eq!(verdict, Verdict::Denied, "{command}: {content}");
    }
    assert!(!desk.root().join("made").exists());
    assert_eq!(desk.context.household.end_all(Duration::ZERO).await, TreeEnd::default());
}

#[tokio::test]
async fn only_what_is_offered_can_be_called() {
    let desk = Desk::new("offered", &["*"]);
    let set = ToolSet::native(ToolSet::READ_ONLY).unwrap();
    let denied = call(&set, "exec", json!({"command": "touch made"}), &desk.context).await;
    let text = "`exec` is not offered here; offered are read, list, grep";
    assert_eq!(denied, ToolOutcome::new(Verdict::Denied, text));
    let none = call(&ToolSet::default(), "read", json!({"path": "x"}), &desk.context).await;
    assert_eq!(none.content, "`read` is not offered here; no tools are");
    assert!(!desk.root().join("made").exists());
}

/// A tool with a name and a defect.
struct Broken(&'static str);

impl Tool for Broken {
    fn definition(&self) -> ToolDefinition {
        ToolDefinition { name: self.0.into(), description: String::new(), parameters: json!({}) }
    }

    fn call<'a>(&'a self, _: Arguments, _: &'a ToolContext) -> BoxFuture<'a, ToolOutcome> {
        match self.0 {
            "panics" => panic!("a defect"),
            "hangs" => std::future::pending().boxed(),
            _ => std::future::ready(ToolOutcome::new(Verdict::Ok, "€".repeat(1 << 20))).boxed(),
        }
    }
}

#[tokio::test]
async fn a_broken_tool_is_an_answer_too() {
    let mut desk = Desk::new("broken", &[]);
    desk.context.tool_timeout = Duration::from_millis(100);
    let set = ["panics", "hangs", "floods"]
        .into_iter()
        .fold(ToolSet::default(), |set, name| set.with(Arc::new(Broken(name))));
    let panics = call(&set, "panics", json!({}), &desk.context).await;
    assert_eq!(panics, ToolOutcome::new(Verdict::Error, "the tool itself failed"));
    let hangs = call(&set, "hangs", json!({}), &desk.context).await;
    let text = "`hangs` took longer than 100ms and was given up";
    assert_eq!(hangs, ToolOutcome::new(Verdict::TimedOut, text));
    let floods = call(&set, "floods", json!({}), &desk.context).await;
    assert!(floods.content.len() < 129 * 1024 && floods.content.ends_with("is omitted …]"));
    assert_eq!(floods.output_bytes, 3 << 20);
}
