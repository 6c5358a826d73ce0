//! Real commands that do what they can to live on, and the proof that they do not.

#![expect(clippy::disallowed_methods, reason = "these tests kill and time things from outside")]

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use punctual::process::{
    Child, Confinement, Ended, Errors, Exit, Household, Output, ProcessId, RUN_MARKER, Spec,
    StartError, SupervisorPath, TreeEnd, base_environment,
};

const GRACE: Duration = Duration::from_millis(300);
const LONG: Duration = Duration::from_secs(30);

fn household(run_id: &str) -> Household {
    Household::new(SupervisorPath::at(env!("CARGO_BIN_EXE_punctual")), unique(run_id))
}

/// Two runs of the tests at the same time must not see each other's processes.
fn unique(run_id: &str) -> String {
    format!("{run_id}-{}", std::process::id())
}

fn sh(script: &str) -> Spec {
    Spec {
        argv: ["/bin/sh", "-c", script].map(String::from).to_vec(),
        cwd: "/".into(),
        env: base_environment(),
        output_bytes_max: 64 * 1024,
        errors: Errors::WithOutput,
        confinement: Confinement::Off,
    }
}

async fn run(household: &Household, script: &str) -> Ended {
    household.start(sh(script)).await.unwrap().wait_output(LONG).await
}

fn ended_with(exit: Exit, text: &str) -> Ended {
    Ended { exit, output: said(text), errors: Output::default() }
}

fn said(text: &str) -> Output {
    Output { text: text.into(), bytes_total: text.len() as u64, truncated: false }
}

/// Every process that carries the marker, zombies not among them.
fn marked(run_id: &str) -> Vec<i32> {
    let entry = format!("{RUN_MARKER}={}", unique(run_id));
    let carries = |pid: &i32| {
        fs::read(format!("/proc/{pid}/environ"))
            .is_ok_and(|all| all.split(|&byte| byte == 0).any(|one| one == entry.as_bytes()))
    };
    pids().into_iter().filter(carries).collect()
}

fn pids() -> Vec<i32> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// A field of `/proc/<pid>/stat`, counted from the one behind the name.
fn field(pid: i32, index: usize) -> String {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let rest = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    rest.split_ascii_whitespace().nth(index).unwrap_or_default().to_owned()
}

fn state_of(pid: i32) -> String {
    field(pid, 0)
}

fn parent_of(pid: i32) -> i32 {
    field(pid, 1).parse().unwrap()
}

/// Children of this process, zombies among them.
fn own_children() -> Vec<i32> {
    let own = std::process::id().to_string();
    pids().into_iter().filter(|pid| field(*pid, 1) == own).collect()
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..3000 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("never came: {what}");
}

/// Starts `script`, waits until `count` processes of it live, ends it and looks for survivors.
async fn end_of(run_id: &str, script: &str, count: usize, grace: Duration) -> (TreeEnd, Duration) {
    let household = household(run_id);
    let child = household.start(sh(script)).await.unwrap();
    until("all of them run", || marked(run_id).len() >= count).await;
    let start = Instant::now();
    let end = household.end_all(grace).await;
    let took = start.elapsed();
    assert_eq!(marked(run_id), Vec::<i32>::new());
    assert!(!child.id().is_alive());
    assert_eq!(household.end_all(grace).await, end, "it gives the same account again");
    (end, took)
}

#[tokio::test]
async fn a_polite_tree_ends_before_the_grace_is_over() {
    let (end, took) = end_of("polite", "sleep 60 & sleep 61 & wait", 3, LONG).await;
    assert_eq!(end, TreeEnd { killed: 3, left: vec![] });
    assert!(took < LONG / 2, "{took:?}");
}

#[tokio::test]
async fn who_ignores_the_request_is_killed_after_the_grace() {
    let script = "trap '' TERM; while :; do sleep 0.2; done";
    let (end, took) = end_of("stubborn", script, 2, GRACE).await;
    assert!(end.killed >= 1 && end.left.is_empty(), "{end:?}");
    assert!(took >= GRACE && took < GRACE + Duration::from_secs(4), "{took:?}");
}

