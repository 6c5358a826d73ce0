//! What a model is told: files of the workspace, skills, their order, their limits, and the report.

#[expect(dead_code, reason = "the other tests of the whole program use the rest")]
mod support;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use serde_json::{Value, json};
use support::scripts::{FINE, PLAIN};
use support::stub::{Act, call, finish, head, reply, text};
use support::{House, Stub, asking, scripted};

const SLOT: &str = "2026-11-10T09:00:00Z";

/// A job in the folder `work`. `agent` are more keys of `[agent]`, `more` more tables.
fn job(agent: &str, more: &str) -> String {
    format!(
        "[schedule]\ncron = \"0 9 * * *\"\n[agent]\nprompt = \"Report on {{{{ due_at }}}}.\"\n\
         workdir = \"../work\"\n{agent}\n{more}"
    )
}

/// Puts a skill on a shelf; `more` are more lines of its beginning.
fn put_skill(house: &House, shelf: &str, name: &str, description: &str, more: &str) {
    let folder = house.path(shelf).join(name);
    fs::create_dir_all(&folder).unwrap();
    let front = format!("---\nname: {name}\ndescription: {description}\n{more}---\n");
    fs::write(folder.join("SKILL.md"), front + "Say it in short sentences.\n").unwrap();
}

fn in_work(house: &House, name: &str, text: impl AsRef<[u8]>) {
    fs::create_dir_all(house.path("work")).unwrap();
    fs::write(house.path("work").join(name), text).unwrap();
}

/// The system prompt of a request in the words of OpenAI.
fn system(request: &Value) -> &str {
    request["messages"][0]["content"].as_str().unwrap()
}

/// The parts of the newest prompt with what there is to say of them.
fn notes(house: &House) -> Vec<Value> {
    house.rows(
        "SELECT part, name, note FROM v1_prompt_parts
         WHERE run_id = (SELECT max(run_id) FROM v1_runs) AND note IS NOT NULL ORDER BY n",
    )
}

// semantics §7: base, skills, bootstrap files in their order; what the model would see can be seen
// without asking it, and nothing is started or written for that.
#[test]
fn what_is_shown_is_what_the_model_gets() {
    let stub = Stub::saying(reply("fine"));
    let house = asking(&stub, "", "[skills]\ndirs = [\"skills\"]\n");
    for (name, words) in [("MEMORY.md", "remember"), ("AGENTS.md", "be brief"), ("other.md", "no")]
    {
        in_work(&house, name, words);
    }
    put_skill(&house, "skills", "style", "How we write.", "");
    put_skill(&house, "work/skills", "style", "How this project writes.", "");
    let gate = "[gate]\ncommand = [\"touch\", \"asked\"]\npass_output = false\n";
    house.job("j", &job("skills = [\"style\"]", gate));
    let shown = house.say(&["show", "j", "--prompt", "--slot", SLOT, "--json"]);
    assert_eq!(shown.code, Some(0), "{shown:?}");
    let words = house.say(&["show", "j", "--prompt", "--slot", SLOT]);
    assert!(!house.path("state").exists() && !house.path("work/asked").exists());
    assert_eq!((stub.requests().len(), stub.probes()), (0, 0));

    let said = house.say(&["run", "j", "--slot", SLOT]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let (shown, request) = (shown.json(), &stub.requests()[0]);
    assert_eq!(shown["system"], system(request));
    assert_eq!(shown["messages"][0], request["messages"][1]);
    assert_eq!(request["messages"][1]["content"], "Report on 2026-11-10T09:00:00.000Z.");
    let tools = request["tools"].as_array().unwrap().iter().map(|tool| tool["function"].clone());
    assert_eq!(shown["tools"], tools.collect::<Value>());
    for part in [&shown["system"], &shown["messages"][0]["content"]] {
        assert!(words.stdout.contains(part.as_str().unwrap()), "{}", words.stdout);
    }
    let place = |words: &str| system(request).find(words).unwrap_or_else(|| panic!("{words}"));
    let order = [
        "You are the agent of the scheduled job `j`",
        "How this project writes.",
        "## AGENTS.md\n\nbe brief",
        "## MEMORY.md\n\nremember",
    ];
    assert!(order.map(place).is_sorted(), "{}", system(request));
    assert!(!system(request).contains("How we write.") && !system(request).contains("other.md"));

    // The report of the run says the same as that of the preview.
    let parts = house.rows(
        "SELECT json_object('part', part, 'name', name, 'characters', characters, 'tokens', tokens,
                            'characters_cut', characters_cut, 'note', note)
         FROM v1_prompt_parts ORDER BY n",
    );
    let parts: Value = parts
        .iter()
        .map(|row| serde_json::from_str::<Value>(row[0].as_str().unwrap()).unwrap())
        .collect();
    assert_eq!(parts, shown["parts"]);
    let run = house.say(&["show", "j", "--json"]).json()["last_run"]["run_id"].clone();
    let run = house.say(&["show", run.as_str().unwrap(), "--json"]).json();
    assert_eq!(run["prompt"], shown["parts"]);
    let length = |of: &str| -> i64 {
        let of = run["prompt"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|it| (it["part"] == "tools") == (of == "tools"));
        of.map(|it| it["characters"].as_i64().unwrap()).sum()
    };
    let told = system(request).chars().count() + "Report on 2026-11-10T09:00:00.000Z.".len();
    assert_eq!(length("texts"), i64::try_from(told).unwrap());
    let words = house.say(&["show", run["run_id"].as_str().unwrap()]).stdout;
    assert!(words.contains("\n  prompt    ") && words.contains(" tokens\n"), "{words}");
}

