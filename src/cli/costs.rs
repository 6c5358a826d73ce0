//! `costs`: what a month has cost, and what is still to come.

use std::collections::BTreeMap;

use jiff::civil::Date;
use serde::Serialize;
use serde_json::json;

use super::caps::{self, CapToday};
use super::context::{Context, now};
use super::costs_to_come::{ToCome, of_rest};
use super::output::{self, Done, Failed, counted, table};
use crate::config::Config;
use crate::plan::day_in;
use crate::store::CostRow;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The month, such as 2026-11 [default: the present one]
    #[arg(long, value_name = "MONTH")]
    month: Option<String>,
    /// One line for each job, or for each model, instead of each job and model
    #[arg(long, value_enum)]
    by: Option<By>,
    /// Print for programs
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum By {
    Job,
    Model,
}

/// The days of a month.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Month {
    pub(super) first: Date,
    pub(super) last: Date,
}

impl Month {
    /// The month that a day lies in.
    pub(super) fn of(day: Date) -> Self {
        Self { first: day.first_of_month(), last: day.last_of_month() }
    }

    fn parse(text: &str) -> Result<Self, Failed> {
        let day: Result<Date, _> = format!("{text}-01").parse();
        day.map(Self::of).map_err(|_| {
            Failed::usage(format!("--month `{text}` is no month; write it as `2026-11`"))
        })
    }
}

impl std::fmt::Display for Month {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.first.strftime("%Y-%m"))
    }
}

/// A sum of rows.
#[derive(Debug, Clone, Default, Serialize)]
struct Sum {
    #[serde(skip_serializing_if = "Option::is_none")]
    job: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    runs: i64,
    failed: i64,
    input_tokens: Option<i64>,
    output_tokens: Option<i64>,
    usd: Option<f64>,
    unpriced_runs: i64,
}

pub(super) fn costs(context: &Context, args: &Args) -> Done {
    let (config, jobs) = context.jobs()?;
    let now = now();
    let today = day_in(&config.timezone, now);
    let month = args.month.as_deref().map_or_else(|| Ok(Month::of(today)), Month::parse)?;
    let history = Context::history(&config)?;
    let rows = match &history {
        Some(reader) => reader.costs(month.first, month.last)?,
        None => Vec::new(),
    };
    let (lines, total) = sums(&rows, args.by);
    let is_present = month == Month::of(today);
    let to_come = match &history {
        Some(reader) if is_present => Some(of_rest(month, &jobs, &config, reader, now)?),
        _ => None,
    };
    let caps = caps::today(&jobs, &config, history.as_ref(), now)?;
    if args.json {
        return output::json(&json!({
            "month": month.to_string(), "timezone": config.timezone.name(),
            "costs": lines, "total": total, "to_come": to_come, "caps": caps,
        }));
    }
    let mut parts = vec![cost_table(&lines, &total, month)];
    parts.extend(to_come.map(|it| forecast(&it, &total)));
    parts.extend(cap_table(&caps, &config));
    output::say(&parts.join("\n\n"))
}

fn sums(rows: &[CostRow], by: Option<By>) -> (Vec<Sum>, Sum) {
    let mut sums: BTreeMap<(Option<&str>, Option<&str>), Sum> = BTreeMap::new();
    let mut total = Sum::default();
    for row in rows {
        let (job, model) = (Some(row.job.as_str()), row.model.as_deref());
        let key = match by {
            None => (job, model),
            Some(By::Job) => (job, None),
            Some(By::Model) => (None, model),
        };
        let sum = sums.entry(key).or_insert_with(|| Sum {
            job: key.0.map(str::to_owned),
            model: key.1.map(str::to_owned),
            ..Sum::default()
        });
        sum.add(row);
        total.add(row);
    }
    (sums.into_values().collect(), total)
}

impl Sum {
    fn add(&mut self, row: &CostRow) {
        let plus = |sum: &mut Option<i64>, more: Option<i64>| {
            *sum = more.map_or(*sum, |more| Some(sum.unwrap_or(0) + more));
        };
        self.runs += row.runs;
        self.failed += row.failed;
        self.unpriced_runs += row.unpriced_runs;
        plus(&mut self.input_tokens, row.input_tokens);
        plus(&mut self.output_tokens, row.output_tokens);
        self.usd = row.usd.map_or(self.usd, |more| Some(self.usd.unwrap_or(0.0) + more));
    }

    fn is_free(&self) -> bool {
        self.usd.is_none() && self.unpriced_runs == 0
    }

