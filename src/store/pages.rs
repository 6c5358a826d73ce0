//! Pages of the history: the newest rows that a filter lets through, found by an index however long
//! the history is.
//!
//! A condition that may be absent is left out of the statement: as `?1 IS NULL OR …` it would keep
//! the planner from every index.

use jiff::{SignedDuration, Timestamp};
use rusqlite::types::Value;
use rusqlite::{Row, params_from_iter};

use super::error::StoreError;
use super::instant;
use super::read::{Reader, RunFilter, SlotFilter, SlotSummary};
use super::read_slot::{SLOT_COLUMNS, slot_from};
use super::record::RunRecord;
use crate::run::State;

/// A statement that grows with what is asked for.
struct Page {
    sql: String,
    values: Vec<Value>,
}

impl Page {
    fn new(select: &str) -> Self {
        Self { sql: format!("{select} WHERE true"), values: Vec::new() }
    }

    /// `condition` ends where its value is to stand.
    fn and(mut self, condition: &str, value: Option<String>) -> Self {
        if let Some(value) = value {
            self.sql += " AND ";
            self.sql += condition;
            self.sql += " ?";
            self.values.push(value.into());
        }
        self
    }

    fn end(mut self, order: &str, limit: u32) -> Self {
        self.sql += " ORDER BY ";
        self.sql += order;
        self.sql += " LIMIT ?";
        self.values.push(i64::from(limit).into());
        self
    }

    fn rows<T>(
        &self,
        reader: &Reader,
        from: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, StoreError> {
        let mut statement = reader.0.prepare_cached(&self.sql)?;
        let rows = statement.query_map(params_from_iter(&self.values), from)?;
        Ok(rows.collect::<Result<_, _>>()?)
    }
}

/// The index of what did not go well is used only where the statement has its very words.
const NOT_WELL: &str = " AND state IN ('failed', 'timed_out', 'cancelled', 'interrupted')";
const OPEN: &str = " AND state IN ('queued', 'running')";

fn runs(filter: &RunFilter) -> Page {
    let index = match (filter.state, &filter.job) {
        (None | Some(State::Succeeded), None) => "runs_by_time",
        (None | Some(State::Succeeded), Some(_)) => "runs_by_job",
        // Without it, a job that never fails would be read to its first run.
        (Some(State::Failed | State::TimedOut | State::Cancelled | State::Interrupted), job) => {
            if job.is_some() {
                "runs_not_well_of_job"
            } else {
                "runs_not_well"
            }
        }
        (Some(State::Queued | State::Running), _) => "runs_open",
    };
    let mut page = Page::new(&format!("SELECT run_id FROM runs INDEXED BY {index}"));
    match filter.state {
        None | Some(State::Succeeded) => {}
        Some(State::Queued | State::Running) => page.sql += OPEN,
        Some(_) => page.sql += NOT_WELL,
    }
    page.and("job =", filter.job.clone())
        .and("state =", filter.state.map(|state| state.as_str().to_owned()))
        .and("queued_at >=", filter.since.map(instant::text))
        .and("queued_at <", filter.until.map(instant::text))
        .end("queued_at DESC, run_id DESC", filter.limit)
}

/// Those that begin in the period, and, as they are few, the ranges that reach into it.
fn slots(filter: &SlotFilter) -> [Page; 2] {
    let select = format!("SELECT {SLOT_COLUMNS} FROM slots");
    let since = filter.since.map(instant::text);
    let begun = Page::new(&select)
        .and("job =", filter.job.clone())
        .and("due_at >=", since.clone())
        .end("due_at DESC, job", filter.limit);
    let mut reaching = Page::new(&format!("{select} INDEXED BY slots_ranges"));
    reaching.sql += " AND slots > 1";
    let limit = if since.is_some() { filter.limit } else { 0 };
    let reaching = reaching
        .and("due_until >=", since.clone())
        .and("due_at <", since)
        .and("job =", filter.job.clone())
        .end("due_at DESC, job", limit);
    [begun, reaching]
}

/// A run as far as a picture of a period needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lived {
    /// The job.
    pub job: String,
    /// Where it is in its life, or how it ended.
    pub state: State,
    /// When its clock started, or if it has not, when it was recorded.
    pub began: Timestamp,
    /// When it was over.
    pub ended: Option<Timestamp>,
}

/// Runs that began before a period and reach into it are looked for so far back: the limit of a run
/// is 48h unless somebody says otherwise.
const REACH: SignedDuration = SignedDuration::from_hours(48);

impl Reader {
    /// Runs, newest first.
    pub fn runs(&self, filter: &RunFilter) -> Result<Vec<RunRecord>, StoreError> {
        // One look for all of it: so it is of one moment, and no statement begins a look of its own.
        let _of_one_moment = self.0.unchecked_transaction()?;
        let ids: Vec<String> = runs(filter).rows(self, |row| row.get(0))?;
        ids.iter().filter_map(|id| self.run(id).transpose()).collect()
    }

