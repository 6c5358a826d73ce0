//! What `plan` prints: what other files would mean, against what the ledger knows.

#[expect(dead_code, reason = "the other tests of the whole program use the rest")]
mod support;

use std::fs;

use serde_json::json;
use support::scripts::{BERLIN, FINE, PLAIN, due};
use support::{House, Said};

const FROM: [&str; 3] = ["plan", "--from", "2027-03-26"];

fn house() -> House {
    let house = House::new(BERLIN);
    house.write("model.toml", FINE);
    for id in ["night-a", "night-b", "night-c"] {
        house.job(id, &due("lane = \"warehouse\"", "cron = \"30 2 * * *\""));
    }
    house.job("weekly", &due("", "cron = \"0 9 * * MON\"\ntimezone = \"America/New_York\""));
    house.job("by-hand", PLAIN);
    house
}

/// A house whose ledger knows its jobs.
fn served() -> House {
    let house = house();
    assert_eq!(house.serve().stop().code, Some(0));
    house
}

/// A second folder of job files in which one is other, one is broken, one is gone and one is new.
fn other_files(house: &House) {
    fs::create_dir(house.path("next")).unwrap();
    for entry in fs::read_dir(house.path("jobs")).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, house.path("next").join(path.file_name().unwrap())).unwrap();
    }
    let changed = due("lane = \"warehouse\"", "cron = \"15 3 * * *\"").replace("go", "go on");
    house.write("next/night-a.toml", &changed);
    house.write("next/night-c.toml", "x = 1\n");
    house.write("next/brand-new.toml", &due("lane = \"warehouse\"", "cron = \"30 2 * * *\""));
    fs::remove_file(house.path("next/weekly.toml")).unwrap();
}

fn told(house: &House, said: &Said) -> String {
    let all = format!("{}\n--- out\n{}--- err\n{}", said.code.unwrap(), said.stdout, said.stderr);
    let real = house.path("").canonicalize().unwrap();
    all.replace(real.to_str().unwrap(), "HOUSE")
}

#[test]
fn without_a_ledger_every_job_is_new() {
    let house = house();
    let said = house.say(&[&FROM[..], &["--exit-code"]].concat());
    insta::assert_snapshot!("new", told(&house, &said));
    assert!(!house.path("state").exists(), "it only reads");
}

#[test]
fn what_is_known_does_not_change() {
    let house = served();
    let before = support::ledger::ledger(&house);
    let said = house.say(&[&FROM[..], &["--exit-code"]].concat());
    let begin =
        "nothing would change\n\n5 jobs unchanged: by-hand, night-a, night-b, night-c, weekly";
    assert!(said.code == Some(0) && said.stdout.starts_with(begin), "{said:?}");
    // The same files elsewhere mean the same, though what they name moves with them.
    house.job("beside", &format!("{PLAIN}workdir = \"..\"\n"));
    assert_eq!(house.serve().stop().code, Some(0));
    fs::create_dir(house.path("elsewhere")).unwrap();
    fs::create_dir(house.path("elsewhere/jobs")).unwrap();
    for entry in fs::read_dir(house.path("jobs")).unwrap() {
        let path = entry.unwrap().path();
        let copy = house.path("elsewhere/jobs").join(path.file_name().unwrap());
        fs::copy(&path, copy).unwrap();
    }
    let there = ["--jobs-dir", "elsewhere/jobs", "--exit-code"];
    let said = house.say(&[&FROM[..], &there].concat());
    assert!(said.code == Some(0) && said.stdout.starts_with("nothing would change"), "{said:?}");
    assert_eq!(support::ledger::ledger(&house), before);
}

#[test]
fn other_files_are_told_job_by_job() {
    let house = served();
    other_files(&house);
    let there = ["--jobs-dir", "next", "--exit-code"];
    let said = house.say(&[&FROM[..], &there].concat());
    insta::assert_snapshot!("other", told(&house, &said));
    // Once nothing is broken, the exit code says whether something would change.
    fs::remove_file(house.path("next/night-c.toml")).unwrap();
    let with = house.say(&[&FROM[..], &there].concat());
    let without = house.say(&[&FROM[..], &there[..2]].concat());
    assert_eq!((with.code, without.code), (Some(1), Some(0)));
}

