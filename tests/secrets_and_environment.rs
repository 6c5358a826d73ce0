//! What a command gets from outside: secrets that nothing stored repeats, variables, a folder.

#[expect(dead_code, reason = "the other tests of the whole program use the rest")]
mod support;

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, InotifyEvent, WatchDescriptor};
use nix::sys::stat::Mode;
use serde_json::{Value, json};
use support::scripts::{KEY, exec_job, exec_script, soon};
use support::stub::{Act, Stub, call, event, finish, head, reply, text};
use support::{asking, scripted};

#[test]
fn a_key_that_the_model_repeats_is_masked_everywhere() {
    let stub = Stub::new(|n| {
        if n == 0 {
            let thought = event(&json!({
                "choices": [{"index": 0, "delta": {"reasoning_content": format!("it is {KEY}")}}],
            }));
            let call = call("exec", &json!({"command": format!("echo {KEY}")}).to_string());
            return vec![Act::Say(head() + &thought + &call + &finish("tool_calls"))];
        }
        let (a, b) = (text("the key is sk-zeb"), text("ra-0123456789-abcdefghij, keep it"));
        vec![
            Act::Say(head() + &a),
            Act::Wait(Duration::from_millis(300)),
            Act::Say(b + &finish("stop")),
        ]
    });
    let house = asking(&stub, "api_key_env = \"MODEL_KEY\"", "").with_secret("MODEL_KEY", KEY);
    let job = exec_job("").replacen("[agent]\n", "[agent]\nreasoning = \"stream\"\n", 1);
    house.job("j", &job);
    let serve = house.serve();
    let events = house.follow("j");
    assert_eq!(serve.stop().code, Some(0));
    let said = |key: &str| {
        let pieces = events.iter().filter(|event| event["phase"] == "update");
        pieces.filter_map(|event| event[key].as_str()).collect::<String>()
    };
    assert_eq!(said("text"), "the key is [secret key of local], keep it");
    assert_eq!(said("reasoning"), "it is [secret key of local]");
    house.write("events.json", &Value::from(events.clone()).to_string());

    assert_eq!(
        house.value("SELECT reply FROM v1_runs"),
        "the key is [secret key of local], keep it"
    );
    house.say(&["logs", "j"]);
    house.say(&["logs", "j", "--json"]);
    house.say(&["runs", "--json"]);
    for secret in [KEY, &KEY[..8], "sk-zeb"] {
        assert_eq!(house.files_with(secret), Vec::<std::path::PathBuf>::new());
    }
}

#[test]
fn secrets_reach_the_commands_and_nothing_that_is_stored() {
    const SECRET: &str = "hunter2-correct-horse";
    let check = format!("test \"$TOKEN\" = {SECRET} && echo right; echo \"$TOKEN\"");
    // Written in pieces: the script file itself must not hold it.
    let check = check.replace(SECRET, "\"$(printf %s%s hunt er2-correct-horse)\"");
    let house = scripted(&exec_script(&check), "").with_secret("HOUSE_TOKEN", SECRET);
    house.job(
        "j",
        &format!("{}[env]\nsecret = {{ TOKEN = {{ env = \"HOUSE_TOKEN\" }} }}\n", exec_job("")),
    );
    let (code, run) = house.run("j");
    assert_eq!(code, Some(0));
    assert_eq!(run["reply"], "right\n[secret TOKEN]\n");
    house.say(&["logs", "j"]);
    house.say(&["show", "j", "--effective"]);
    for secret in [SECRET, &SECRET[..8]] {
        assert_eq!(house.files_with(secret), Vec::<std::path::PathBuf>::new());
    }
}

#[test]
fn commands_see_an_allow_list_of_the_environment() {
    let house = scripted(&exec_script("env | cut -d= -f1 | sort"), "")
        .with_secret("MODEL_KEY", KEY)
        .with_env("SSH_AUTH_SOCK", "/nowhere")
        .with_env("PGHOST", "db");
    house.job(
        "j",
        &format!("{}[env]\nset = {{ COLOR = \"red\" }}\npass = [\"PGHOST\"]\n", exec_job("")),
    );
    let (_, run) = house.run("j");
    let names: BTreeSet<_> = run["reply"].as_str().unwrap().lines().collect();
    // What a shell sets by itself says nothing about us.
    let of_the_shell = ["_", "OLDPWD", "PWD", "SHLVL"];
    let names: Vec<_> = names.into_iter().filter(|name| !of_the_shell.contains(name)).collect();
    assert_eq!(names, ["COLOR", "HOME", "LANG", "PATH", "PGHOST", "PUNCTUAL_RUN_ID", "TMPDIR"]);
}

