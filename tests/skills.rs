//! `skills install|update|ls|remove`, with real folders, archives and git repositories.

#![expect(clippy::disallowed_methods, reason = "the tests make archives and repositories")]

#[expect(dead_code, reason = "the other tests of the whole program use the rest")]
mod support;

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use support::scripts::FINE;
use support::{House, Said, scripted};

/// A folder with a skill.
fn put(folder: &Path, name: &str, description: &str) {
    fs::create_dir_all(folder).unwrap();
    let front = format!("---\nname: {name}\ndescription: {description}\n---\n");
    fs::write(folder.join("SKILL.md"), front + "Short sentences.\n").unwrap();
}

fn in_folder(folder: &Path, argv: &[&str]) {
    let mut command = Command::new(argv[0]);
    command.args(&argv[1..]).current_dir(folder).env("GIT_CONFIG_GLOBAL", "/dev/null");
    let output = command.output().unwrap();
    assert!(output.status.success(), "{argv:?}: {output:?}");
}

fn commit(repository: &Path) {
    in_folder(repository, &["git", "add", "-A"]);
    let name = ["-c", "user.name=a", "-c", "user.email=a@example.com"];
    let words = ["commit", "-q", "-m", "change"];
    in_folder(repository, &[&["git"][..], &name, &words].concat());
}

fn skills(house: &House, arguments: &[&str]) -> Said {
    house.say(&[&["skills"], arguments].concat())
}

/// The file of an installed skill.
fn installed(house: &House, name: &str) -> String {
    let path = house.path("state/skills").join(name).join("SKILL.md");
    fs::read_to_string(path).unwrap_or_default()
}

/// Nothing is left of what was staged.
fn assert_tidy(house: &House) {
    let shelf = fs::read_dir(house.path("state/skills")).unwrap().flatten();
    let mut names: Vec<_> = shelf.map(|it| it.file_name().into_string().unwrap()).collect();
    names.retain(|name| name.starts_with('.'));
    names.sort();
    assert!(names.iter().all(|name| name == ".lock" || name == ".sources"), "{names:?}");
}

#[test]
fn a_folder_is_installed_used_updated_and_removed() {
    let house = scripted(FINE, "");
    let source = house.path("src/style");
    put(&source, "style", "How we write.");
    fs::create_dir_all(source.join(".git")).unwrap();
    fs::write(source.join("scripts.sh"), "#!/bin/sh\n").unwrap();
    fs::set_permissions(source.join("scripts.sh"), fs::Permissions::from_mode(0o4755)).unwrap();
    house.job("j", "[agent]\nprompt = \"go\"\nskills = [\"style\"]\n");
    assert_eq!(house.say(&["validate"]).code, Some(2));

    // security.install_policy = "warn" says what is doubtful and installs.
    let said = skills(&house, &["install", "src/style"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(
        said.stderr.contains("warning: the skill `style`: `scripts.sh` can be executed"),
        "{said:?}"
    );
    assert!(installed(&house, "style").contains("How we write."));
    assert!(!house.path("state/skills/style/.git").exists());
    let mode =
        fs::metadata(house.path("state/skills/style/scripts.sh")).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o755);
    assert_tidy(&house);
    let shown = house.say(&["show", "j", "--prompt", "--json"]).json();
    assert!(
        shown["system"].as_str().unwrap().contains("state/skills/style/SKILL.md\">How we write.")
    );
    assert_eq!(house.run("j").0, Some(0));

    // Twice is refused, unless it is meant.
    let said = skills(&house, &["install", "src/style"]);
    assert_eq!(said.code, Some(3), "{said:?}");
    assert!(said.stderr.contains("is installed already (from "), "{said:?}");
    assert_eq!(skills(&house, &["install", "src/style", "--force"]).code, Some(0));

    let update = |result: &str| {
        let said = skills(&house, &["update", "--json"]);
        assert_eq!(said.code, Some(0), "{said:?}");
        assert_eq!(said.json()["skills"][0]["result"], result);
    };
    update("unchanged");
    put(&source, "style", "How we write now.");
    update("updated");
    assert!(installed(&house, "style").contains("write now."));
    // What is wrong with what is there now leaves the installed one as it is.
    put(&source, "other", "Somebody else.");
    let said = skills(&house, &["update", "style"]);
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.stderr.contains("what is there now is called `other`"), "{said:?}");
    assert!(installed(&house, "style").contains("write now."));

    let listed = skills(&house, &["ls", "--json"]).json();
    let one = &listed["skills"][0];
    let keys = ["skill", "shelf", "description", "problem"].map(|key| &one[key]);
    assert_eq!(
        keys,
        [&json!("style"), &json!("installed"), &json!("How we write now."), &Value::Null]
    );
    assert_eq!(one["jobs"], json!(["j"]));
    assert!(skills(&house, &["ls"]).stdout.contains("style"));

    let said = skills(&house, &["remove", "styl"]);
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.stderr.contains("did you mean `style`?"), "{said:?}");
    let said = skills(&house, &["remove", "style"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.stderr.contains("warning: `j` names it"), "{said:?}");
    assert!(!house.path("state/skills/style").exists());
    assert_eq!(skills(&house, &["ls", "--json"]).json(), json!({"skills": []}));
    assert_tidy(&house);
}

