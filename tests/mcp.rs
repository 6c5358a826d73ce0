//! MCP servers that behave: what is offered of them, what a model is told, where they work. With the
//! real binary, from outside.

#[expect(dead_code, reason = "the other tests of the whole program use the rest")]
mod support;

use std::collections::BTreeSet;
use std::fs;

use serde_json::{Value, json};
use support::mcp::{JOB, SERVER, house, offered, server, step, told, verdicts};
use support::stub::{Act, Stub, call, finish, head, text};
use support::{asking, until};

#[test]
fn tools_of_a_server_are_called_in_the_workspace_with_the_runs_environment() {
    let model = Stub::calling(&[
        ("w__echo", json!({"text": "grüße"})),
        ("w__variable", json!({"name": "OF_SERVER"})),
        ("w__variable", json!({"name": "OF_JOB"})),
        ("w__variable", json!({"name": "PASSED"})),
        ("w__variable", json!({"name": "OPENAI_API_KEY"})),
        ("w__folder", json!({})),
        ("w__fail", json!({})),
        ("w__picture", json!({})),
        ("w__structured", json!({})),
        ("w__none", json!({})),
    ]);
    let keys = "[mcp.servers.w.env]\nset = { OF_SERVER = \"mine\", OF_JOB = \"server\" }\n\
                pass = [\"PASSED\"]";
    let house = house(&model, &server(&["plain"], keys), "")
        .with_env("PASSED", "on")
        .with_env("OPENAI_API_KEY", "not for it");
    house.job("j", &format!("{JOB}[env]\nset = {{ OF_JOB = \"job\" }}\n"));
    let (code, run) = house.run("j");
    assert_eq!((code, &run["state"]), (Some(0), &json!("succeeded")), "{run:#}");
    let told = told(&model);
    // semantics §10: fetched content is marked as untrusted.
    let asked = model.requests().pop().unwrap().to_string();
    assert!(asked.contains("result of `echo` of the MCP server `w`\\nWhat stands between"));
    assert_eq!(told[..5], ["grüße", "mine", "server", "on", "unset"]);
    let workspace = format!("/state/workspaces/{}", run["run_id"].as_str().unwrap());
    assert!(told[5].ends_with(&workspace), "{}", told[5]);
    let rest = ["it cannot be done", "[image, image/png, 3000 bytes, left out]", "{\"rows\":2}"];
    assert_eq!(told[6..9], rest);
    assert!(told[9].starts_with("`w__none` is not offered here"), "{}", told[9]);
    let errors: Vec<_> = verdicts(&house).iter().map(|row| row[1].clone()).collect();
    let want = ["ok", "ok", "ok", "ok", "ok", "ok", "error", "ok", "ok", "denied"];
    assert_eq!(errors, want);
    assert_eq!(run["tools"], json!({"calls": 10, "errors": 1, "denied": 1}));
    // A server that ends with its input was not forced to.
    assert_eq!(run["cleanup"]["outcome"], "clean", "{run:#}");
    assert_eq!(step(&run, "mcp")["outcome"], "clean");
    house.assert_nothing_is_left();
}

#[test]
fn offers_have_names_that_every_api_takes_in_an_order_that_stays() {
    let model = Stub::calling(&[("w__read", json!({}))]);
    let house = house(&model, &server(&["clash"], ""), "");
    house.job("j", &JOB.replace("tools = []", "tools = [\"read\"]"));
    assert_eq!(house.run("j").0, Some(0));
    let names = offered(&model);
    assert_eq!(names[0], "read");
    // In the order of what the server calls them: "a b", "a.b", "a_b", "read".
    let hashed = ["w__a_b", "w__a_b_2e7336dc", "w__a_b_648fa9b3", "w__read"];
    assert_eq!(names[1..5], hashed);
    assert_eq!(names.len(), 7);
    assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), 7, "{names:?}");
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    assert!(names.iter().all(|it| it.len() <= 64 && it.chars().all(is_plain)), "{names:?}");
}

