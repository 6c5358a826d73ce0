//! What it costs to find the next due instant and to count the missed ones.

use divan::{Bencher, black_box};
use jiff::Timestamp;
use punctual::schedule::{CronExpr, Fold, Gap, Schedule, Zone, ZoneChoice, Zones};

fn main() {
    divan::main();
}

fn zone(name: &str) -> Zone {
    let zones = Zones::open(ZoneChoice::Bundled).expect("the bundled database is always there");
    zones.get(name).expect("a zone of the database")
}

fn expr(text: &str) -> CronExpr {
    CronExpr::parse(text).expect("an expression of this file")
}

fn cron(text: &str, name: &str) -> Schedule {
    Schedule::cron(expr(text), zone(name), Gap::Shift, Fold::Once)
}

/// Three texts and twenty excluded days.
fn crowded(texts: [&str; 3]) -> Schedule {
    let days = (1..=20).map(|n| format!("2026-{:02}-{:02}", n % 12 + 1, n + 3));
    let days = days.map(|day| day.parse().expect("a date of this file"));
    let zone = zone("Europe/Berlin");
    Schedule::crons(texts.map(expr), zone.clone(), Gap::Skip, Fold::Once).excluding(zone, days)
}

const OFFICE: [&str; 3] = ["0 9 * * MON-FRI", "0 12 L * *", "30 8 * * SAT"];
const SECONDS: [&str; 3] = ["* * * * * *", "*/2 * 9-17 * * *", "0 30 2 * * *"];

fn at(text: &str) -> Timestamp {
    text.parse().expect("an instant of this file")
}

#[divan::bench(args = [
    "* * * * * *",
    "*/5 * * * *",
    "0 9 * * MON-FRI",
    "0 0 1,15 * 5",
    "30 2 * * *",
    "0 0 1 1 *",
    "0 0 29 2 *",
    "0 9 L * *",
    "0 9 15W * *",
    "0 9 * * 5#5",
])]
fn next_after(bencher: Bencher<'_, '_>, text: &str) {
    let (schedule, after) = (cron(text, "Europe/Berlin"), at("2026-03-01T12:34:56Z"));
    bencher.bench(|| schedule.next_after(black_box(after)));
}

#[divan::bench(args = ["UTC", "Europe/Berlin"])]
fn count_400_days_of_seconds(bencher: Bencher<'_, '_>, zone: &str) {
    let schedule = cron("* * * * * *", zone);
    let (after, up_to) = (at("2026-01-01T00:00:00Z"), at("2027-02-05T00:00:00Z"));
    bencher.bench(|| schedule.count_between(black_box(after), black_box(up_to)));
}

#[divan::bench(args = [OFFICE, SECONDS])]
fn next_after_of_three_texts_with_exclusions(bencher: Bencher<'_, '_>, texts: [&'static str; 3]) {
    let (schedule, after) = (crowded(texts), at("2026-03-01T12:34:56Z"));
    bencher.bench(|| schedule.next_after(black_box(after)));
}

#[divan::bench(args = [OFFICE, SECONDS])]
fn next_moment_of_three_texts_with_exclusions(bencher: Bencher<'_, '_>, texts: [&'static str; 3]) {
    let (schedule, after) = (crowded(texts), at("2026-03-01T12:34:56Z"));
    bencher.bench(|| schedule.next_moment(black_box(after)));
}

#[divan::bench(args = [OFFICE, SECONDS])]
fn spans_of_400_days_with_exclusions(bencher: Bencher<'_, '_>, texts: [&'static str; 3]) {
    let schedule = crowded(texts);
    let (after, up_to) = (at("2026-01-01T00:00:00Z"), at("2027-02-05T00:00:00Z"));
    bencher.bench(|| schedule.spans(black_box(after), black_box(up_to)));
}

#[divan::bench]
fn with_jitter(bencher: Bencher<'_, '_>) {
    let schedule = cron("0 9 * * MON-FRI", "Europe/Berlin");
    let max = std::time::Duration::from_mins(5);
    bencher.bench(|| schedule.clone().with_jitter(black_box(max), "daily-report"));
}

#[divan::bench]
fn start_of(bencher: Bencher<'_, '_>) {
    let schedule = cron("0 9 * * MON-FRI", "Europe/Berlin");
    let max = std::time::Duration::from_mins(5);
    let schedule = schedule.with_jitter(max, "daily-report").expect("it is short enough");
    let due_at = at("2026-03-02T08:00:00Z");
    bencher.bench(|| schedule.start_of(black_box(due_at)));
}

#[divan::bench]
fn parse(bencher: Bencher<'_, '_>) {
    bencher.bench(|| CronExpr::parse(black_box("*/5 9-17 * * MON-FRI")));
}
