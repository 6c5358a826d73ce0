//! Jobs that come after others, in the whole program.

#[expect(dead_code, reason = "the other tests of the whole program use the rest")]
mod support;

use serde_json::json;
use support::ledger::assert_sound;
use support::{House, scripted};

const ECHO: &str = "[[rule]]\nstep = [{ text = \"{{ prompt }}\" }]\n";

fn command(script: &str, more: &str) -> String {
    format!("[command]\nargv = [\"sh\", \"-c\", {script:?}]\n{more}")
}

const SECONDLY: &str = "[schedule]\ncron = \"* * * * * *\"\noverlap = \"allow_all\"\n";

fn pairs(house: &House, sql: &str) -> i64 {
    house.value(sql).as_i64().unwrap()
}

#[test]
fn a_reply_goes_on_to_the_job_after_it_for_the_same_slot() {
    let house = scripted(ECHO, "");
    house.job("collect-sales", &command("echo sold for $PUNCTUAL_DUE_AT", SECONDLY));
    house.job(
        "report",
        "[agent]\ntools = []\nprompt = \"{{ jobs['collect-sales'].reply | trim }} from {{ slot.start }}\"\n\
         [after]\njobs = [\"collect-sales\"]\n",
    );
    let serve = house.serve();
    house.until("SELECT count(*) >= 3 FROM v1_runs WHERE job = 'report' AND state = 'succeeded'");
    serve.stop();
    let rows = house.rows(
        "SELECT DISTINCT r.trigger, r.reply LIKE 'sold for ' || r.due_at || ' from %', s.decision
         FROM v1_runs r JOIN v1_slots s USING (run_id) WHERE r.job = 'report' AND r.state = 'succeeded'",
    );
    assert_eq!(rows, [json!(["after", 1, "started"])]);
    // Each slot that has ended upstream has its row.
    let missing =
        "SELECT count(*) FROM v1_runs u WHERE u.job = 'collect-sales' AND u.state = 'succeeded'
        AND NOT EXISTS (SELECT 1 FROM v1_slots d WHERE d.job = 'report' AND d.due_at = u.due_at)";
    let left = pairs(&house, missing);
    let serve = house.serve();
    house.until(&format!("SELECT ({missing}) = 0"));
    serve.stop();
    assert!(left <= 1, "{left} were in flight");
    assert_sound(&house);
}

/// The first attempt fails, and newer slots of the job before it succeed meanwhile.
#[test]
fn a_further_attempt_has_the_reply_of_its_own_slot() {
    let house = scripted(ECHO, "");
    let mark = house.path("seen").display().to_string();
    let fails_once = format!(
        "[[check]]\ncommand = [\"sh\", \"-c\", \"test -e {mark} || {{ touch {mark}; exit 1; }}\"]\n"
    );
    house.job("a", &command("echo of $PUNCTUAL_DUE_AT", SECONDLY));
    house.job(
        "b",
        &format!(
            "[agent]\ntools = []\nprompt = \"{{{{ jobs.a.reply }}}}\"\n[after]\njobs = [\"a\"]\n\
             [retry]\nbackoff = [\"2s\"]\non = [\"check_failed\"]\n{fails_once}"
        ),
    );
    let serve = house.serve();
    house.until("SELECT count(*) > 0 FROM v1_runs WHERE trigger = 'retry' AND state = 'succeeded'");
    serve.stop();
    let rows = house.rows(
        "SELECT DISTINCT reply LIKE 'of ' || due_at || '%' FROM v1_runs WHERE trigger = 'retry'
         AND state = 'succeeded'",
    );
    assert_eq!(rows, [json!([1])]);
}