#[tokio::test]
async fn leaving_the_group_or_the_session_does_not_help() {
    let (end, _) = end_of("setsid", "setsid sleep 60 & setsid -f sleep 61; wait", 3, GRACE).await;
    assert!(end.killed >= 3 && end.left.is_empty(), "{end:?}");
}

#[tokio::test]
async fn a_daemon_that_forked_twice_is_found_although_the_command_is_gone() {
    let household = household("daemon");
    let ended =
        run(&household, "(setsid sh -c 'trap \"\" TERM; sleep 60; :' >/dev/null 2>&1 &)").await;
    assert_eq!(ended, ended_with(Exit::Code(0), ""));
    until("the daemon runs", || marked("daemon").len() == 2).await;
    let end = household.end_all(GRACE).await;
    assert_eq!(end, TreeEnd { killed: 2, left: vec![] });
    assert_eq!(marked("daemon"), Vec::<i32>::new());
}

#[tokio::test]
async fn a_tree_that_keeps_forking_is_ended() {
    let script = "trap '' TERM; f() { sleep 0.05; f & }; f & f & f & sleep 60";
    let (end, _) = end_of("forking", script, 4, GRACE).await;
    assert!(end.killed >= 4 && end.left.is_empty(), "{end:?}");
}

#[tokio::test]
async fn a_stopped_process_is_ended_too() {
    let (end, _) = end_of("stopped", "sleep 60 & kill -STOP $!; wait", 2, GRACE).await;
    assert_eq!(end, TreeEnd { killed: 2, left: vec![] });
}

// B100: the shell has exited, a grandchild holds the pipe.
#[tokio::test]
async fn a_grandchild_that_holds_the_pipe_holds_nobody_up() {
    for script in [
        "sleep 30 & echo hi",
        "sleep 30 </dev/null >/dev/null 2>&1 & echo hi",
        "setsid sleep 30 & echo hi",
        "(while :; do sleep 0.01; echo >&2; done) 2>/dev/null & echo hi",
    ] {
        let household = household("pipe");
        let start = Instant::now();
        let ended = run(&household, script).await;
        assert_eq!(ended, ended_with(Exit::Code(0), "hi\n"), "{script}");
        assert!(start.elapsed() < Duration::from_secs(2), "{script}: {:?}", start.elapsed());
        assert!(!marked("pipe").is_empty(), "{script}: it lives until the run's end");
        let end = household.end_all(GRACE).await;
        assert!(end.killed >= 1 && end.left.is_empty(), "{script}: {end:?}");
        assert_eq!(marked("pipe"), Vec::<i32>::new());
    }
}

#[tokio::test]
async fn a_grandchild_that_never_stops_printing_holds_nobody_up() {
    let household = household("chatter");
    let start = Instant::now();
    let ended = run(&household, "yes & echo hi").await;
    assert_eq!(ended.exit, Exit::Code(0));
    assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
    household.end_all(GRACE).await;
    assert_eq!(marked("chatter"), Vec::<i32>::new());
}

#[tokio::test]
async fn nobody_waits_for_input_or_a_terminal() {
    let household = household("input");
    let ended = run(&household, "cat; (: </dev/tty) 2>/dev/null || echo no terminal").await;
    assert_eq!(ended, ended_with(Exit::Code(0), "no terminal\n"));
    assert_eq!(household.end_all(GRACE).await, TreeEnd::default());
}

#[tokio::test]
async fn ends_are_told_as_they_were() {
    let household = household("ends");
    for (script, exit) in [
        ("exit 0", Exit::Code(0)),
        ("exit 3", Exit::Code(3)),
        ("exit 255", Exit::Code(255)),
        ("kill -9 $$", Exit::Signal(9)),
        ("kill -TERM $$", Exit::Signal(15)),
        ("no-such-command-here 2>/dev/null", Exit::Code(127)),
        ("yes | head -n 1 >/dev/null", Exit::Code(0)),
    ] {
        assert_eq!(run(&household, script).await.exit, exit, "{script}");
    }
    assert_eq!(household.end_all(GRACE).await, TreeEnd::default());
}

