//! Confined commands, started as a run's tools start them, against folders of their own.
//!
//! What this kernel has no means for is skipped, and said.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use punctual::process::{
    Confinement, Demand, Errors, Exit, Fence, Household, Network, Spec, StartError, SupervisorPath,
    View, base_environment, offered,
};
use tempfile::TempDir;

/// A folder to work in, beside one that is nobody's business.
struct Yard {
    dir: TempDir,
}

impl Yard {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let yard = Self { dir };
        for folder in ["work", "other", "work/state", "work/state/mine", "work/deep/jobs"] {
            fs::create_dir_all(yard.path(folder)).unwrap();
        }
        fs::write(yard.path("other/canary"), "alive\n").unwrap();
        fs::write(yard.path("work/state/ledger"), "rows\n").unwrap();
        fs::write(yard.path("work/deep/jobs/a.toml"), "job\n").unwrap();
        yard
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join(name)
    }

    fn fence(&self, view: View) -> Fence {
        Fence {
            view,
            readable: Vec::new(),
            own: Vec::new(),
            writable: vec![self.path("work")],
            closed: Vec::new(),
            hidden: Vec::new(),
            network: Network::On,
            demand: Demand::AsOffered,
        }
    }

    async fn says(&self, confinement: Confinement, script: &str) -> (Exit, String) {
        let household = household();
        let child = household.start(self.spec(confinement, script)).await.unwrap();
        let ended = child.wait_output(Duration::from_secs(30)).await;
        household.end_all(Duration::from_millis(100)).await;
        (ended.exit, ended.output.text)
    }

    fn spec(&self, confinement: Confinement, script: &str) -> Spec {
        let mut env = base_environment();
        env.push(("OUT".into(), self.path("other").display().to_string()));
        Spec {
            argv: ["/bin/sh", "-c", script].map(str::to_owned).to_vec(),
            cwd: self.path("work"),
            env,
            output_bytes_max: 64 * 1024,
            errors: Errors::WithOutput,
            confinement,
        }
    }

    fn canary(&self) -> String {
        fs::read_to_string(self.path("other/canary")).unwrap()
    }
}

fn household() -> Household {
    Household::new(SupervisorPath::at(env!("CARGO_BIN_EXE_punctual")), "fences")
}

fn fenced(fence: Fence) -> Confinement {
    Confinement::Fenced(Box::new(fence))
}

/// Whether the kernel holds a whole fence.
fn holds(fence: &Fence) -> bool {
    let lack = offered().lacks(fence);
    if let Some(lack) = &lack {
        eprintln!("skipped: {lack}");
    }
    lack.is_none()
}