#[test]
fn whatever_dies_in_between_each_slot_is_told_on_once() {
    let house = scripted(ECHO, "");
    house.job("a", &command("true", SECONDLY));
    house.job("b", &command("sleep 0.2", "[after]\njobs = [\"a\"]\n"));
    house.job("c", &command("true", "[after]\njobs = [\"b\", \"a\"]\nwhen = \"finished\"\n"));
    for _ in 0..3 {
        let serve = house.serve();
        let known =
            pairs(&house, "SELECT count(*) FROM v1_slots WHERE job = 'b' AND decision = 'started'");
        house.until(&format!(
            "SELECT count(*) > {known} + 1 FROM v1_slots WHERE job = 'b' AND decision = 'started'"
        ));
        serve.kill();
    }
    let serve = house.serve();
    for (upstream, job) in [("a", "b"), ("b", "c")] {
        house.until(&format!(
            "SELECT count(*) = 0 FROM v1_slots u
             WHERE u.job = '{upstream}' AND u.due_at < strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '-3 seconds')
               AND u.due_at > (SELECT first_seen_at FROM v1_jobs WHERE job = '{job}')
               AND NOT EXISTS (SELECT 1 FROM v1_slots d WHERE d.job = '{job}'
                                 AND d.due_at <= u.due_at AND d.due_until >= u.due_until)"
        ));
    }
    serve.stop();
    let twice = "SELECT count(*) FROM (SELECT 1 FROM v1_runs WHERE due_at IS NOT NULL
                 GROUP BY job, due_at, attempt HAVING count(*) > 1)";
    assert_eq!(pairs(&house, twice), 0);
    assert_sound(&house);
}

#[test]
fn what_fails_upstream_is_said_downstream() {
    let house = scripted(ECHO, "");
    let fails = format!("{SECONDLY}[retry]\nmax_attempts = 1\npause_after = 1000000\n");
    house.job("a", &command("exit 1", &fails));
    house.job("good", &command("true", "[after]\njobs = [\"a\"]\n"));
    house.job("bad", &command("echo mending", "[after]\njobs = [\"a\"]\nwhen = \"failed\"\n"));
    let serve = house.serve();
    house.until("SELECT count(*) > 0 FROM v1_runs WHERE job = 'bad' AND state = 'succeeded'");
    house.until("SELECT count(*) > 1 FROM v1_slots WHERE job = 'bad' AND reason = 'upstream'");
    serve.stop();
    let good = "SELECT DISTINCT decision, reason FROM v1_slots WHERE job = 'good'";
    assert_eq!(house.rows(good), [json!(["skipped", "upstream"])]);
    assert_eq!(pairs(&house, "SELECT count(*) FROM v1_runs WHERE job = 'good'"), 0);
    assert_sound(&house);
}

#[test]
fn a_tree_shows_what_comes_after_what_and_a_run_by_hand_starts_nothing() {
    let house = scripted(ECHO, "");
    house.job("a", &command("true", "[schedule]\ncron = \"0 9 * * *\"\n"));
    house.job("b", &command("true", "[after]\njobs = [\"a\"]\n"));
    house.job("c", &command("true", "[after]\njobs = [\"b\", \"a\"]\nwhen = \"finished\"\n"));
    house.job("lonely", &command("true", ""));
    let shown = house.say(&["ls", "--tree"]).stdout;
    let expected = "\
a        0 9 * * *
├─ b     after a
│  └─ c  after b, a (finished)
└─ c     after b, a (finished)
lonely   by hand
";
    assert_eq!(shown, expected);
    assert_eq!(house.run("a").0, Some(0));
    assert_eq!(house.run("b").0, Some(0));
    assert_eq!(
        house.rows("SELECT job, trigger FROM v1_runs ORDER BY job"),
        [json!(["a", "manual"]), json!(["b", "manual"])]
    );
    assert_eq!(
        house.value("SELECT schedule FROM v1_jobs WHERE job = 'c'"),
        "after b, a (finished)"
    );
    assert!(house.say(&["show", "c"]).stdout.contains("after b, a (finished)"));
    for verb in [["next", "c"], ["why", "c"]] {
        let said = house.say(&verb);
        assert_eq!(said.code, Some(0), "{said:?}");
    }
}

#[test]
fn a_broken_job_still_says_that_it_did_not_start() {
    let house = scripted(ECHO, "");
    house.job("a", &command("true", SECONDLY));
    house.job("b", &command("true", "[after]\njobs = [\"a\"]\n"));
    let serve = house.serve();
    house.until("SELECT count(*) > 0 FROM v1_slots WHERE job = 'b'");
    serve.stop();
    house.job("b", "nonsense");
    let serve = house.serve();
    house.until("SELECT count(*) > 1 FROM v1_slots WHERE job = 'b' AND reason = 'invalid'");
    serve.stop();
    assert_sound(&house);
}
