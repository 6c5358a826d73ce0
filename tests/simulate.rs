//! What `simulate` prints: by the real planner, from files alone, and from what the ledger knows.

#[expect(dead_code, reason = "the other tests of the whole program use the rest")]
mod support;

use std::path::Path;

use serde_json::{Value, json};
use support::scripts::{BERLIN, FINE, due};
use support::{House, Said};

/// Two jobs at half past two in one lane, a longer one beside them that may wait once, a grid, one
/// that is disabled and one whose file is broken.
fn house() -> House {
    let house = House::new(BERLIN);
    house.write("model.toml", FINE);
    for id in ["night-a", "night-b"] {
        house.job(id, &due("lane = \"warehouse\"", "cron = \"30 2 * * *\""));
    }
    house.job("often", &due("", "cron = \"*/15 1-3 * * *\"\noverlap = \"buffer_one\""));
    house.job("grid", &due("", "every = \"8h\""));
    house.job("off", &due("enabled = false", "cron = \"0 12 * * SUN\""));
    house.job("broken", "x = 1\n");
    house
}

fn told(said: &Said) -> String {
    format!("{}\n--- out\n{}--- err\n{}", said.code.unwrap(), said.stdout, said.stderr)
}

#[test]
fn the_nights_in_which_the_clocks_change_read_well() {
    let house = house();
    let spring = ["simulate", "--from", "2027-03-27", "--to", "2027-03-29", "--takes", "20m"];
    insta::assert_snapshot!("spring", told(&house.say(&spring)));
    let autumn = ["simulate", "--from", "2027-10-31", "--to", "2027-11-01", "--takes", "20m"];
    insta::assert_snapshot!("autumn", told(&house.say(&autumn)));
    assert!(!house.path("state").exists(), "it only reads");
}

#[test]
fn what_the_schedule_moves_or_leaves_out_has_its_line() {
    let house = House::new(BERLIN);
    house.write("model.toml", FINE);
    let keys =
        "cron = \"30 2 * * *\"\njitter = \"1h\"\ndst_gap = \"skip\"\nexclude = [\"2027-03-27\"]";
    house.job("moved", &due("", keys));
    let span = ["simulate", "--from", "2027-03-26", "--to", "2027-03-30"];
    insta::assert_snapshot!("moved", told(&house.say(&span)));
}

#[test]
fn a_week_of_the_sample_jobs_reads_well() {
    let house = House::new("");
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = root.join("config.toml");
    let config = ["--config", config.to_str().unwrap(), "--state-dir", "nowhere"];
    let span = ["simulate", "--from", "2027-03-26", "--to", "2027-04-02", "--takes", "5s"];
    let said = house.say(&[&config[..], &span].concat());
    insta::assert_snapshot!("samples", told(&said));
    // Each of them, if somebody wants to see that.
    let one = ["simulate", "--from", "2027-03-28", "--to", "2027-03-28T01:00", "--every-line"];
    let job = ["--job", "disk-report", "--takes", "5s"];
    let said = house.say(&[&config[..], &one, &job].concat());
    assert_eq!(said.stdout.matches("  disk-report  started").count(), 120, "{}", said.stdout);
}

#[test]
fn programs_get_every_decision_with_its_run_and_the_load_of_each_minute() {
    let house = house();
    let span = ["simulate", "--from", "2027-03-28T02:00", "--to", "2027-03-28T01:30:00Z"];
    let jobs = ["--job", "night-a", "--job", "night-b", "--json"];
    let said = house.say(&[&span[..], &jobs].concat());
    let note = "02:30:00 does not exist on 2027-03-28; first instant after the gap";
    let at = "2027-03-28T01:00:00.000Z";
    let decision = |job: &str, waited_ms: u64, ends_at: &str| {
        json!({
            "at": at, "due_at": at, "due_until": at, "slots": 1, "job": job, "decision": "started",
            "reason": null, "trigger": "schedule", "waited_ms": waited_ms, "ends_at": ends_at,
            "lane": "warehouse", "note": note,
        })
    };
    let lane = |lane: &str, width: u64| json!({"lane": lane, "width": width, "peak": 1, "busiest_minute": at, "starts_in_it": 2});
    assert_eq!(
        said.json(),
        json!({
            "from": at, "to": "2027-03-28T01:30:00.000Z",
            "decisions": [
                decision("night-a", 0, "2027-03-28T01:01:00.000Z"),
                decision("night-b", 60_000, "2027-03-28T01:02:00.000Z"),
            ],
            "lanes": [lane("*", 8), lane("warehouse", 1)],
            "minutes": [{"minute": at, "starts": 2, "by_lane": {"*": 2, "warehouse": 2}}],
            "truncated": false, "stopped_at": null,
        })
    );
    assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""));
}