// B107
#[test]
fn commands_see_the_same_whoever_starts_them_and_no_profile_adds_to_it() {
    let house = scripted(&exec_script("env"), "");
    for name in [".profile", ".bash_profile", ".bash_login", ".bashrc", ".shrc", ".zshenv"] {
        house.write(name, "echo from the profile; export FROM_PROFILE=1; sleep 60\n");
    }
    house.job("by-hand", &exec_job(""));
    house.job("j", &format!("{}[schedule]\nat = \"{:.3}\"\n", exec_job(""), soon()));
    // Of each run its own are the marker and the folders.
    let seen = |run: &Value| {
        assert_eq!(run["state"], "succeeded", "{run:#}");
        let lines = run["reply"].as_str().unwrap().lines();
        let own = |line: &&str| {
            ["PUNCTUAL_RUN_ID=", "PWD=", "TMPDIR="].iter().any(|it| line.starts_with(it))
        };
        lines.filter(|line| !own(line)).map(str::to_owned).collect::<BTreeSet<_>>()
    };
    let alone = seen(&house.run("by-hand").1);
    let serve = house.serve();
    let served = seen(&house.run("by-hand").1);
    house.until("SELECT finished_at IS NOT NULL FROM v1_runs WHERE job = 'j'");
    let run_id = house.value("SELECT run_id FROM v1_runs WHERE job = 'j'");
    let scheduled = seen(&house.ended(run_id.as_str().unwrap()));
    assert_eq!(serve.stop().code, Some(0));
    assert_eq!(alone, served);
    assert_eq!(alone, scheduled);
    let home = house.path("config.toml").parent().unwrap().display().to_string();
    assert!(alone.contains(&format!("HOME={home}")), "{alone:?}");
    let strange =
        |line: &&String| line.contains("from the profile") || line.starts_with("FROM_PROFILE");
    assert_eq!(alone.iter().find(strange), None);
    let longest = house.value("SELECT max(duration_ms) FROM v1_tool_calls");
    assert!(longest.as_u64().unwrap() < 30_000, "{longest}: half as long as a profile takes");
}

#[test]
fn commands_have_an_empty_standard_input() {
    let house = scripted(&exec_script("cat; echo over"), "");
    house.job("j", &exec_job("tool_timeout = \"20s\""));
    assert_eq!(house.run("j").1["reply"], "over\n");
}

#[test]
fn a_workdir_is_the_jobs_and_a_fresh_workspace_is_gone_afterwards() {
    let house = scripted(&exec_script("touch mark; pwd"), "");
    std::fs::create_dir(house.path("work")).unwrap();
    house.job("named", &exec_job("").replace("[limits]", "workdir = \"../work\"\n[limits]"));
    house.job("fresh", &exec_job(""));
    let place = |job| house.run(job).1["reply"].as_str().unwrap().trim().to_owned();
    assert_eq!(place("named"), house.path("work").canonicalize().unwrap().to_str().unwrap());
    assert!(house.path("work/mark").exists());
    let fresh = place("fresh");
    let workspaces = house.path("state/workspaces").canonicalize().unwrap();
    assert!(fresh.starts_with(workspaces.to_str().unwrap()), "{fresh}");
    assert!(!std::path::Path::new(&fresh).exists());
    assert_eq!(std::fs::read_dir(workspaces).unwrap().count(), 0);
}

/// What is opened below a folder, as the kernel tells it.
struct Watched {
    inotify: Inotify,
    names: HashMap<WatchDescriptor, PathBuf>,
}

impl Watched {
    fn new(root: &Path) -> Self {
        let flags = InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC;
        let inotify = Inotify::init(flags).unwrap();
        let mut folders = vec![root.to_owned()];
        let mut names = HashMap::new();
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(&folder).unwrap().flatten() {
                if entry.file_type().unwrap().is_dir() {
                    folders.push(entry.path());
                }
            }
            let watch = inotify.add_watch(&folder, AddWatchFlags::IN_OPEN).unwrap();
            names.insert(watch, folder.strip_prefix(root).unwrap().to_owned());
        }
        // It has looked itself.
        let watched = Self { inotify, names };
        watched.opened();
        watched
    }

    /// What has been opened since the last look. The folder itself has no name.
    fn opened(&self) -> BTreeSet<PathBuf> {
        let events = std::iter::from_fn(|| self.inotify.read_events().ok()).flatten();
        let path = |event: InotifyEvent| self.names[&event.wd].join(event.name.unwrap_or_default());
        events.map(path).filter(|path| path != Path::new("")).collect()
    }
}

#[test]
fn nothing_of_a_workdir_is_opened_unless_a_tool_asks() {
    let stub = Stub::new(|n| match n {
        1 => vec![Act::Say(
            head() + &call("read", "{\"path\": \"src/AGENTS.md\"}") + &finish("tool_calls"),
        )],
        _ => vec![Act::Say(reply("fine"))],
    });
    let house = asking(&stub, "", "");
    let work = house.path("work");
    for folder in ["", "src", "src/deep/er", ".git/objects", "node_modules/one", ".claude"] {
        std::fs::create_dir_all(work.join(folder)).unwrap();
        for name in ["AGENTS.md", "CLAUDE.md", ".cursorrules", "README.md", ".env", "config.toml"] {
            std::fs::write(work.join(folder).join(name), "what an unasked reader finds").unwrap();
        }
    }
    // Whoever opened this one would wait for ever.
    nix::unistd::mkfifo(&work.join("GEMINI.md"), Mode::S_IRWXU).unwrap();
    let job = "[agent]\nprompt = \"go\"\ntools = [\"read\"]\nworkdir = \"../work\"\n";
    // Else the workspace's own AGENTS.md would be.
    house.job("j", &format!("{job}light_context = true\n"));
    let watched = Watched::new(&work);
    assert_eq!(house.run("j").0, Some(0));
    assert_eq!(watched.opened(), BTreeSet::new());
    assert!(!stub.requests()[0].to_string().contains("unasked"));
    // A tool opens what it names and nothing else.
    let (code, run) = house.run("j");
    assert_eq!((code, &run["tools"]["calls"]), (Some(0), &json!(1)), "{run:#}");
    let asked = ["src", "src/AGENTS.md"].map(PathBuf::from);
    let opened = watched.opened();
    assert!(opened.contains(&asked[1]), "{opened:?}");
    assert!(opened.iter().all(|it| asked.contains(it)), "{opened:?}");
    assert!(stub.requests()[2].to_string().contains("unasked"));
}