// B114: only the files that are named are opened, at the root of the tree and nowhere below.
#[test]
fn b114_a_huge_tree_is_not_wandered_through() {
    let house = scripted(FINE, "");
    house.job("j", &job("tools = []", ""));
    in_work(&house, "AGENTS.md", "be brief");
    let inotify = Inotify::init(InitFlags::IN_NONBLOCK).unwrap();
    let watch = |folder: &Path| inotify.add_watch(folder, AddWatchFlags::IN_OPEN).unwrap();
    for n in 0..300 {
        let folder = house.path(&format!("work/{}/pkg-{n}", n % 20));
        fs::create_dir_all(&folder).unwrap();
        for name in ["AGENTS.md", "MEMORY.md", "SKILL.md", "x.rs"] {
            fs::write(folder.join(name), "x").unwrap();
        }
        watch(&folder);
    }
    for n in 0..20 {
        watch(&house.path(&format!("work/{n}")));
    }
    let root = watch(&house.path("work"));
    let (code, run) = house.run("j");
    assert_eq!(code, Some(0), "{run:#}");
    let opened = std::iter::from_fn(|| inotify.read_events().ok()).flatten();
    let opened: BTreeSet<_> = opened.map(|it| (it.wd == root, it.name)).collect();
    // The folder itself is not listed either.
    assert_eq!(opened, BTreeSet::from([(true, Some("AGENTS.md".into()))]));
    assert_eq!(house.value("SELECT count(*) FROM v1_prompt_parts WHERE part = 'bootstrap'"), 1);
}