#[tokio::test]
async fn a_limit_leaves_the_command_to_be_ended() {
    let household = household("limit");
    let child = household.start(sh("echo one; exec sleep 60")).await.unwrap();
    let other = household.start(sh("exec sleep 60")).await.unwrap();
    let ended = child.wait_output(Duration::from_millis(400)).await;
    assert_eq!(ended, ended_with(Exit::TimedOut, "one\n"));
    assert_eq!(child.end(GRACE).await, TreeEnd { killed: 1, left: vec![] });
    assert_eq!(child.wait_output(LONG).await.exit, Exit::Signal(15));
    assert!(other.id().is_alive(), "only that call is ended");
    assert_eq!(household.end_all(GRACE).await, TreeEnd { killed: 2, left: vec![] });
    assert_eq!(marked("limit"), Vec::<i32>::new());
}

#[tokio::test]
async fn what_cannot_be_started_says_why_and_leaves_nothing() {
    let household = household("errors");
    let start = async |argv: &[&str], cwd: &str| {
        let argv = argv.iter().map(ToString::to_string).collect();
        household.start(Spec { argv, cwd: cwd.into(), ..sh("") }).await.unwrap_err()
    };
    let error = start(&["no-such-command-here"], "/").await;
    assert_eq!(error.to_string(), "start `no-such-command-here`: no such command");
    let error = start(&["true"], "/no/such/folder").await;
    assert!(matches!(error, StartError::Folder { .. }), "{error}");
    assert!(error.to_string().contains("/no/such/folder"), "{error}");
    assert!(matches!(start(&["/etc/passwd"], "/").await, StartError::NotRun { .. }));
    assert!(matches!(start(&["/bin/echo", "a\0b"], "/").await, StartError::NotRun { .. }));
    assert!(matches!(start(&[], "/").await, StartError::NotRun { .. }));
    assert_eq!(household.end_all(GRACE).await, TreeEnd::default());
    assert!(matches!(start(&["true"], "/").await, StartError::Ended { .. }));
    let nowhere = Household::new(SupervisorPath::at("/no/such/binary"), "nowhere");
    let error = nowhere.start(sh("true")).await.unwrap_err();
    assert!(matches!(error, StartError::Supervisor { .. }), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn exit_codes_of_many_at_once_are_right_and_no_zombie_is_left() {
    let household = household("many");
    let runs = (0..50).map(|number| {
        let household = household.clone();
        tokio::spawn(async move {
            let orphan = "(sh -c 'sleep 0.05 &' &)";
            let script = format!("for i in 1 2 3 4 5; do {orphan}; done; exit {}", number + 1);
            (number, run(&household, &script).await.exit)
        })
    });
    for one in runs.collect::<Vec<_>>() {
        let (number, exit) = one.await.unwrap();
        assert_eq!(exit, Exit::Code(number + 1));
    }
    until("the orphans are gone", || marked("many").is_empty()).await;
    household.end_all(GRACE).await;
    // Those of other tests may be among them, but none is there for long.
    let seen: Vec<_> = own_children().into_iter().filter_map(ProcessId::of).collect();
    until("no supervisor and no zombie is left", || {
        let still_there = |id: &ProcessId| ProcessId::of(id.pid) == Some(*id);
        !seen.iter().any(still_there)
    })
    .await;
}

fn memory_peak_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_ascii_whitespace().nth(1).unwrap().parse().unwrap()
}

// B102
#[tokio::test(flavor = "multi_thread")]
async fn a_flood_is_drained_in_bounded_memory() {
    let household = household("flood");
    drop(run(&household, "true").await);
    let before = memory_peak_kib();

    let child = household.start(sh("exec yes")).await.unwrap();
    let start = Instant::now();
    let ended = child.wait_output(Duration::from_secs(1)).await;
    assert_eq!(ended.exit, Exit::TimedOut);
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
    assert!(ended.output.truncated && ended.output.bytes_total > 1 << 20);
    assert!(ended.output.text.len() < 66 * 1024);
    child.end(GRACE).await;

    let ended = household.start(sh("head -c 2G /dev/zero")).await.unwrap();
    let ended = ended.wait_output(Duration::from_secs(5)).await;
    assert!(ended.output.truncated && ended.output.bytes_total > 1 << 20);
    assert!(ended.output.text.len() < 66 * 1024);

    let long = run(&household, "head -c 50000000 /dev/zero | tr '\\0' x; echo end").await;
    assert_eq!(long.exit, Exit::Code(0));
    assert_eq!(long.output.bytes_total, 50_000_004);
    assert!(long.output.text.ends_with("xend\n") && long.output.text.starts_with("xxx"));

    household.end_all(GRACE).await;
    let grown = memory_peak_kib() - before;
    assert!(grown < 32 * 1024, "grew by {grown} KiB");
    assert_eq!(marked("flood"), Vec::<i32>::new());
}

// B102: invalid UTF-8.
#[tokio::test]
async fn bytes_that_are_no_text_arrive_as_text() {
    let household = household("bytes");
    let ended = run(&household, r"printf 'a\377b\000c\n'").await;
    let text = "a\u{FFFD}b\u{FFFD}c\n".into();
    assert_eq!(ended.output, Output { text, bytes_total: 6, truncated: false });
    household.end_all(GRACE).await;
}

#[tokio::test]
async fn a_command_sees_its_own_environment_and_no_descriptor_of_ours() {
    // What a daemon's own parent left open, without close-on-exec.
    let leak = fs::File::open("/etc/passwd").unwrap();
    nix::fcntl::fcntl(&leak, nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::empty())).unwrap();
    let household = household("sees");
    let mut spec = sh("env | sort; tr '\\0' '\\n' </proc/$PPID/environ; ls /proc/self/fd");
    spec.env = vec![("PATH".into(), "/usr/bin:/bin".into()), ("MY".into(), "own".into())];
    let ended = household.start(spec).await.unwrap().wait_output(LONG).await;
    let marker = format!("{RUN_MARKER}={}", unique("sees"));
    // The listing has one more open: the folder that it lists.
    let want = format!("MY=own\nPATH=/usr/bin:/bin\n{marker}\nPWD=/\n0\n1\n2\n3\n");
    let text: Vec<_> = ended.output.text.lines().filter(|line| !line.starts_with("_=")).collect();
    let mut want: Vec<_> = want.lines().collect();
    want.retain(|line| *line != "PWD=/" || text.contains(line));
    let sorted = |mut lines: Vec<String>| {
        lines.sort();
        lines
    };
    let owned = |lines: Vec<&str>| lines.into_iter().map(String::from).collect();
    assert_eq!(sorted(owned(text)), sorted(owned(want)));
    household.end_all(GRACE).await;
}

