//! A scheduled run that fails is tried again as the rules say, and no oftener.

#[expect(dead_code, reason = "the other tests of the whole program use the rest")]
mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;
use support::asking;
use support::ledger::{
    Grid, assert_covers, assert_once, assert_one_at_a_time, assert_sound, instant_ms, rewrite,
    story,
};
use support::run_object::assert_run;
use support::scripts::{PLAIN, due, once_at, soon};
use support::stub::{Act, Stub, event, head, refusal, reply, retry_after};

/// A refusal after which the run asks again at once, as often as it may.
fn refused(status: &str) -> Vec<Act> {
    vec![Act::Say(retry_after("0", &refusal(status, &json!({"error": {"message": "no"}}))))]
}

/// How often one run asks a model that refuses each time.
const REQUESTS: usize = 3;

#[test]
fn a_model_that_refuses_for_ever_is_asked_with_the_waits_of_its_job() {
    let refuses = Arc::new(AtomicBool::new(true));
    let stub = Stub::new({
        let refuses = Arc::clone(&refuses);
        move |_| {
            if refuses.load(Ordering::SeqCst) {
                refused("429 Too Many Requests")
            } else {
                vec![Act::Say(reply("fine"))]
            }
        }
    });
    let house = asking(&stub, "", "");
    let job = due("", "cron = \"*/12 * * * * *\"");
    house.job("j", &format!("{job}[retry]\nbackoff = [\"1s\", \"4s\"]\n"));
    let serve = house.serve();
    // It dies while it waits for the third attempt; whoever comes next waits on.
    house.until("SELECT count(*) = 1 FROM v1_runs WHERE attempt = 2 AND finished_at IS NOT NULL");
    serve.kill();
    let serve = house.serve();
    let backoff = "SELECT count(*) >= 1 FROM v1_slots WHERE reason = 'backoff'";
    house.until(backoff);
    let runs = house.rows(
        "SELECT started_at, finished_at, due_at, error_kind, trigger FROM v1_runs ORDER BY attempt",
    );
    assert!((3..=4).contains(&runs.len()), "{runs:#?}");
    for (pair, wait) in runs.windows(2).zip([1000, 4000, 4000]) {
        let waited = instant_ms(&pair[1][0]) - instant_ms(&pair[0][1]);
        assert!(waited >= wait, "{waited} {runs:#?}");
    }
    for (run, n) in runs.iter().zip(0..) {
        let trigger = if n == 0 { "schedule" } else { "retry" };
        assert_eq!(
            (&run[2], &run[3], &run[4]),
            (&runs[0][2], &json!("rate_limit"), &json!(trigger))
        );
    }
    assert_eq!(stub.requests().len(), REQUESTS * runs.len());
    // The failed slots are counted in the ledger: whoever starts anew knows of them.
    serve.kill();
    let failed = "SELECT consecutive_failures, backoff_until IS NOT NULL FROM v1_jobs";
    assert_eq!(house.rows(failed), [json!([1, 1])]);
    let serve = house.serve();
    house.until(&backoff.replace(">= 1", ">= 2"));
    assert_eq!(house.value("SELECT count(*) FROM v1_runs"), runs.len());
    assert_eq!(serve.stop().code, Some(0));

    // A success makes up for them.
    refuses.store(false, Ordering::SeqCst);
    rewrite(&house, "UPDATE jobs SET backoff_until = NULL");
    let serve = house.serve();
    house.until("SELECT count(*) = 1 FROM v1_runs WHERE state = 'succeeded'");
    assert_eq!(serve.stop().code, Some(0));
    assert_eq!(house.rows(failed), [json!([0, 0])]);
    assert_one_at_a_time(&house, "j");
    assert_covers(&house, "j", Grid::seconds(&house, "j", 12));
    assert_once(&house);
    assert_sound(&house);
}

#[test]
fn one_blip_costs_an_attempt_and_a_refused_key_the_slot() {
    let blip = Stub::new(|n| match n {
        0..REQUESTS => refused("503 Service Unavailable"),
        _ => vec![Act::Say(reply("fine"))],
    });
    let house = asking(&blip, "", "");
    house.job("blip", &once_at(soon(), "go", "backoff = [\"1s\"]"));
    let serve = house.serve();
    house.until("SELECT state = 'succeeded' FROM v1_runs WHERE attempt = 2");
    assert_eq!(serve.stop().code, Some(0));
    assert_eq!(
        story(&house, "blip"),
        [json!([1, "schedule", "failed", "server_error"]), json!([2, "retry", "succeeded", null])]
    );
    assert_eq!(house.value("SELECT count(DISTINCT due_at) FROM v1_runs"), 1);
    assert_eq!(blip.requests().len(), REQUESTS + 1);

    for (status, kind) in [("401 Unauthorized", "auth"), ("400 Bad Request", "bad_request")] {
        let stub = Stub::new(|_| refused(status));
        let house = asking(&stub, "", "");
        house.job("j", &once_at(soon(), "go", "backoff = [\"100ms\"]"));
        let serve = house.serve();
        house.until("SELECT state = 'paused' FROM v1_jobs");
        // The time for many more attempts.
        house.job("later", &once_at(soon(), "go", ""));
        house.until(
            "SELECT count(*) = 1 FROM v1_runs WHERE job = 'later' AND finished_at IS NOT NULL",
        );
        assert_eq!(serve.stop().code, Some(0));
        assert_eq!(story(&house, "j"), [json!([1, "schedule", "failed", kind])]);
        assert_eq!(stub.requests().len(), 2);
    }
}

// B92, with fixture 24.
#[test]
fn an_end_without_a_word_is_a_failure_that_counts() {
    // A clean end, and usage to go with it.
    let stub = Stub::new(|_| {
        let end = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]});
        let usage = json!({"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0});
        let usage = json!({"choices": [], "usage": usage});
        vec![Act::Say(format!("{}{}{}data: [DONE]\n\n", head(), event(&end), event(&usage)))]
    });
    let house = asking(&stub, "", "");
    let job = due("", "cron = \"* * * * * *\"");
    house.job("j", &format!("{job}[retry]\nmax_attempts = 1\n"));
    house.job("by-hand", PLAIN);
    let serve = house.serve();
    house.until("SELECT consecutive_failures = 1 FROM v1_jobs WHERE job = 'j'");
    let (code, run) = house.run("by-hand");
    assert_eq!(serve.stop().code, Some(0));
    assert_eq!(code, Some(1));
    assert_run(
        &run,
        &json!({
            "/state": "failed", "/error/kind": "empty_response", "/reply": null,
            "/partial_text": null, "/payloads/0/kind": "error",
            "/usage/input_tokens": 0, "/usage/output_tokens": 0,
        }),
    );
    assert_eq!(story(&house, "j"), [json!([1, "schedule", "failed", "empty_response"])]);
    // The fault is the job's own: ten of them would pause it.
    assert_eq!(
        house.rows("SELECT failed_slots, counted_failures FROM jobs WHERE job = 'j'"),
        [json!([1, 1])]
    );
    let attempts = "SELECT state, error_kind, count(*) FROM v1_attempts GROUP BY 1, 2";
    let all = 2 * REQUESTS;
    assert_eq!(house.rows(attempts), [json!(["failed", "empty_response", all])]);
    assert_eq!((stub.requests().len(), house.rows("SELECT 1 FROM v1_runs").len()), (all, 2));
}