fn exists(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

#[tokio::test]
async fn a_fenced_command_works_in_its_folder_and_nowhere_else() {
    let yard = Yard::new();
    for view in [View::Everything, View::System] {
        let fence = yard.fence(view);
        if !holds(&fence) {
            return;
        }
        let script = "echo hi > file && mkdir -p a/b && mv file a/b/ && ln -s a link && \
            cat a/b/file && rm -r a link && echo x > /dev/null && \
            for word in $(ls /usr | head -3); do :; done && echo done";
        assert_eq!(
            yard.says(fenced(fence.clone()), script).await,
            (Exit::Code(0), "hi\ndone\n".into()),
            "{view:?}"
        );
        for script in [
            "echo dead > $OUT/canary",
            ": > $OUT/canary",
            "rm $OUT/canary",
            "mv $OUT/canary .",
            "ln $OUT/canary here",
            "touch $OUT/new",
            "mkdir $OUT/new",
            "truncate -s 0 $OUT/canary",
            "mknod disk b 8 0",
            "chmod 777 $OUT/canary",
            "touch $OUT/canary",
            "chown 1:1 $OUT/canary",
        ] {
            let (exit, said) = yard.says(fenced(fence.clone()), script).await;
            assert_ne!(exit, Exit::Code(0), "{view:?} {script}: {said}");
        }
        assert_eq!(yard.canary(), "alive\n");
        assert!(!exists(&yard.path("other/new")) && !exists(&yard.path("work/here")));
        let (exit, said) = yard.says(fenced(fence), "cat $OUT/canary").await;
        match view {
            View::Everything => assert_eq!((exit, said.as_str()), (Exit::Code(0), "alive\n")),
            View::System => assert_eq!(exit, Exit::Code(1), "{said}"),
        }
    }
}

#[tokio::test]
async fn what_is_closed_inside_stays_closed_and_all_around_it_is_open() {
    let yard = Yard::new();
    for view in [View::Everything, View::System] {
        let fence = Fence {
            own: vec![yard.path("work/state/mine")],
            closed: vec![yard.path("work/deep/jobs"), yard.path("work/state")],
            hidden: vec![yard.path("work/state")],
            ..yard.fence(view)
        };
        if !holds(&fence) {
            return;
        }
        for script in [
            "echo x > deep/jobs/b.toml",
            "echo x > deep/jobs/a.toml",
            "echo x > new.toml && mv new.toml deep/jobs/",
            "mv deep/jobs aside",
            "mv deep aside && mkdir -p deep/jobs",
            "rm -r deep",
            "cat state/ledger",
            "echo x > state/ledger",
            "mv state aside",
            "echo x > state/new",
        ] {
            let (exit, said) = yard.says(fenced(fence.clone()), script).await;
            assert_ne!(exit, Exit::Code(0), "{view:?} {script}: {said}");
        }
        let read = |name: &str| fs::read_to_string(yard.path(name)).unwrap();
        assert_eq!(read("work/deep/jobs/a.toml"), "job\n");
        assert_eq!(read("work/state/ledger"), "rows\n");
        assert!(!exists(&yard.path("work/deep/jobs/b.toml")));
        let script = "cat deep/jobs/a.toml; echo mine > state/mine/file && cat state/mine/file";
        let said = yard.says(fenced(fence.clone()), script).await;
        assert_eq!(said, (Exit::Code(0), "job\nmine\n".into()), "{view:?}");
        assert_eq!(read("work/state/mine/file"), "mine\n");
        // By mounts, where the kernel lets us: then all around it is open.
        let (exit, said) = yard.says(fenced(fence), "echo x > new; cat new; rm -f new").await;
        eprintln!("a new file beside what is closed: {exit:?} {said}");
    }
}

#[tokio::test]
async fn without_a_network_there_are_no_sockets() {
    let yard = Yard::new();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let try_it = |kind: &str| {
        format!(
            "python3 -c 'import socket; s = socket.socket({kind}); s.connect((\"127.0.0.1\", {port}))'"
        )
    };
    let tcp = try_it("socket.AF_INET, socket.SOCK_STREAM");
    let udp = try_it("socket.AF_INET, socket.SOCK_DGRAM");
    let unix = "python3 -c 'import socket; socket.socket(socket.AF_UNIX)'";
    let pair = "python3 -c 'import socket; socket.socketpair()'";
    if yard.says(Confinement::Off, &tcp).await.0 != Exit::Code(0) {
        eprintln!("skipped: no python3");
        return;
    }
    for view in [View::Everything, View::System] {
        let readable = python_home();
        let off = Fence { network: Network::Off, readable: readable.clone(), ..yard.fence(view) };
        let on = Fence { readable, ..yard.fence(view) };
        if !holds(&off) {
            return;
        }
        for (fence, script, goes) in [
            (&on, tcp.as_str(), true),
            (&on, &udp, true),
            (&on, unix, view == View::Everything),
            (&off, &tcp, false),
            (&off, &udp, false),
            (&off, unix, false),
            (&off, pair, true),
        ] {
            let (exit, said) = yard.says(fenced(fence.clone()), script).await;
            assert_eq!(exit == Exit::Code(0), goes, "{view:?} {fence:?} {script}: {said}");
            assert!(goes || said.contains("Permission"), "{said}");
        }
    }
}

/// Where `python3` is, if that is none of the system's folders.
#[expect(clippy::disallowed_methods, reason = "the test asks an interpreter where it lives")]
fn python_home() -> Vec<PathBuf> {
    let asked = std::process::Command::new("python3")
        .args(["-c", "import sys; print(sys.base_prefix)"])
        .output();
    let said = asked.map(|out| String::from_utf8_lossy(&out.stdout).trim().to_owned());
    said.ok().filter(|path| !path.starts_with("/usr")).map(PathBuf::from).into_iter().collect()
}

#[tokio::test]
async fn no_new_rights_and_next_to_none_of_root() {
    let yard = Yard::new();
    let script = "grep -E '^(NoNewPrivs|CapEff|CapPrm|CapAmb):' /proc/self/status; ulimit -c";
    let (_, off) = yard.says(Confinement::Off, script).await;
    assert!(off.contains("NoNewPrivs:\t0"), "{off}");
    let (_, humble) = yard.says(Confinement::Humble, script).await;
    assert!(humble.contains("NoNewPrivs:\t1") && humble.ends_with("\n0\n"), "{humble}");
    let fence = yard.fence(View::Everything);
    if !holds(&fence) {
        return;
    }
    let (_, said) = yard.says(fenced(fence), script).await;
    let rights = |name: &str| {
        let line = said.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(":\t"));
        u64::from_str_radix(line.unwrap(), 16).unwrap()
    };
    // CHOWN, DAC_OVERRIDE, FOWNER, FSETID
    assert_eq!(rights("CapEff") & !0b1_1011, 0, "{said}");
    assert_eq!(rights("CapPrm") & !0b1_1011, 0, "{said}");
    assert_eq!(rights("CapAmb"), 0, "{said}");
    assert!(said.contains("NoNewPrivs:\t1") && said.ends_with("\n0\n"), "{said}");
}

#[tokio::test]
async fn what_cannot_be_started_is_told_apart_when_confined_too() {
    let yard = Yard::new();
    let fence = yard.fence(View::System);
    let household = household();
    let start = |argv: &[&str], confinement: Confinement| {
        let argv = argv.iter().map(|&word| word.to_owned()).collect();
        household.start(Spec { argv, ..yard.spec(confinement, "") })
    };
    for confinement in [Confinement::Humble, fenced(fence.clone())] {
        let error = start(&["no-such-program"], confinement.clone()).await.unwrap_err();
        assert!(matches!(error, StartError::NotFound { .. }), "{error:?}");
        let error = start(&["/etc/passwd"], confinement.clone()).await.unwrap_err();
        assert!(matches!(error, StartError::NotRun { .. }), "{error:?}");
        let error = start(&[], confinement).await.unwrap_err();
        assert!(matches!(error, StartError::NotRun { .. }), "{error:?}");
    }
}