// "The same job gives byte-identical requests on two runs."
#[test]
fn a_server_that_lists_its_tools_in_another_order_each_time_changes_no_request() {
    let model =
        Stub::calling(&[("w__change", json!({})), ("w__echo", json!({"text": "still there"}))]);
    let house = house(&model, &server(&["shuffled"], ""), "");
    for _ in 0..3 {
        let (_, run) = house.run("j");
        let detail = "w: its tools changed, the offer did not";
        assert_eq!(step(&run, "mcp")["detail"], detail);
    }
    let offers: BTreeSet<_> =
        model.requests().iter().map(|request| request["tools"].to_string()).collect();
    assert_eq!((offers.len(), model.requests().len()), (1, 9));
    assert_eq!(told(&model)[1], "still there");
}

#[test]
fn only_what_is_allowed_is_offered() {
    let model = Stub::calling(&[("w__die", json!({}))]);
    let ceiling = "[ceilings]\ntools = [\"read\", \"w__e*\", \"w__f*\"]\n";
    let own = server(&["plain"], "tools = [\"echo\", \"d*\", \"fail\"]");
    let house = house(&model, &format!("{own}{ceiling}"), "");
    assert_eq!(house.run("j").0, Some(0));
    assert_eq!(offered(&model), ["w__echo", "w__fail"]);
    assert_eq!(verdicts(&house), [json!(["w__die", "denied"])]);
}

#[test]
fn schemas_and_descriptions_are_made_to_fit() {
    let model = Stub::calling(&[]);
    let house = house(&model, &server(&["hostile"], ""), "");
    assert_eq!(house.run("j").0, Some(0));
    let tools = model.requests()[0]["tools"].clone();
    let long = tools[0]["function"]["description"].as_str().unwrap();
    assert!(long.len() < 2100 && long.ends_with("[… cut …]"), "{long}");
    let want = json!({"properties": {"next": {}}, "type": "object"});
    assert_eq!(tools[1]["function"]["parameters"], want);
}

#[test]
fn few_of_many_tools_can_be_chosen() {
    let model = Stub::calling(&[]);
    let house = house(&model, &server(&["many", "10000"], "tools = [\"t0777?\"]"), "");
    assert_eq!(house.run("j").0, Some(0));
    assert_eq!(offered(&model).len(), 10);
}

#[test]
fn servers_start_at_the_same_time() {
    let model = Stub::calling(&[]);
    let one = server(&["late", "2"], "");
    let all: String =
        ["w", "x", "y", "z"].map(|name| one.replace(".w]", &format!(".{name}]"))).concat();
    let house = house(&model, &all, "");
    house.job("j", &JOB.replace("[\"w\"]", "[\"w\", \"x\", \"y\", \"z\"]"));
    let (code, run) = house.run("j");
    assert_eq!(code, Some(0), "{run:#}");
    assert!(run["duration_ms"].as_u64().unwrap() < 7000, "{run:#}");
    assert_eq!(offered(&model).len(), 64);
}

#[test]
fn a_secret_of_a_server_is_shown_nowhere() {
    let model = Stub::calling(&[("w__variable", json!({"name": "TOKEN"})), ("w__die", json!({}))]);
    let keys = "[mcp.servers.w.env.secret]\nTOKEN = { env = \"W_TOKEN\" }\n\
                DATABASE = { env = \"W_DATABASE\" }";
    let house = house(&model, &server(&["plain"], keys), "")
        .with_secret("W_TOKEN", "tk-0123456789abcdef")
        .with_secret("W_DATABASE", "db-fedcba9876543210");
    assert_eq!(house.run("j").0, Some(0));
    assert_eq!(told(&model)[0], "[secret TOKEN]");
    let config = fs::read_to_string(house.path("config.toml")).unwrap();
    house.write("config.toml", &config.replace("plain", "exit"));
    let (_, run) = house.run("j");
    let message = run["error"]["message"].as_str().unwrap();
    assert!(message.ends_with("no database at [secret DATABASE]"), "{message}");
}

