//! Attempts to get out of a sandbox, with the real binary and a real daemon.
//!
//! Each run does everything that is in a table, a call a turn; what comes of it is looked at from
//! outside. semantics §10: paths stay inside the workspace; `jobs_dir`, `state_dir` and `config.toml` are
//! never writable; a run cannot start, edit or pause jobs.

#[expect(dead_code, reason = "the other tests of the whole program use the rest")]
mod support;

use std::fs;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use punctual::process::{Filters, offered};
use serde_json::{Value, json};
use support::scripts::PLAIN;
use support::stub::{Act, Stub, finish, head, text};
use support::{House, asking};
use tempfile::TempDir;

/// What nobody may get to read.
const CANARY: &str = "canary-4711-alive";

/// Whether a strict job can run here.
fn is_whole() -> bool {
    let offer = offered();
    let is_whole = offer.landlock >= Some(6) && offer.filters == Filters::Some;
    if !is_whole {
        eprintln!("skipped: this kernel cannot hold a strict sandbox: {offer:?}");
    }
    is_whole
}

/// Whether whoever runs this may have mounts of their own.
fn has_mounts() -> bool {
    let asked = std::process::Command::new("unshare").args(["-Urm", "true"]).status();
    let has_mounts = asked.is_ok_and(|status| status.success());
    if !has_mounts {
        eprintln!("skipped: modes, owners and times, since there are no mounts of one's own here");
    }
    has_mounts
}

/// A file that is nobody's business, in a folder of its own.
struct Cage {
    _dir: TempDir,
    file: PathBuf,
}

impl Cage {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().canonicalize().unwrap().join("canary");
        fs::write(&file, CANARY).unwrap();
        Self { _dir: dir, file }
    }

    fn path(&self) -> &str {
        self.file.to_str().unwrap()
    }

    /// Content, mode, owner, links: whatever a change could be seen by.
    fn state(&self) -> (String, u32, u32, u64, i64, i64) {
        let it = fs::symlink_metadata(&self.file).unwrap();
        let text = fs::read_to_string(&self.file).unwrap();
        (text, it.mode(), it.uid(), it.nlink(), it.mtime(), it.mtime_nsec())
    }

    fn neighbours(&self) -> usize {
        fs::read_dir(self.file.parent().unwrap()).unwrap().count()
    }
}

/// Commands that try to read or to change the file `$C`, the folder `$S` or the process `$D`.
const ATTEMPTS: &[&str] = &[
    // Absolute paths, parent steps.
    "cat $C",
    "echo dead > $C",
    ": > $C",
    "truncate -s 0 $C",
    "cat ./../../../../../../../../../../../..$C",
    "echo dead > ../../../../../../../../../../../..$C",
    "cd / && cat .$C",
    "rm -f $C; rmdir $(dirname $C)",
    "dd if=/dev/zero of=$C bs=1 count=1",
    // Modes, owners, times, attributes.
    "chmod 777 $C",
    "chown 1:1 $C",
    "touch $C",
    "touch $(dirname $C)/new",
    "mkdir $(dirname $C)/new",
    // Links.
    "ln -s $C soft && cat soft",
    "echo dead > soft",
    "ln -s $(dirname $C) folder && cat folder/canary; echo dead > folder/canary",
    "ln $C hard && cat hard; echo dead >> hard",
    "ln -L soft harder && cat harder",
    // Copies and moves.
    "cp $C copy && cat copy",
    "cp --reflink=always $C copy && cat copy",
    "mv $C here && cat here",
    "echo dead > mine; mv -f mine $C",
    "echo dead > mine; cp -f mine $C",
    "tar cf - $C | tar xOf -",
    // What `/proc` leads to.
    "cat /proc/self/root$C",
    "cat /proc/$$/root$C; cat /proc/$PPID/root$C; cat /proc/1/root$C; cat /proc/$D/root$C",
    "echo dead > /proc/1/root$C; echo dead > /proc/$D/root$C",
    "cat /proc/self/cwd/../../../../../../../../../../..$C",
    "cat /proc/$D/cwd/$C; cat /proc/$D/environ; cat /proc/$D/mem",
    "for fd in /proc/$D/fd/* /proc/$PPID/fd/*; do timeout 1 head -c 100 $fd; done",
    "for fd in 3 4 5 6 7 8 9; do sh -c \"cat <&$fd; echo dead >&$fd\"; done",
    // Names.
    "cat $(printf './%.0s' $(seq 3000))..$C",
    "cat $(echo $C | tr a-z A-Z)",
    "i=0; while [ $i -lt 300 ]; do mkdir d && cd d || break; i=$((i+1)); done; cat $C",
    "find / -maxdepth 4 -name canary -exec cat {} + 2>/dev/null | head -c 1000",
    // Worlds of one's own, devices.
    "unshare -Ur sh -c \"mount --bind $(dirname $C) . && cat canary; echo dead > $C\"",
    "unshare -m sh -c \"mount --bind / . && cat .$C\"",
    "unshare -Urm sh -c \"mount -t tmpfs none $(dirname $C)\"",
    "mount -o remount,rw / && echo dead > $C",
    "umount -l $(dirname $C); umount -l .",
    "chroot / cat $C",
    "mknod disk b 254 0 && head -c 10 disk",
    "mknod disk b 8 0 && head -c 10 disk",
    "mkfifo pipe && (cat $C > pipe & timeout 1 cat pipe)",
    // Other processes.
    // The daemon stands for all: whoever breaks the sandbox and tries this loses no more than it.
    "kill -9 $D; kill -STOP $D",
    "strace -f -o trace -p $D & sleep 0.3; kill %1",
    "setsid sh -c 'sleep 0.3; cat $C; echo dead > $C' & sleep 0.6",
    "(trap '' TERM; cat $C; echo dead > $C) &",
    // The scheduler's own things.
    "cat $S/punctual.db $S/sessions/*.jsonl $S/gateway.token | head -c 100000",
    "echo dead > $S/punctual.db; touch $S/new; rm -rf $S/sessions",
    "cat $S/workspaces/*/theirs; ls $S/workspaces/*/",
    "echo 'enabled = false' > $J/other.toml; rm -f $J/other.toml; touch $J/new.toml; mv $J away",
    "echo dead > $J/../config.toml; mv $J/../config.toml .",
    "perl -MIO::Socket::UNIX -e '$s = IO::Socket::UNIX->new(Peer => \"$ENV{S}/punctual.sock\") or \
     die \"no way: $!\"; print $s qq({\"verb\":\"pause\",\"job\":\"other\",\"until\":null,\
     \"reason\":null}\\n); print <$s>'",
    // Too much.
    "truncate -s 9G big; ls big",
    "ulimit -c unlimited; sh -c 'kill -SEGV $$'; ls core*",
];

