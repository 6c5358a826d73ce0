//! What it costs to find the next due instant and to count the missed ones.

use divan::{Bencher, black_box};
use jiff::Timestamp;
use punctual::schedule::{CronExpr, Fold, Gap, Schedule, ZoneChoice, Zones};

fn main() {
    divan::main();
}

fn cron(text: &str, zone: &str) -> Schedule {
    let zones = Zones::open(ZoneChoice::Bundled).expect("the bundled database is always there");
    let zone = zones.get(zone).expect("a zone of the database");
    let expr = CronExpr::parse(text).expect("an expression of this file");
    Schedule::cron(expr, zone, Gap::Shift, Fold::Once)
}

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

#[divan::bench]
fn parse(bencher: Bencher<'_, '_>) {
    bencher.bench(|| CronExpr::parse(black_box("*/5 9-17 * * MON-FRI")));
}