#[test]
fn it_takes_lengths_and_grids_from_the_ledger_and_leaves_it_as_it_was() {
    let house = house();
    std::fs::remove_file(house.path("jobs/broken.toml")).unwrap();
    for _ in 0..3 {
        assert_eq!(house.run("grid").0, Some(0));
    }
    let before = support::ledger::ledger(&house);
    let span = ["simulate", "--from", "2037-01-01", "--to", "2037-01-01T09:00", "--json"];
    // A living `serve` is not in its way.
    let serve = house.serve();
    let simulated = house.say(&[&span[..], &["--job", "grid"]].concat()).json();
    serve.stop();
    let rows = house.rows(
        "SELECT duration_ms FROM v1_runs WHERE job = 'grid' AND state = 'succeeded' ORDER BY 1",
    );
    let median = rows[1][0].as_i64().unwrap();
    let instant = |value: &Value| value.as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    let decisions = simulated["decisions"].as_array().unwrap();
    assert!((1..=2).contains(&decisions.len()), "{decisions:#?}");
    let anchor = instant(&house.value("SELECT every_anchor FROM jobs WHERE job = 'grid'"));
    for decision in decisions {
        let due_at = instant(&decision["due_at"]);
        let since = due_at.as_millisecond() - anchor.as_millisecond();
        assert_eq!(since % (8 * 3_600_000), 0, "{decision:#?}");
        assert_eq!(
            instant(&decision["ends_at"]).as_millisecond() - due_at.as_millisecond(),
            median
        );
    }
    assert_eq!(support::ledger::ledger(&house), before);
}

#[test]
fn more_than_anybody_reads_is_cut_and_that_is_said() {
    let house = House::new(BERLIN);
    house.write("model.toml", FINE);
    house.job("second", &due("", "every = \"1s\"\noverlap = \"allow_all\""));
    let span = ["simulate", "--from", "2027-01-01T00:00Z", "--to", "2027-01-03", "--takes", "0s"];
    let said = house.say(&[&span[..], &["--json"]].concat());
    assert_eq!(said.stdout.matches("\"due_at\"").count(), 100_000);
    // The grid begins one second after the first instant, which is 01:00 in Berlin.
    let end = "\"truncated\": true,\n  \"stopped_at\": \"2027-01-02T03:46:41.000Z\"\n}\n";
    assert!(said.stdout.ends_with(end));
    assert_eq!(
        (said.code, said.stderr.as_str()),
        (
            Some(0),
            "stopped at 2027-01-02T04:46:41+01:00 after 100000 decisions: what comes later is left \
             out\n"
        )
    );
}

#[test]
fn what_cannot_be_meant_is_refused() {
    let house = house();
    let refused: [(&[&str], &str); 8] = [
        (&["--from", "2027-03-28", "--to", "2027-03-28"], "is not after --from"),
        (&["--from", "soon", "--to", "2027-03-28"], "--from `soon`: `soon` is not a date"),
        (&["--from", "2027-03-28", "--to", "2027-02-30"], "--to `2027-02-30`"),
        (&["--from", "2027-01-01", "--to", "2027-01-02", "--takes", "long"], "--takes `long`"),
        (&["--from", "2027-01-01", "--to", "2027-01-02", "--job", "nigth-a"], "mean `night-a`?"),
        (&["--from", "2027-01-01", "--to", "2027-01-02", "--job", "broken"], "unknown key `x`"),
        (&["--from", "2027-01-01", "--to", "2027-01-02", "--jobs-dir", "no"], "the jobs folder"),
        (&["--from", "2027-01-01"], "--to"),
    ];
    for (args, words) in refused {
        let said = house.say(&[&["simulate"], args].concat());
        assert_eq!((said.code, said.stdout.as_str()), (Some(2), ""), "{args:?}");
        assert!(said.stderr.contains(words), "{args:?}: {}", said.stderr);
    }
}

#[test]
fn nothing_due_is_said_and_no_error() {
    let house = house();
    let span = ["simulate", "--from", "2027-01-01T04:00", "--to", "2027-01-01T05:00"];
    let said = house.say(&[&span[..], &["--job", "night-a"]].concat());
    let words = "nothing is due from 2027-01-01T04:00:00+01:00 until 2027-01-01T05:00:00+01:00\n";
    assert_eq!((said.code, said.stdout.as_str(), said.stderr.as_str()), (Some(0), "", words));
}