// semantics §7: what cannot be read is said in the report, and the run goes on.
#[test]
fn files_that_cannot_be_told_harm_nobody() {
    let stub = Stub::saying(reply("fine"));
    let house = asking(&stub, "", "");
    house.job("j", &job("tools = []", ""));
    house.write("secret.txt", "the crown jewels");
    in_work(&house, "USER.md", [b'o', 0xff, b'k']);
    in_work(&house, "IDENTITY.md", "x".repeat(3 << 20));
    in_work(&house, "MEMORY.md", "y".repeat(25_000));
    symlink("../secret.txt", house.path("work/AGENTS.md")).unwrap();
    nix::unistd::mkfifo(&house.path("work/SOUL.md"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    fs::create_dir(house.path("work/TOOLS.md")).unwrap();
    let (code, run) = house.run("j");
    assert_eq!(code, Some(0), "{run:#}");
    let told = system(&stub.requests()[0]).to_owned();
    assert!(!told.contains("jewels") && !told.contains("SOUL.md") && !told.contains("USER.md"));
    // semantics §7: a visible cut marker beyond.
    assert!(told.contains("characters of IDENTITY.md cut …]"), "{told}");
    assert!(told.contains("characters of MEMORY.md cut …]"));
    assert!(told.chars().count() < 42_000, "{}", told.chars().count());
    let notes = notes(&house);
    let words = [
        ("AGENTS.md", "left out: `AGENTS.md` is outside the workspace"),
        ("SOUL.md", "left out: `SOUL.md` is not a regular file"),
        ("IDENTITY.md", "only its first 1048576 bytes of 3145728 were read"),
        ("USER.md", "left out: it is not UTF-8 text"),
        ("TOOLS.md", "left out: `TOOLS.md` is a folder; `list` shows it"),
        ("MEMORY.md", "a file has at most 20000 characters"),
    ];
    assert_eq!(notes, words.map(|(name, note)| json!(["bootstrap", name, note])));
    let shown = house.say(&["show", run["run_id"].as_str().unwrap()]).stdout;
    assert!(shown.contains("without AGENTS.md, SOUL.md, USER.md, TOOLS.md\n"), "{shown}");
}

// semantics §7: `light_context = true` leaves the files out.
#[test]
fn a_light_context_has_no_files() {
    let stub = Stub::saying(reply("fine"));
    let house = asking(&stub, "", "");
    in_work(&house, "AGENTS.md", "be brief");
    house.job("light", &job("tools = []\nlight_context = true", ""));
    house.job("usual", &job("tools = []", ""));
    for (job, is_told) in [("light", false), ("usual", true)] {
        assert_eq!(house.run(job).0, Some(0));
        assert_eq!(system(stub.requests().last().unwrap()).contains("be brief"), is_told, "{job}");
    }
}

/// A whole response of this kind.
fn whole(kind: &str, body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\nconnection: close\r\n\r\n{body}")
}

fn said_by_ollama() -> Value {
    let message = json!({"role": "assistant", "content": "fine"});
    json!({"model": "m", "message": message, "done": true, "done_reason": "stop",
           "prompt_eval_count": 12, "eval_count": 4})
}

/// An answer from its recorded stream.
fn recorded(file: &str, kind: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/streams").join(file);
    whole(kind, &fs::read_to_string(path).unwrap())
}

// The same job gives the same bytes on two runs, apart from what its prompt names.
#[test]
fn two_runs_of_a_job_ask_the_same_byte_for_byte() {
    let answers = [
        ("openai", reply("fine")),
        ("anthropic", recorded("50-anthropic-text-ping.sse", "text/event-stream")),
        ("ollama", whole("application/x-ndjson", &format!("{}\n", said_by_ollama()))),
    ];
    for (api, answer) in answers {
        let stub = Stub::saying(answer);
        let base = stub.url().trim_end_matches("/v1").to_owned();
        let url = if api == "openai" { stub.url() } else { base };
        let house = House::new(&format!(
            "[agents.defaults]\nmodel = \"local/m\"\n[skills]\ndirs = [\"skills\"]\n\
             [models.providers.local]\napi = \"{api}\"\nbase_url = \"{url}\"\n"
        ));
        in_work(&house, "AGENTS.md", "be brief");
        put_skill(&house, "skills", "style", "How we write.", "");
        let tools = "tools = [\"read\", \"write\", \"edit\", \"list\", \"grep\", \"exec\"]\n\
                     exec_allow = [\"ls\"]\nskills = [\"style\"]";
        house.job("j", &job(tools, ""));
        for slot in [SLOT, SLOT, "2026-11-11T09:00:00Z"] {
            let said = house.say(&["run", "j", "--slot", slot]);
            assert_eq!(said.code, Some(0), "{api}: {said:?}");
        }
        let requests: Vec<_> = stub.requests().iter().map(ToString::to_string).collect();
        assert_eq!(requests[0], requests[1], "{api}");
        let due = |day: &str| format!("Report on {day}T09:00:00.000Z.");
        let other = requests[2].replace(&due("2026-11-11"), &due("2026-11-10"));
        assert_eq!(requests[0], other, "{api}");
        // What differs comes last: all before it can be cached.
        let same = requests[0].bytes().zip(requests[2].bytes()).take_while(|(a, b)| a == b).count();
        assert!(same > requests[0].find("be brief").unwrap(), "{api}");
        let marks = requests[0].matches("\"cache_control\":{\"type\":\"ephemeral\"}").count();
        assert_eq!(marks, if api == "anthropic" { 3 } else { 0 }, "{}", requests[0]);
    }
}

// semantics §7: a skill's file can be read where it is, and nothing beside it; the snapshot of a
// session stays as it was, whatever becomes of the folder.
#[test]
fn a_skill_is_read_where_it_is_and_told_as_it_was() {
    let shelves = tempfile::tempdir().unwrap();
    let shelf = shelves.path().canonicalize().unwrap();
    let skill = shelf.join("style");
    let (file, changed) = (skill.join("SKILL.md"), skill.join("SKILL.md"));
    let calls = [
        ("read", json!({"path": file})),
        ("list", json!({"path": skill})),
        ("read", json!({"path": skill.join("refs/more.md")})),
        ("read", json!({"path": skill.join("../other/SKILL.md")})),
        ("read", json!({"path": skill.join("out")})),
        ("write", json!({"path": file, "content": "mine"})),
        ("write", json!({"path": skill.join("new.md"), "content": "mine"})),
        ("read", json!({"path": shelf.join("other/SKILL.md")})),
    ];
    let answers = calls.clone();
    let stub = Stub::new(move |n| {
        // After the first request the folder says something else.
        let words = "---\nname: style\ndescription: Changed.\n---\nShort sentences.\n";
        fs::write(&changed, words).unwrap();
        vec![Act::Say(match answers.get(n) {
            Some((tool, arguments)) => {
                head() + &call(tool, &arguments.to_string()) + &finish("tool_calls")
            }
            None => head() + &text("fine") + &finish("stop"),
        })]
    });
    let house = asking(&stub, "", &format!("[skills]\ndirs = [{:?}]\n", shelf.display()));
    for name in ["style", "other"] {
        fs::create_dir_all(shelf.join(name).join("refs")).unwrap();
        let front = format!("---\nname: {name}\ndescription: How we write.\n---\n");
        fs::write(shelf.join(name).join("SKILL.md"), front + "Short sentences.\n").unwrap();
    }
    fs::write(skill.join("refs/more.md"), "and few of them").unwrap();
    symlink("../other/SKILL.md", skill.join("out")).unwrap();
    let agent =
        "[agent]\nprompt = \"go\"\ntools = [\"read\", \"list\", \"write\"]\nskills = [\"style\"]\n";
    house.job("j", agent);
    let (code, run) = house.run("j");
    assert_eq!(code, Some(0), "{run:#}");
    let outcomes = house.rows("SELECT outcome FROM v1_tool_calls ORDER BY n");
    let outcomes: Vec<_> = outcomes.iter().map(|row| row[0].as_str().unwrap()).collect();
    assert_eq!(outcomes[..3], ["ok", "ok", "ok"]);
    assert!(outcomes[3..].iter().all(|outcome| *outcome == "denied"), "{outcomes:?}");
    let requests = stub.requests();
    let first = system(&requests[0]);
    assert!(first.contains("How we write.") && !first.contains("Say it in short"), "{first}");
    assert!(requests.iter().all(|request| system(request) == first));
    let told = requests.last().unwrap()["messages"].to_string();
    assert!(told.contains("Short sentences.") && told.contains("and few of them"), "{told}");
    assert!(!skill.join("new.md").exists());
    assert!(fs::read_to_string(&file).unwrap().contains("Changed."));
}

// A skill that is missing or broken is an error of its job alone; one that needs what is not there
// is left out, which is said before and recorded.
#[test]
fn a_missing_skill_is_an_error_and_one_without_its_needs_is_left_out() {
    let stub = Stub::saying(reply("fine"));
    let house = asking(&stub, "", "[skills]\ndirs = [\"skills\"]\n");
    let needs = |what: &str| format!("metadata: {{\"openclaw\": {{\"requires\": {what}}}}}\n");
    put_skill(&house, "skills", "gh", "Issues.", &needs("{\"bins\": [\"no-such-program\"]}"));
    put_skill(&house, "skills", "mail", "Mail.", &needs("{\"env\": [\"MAIL_TOKEN\"]}"));
    put_skill(&house, "skills", "far", "Far.", "metadata:\n  openclaw:\n    os: [win32]\n");
    put_skill(&house, "skills", "bomb", "x", "a: &a [x]\nb: *a\n");
    house.job("fine", &job("skills = [\"mail\"]", "[env]\nset = { MAIL_TOKEN = \"x\" }\n"));
    house.job("less", &job("skills = [\"gh\", \"mail\", \"far\"]", ""));
    house.job("missing", &job("skills = [\"styl\"]", ""));
    house.job("broken", &job("skills = [\"bomb\"]", ""));
    fs::create_dir(house.path("work")).unwrap();
    let said = house.say(&["validate"]);
    assert_eq!(said.code, Some(2), "{said:?}");
    for words in [
        "there is no skill `styl`: looked in ",
        "the skill `bomb` (",
        "its YAML is wrong: ",
        "warning: the skill `gh` will be left out: it needs the program `no-such-program`",
        "warning: the skill `mail` will be left out: it needs the variable `MAIL_TOKEN`",
        "warning: the skill `far` will be left out: it is for win32, not for linux",
        "2 jobs valid, 2 files invalid",
    ] {
        assert!((said.stderr.clone() + &said.stdout).contains(words), "{words}: {said:?}");
    }
    for job in ["missing", "broken"] {
        assert_eq!(house.say(&["run", job]).code, Some(2), "{job}");
    }
    assert_eq!(house.run("fine").0, Some(0));
    assert!(system(&stub.requests()[0]).contains("name=\"mail\""));
    assert_eq!(house.run("less").0, Some(0));
    assert!(!system(&stub.requests()[1]).contains("<skill"));
    let left = notes(&house);
    assert_eq!(left.len(), 3);
    let expected = "left out: it needs the program `no-such-program`, which is not in PATH";
    assert_eq!(left[0], json!(["skill", "gh", expected]));
}

// semantics §7: its environment is set for the run only, and only for runs that have it.
#[test]
fn a_skills_environment_is_that_of_its_runs() {
    let script = support::scripts::exec_script("echo \"[$STYLE|$STYLE_KEY|$OWN]\"");
    let entries = "[skills]\ndirs = [\"skills\"]\n[skills.entries.style.env]\n\
                   set = { STYLE = \"house\", OWN = \"no\" }\n\
                   secret = { STYLE_KEY = { env = \"KEY\" } }\n";
    let house = scripted(&script, entries).with_secret("KEY", "zebra-0123456789-abc");
    let needs = "metadata: {\"openclaw\": {\"requires\": {\"env\": [\"STYLE_KEY\"]}}}\n";
    put_skill(&house, "skills", "style", "How we write.", needs);
    let tools = "prompt = \"go\"\ntools = [\"exec\", \"read\"]\nexec_allow = [\"*\"]\n";
    let env = "[env]\nset = { OWN = \"yes\" }\n";
    house.job("with", &format!("[agent]\n{tools}skills = [\"style\"]\n{env}"));
    house.job("without", &format!("[agent]\n{tools}{env}"));
    let (code, run) = house.run("with");
    assert_eq!(code, Some(0), "{run:#}");
    assert_eq!(run["reply"].as_str().unwrap().trim(), "[house|[secret STYLE_KEY]|yes]");
    let (_, run) = house.run("without");
    assert_eq!(run["reply"].as_str().unwrap().trim(), "[||yes]");
}

// What was read for a prompt when a run was recorded is played again: nothing of the machine is.
#[test]
fn a_recorded_run_is_told_what_it_was_told() {
    let house = scripted(FINE, "[skills]\ndirs = [\"skills\"]\n");
    in_work(&house, "AGENTS.md", "be brief");
    put_skill(&house, "skills", "style", "How we write.", "");
    house.job("j", &job("skills = [\"style\"]", ""));
    let said = house.say(&["test", "j", "--record"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    in_work(&house, "AGENTS.md", "be long");
    put_skill(&house, "skills", "style", "How we wrote.", "");
    let said = house.say(&["test", "j"]);
    assert_eq!(said.code, Some(0), "{said:?}");
}

#[test]
fn a_command_has_no_prompt_and_a_run_shows_its_own() {
    let house = scripted(FINE, "");
    house.job("c", "[command]\nargv = [\"true\"]\n");
    house.job("j", PLAIN);
    let said = house.say(&["show", "c", "--prompt"]);
    assert_eq!((said.code, said.stderr.trim()), (Some(2), "`c` is a command: it asks no model"));
    let run = house.run("j").1;
    let said = house.say(&["show", run["run_id"].as_str().unwrap(), "--prompt"]);
    assert_eq!(said.code, Some(2));
    assert!(said.stderr.contains("v1_prompt_parts"), "{said:?}");
    // A fresh workspace is empty, and nothing is told of what is not there.
    let parts = house.rows("SELECT part FROM v1_prompt_parts ORDER BY n");
    assert_eq!(parts, [json!(["base"]), json!(["prompt"])]);
}
