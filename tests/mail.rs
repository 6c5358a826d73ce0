//! Mail, through a real mail server: `aiosmtpd`, which the test fetches for itself.
//!
//! Whatever is missing is a failure. Where there is no network, `PUNCTUAL_NO_MAIL_SERVER` leaves
//! these tests out.

#![expect(clippy::disallowed_methods, reason = "the mail server is started from outside")]

#[expect(dead_code, reason = "the other tests of the whole program use the rest")]
mod support;

use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::OnceLock;

use serde_json::json;
use support::scripts::PLAIN;
use support::{House, scripted, until};

const PASSWORD: &str = "zebra-mail-password";

const FILES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/mail");

/// The Python that has the server, made once and kept with the build.
fn python() -> Option<&'static Path> {
    static PYTHON: OnceLock<Option<PathBuf>> = OnceLock::new();
    let made = PYTHON.get_or_init(|| {
        if std::env::var_os("PUNCTUAL_NO_MAIL_SERVER").is_some() {
            return None;
        }
        let ready = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mail-server");
        let python = ready.join("bin/python");
        if !ready.join("complete").exists() {
            // Tests are processes of their own: whoever comes second waits, or finds it made.
            let lock = std::fs::File::create(ready.with_extension("lock")).unwrap();
            lock.lock().unwrap();
            if !ready.join("complete").exists() {
                let run = |program: &Path, arguments: &[&str]| {
                    let done = Command::new(program).args(arguments).status();
                    assert!(
                        done.is_ok_and(|it| it.success()),
                        "{} {arguments:?}",
                        program.display()
                    );
                };
                run(Path::new("python3"), &["-m", "venv", ready.to_str().unwrap()]);
                run(&python, &["-m", "pip", "install", "--quiet", "aiosmtpd==1.4.6"]);
                std::fs::write(ready.join("complete"), "").unwrap();
            }
        }
        Some(python)
    });
    made.as_deref()
}

struct Server {
    process: Child,
    folder: tempfile::TempDir,
}

impl Server {
    fn start(tls: &str) -> Option<Self> {
        let python = python()?;
        let folder = tempfile::tempdir().unwrap();
        let process = Command::new(python)
            .arg(format!("{FILES}/server.py"))
            .arg(folder.path())
            .args([format!("{FILES}/server.pem"), format!("{FILES}/server.key"), tls.to_owned()])
            .spawn()
            .unwrap();
        let server = Self { process, folder };
        until("the mail server listens", || server.path("port").exists());
        Some(server)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    fn mails(&self) -> usize {
        let names = std::fs::read_dir(self.folder.path()).unwrap().flatten();
        names.filter(|it| it.file_name().to_string_lossy().starts_with("mail-")).count()
    }

    /// A house with a job that mails through it.
    fn house(&self, tls: &str, more: &str) -> House {
        let port = self.read("port");
        let config = format!(
            "[targets.mail]\nkind = \"email\"\nhost = \"localhost\"\nport = {port}\ntls = \"{tls}\"\n\
             from = \"Punctual <cron@example.com>\"\nto = [\"a@example.com\", \"b@example.com\"]\n\
             timeout = \"5s\"\n{more}\n"
        );
        let script = "[[rule]]\nstep = [{ text = \"Grüße from the report\" }]\n";
        let house = scripted(script, &config).with_env("MAIL_PASSWORD", PASSWORD);
        house.job("j", &format!("{PLAIN}[[deliver]]\nto = \"mail\"\nsubject = \"{{{{ job }}}} is {{{{ state }}}}\"\n"));
        house
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

fn known() -> String {
    format!("user = \"punctual\"\npassword_env = \"MAIL_PASSWORD\"\nca_file = \"{FILES}/ca.pem\"")
}

#[test]
fn a_mail_arrives_by_either_way_to_be_private() {
    for tls in ["starttls", "tls"] {
        let Some(server) = Server::start(tls) else { return };
        let house = server.house(tls, &known());
        let (code, run) = house.run("j");
        assert_eq!(
            (code, &run["deliveries"][0]["state"]),
            (Some(0), &json!("sent")),
            "{tls}: {run:#}"
        );
        assert_eq!(server.read("to-1"), "a@example.com b@example.com");
        let mail = server.read("mail-1");
        let id = run["deliveries"][0]["delivery_id"].as_str().unwrap();
        for part in ["Subject: j is succeeded", "From: Punctual <cron@example.com>", id] {
            assert!(mail.contains(part), "{part}: {mail}");
        }
        assert!(
            mail.contains("Gr=C3=BC=C3=9Fe from the report") || mail.contains("Grüße"),
            "{mail}"
        );
        for secret in [PASSWORD, &PASSWORD[..8]] {
            assert_eq!(house.files_with(secret), Vec::<PathBuf>::new());
        }
    }
}

#[test]
fn a_server_that_is_not_trusted_or_speaks_in_the_open_hears_nothing() {
    let Some(server) = Server::start("starttls") else { return };
    let untrusted = known().replace("ca_file", "#");
    let (_, run) = server.house("starttls", &untrusted).run("j");
    let delivery = &run["deliveries"][0];
    assert_ne!(delivery["state"], "sent", "{run:#}");
    assert_eq!(server.mails(), 0);

    let Some(open) = Server::start("none") else { return };
    let (_, run) = open.house("starttls", "").run("j");
    let delivery = &run["deliveries"][0];
    assert_eq!(delivery["state"], "failed", "{run:#}");
    assert!(delivery["error"].as_str().unwrap().contains("offers no STARTTLS"), "{delivery}");
    let (_, run) = open.house("none", "").run("j");
    assert_eq!(run["deliveries"][0]["state"], "sent", "{run:#}");
}

#[test]
fn what_the_server_says_decides_and_silence_after_the_text_is_never_asked_again() {
    for (mood, state, attempts) in
        [("busy", "sent", 2), ("never", "failed", 1), ("dies", "unknown", 1)]
    {
        let Some(server) = Server::start("none") else { return };
        std::fs::write(server.path("mood"), mood).unwrap();
        let house = server.house("none", "");
        let (code, run) = house.run("j");
        let delivery = &run["deliveries"][0];
        assert_eq!(
            (code, &delivery["state"], &delivery["attempts"]),
            (Some(0), &json!(state), &json!(attempts)),
            "{mood}: {run:#}"
        );
        assert_eq!(server.mails(), usize::from(mood != "never"), "{mood}");
    }
    let Some(server) = Server::start("starttls") else { return };
    let wrong = known().replace("\"punctual\"", "\"nobody\"");
    let (_, run) = server.house("starttls", &wrong).run("j");
    assert_eq!(run["deliveries"][0]["state"], "failed", "{run:#}");
    assert_eq!(server.mails(), 0);
}