#[test]
fn a_job_whose_server_lacks_its_secret_is_invalid_and_others_are_not() {
    let keys = "[mcp.servers.w.env.secret]\nTOKEN = { env = \"W_TOKEN\" }";
    let model = Stub::calling(&[]);
    let house = house(&model, &server(&["plain"], keys), "");
    house.job("other", "[agent]\nprompt = \"go\"\n");
    house.job("typo", &JOB.replace("\"w\"", "\"ww\""));
    let said = house.say(&["validate"]);
    assert_eq!(said.code, Some(2));
    let why = "the MCP server `w` cannot be used: `TOKEN`: the environment variable `W_TOKEN` is \
               not set";
    assert!(said.stderr.contains(why) || said.stdout.contains(why), "{said:?}");
    let nearest = "there is no MCP server `ww`";
    assert!(said.stderr.contains(nearest) || said.stdout.contains(nearest), "{said:?}");
    assert_eq!(house.run("other").0, Some(0));
}

#[test]
fn a_run_is_played_again_without_its_servers() {
    let model = Stub::calling(&[("w__echo", json!({"text": "recorded"})), ("w__die", json!({}))]);
    let house = house(&model, &server(&["plain"], ""), "");
    let said = house.say(&["test", "j", "--record"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let config = fs::read_to_string(house.path("config.toml")).unwrap();
    house.write("config.toml", &config.replace("python3", "no-such-program"));
    let said = house.say(&["test", "j"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    // A job that names its server no more offers a model something else.
    house.job("j", &JOB.replace("mcp = [\"w\"]", ""));
    assert_eq!(house.say(&["test", "j"]).code, Some(1));
}

#[test]
fn the_next_model_of_a_run_has_its_servers_too() {
    let model = Stub::calling(&[
        ("w__echo", json!({"text": "first"})),
        ("w__echo", json!({"text": "second"})),
    ]);
    let house = asking(&model, "", &format!("{}\n", server(&["plain"], "")));
    house.job(
        "j",
        &format!(
            "{JOB}fallbacks = [\"local/other\"]\nescalate_on = \"check_failed\"\n\
             [[check]]\nname = \"never\"\nregex = \"nothing has this\"\n"
        ),
    );
    let answered = Stub::answering(|request| {
        let messages = request["messages"].as_array().unwrap();
        let last = messages.last().unwrap()["role"].clone();
        let say = if last == "user" {
            call("w__echo", &json!({"text": "hello"}).to_string()) + &finish("tool_calls")
        } else {
            text("fine") + &finish("stop")
        };
        vec![Act::Say(head() + &say)]
    });
    let config = fs::read_to_string(house.path("config.toml")).unwrap();
    house.write("config.toml", &config.replace(&model.url(), &answered.url()));
    let (code, run) = house.run("j");
    assert_eq!((code, &run["error"]["kind"]), (Some(1), &json!("check_failed")), "{run:#}");
    assert_eq!(verdicts(&house), [json!(["w__echo", "ok"]), json!(["w__echo", "ok"])]);
    assert_eq!(run["cleanup"]["outcome"], "clean", "{run:#}");
    house.assert_nothing_is_left();
}

/// A server on loopback that runs already.
struct Near {
    process: std::process::Child,
    folder: tempfile::TempDir,
    port: String,
}

impl Near {
    #[expect(clippy::disallowed_methods, reason = "it is not ours to end")]
    fn start(token: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let port_file = folder.path().join("port");
        let process = std::process::Command::new("python3")
            .args([SERVER, "http", port_file.to_str().unwrap()])
            .env("MCP_TOKEN", token)
            .env("MCP_LOG", folder.path().join("log"))
            .spawn()
            .unwrap();
        let mut near = Self { process, folder, port: String::new() };
        until("the server listens", || port_file.exists());
        near.port = fs::read_to_string(port_file).unwrap();
        near
    }

    fn log(&self) -> Vec<Value> {
        let log = fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
        log.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

impl Drop for Near {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn a_server_that_runs_already_is_reached_by_http() {
    let near = Near::start("tk-0123456789abcdef");
    let model = Stub::calling(&[
        ("w__echo", json!({"text": "over http"})),
        ("w__busy", json!({})),
        ("w__large", json!({"bytes": 20_000_000})),
        ("w__echo", json!({"text": "still there"})),
    ]);
    let config = format!(
        "[mcp.servers.w]\nurl = \"http://127.0.0.1:{}/mcp\"\ntoken_env = \"W_TOKEN\"\n\
         headers = {{ X-Team = \"data\" }}\ntimeout = \"1s\"\n",
        near.port
    );
    let house = house(&model, &config, "")
        .with_secret("W_TOKEN", "tk-0123456789abcdef")
        .with_env("HTTP_PROXY", "http://127.0.0.1:1");
    let (code, run) = house.run("j");
    assert_eq!(code, Some(0), "{run:#}");
    let told = told(&model);
    assert_eq!(told[0], "over http");
    assert_eq!(told[1], "no answer from the MCP server `w` within 1s; the call was cancelled");
    assert!(
        told[2].starts_with("the MCP server `w` ") || told[2].starts_with("no answer"),
        "{}",
        told[2]
    );
    assert_eq!(told[3], "still there");
    assert_eq!(run["cleanup"]["outcome"], "clean");
    let log = near.log();
    assert!(log.iter().any(|it| it["method"] == "notifications/cancelled"), "{log:?}");
    let ended = log.iter().find(|it| it["http"] == "DELETE");
    assert_eq!(ended.map(|it| it["session"].clone()), Some(json!("session-1")), "{log:?}");
}

#[test]
fn what_a_server_gives_is_there_within_a_moment() {
    // A call is a message there and one back: nothing polls.
    let many: Vec<_> = (0..25).map(|n| ("w__echo", json!({"text": n.to_string()}))).collect();
    let model = Stub::calling(&many);
    let house = house(&model, &server(&["plain"], ""), "");
    let (_, run) = house.run("j");
    assert_eq!(run["tools"]["calls"], 25, "{run:#}");
    let longest = house.value("SELECT max(duration_ms) FROM v1_tool_calls");
    assert!(longest.as_u64().unwrap() < 2000, "{longest}");
}

#[test]
fn doctor_starts_each_server_and_says_which_cannot_be_had() {
    let model = Stub::calling(&[]);
    let dead = "[mcp.servers.dead]\ncommand = [\"sh\", \"-c\", \"exit 3\"]\n";
    let house = asking(&model, "", &(server(&["plain"], "") + dead));
    let said = house.say(&["doctor", "--json"]);
    assert_eq!(said.code, Some(1), "{}", said.stderr);
    let findings: Value = serde_json::from_str(&said.stdout).unwrap();
    let of = |what: &str| {
        let found = findings.as_array().unwrap().iter().find(|it| it["what"] == what).unwrap();
        (found["how"].as_str().unwrap().to_owned(), found["words"].as_str().unwrap().to_owned())
    };
    let (how, words) = of("MCP server w");
    assert!(how == "ok" && words.starts_with("offers "), "{how}: {words}");
    let (how, words) = of("MCP server dead");
    assert!(how == "bad" && words.contains("dead"), "{how}: {words}");
    assert_eq!(house.living("mcp_server.py"), 0);
}

#[test]
fn a_server_that_cannot_be_reached_fails_the_run_and_is_named() {
    let near = Near::start("another token");
    let model = Stub::calling(&[]);
    let table =
        [(near.port.clone(), "did not answer as one"), ("1".to_owned(), "did not answer as one")];
    for (port, words) in table {
        let config = format!("[mcp.servers.w]\nurl = \"http://127.0.0.1:{port}/mcp\"\n");
        let house = house(&model, &config, "");
        let (_, run) = house.run("j");
        assert_eq!(run["error"]["kind"], "mcp_unavailable", "{run:#}");
        let message = run["error"]["message"].as_str().unwrap();
        assert!(message.starts_with(&format!("the MCP server `w` {words}")), "{message}");
    }
}