#[test]
fn a_git_repository_is_fetched_and_fetched_again() {
    let house = scripted(FINE, "");
    let repository = house.path("repo");
    put(&repository.join("skills/style"), "style", "How we write.");
    put(&repository.join("skills/review"), "review", "How we review.");
    in_folder(&repository, &["git", "init", "-q", "-b", "main"]);
    // Nothing that the repository brings is run.
    fs::write(repository.join(".gitattributes"), "* filter=x\n").unwrap();
    commit(&repository);
    in_folder(&repository, &["git", "tag", "one"]);
    let address = format!("file://{}", repository.display());

    let said = skills(&house, &["install", &address]);
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.stderr.contains("--path: skills/review, skills/style"), "{said:?}");
    let said = skills(&house, &["install", &address, "--path", "skills/style"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let pinned = ["install", &address, "--path", "skills/review", "--ref", "one", "--json"];
    let said = skills(&house, &pinned);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!(said.json()["source"], format!("git+{address}"));

    put(&repository.join("skills/style"), "style", "How we write now.");
    put(&repository.join("skills/review"), "review", "How we review now.");
    commit(&repository);
    let said = skills(&house, &["update", "--json"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let results: Vec<_> =
        said.json()["skills"].as_array().unwrap().iter().map(|it| it["result"].clone()).collect();
    // A tag stays where it is.
    assert_eq!(results, ["unchanged", "updated"]);
    assert!(installed(&house, "style").contains("write now."));
    assert!(!installed(&house, "review").contains("review now."));

    // A repository that is gone is said, and what is installed stays.
    fs::rename(&repository, house.path("gone")).unwrap();
    let said = skills(&house, &["update", "style"]);
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.stderr.contains("failed to fetch"), "{said:?}");
    assert!(installed(&house, "style").contains("write now."));
    let said = skills(&house, &["install", "ext::sh -c touch% made"]);
    assert_eq!(said.code, Some(2), "{said:?}");
    let said = skills(&house, &["install", "git+ext::sh -c touch% made"]);
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(!house.path("made").exists() && !house.path("state/skills/made").exists());
    assert_tidy(&house);
}

#[test]
fn archives_are_unpacked_below_their_own_folder_only() {
    let house = scripted(FINE, "");
    put(&house.path("pack/style"), "style", "How we write.");
    let pack = house.path("pack");
    in_folder(&pack, &["tar", "czf", "../style.tgz", "style"]);
    in_folder(&pack, &["tar", "cf", "../style.tar", "-C", "style", "."]);
    for archive in ["style.tgz", "style.tar"] {
        let said = skills(&house, &["install", archive, "--force"]);
        assert_eq!(said.code, Some(0), "{archive}: {said:?}");
        assert!(installed(&house, "style").contains("How we write."));
    }
    // What would leave its folder, or never end, is refused.
    in_folder(&pack, &["tar", "cPf", "../evil.tar", "../config.toml"]);
    fs::write(pack.join("zeros"), vec![0; 70 << 20]).unwrap();
    in_folder(&pack, &["tar", "czf", "../bomb.tgz", "zeros"]);
    in_folder(
        &pack,
        &["tar", "cPf", "../absolute.tar", house.path("config.toml").to_str().unwrap()],
    );
    symlink("/etc/hostname", pack.join("style/out")).unwrap();
    in_folder(&pack, &["tar", "cf", "../link.tar", "style"]);
    fs::write(house.path("garbage.tar"), "nothing of the kind").unwrap();
    for (archive, words) in [
        ("evil.tar", "leads out of it"),
        ("bomb.tgz", "over 67108864 bytes"),
        ("absolute.tar", "leads out of it"),
        ("link.tar", "is a link"),
        ("garbage.tar", "unpack"),
    ] {
        let said = skills(&house, &["install", archive, "--force"]);
        assert_eq!(said.code, Some(2), "{archive}: {said:?}");
        assert!(said.stderr.contains(words), "{archive}: {said:?}");
    }
    assert!(!house.path("state/skills/.staged").exists());
    assert_tidy(&house);
}

// semantics §8: the operator's decision for install and update from the command line.
#[test]
fn the_install_policy_decides() {
    for (policy, code, warns) in [("allow", 0, false), ("warn", 0, true), ("block", 3, true)] {
        let house = scripted(FINE, &format!("[security]\ninstall_policy = \"{policy}\"\n"));
        let source = house.path("src");
        put(&source, "style", "How we write.");
        fs::write(source.join(".hidden"), "x").unwrap();
        fs::write(source.join("blob"), [0, 1]).unwrap();
        symlink("blob", source.join("same")).unwrap();
        let said = skills(&house, &["install", "src"]);
        assert_eq!(said.code, Some(code), "{policy}: {said:?}");
        for words in ["`.hidden` is hidden", "`blob` is binary", "`same` is a link"] {
            assert_eq!(said.stderr.contains(words), warns, "{policy}: {said:?}");
        }
        assert_eq!(house.path("state/skills/style").exists(), code == 0, "{policy}");
        if code == 0 {
            // An update is decided upon like an installation.
            let config = fs::read_to_string(house.path("config.toml")).unwrap();
            house.write("config.toml", &config.replace(policy, "block"));
            put(&source, "style", "How we write now.");
            let said = skills(&house, &["update"]);
            assert_eq!(said.code, Some(3), "{said:?}");
            assert!(installed(&house, "style").contains("How we write.\n"));
        }
        assert_tidy(&house);
    }
}

#[test]
fn what_is_wrong_with_a_skill_keeps_it_out_under_every_policy() {
    let house = scripted(FINE, "[security]\ninstall_policy = \"allow\"\n");
    let source = house.path("src");
    let refused = |words: &str| {
        let said = skills(&house, &["install", "src"]);
        assert_eq!(said.code, Some(2), "{words}: {said:?}");
        assert!(said.stderr.contains(words), "{words}: {said:?}");
        assert!(
            fs::read_dir(house.path("state/skills"))
                .unwrap()
                .flatten()
                .all(|it| { it.file_name().to_string_lossy().starts_with('.') })
        );
        fs::remove_dir_all(&source).unwrap();
    };
    fs::create_dir(&source).unwrap();
    refused("no folder with a SKILL.md");
    put(&source, "../up", "x");
    refused("cannot be a skill's name");
    fs::create_dir(&source).unwrap();
    fs::write(source.join("SKILL.md"), "a: &a [x]\n").unwrap();
    refused("does not begin with a line `---`");
    put(&source, "style", "x");
    symlink("../config.toml", source.join("config")).unwrap();
    refused("the link `config` leads out of the skill");
    put(&source, "style", "x");
    symlink(".", source.join("d")).unwrap();
    symlink("d/../../../punctual.db", source.join("e")).unwrap();
    refused("leads out of the skill");
    put(&source, "style", "x");
    nix::unistd::mkfifo(&source.join("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    refused("`pipe` is neither file nor folder");
    put(&source, "style", "x");
    fs::File::create(source.join("big")).unwrap().set_len(65 << 20).unwrap();
    refused("its files have over 67108864 bytes");
    put(&source, "style", "x");
    for n in 0..2_001 {
        fs::write(source.join(n.to_string()), "").unwrap();
    }
    refused("it has over 2000 files");
    assert_tidy(&house);
}

// semantics §8, before_install: asked after the policy, with what is staged; its no is final.
#[test]
fn a_hook_may_refuse_what_the_policy_lets_through() {
    let house = scripted(
        FINE,
        "[security]\ninstall_policy = \"allow\"\n[[hooks]]\non = \"before_install\"\n\
         command = [\"./judge.sh\"]\n",
    );
    let judge = "#!/bin/sh\ncat > asked.json\nif grep -q curl \"$(sed 's/.*\"staged\":\"\\([^\"]*\\)\".*/\\1/' \
                 asked.json)/SKILL.md\"; then echo '{\"block\": true, \"reason\": \"it fetches\"}'; fi\n";
    house.write("judge.sh", judge);
    fs::set_permissions(house.path("judge.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    put(&house.path("good"), "good", "How we write.");
    put(&house.path("bad"), "bad", "Use curl.");
    let said = skills(&house, &["install", "good"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let said = skills(&house, &["install", "bad"]);
    assert_eq!(said.code, Some(3), "{said:?}");
    assert!(said.stderr.contains("it fetches"), "{said:?}");
    assert!(!house.path("state/skills/bad").exists());
    assert_tidy(&house);
}