fn job(mode: &str, cage: &Cage, house: &House, serve: u32, keys: &str) -> String {
    let place = |name: &str| house.path(name).canonicalize().unwrap().display().to_string();
    format!(
        "[agent]\nprompt = \"go\"\ntools = [\"exec\", \"read\", \"write\", \"edit\", \"list\", \
         \"grep\"]\nexec_allow = [\"*\"]\nsandbox = \"{mode}\"\n{keys}\n\
         [env.set]\nC = \"{}\"\nS = \"{}\"\nJ = \"{}\"\nD = \"{serve}\"\n\
         [limits]\nmax_turns = 200\nmax_tokens = 100000000\n",
        cage.path(),
        place("state"),
        place("jobs")
    )
}

/// Does all of `wanted` in one run of a job in `mode`, under a real daemon.
fn attempt(mode: &str, keys: &str, cage: &Cage, wanted: &[(&'static str, Value)]) -> Attempted {
    let count = wanted.len();
    let stub = Stub::calling(wanted);
    let house = asking(&stub, "", "");
    house.job("other", PLAIN);
    let serve = house.serve();
    house.job("tries", &job(mode, cage, &house, serve.pid(), keys));
    assert_eq!(house.say(&["reload"]).code, Some(0));
    fs::create_dir_all(house.path("state/workspaces/another")).unwrap();
    house.write("state/workspaces/another/theirs", CANARY);
    let config = fs::read_to_string(house.path("config.toml")).unwrap();
    let (code, run) = house.run("tries");
    assert_eq!((code, &run["reply"]), (Some(0), &json!("fine")), "{run:#} {}", serve.stderr());

    // The daemon lives, the other job is as it was, and so are all files.
    let paused = "SELECT paused_reason FROM v1_jobs WHERE job = 'other'";
    assert_eq!(house.value(paused), Value::Null);
    assert_eq!(fs::read_to_string(house.path("jobs/other.toml")).unwrap(), PLAIN);
    assert_eq!(fs::read_dir(house.path("jobs")).unwrap().count(), 2);
    assert_eq!(fs::read_to_string(house.path("config.toml")).unwrap(), config);
    assert!(!house.path("state/new").exists());
    house.assert_nothing_is_left();
    // The run's own folders are gone.
    let mut kept = fs::read_dir(house.path("state/workspaces")).unwrap().flatten();
    assert!(kept.all(|entry| entry.file_name() == "another"));
    assert_eq!(serve.stop().code, Some(0));
    let said = stub.told();
    assert_eq!(said.len(), count);
    Attempted { said, _house: house }
}

struct Attempted {
    said: Vec<String>,
    _house: House,
}

fn exec(command: &str) -> (&'static str, Value) {
    ("exec", json!({ "command": command, "timeout": "20s" }))
}

/// faults B144: a run changes other jobs.
#[test]
fn a_strict_job_can_neither_read_nor_change_what_is_outside() {
    if !is_whole() {
        return;
    }
    let cage = Cage::new();
    let before = cage.state();
    let wanted: Vec<_> = ATTEMPTS.iter().map(|&command| exec(command)).collect();
    let attempted = attempt("strict", "network = \"on\"", &cage, &wanted);
    for (command, said) in ATTEMPTS.iter().zip(&attempted.said) {
        assert!(!said.contains(CANARY), "{command}: {said}");
        assert!(!said.contains("SQLite format"), "{command}: {said}");
        assert!(!command.contains("punctual.sock") || said.contains("no way"), "{command}: {said}");
        let is_told = said.contains("File size limit");
        assert!(!command.contains("truncate -s 9G") || is_told, "{command}: {said}");
        assert!(!command.contains("ulimit -c") || said.contains("cannot access"), "{said}");
    }
    assert_eq!(cage.state(), before);
    assert_eq!(cage.neighbours(), 1);
}

#[test]
fn a_job_in_its_workspace_can_change_nothing_outside() {
    if !is_whole() {
        return;
    }
    let cage = Cage::new();
    let before = cage.state();
    let of_modes = |it: &&&str| ["chmod", "chown", "touch $C"].iter().any(|on| it.starts_with(on));
    // Without mounts of our own only a strict job is kept from those.
    let has_mounts = has_mounts();
    let tries: Vec<_> = ATTEMPTS.iter().filter(|it| has_mounts || !of_modes(it)).collect();
    let wanted: Vec<_> = tries.iter().map(|command| exec(command)).collect();
    let attempted = attempt("workspace", "", &cage, &wanted);
    for (command, said) in tries.iter().zip(&attempted.said) {
        // It may look at the cage, but not at what is the scheduler's.
        assert!(!said.contains("SQLite format"), "{command}: {said}");
        assert!(!command.contains("theirs") || !said.contains(CANARY), "{command}: {said}");
        // The socket answers everybody of this user, but not a run.
        let is_told = said.contains("cannot ask the scheduler") || said.contains("no way");
        assert!(!command.contains("punctual.sock") || is_told, "{command}: {said}");
    }
    assert_eq!(cage.state(), before);
    assert_eq!(cage.neighbours(), 1);
}

/// The same of the file tools, against links that are made while they work.
#[test]
fn file_tools_are_not_led_out_by_links_that_come_and_go() {
    let cage = Cage::new();
    let before = cage.state();
    let work = tempfile::tempdir().unwrap();
    let (root, canary) = (work.path().canonicalize().unwrap(), cage.path().to_owned());
    fs::create_dir(root.join("real")).unwrap();
    fs::write(root.join("real/canary"), "mine").unwrap();
    let long = "x".repeat(5_000);
    let deep = "d/".repeat(3_000);
    let mut wanted = Vec::new();
    for _ in 0..12 {
        wanted.push(("read", json!({ "path": "swing/canary" })));
        wanted.push(("write", json!({ "path": "swing/canary", "content": "dead" })));
        wanted.push(("edit", json!({ "path": "swing/canary", "old": "canary", "new": "dead" })));
        wanted.push(("grep", json!({ "pattern": "alive", "path": "swing" })));
    }
    for path in [
        canary.as_str(),
        &format!("../../../../../../..{canary}"),
        &format!("/proc/self/root{canary}"),
        &format!("/proc/self/cwd/../../../../..{canary}"),
        "/proc/self/fd/3",
        "real/../../canary",
        "a\0/../../canary",
        &long,
        &deep,
        "REAL/../../CANARY",
    ] {
        wanted.push(("read", json!({ "path": path })));
        wanted.push(("write", json!({ "path": path, "content": "dead" })));
    }
    let stop = Arc::new(AtomicBool::new(false));
    let swinging = {
        let (stop, root, outside) = (Arc::clone(&stop), root.clone(), cage.file.clone());
        let outside = outside.parent().unwrap().to_owned();
        std::thread::spawn(move || swing(&root, &outside, &stop))
    };
    let workdir = format!("workdir = \"{}\"", root.display());
    let attempted = attempt("workspace", &workdir, &cage, &wanted);
    stop.store(true, Ordering::Relaxed);
    assert!(swinging.join().unwrap() > 100, "the link came and went while the tools worked");
    for said in &attempted.said {
        assert!(!said.contains(CANARY), "{said}");
    }
    assert_eq!(cage.state(), before);
    assert_eq!(cage.neighbours(), 1);
}

/// Makes `swing` lead inside and outside in turns; returns how often.
fn swing(root: &Path, outside: &Path, stop: &AtomicBool) -> usize {
    let mut turns = 0;
    while !stop.load(Ordering::Relaxed) {
        for to in [Path::new("real"), outside] {
            symlink(to, root.join("next")).unwrap();
            fs::rename(root.join("next"), root.join("swing")).unwrap();
            turns += 1;
        }
    }
    turns
}

/// A folder that a job works in may hold jobs, state and configuration.
#[test]
fn a_workdir_with_the_scheduler_in_it_is_writable_around_that() {
    if !is_whole() {
        return;
    }
    let stub = Stub::calling(&[
        exec("echo x > jobs/other.toml; touch jobs/new.toml; mv jobs aside; rm -rf jobs"),
        exec("cat state/punctual.db | head -c 15; touch state/new; mv state aside"),
        exec("echo x > config.toml; rm -f config.toml; mv config.toml aside"),
        exec("mkdir -p src && echo fn > src/main.rs && cat src/main.rs jobs/other.toml"),
        exec("echo kept > $TMPDIR/x && cat $TMPDIR/x"),
        ("read", json!({ "path": "state/punctual.db" })),
        ("list", json!({ "path": "state" })),
    ]);
    let house = asking(&stub, "", "");
    house.job("other", PLAIN);
    fs::create_dir(house.path("src")).unwrap();
    let config = fs::read_to_string(house.path("config.toml")).unwrap();
    let tools = "tools = [\"exec\", \"read\", \"list\"]\nexec_allow = [\"*\"]";
    house.job("j", &format!("[agent]\nprompt = \"go\"\n{tools}\nworkdir = \"..\"\n"));
    let (code, run) = house.run("j");
    assert_eq!((code, &run["reply"]), (Some(0), &json!("fine")), "{run:#}");
    assert_eq!(fs::read_to_string(house.path("jobs/other.toml")).unwrap(), PLAIN);
    assert_eq!(fs::read_to_string(house.path("config.toml")).unwrap(), config);
    assert!(!house.path("jobs/new.toml").exists() && !house.path("aside").exists());
    assert!(!house.path("state/new").exists());
    let said = stub.told();
    assert!(!said[1].contains("SQLite"), "{}", said[1]);
    assert!(said[3].contains("fn\n[agent]"), "{}", said[3]);
    assert!(said[4].contains("kept"), "{}", said[4]);
    for refused in &said[5..] {
        assert!(refused.contains("belongs to the scheduler"), "{refused}");
    }
}

/// A kernel without Landlock, played by a filter that every process started from here inherits.
#[test]
fn a_strict_job_does_not_run_where_it_cannot_be_confined() {
    use seccompiler::{SeccompAction, SeccompFilter, apply_filter};
    let stub = Stub::answering(|_| vec![Act::Say(head() + &text("fine") + &finish("stop"))]);
    let house = asking(&stub, "", "").with_env("PUNCTUAL_LOG", "warn");
    house.job("strict", "[agent]\nprompt = \"go\"\nsandbox = \"strict\"\n");
    house.job("usual", "[agent]\nprompt = \"go\"\n");
    let without = std::thread::spawn(move || {
        let create_ruleset = 444;
        let filter = SeccompFilter::new(
            [(create_ruleset, vec![])].into(),
            SeccompAction::Allow,
            SeccompAction::Errno(38),
            std::env::consts::ARCH.try_into().unwrap(),
        );
        let program: seccompiler::BpfProgram = filter.unwrap().try_into().unwrap();
        apply_filter(&program).unwrap();
        let (code, run) = house.run("strict");
        assert_eq!((code, &run["state"]), (Some(1), &json!("failed")), "{run:#}");
        assert_eq!(run["error"]["kind"], "sandbox_unavailable");
        assert!(run["error"]["message"].as_str().unwrap().contains("no Landlock"), "{run:#}");
        assert_eq!(run["attempts"], json!([]));
        let said = house.start(&["run", "usual", "--json"]).end();
        assert_eq!(said.code, Some(0), "{said:?}");
        assert!(said.stderr.contains("confined in part only"), "{said:?}");
        let said = house.say(&["validate"]);
        assert!(said.stdout.contains("strict jobs cannot run here"), "{said:?}");
        let said = house.say(&["doctor"]);
        assert!(said.stdout.contains("no Landlock"), "{said:?}");
    });
    without.join().unwrap();
    // Before any model call.
    assert_eq!(stub.requests().len(), 1);
}