    fn cells(&self) -> Vec<String> {
        let number = |count: Option<i64>| count.map(|it| it.to_string()).unwrap_or_default();
        vec![
            self.runs.to_string(),
            self.failed.to_string(),
            number(self.input_tokens),
            number(self.output_tokens),
            // What asks no model costs nothing that would have to be known.
            if self.is_free() { String::new() } else { usd_words(self.usd) },
            if self.unpriced_runs == 0 { String::new() } else { self.unpriced_runs.to_string() },
        ]
    }
}

/// An amount of money; what is unknown is not nothing.
pub(super) fn usd_words(usd: Option<f64>) -> String {
    usd.map_or_else(|| "unknown".to_owned(), |usd| format!("{usd:.4}"))
}

fn cost_table(lines: &[Sum], total: &Sum, month: Month) -> String {
    if lines.is_empty() {
        return format!("no run has ended in {month}");
    }
    let row = |sum: &Sum, job: Option<&str>| {
        let names = [job.or(sum.job.as_deref()), sum.model.as_deref()];
        let names = names.map(|name| name.unwrap_or_default().to_owned());
        names.into_iter().chain(sum.cells()).collect()
    };
    let mut rows: Vec<Vec<String>> = lines.iter().map(|sum| row(sum, None)).collect();
    rows.push(row(total, Some(&format!("all of {month}"))));
    let head = ["job", "model", "runs", "failed", "input", "output", "usd", "cost unknown"];
    let is_full = |column: &usize| rows.iter().any(|row| !row[*column].is_empty());
    let columns: Vec<_> = (0..head.len()).filter(is_full).collect();
    let head: Vec<_> = columns.iter().map(|&column| head[column]).collect();
    let narrow = |row: &Vec<String>| columns.iter().map(|&at| row[at].clone()).collect();
    table(&head, rows.iter().map(narrow).collect())
}

fn forecast(to_come: &ToCome, spent: &Sum) -> String {
    let mut lines = Vec::new();
    if !to_come.jobs.is_empty() {
        let rows = to_come.jobs.iter().map(|it| {
            let each = usd_words(it.usd_each);
            vec![it.job.clone(), it.due.to_string(), each, usd_words(it.usd)]
        });
        lines.push(table(&["to come", "due times", "usd each", "usd"], rows.collect()));
    }
    let known = spent.usd.unwrap_or(0.0) + to_come.usd.unwrap_or(0.0);
    let unknown = match to_come.unknown_jobs {
        0 => String::new(),
        count => format!(", and what {} will cost", counted(count, "job")),
    };
    let words = format!("at the end of the month, if all goes on like this: {known:.4} USD");
    lines.push(words + &unknown);
    lines.join("\n")
}

fn cap_table(caps: &[CapToday], config: &Config) -> Option<String> {
    if caps.is_empty() {
        return None;
    }
    let rows = caps.iter().map(|it| {
        vec![
            it.cap.to_string(),
            it.job.clone().unwrap_or_default(),
            usd_words(Some(it.spent_usd)),
            usd_words(Some(it.allowed_usd)),
            usd_words(Some(it.left_usd)),
            output::local(it.until, config.timezone.rules()),
        ]
    });
    let head = ["cap of the day", "job", "spent", "of", "left", "until"];
    Some(table(&head, rows.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_month_is_written_as_year_and_month() {
        let february = Month::parse("2028-02").unwrap();
        assert_eq!(february.to_string(), "2028-02");
        assert_eq!(february.last.to_string(), "2028-02-29");
        for wrong in ["", "2028", "2028-13", "02-2028", "2028-02-01", "now"] {
            assert!(Month::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn known_and_unknown_amounts_are_kept_apart() {
        let row = |usd, unpriced_runs| CostRow {
            day: "2026-11-30".into(),
            job: "a".into(),
            model: Some("m".into()),
            runs: 2,
            failed: 1,
            input_tokens: None,
            output_tokens: Some(3),
            usd,
            unpriced_runs,
        };
        let (lines, total) = sums(&[row(None, 2), row(Some(0.5), 0), row(Some(0.0), 1)], None);
        assert_eq!((lines.len(), lines[0].usd, total.usd), (1, Some(0.5), Some(0.5)));
        assert_eq!((total.runs, total.unpriced_runs), (6, 3));
        assert_eq!((total.input_tokens, total.output_tokens), (None, Some(9)));
        assert_eq!(sums(&[row(None, 2)], Some(By::Model)).1.usd, None);
    }
}