    /// Slots, newest first.
    pub fn slots(&self, filter: &SlotFilter) -> Result<Vec<SlotSummary>, StoreError> {
        let mut found = Vec::new();
        for page in slots(filter) {
            found.extend(page.rows(self, slot_from)?);
        }
        found.truncate(usize::try_from(filter.limit).unwrap_or(usize::MAX));
        Ok(found)
    }

    /// Every run that lived between two instants, in the order in which they were recorded.
    pub fn lived(&self, from: Timestamp, until: Timestamp) -> Result<Vec<Lived>, StoreError> {
        let reach = from.checked_sub(REACH).unwrap_or(from);
        let times = [reach, until, from].map(instant::text);
        let mut statement = self.0.prepare_cached(
            "SELECT job, state, coalesce(started_at, queued_at), finished_at FROM runs
             WHERE queued_at >= ?1 AND queued_at < ?2
               AND coalesce(finished_at, ?3) >= ?3 ORDER BY queued_at, run_id",
        )?;
        let rows = statement.query_map(times, |row| {
            let state: String = row.get(1)?;
            let ended: Option<String> = row.get(3)?;
            Ok(Lived {
                job: row.get(0)?,
                state: state.parse().unwrap_or(State::Interrupted),
                began: instant::parse(&row.get::<_, String>(2)?)?,
                ended: ended.as_deref().map(instant::parse).transpose()?,
            })
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// The named lane of each job that has one, by its present definition.
    pub fn lanes(&self) -> Result<Vec<(String, String)>, StoreError> {
        let mut statement = self.0.prepare_cached(
            "SELECT job, json_extract(effective, '$.lane') AS lane
             FROM jobs JOIN definitions USING (job, definition_hash) WHERE lane IS NOT NULL",
        )?;
        let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(rows.collect::<Result<_, _>>()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Owner, Store, database_in};

    /// What SQLite does for a page. `SCAN` is what no page of a long history may need, but for one
    /// along an index that is read from its newest end.
    fn plan(reader: &Reader, page: &Page) -> Vec<String> {
        let mut explain = reader.0.prepare(&format!("EXPLAIN QUERY PLAN {}", page.sql)).unwrap();
        let rows = explain.query_map(params_from_iter(&page.values), |row| row.get(3)).unwrap();
        rows.collect::<Result<_, _>>().unwrap()
    }

    #[test]
    fn every_page_is_found_by_an_index() {
        let dir = tempfile::tempdir().unwrap();
        let owner = Owner { boot_id: "b".into(), pid: 1, started: 2, host: "h".into() };
        drop(Store::open(dir.path(), owner).unwrap());
        let reader = Reader::open(&database_in(dir.path())).unwrap();
        let at: Timestamp = "2026-11-30T09:00:00Z".parse().unwrap();
        let states = [None, Some(State::Succeeded), Some(State::Failed), Some(State::Running)];
        let jobs = [None, Some("job".to_owned())];
        for (state, job) in states.iter().flat_map(|state| jobs.iter().map(move |job| (state, job)))
        {
            for since in [None, Some(at)] {
                let filter =
                    RunFilter { job: job.clone(), state: *state, since, until: since, limit: 50 };
                let steps = plan(&reader, &runs(&filter));
                let by = match (state, job) {
                    (Some(State::Failed), None) => "SEARCH runs USING INDEX runs_not_well (state=?",
                    (Some(State::Failed), Some(_)) => {
                        "SEARCH runs USING INDEX runs_not_well_of_job (job=? AND state=?"
                    }
                    (Some(State::Running), _) => "SEARCH runs USING INDEX runs_open (state=?",
                    (_, Some(_)) => "SEARCH runs USING INDEX runs_by_job (job=?",
                    (_, None) if since.is_none() => "SCAN runs USING INDEX runs_by_time",
                    (_, None) => "SEARCH runs USING INDEX runs_by_time (queued_at>",
                };
                assert!(steps[0].starts_with(by), "{filter:?}: {steps:?}");
                let sorts = steps.iter().any(|step| step == "USE TEMP B-TREE FOR ORDER BY");
                assert!(!sorts || *state == Some(State::Running), "{filter:?}: {steps:?}");

                let filter = SlotFilter { job: job.clone(), since, limit: 50 };
                let [begun, reaching] = slots(&filter).map(|page| plan(&reader, &page));
                let by = match (job, since) {
                    (Some(_), _) => "SEARCH slots USING INDEX sqlite_autoindex_slots_1 (job=?",
                    (None, None) => "SCAN slots USING INDEX slots_by_time",
                    (None, Some(_)) => "SEARCH slots USING INDEX slots_by_time (due_at>?",
                };
                assert!(begun[0].starts_with(by), "{filter:?}: {begun:?}");
                assert!(reaching[0].contains("INDEX slots_ranges"), "{filter:?}: {reaching:?}");
            }
        }
    }
}