// B107
#[tokio::test]
async fn a_profile_is_not_read() {
    let home = tempfile::tempdir().unwrap();
    for name in [".profile", ".bashrc", ".bash_profile"] {
        fs::write(home.path().join(name), "echo from the profile; sleep 2\n").unwrap();
    }
    let household = household("profile");
    let mut spec = sh("echo hi");
    spec.env.retain(|(name, _)| name != "HOME");
    spec.env.push(("HOME".into(), home.path().to_str().unwrap().into()));
    let ended = household.start(spec).await.unwrap().wait_output(LONG).await;
    assert_eq!(ended.output, said("hi\n"));
    household.end_all(GRACE).await;
}

#[tokio::test]
async fn a_dropped_household_ends_its_trees() {
    let household = household("dropped");
    let child: Child = household.start(sh("trap '' TERM; setsid sleep 60 & wait")).await.unwrap();
    until("both run", || marked("dropped").len() == 2).await;
    drop(child);
    // One that is just executing another program has no environment for a moment.
    until("a dropped child ends nothing", || marked("dropped").len() == 2).await;
    drop(household);
    until("nothing is left", || marked("dropped").is_empty()).await;
}

#[tokio::test]
async fn a_dropped_wait_is_made_good_by_the_end_of_the_run() {
    let household = household("abandoned");
    let wait = run(&household, "exec sleep 60");
    assert!(tokio::time::timeout(Duration::from_millis(200), wait).await.is_err());
    until("it lives on", || marked("abandoned").len() == 1).await;
    assert_eq!(household.end_all(GRACE).await, TreeEnd { killed: 1, left: vec![] });
    assert_eq!(marked("abandoned"), Vec::<i32>::new());
}