#[test]
fn programs_get_keys_times_collisions_and_lanes() {
    let house = served();
    other_files(&house);
    let plan = house.say(&[&FROM[..], &["--jobs-dir", "next", "--json"]].concat()).json();
    let jobs = plan["jobs"].as_array().unwrap();
    let changes: Vec<_> = jobs.iter().map(|job| (&job["job"], &job["change"])).collect();
    let expected = [
        ("brand-new", "added"),
        ("by-hand", "unchanged"),
        ("night-a", "changed"),
        ("night-b", "unchanged"),
        ("night-c", "invalid"),
        ("weekly", "removed"),
    ];
    let expected = expected.map(|(job, change)| (json!(job), json!(change)));
    assert_eq!(changes, expected.iter().map(|(job, change)| (job, change)).collect::<Vec<_>>());
    let due = |at: &str, local: &str, note: Option<&str>| json!({"due_at": at, "local": local, "note": note});
    let gap = "02:30:00 does not exist on 2027-03-28; first instant after the gap";
    assert_eq!(
        jobs[2],
        json!({
            "job": "night-a", "change": "changed", "schedule": "begins_anew",
            "keys": [
                {"key": "agent.prompt", "old": "go", "new": "go on"},
                {"key": "schedule.cron", "old": "30 2 * * *", "new": "15 3 * * *"},
            ],
            "before": [
                due("2027-03-26T01:30:00.000Z", "2027-03-26T02:30:00+01:00", None),
                due("2027-03-27T01:30:00.000Z", "2027-03-27T02:30:00+01:00", None),
                due("2027-03-28T01:00:00.000Z", "2027-03-28T03:00:00+02:00", Some(gap)),
            ],
            "after": [
                due("2027-03-26T02:15:00.000Z", "2027-03-26T03:15:00+01:00", None),
                due("2027-03-27T02:15:00.000Z", "2027-03-27T03:15:00+01:00", None),
                due("2027-03-28T01:15:00.000Z", "2027-03-28T03:15:00+02:00", None),
            ],
            "problems": [], "last_good_in_force": false,
        })
    );
    assert_eq!(jobs[4]["problems"][0]["severity"], "error");
    assert_eq!(
        plan["collisions"][0],
        json!({
            "minute": "2027-03-26T01:30:00.000Z", "lane": "warehouse", "width": 1, "starts": 2,
            "jobs": ["brand-new", "night-b"],
        })
    );
    assert_eq!(
        plan["lanes"],
        json!([
            {
                "lane": "*", "width": 8, "peak": 1, "waits": {},
                "jobs": ["brand-new", "by-hand", "night-a", "night-b"],
            },
            {
                "lane": "warehouse", "width": 1, "peak": 1,
                "jobs": ["brand-new", "night-a", "night-b"],
                "waits": {"night-b": {"runs": 7, "longest_ms": 60_000}},
            },
        ])
    );
    let hits = plan["clock_changes"].as_array().unwrap();
    let hits: Vec<_> = hits.iter().map(|hit| (&hit["job"], &hit["local"])).collect();
    let [spring, autumn] = ["2027-03-28T03:00:00+02:00", "2027-10-31T02:30:00+02:00"];
    let hit = |job: &str, at: &str| (json!(job), json!(at));
    let expected = [
        hit("brand-new", spring),
        hit("night-b", spring),
        hit("brand-new", autumn),
        hit("night-b", autumn),
    ];
    assert_eq!(hits, expected.iter().map(|(job, at)| (job, at)).collect::<Vec<_>>());
}

#[test]
fn another_interval_begins_a_grid_of_its_own_and_another_prompt_does_not() {
    let house = House::new(BERLIN);
    house.write("model.toml", FINE);
    house.job("grid", &due("", "every = \"8h\""));
    assert_eq!(house.serve().stop().code, Some(0));
    let plan = |house: &House| house.say(&[&FROM[..], &["--json"]].concat()).json();
    house.job("grid", &due("", "every = \"8h\"").replace("go", "go on"));
    let prompt = &plan(&house)["jobs"][0];
    assert_eq!((&prompt["change"], &prompt["schedule"]), (&json!("changed"), &json!("goes_on")));
    assert_eq!(prompt["before"], prompt["after"]);
    house.job("grid", &due("", "every = \"6h\""));
    let interval = &plan(&house)["jobs"][0];
    assert_eq!(interval["schedule"], "begins_anew");
    assert_eq!(interval["before"], prompt["before"]);
    assert_eq!(interval["after"][0]["local"], "2027-03-26T06:00:00+01:00");
}

#[test]
fn a_file_that_is_mended_is_a_change() {
    let house = served();
    let good = fs::read_to_string(house.path("jobs/night-a.toml")).unwrap();
    house.job("night-a", "x = 1\n");
    assert_eq!(house.serve().stop().code, Some(0));
    house.job("night-a", &good);
    let said = house.say(&[&FROM[..], &["--exit-code"]].concat());
    let begin = "night-a: changed; its file can be used again\n  due         2027-03-26T02:30:00";
    assert!(said.code == Some(1) && said.stdout.starts_with(begin), "{said:?}");
}