#[tokio::test]
async fn a_supervisor_shrugs_off_requests_to_end() {
    let household = household("shrug");
    let (child, go) =
        waiting(&household, "kill -TERM $PPID; kill -INT $PPID; kill -HUP $PPID; exit 4").await;
    go.give();
    assert_eq!(child.wait_output(LONG).await.exit, Exit::Code(4));
    assert_eq!(household.end_all(GRACE).await, TreeEnd::default());
}

#[tokio::test]
async fn a_command_that_kills_its_supervisor_is_found_by_the_marker() {
    let household = household("rebel");
    let (child, go) = waiting(&household, "setsid -f sleep 60; kill -9 $PPID; sleep 61; :").await;
    go.give();
    assert_eq!(child.wait_output(LONG).await.exit, Exit::Unknown);
    until("both live on", || marked("rebel").len() == 3).await;
    let end = household.end_all(GRACE).await;
    assert_eq!(end, TreeEnd { killed: 3, left: vec![] });
    assert_eq!(marked("rebel"), Vec::<i32>::new());
}

#[tokio::test]
async fn a_command_that_stops_its_supervisor_is_ended_all_the_same() {
    let household = household("stopper");
    let (child, go) = waiting(&household, "kill -STOP $PPID; exec sleep 60").await;
    go.give();
    let supervisor = parent_of(child.id().pid);
    until("it is stopped", || state_of(supervisor) == "T").await;
    let end = household.end_all(Duration::ZERO).await;
    assert_eq!(end, TreeEnd { killed: 1, left: vec![] });
    assert_eq!(marked("stopper"), Vec::<i32>::new());
    assert_eq!(ProcessId::of(supervisor), None);
}

/// A command that does what it has to when its test says so.
async fn waiting(household: &Household, script: &str) -> (Child, Go) {
    let folder = tempfile::tempdir().unwrap();
    let mut spec = sh(&format!("until [ -e go ]; do sleep 0.01; done; {script}"));
    spec.cwd = folder.path().into();
    (household.start(spec).await.unwrap(), Go(folder))
}

struct Go(tempfile::TempDir);

impl Go {
    fn give(&self) {
        fs::write(self.0.path().join("go"), "").unwrap();
    }
}

const DOOMED: &str = "PUNCTUAL_TEST_DOOMED";

/// Started again by the next test it waits for a tree that does not end, until it is killed.
#[tokio::test]
async fn a_living_parent_ends_its_tree_itself() {
    let doomed = std::env::var(DOOMED).ok();
    let run_id = doomed.clone().unwrap_or_else(|| unique("living"));
    let household = Household::new(SupervisorPath::at(env!("CARGO_BIN_EXE_punctual")), run_id);
    let child = household.start(sh("setsid -f sleep 60; trap '' TERM; sleep 61; :")).await.unwrap();
    if doomed.is_some() {
        child.wait_output(Duration::from_mins(1)).await;
    }
    until("all of them run", || marked("living").len() == 3).await;
    assert_eq!(household.end_all(GRACE).await, TreeEnd { killed: 3, left: vec![] });
    assert_eq!(marked("living"), Vec::<i32>::new());
}

#[tokio::test]
async fn the_death_of_the_parent_ends_the_tree() {
    let mut parent = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_living_parent_ends_its_tree_itself"])
        .env(DOOMED, unique("doomed"))
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    until("all of them run", || marked("doomed").len() == 3).await;
    let seen: Vec<_> = marked("doomed").into_iter().filter_map(ProcessId::of).collect();
    parent.kill().unwrap();
    parent.wait().unwrap();
    until("nothing is left", || marked("doomed").is_empty()).await;
    // A process that ends has no environment a moment before it is gone.
    until("they are gone", || seen.iter().all(|id| !id.is_alive())).await;
}

#[test]
fn the_binary_is_a_supervisor_only_when_asked_over_a_socket() {
    assert!(Path::new(env!("CARGO_BIN_EXE_punctual")).exists());
    let status = std::process::Command::new(env!("CARGO_BIN_EXE_punctual"))
        .arg("__supervise")
        .stdin(std::process::Stdio::null())
        .status()
        .unwrap();
    assert_eq!(status.code(), Some(2));
}
