//! Plain SQL from a model: it sees the views that are promised to everyone, and nothing else.
//!
//! SQLite says of each column that a statement reads in which view that happens. But a statement
//! can give a name of its own to what it selects, and so pass a table off as a view. So the views
//! are looked at first: what each of them reads itself is what may be read in its name.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use rusqlite::hooks::{AuthAction, AuthContext, Authorization};

use super::error::StoreError;
use super::query::{Guarding, QueryLimits, Table, refusal_of};
use super::read::Reader;

/// What a statement may read.
#[derive(Debug, Default)]
struct Views {
    /// Tables and columns that a view reads, by its name.
    reads: HashMap<String, HashSet<(String, String)>>,
    /// Everything that is no view.
    tables: HashSet<String>,
    /// Those that the statement has come to through a view.
    seen_through: Mutex<HashSet<String>>,
}

impl Reader {
    /// Runs one `SELECT` over the views `v1_*`. It ends soon after `stop` is set.
    pub fn query_views(
        &mut self,
        sql: &str,
        limits: QueryLimits,
        stop: Arc<AtomicBool>,
    ) -> Result<Table, StoreError> {
        let views = self.views()?;
        let guarding = Guarding {
            limits,
            refuses: Box::new(move |context| views.refusal_of(context)),
            stops: Box::new(move || stop.load(Ordering::Relaxed)),
        };
        self.guarded(guarding, |reader| reader.rows_of(sql, limits))
    }

    /// Looks at what the views read.
    fn views(&mut self) -> Result<Views, StoreError> {
        let names = |kind: &str| -> rusqlite::Result<HashSet<String>> {
            self.0
                .prepare_cached("SELECT name FROM sqlite_schema WHERE type = ?1")?
                .query_map([kind], |row| row.get(0))?
                .collect()
        };
        let mut views = Views { tables: names("table")?, ..Views::default() };
        for view in names("view")?.into_iter().filter(|name| name.starts_with("v1_")) {
            let seen = Arc::new(Mutex::new(HashSet::new()));
            let seeing = Arc::clone(&seen);
            self.0.authorizer(Some(move |context: AuthContext<'_>| {
                if let AuthAction::Read { table_name, column_name } = context.action {
                    let read = (table_name.to_owned(), column_name.to_owned());
                    seeing.lock().expect("no holder of this lock can panic").insert(read);
                }
                Authorization::Allow
            }))?;
            let prepared = self.0.prepare(&format!("SELECT * FROM {view}")).map(drop);
            self.0.authorizer(None::<fn(AuthContext<'_>) -> Authorization>)?;
            prepared?;
            let reads = std::mem::take(&mut *seen.lock().expect("no holder of it can panic"));
            views.reads.insert(view, reads);
        }
        Ok(views)
    }
}

impl Views {
    fn refusal_of(&self, context: &AuthContext<'_>) -> Option<String> {
        match context.action {
            AuthAction::Read { table_name, column_name } => {
                let may = self.may_read(table_name, column_name, context.accessor);
                (!may).then(|| format!("{table_name}: only the views v1_*"))
            }
            AuthAction::Pragma { pragma_name, .. } => Some(format!("PRAGMA {pragma_name}")),
            action => refusal_of(action),
        }
    }

    fn may_read(&self, table: &str, column: &str, accessor: Option<&str>) -> bool {
        let of_view = |view| {
            let read = (table.to_owned(), column.to_owned());
            self.reads.get(view).is_some_and(|reads| reads.contains(&read))
        };
        if accessor.is_some_and(of_view) {
            self.lock().insert(table.to_owned());
            return true;
        }
        // That a row is there, of which nothing is read: of a view, whose table is named then, or of
        // what the statement has given a name itself.
        let only_that_it_is = || {
            if self.tables.contains(table) {
                self.lock().contains(table)
            } else {
                !table.starts_with("sqlite_")
            }
        };
        self.reads.contains_key(table)
            // Functions that make rows of their argument.
            || matches!(table, "json_each" | "json_tree")
            || (column.is_empty() && only_that_it_is())
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<String>> {
        self.seen_through.lock().expect("no holder of this lock can panic")
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::store::{Owner, Store};

    fn reader() -> (tempfile::TempDir, Reader) {
        let dir = tempfile::tempdir().unwrap();
        let owner = Owner { boot_id: "b".into(), pid: 1, started: 1, host: "h".into() };
        let store = Store::open(dir.path(), owner).unwrap();
        let reader = store.reader().unwrap();
        (dir, reader)
    }

    const LIMITS: QueryLimits =
        QueryLimits { rows_max: 10, bytes_max: 1000, time_max: Duration::from_secs(20) };

    const ENDLESS: &str =
        "WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n) SELECT ";

    fn asked(reader: &mut Reader, sql: &str) -> Result<usize, String> {
        let table = reader.query_views(sql, LIMITS, Arc::default());
        table.map(|table| table.rows.len()).map_err(|error| error.to_string())
    }

    #[test]
    fn the_views_can_be_asked_in_any_way_that_only_reads() {
        let (_dir, mut reader) = reader();
        let names: Vec<String> = reader.views().unwrap().reads.into_keys().collect();
        assert!(names.len() >= 12, "{names:?}");
        for name in names {
            assert_eq!(asked(&mut reader, &format!("SELECT * FROM {name}")), Ok(0), "{name}");
            let count = format!("SELECT count(*), 'x' FROM {name} AS a");
            assert_eq!(asked(&mut reader, &count), Ok(1), "{name}");
        }
        for sql in [
            "WITH last AS (SELECT job, max(queued_at) AS at FROM v1_runs GROUP BY 1)
             SELECT count(*) FROM last JOIN v1_jobs USING (job)",
            "SELECT count(*) FROM (SELECT 1 FROM v1_slots WHERE job IN (SELECT job FROM v1_jobs))",
            "WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < 9)
             SELECT sum(i) FROM n",
            "SELECT count(*) FROM v1_jobs, json_each(v1_jobs.labels) AS label WHERE label.value = 'x'",
            "SELECT sum(usd) OVER (ORDER BY queued_at) FROM v1_runs UNION ALL SELECT 1",
            "EXPLAIN QUERY PLAN SELECT * FROM v1_runs",
            "VALUES (1)",
        ] {
            let answer = asked(&mut reader, sql);
            assert!(answer.is_ok(), "{sql}: {answer:?}");
        }
    }

    #[test]
    fn tables_writes_and_other_files_are_out_of_reach_however_they_are_named() {
        let (dir, mut reader) = reader();
        let attach = format!("ATTACH '{}' AS other", dir.path().join("punctual.db").display());
        let vacuum = format!("VACUUM INTO '{}'", dir.path().join("copy.db").display());
        for sql in [
            "SELECT * FROM runs",
            "SELECT count(*) FROM runs",
            "SELECT owner_pid FROM main.runs",
            "SELECT * FROM definitions",
            "SELECT sends FROM definitions",
            "SELECT * FROM sqlite_schema",
            "SELECT count(*) FROM sqlite_master",
            "SELECT sql FROM sqlite_temp_schema",
            // Under the name of a view.
            "WITH v1_runs AS (SELECT owner_pid FROM runs) SELECT * FROM v1_runs",
            "WITH v1_jobs AS (SELECT owner_pid FROM runs) SELECT * FROM v1_jobs",
            "WITH v1_x AS (SELECT * FROM runs) SELECT * FROM v1_x",
            "SELECT * FROM (SELECT owner_pid FROM runs) AS v1_runs",
            "SELECT (SELECT owner_pid FROM runs) FROM v1_runs",
            "SELECT * FROM v1_runs WHERE job IN (SELECT file FROM jobs)",
            "SELECT * FROM v1_runs JOIN runs USING (run_id)",
            "SELECT * FROM pragma_table_info('runs')",
            "SELECT * FROM pragma_database_list",
            "SELECT * FROM dbstat",
            "PRAGMA table_info(runs)",
            "PRAGMA query_only = 0",
            "DELETE FROM v1_runs",
            "INSERT INTO runs (run_id) VALUES (1)",
            "CREATE TABLE x (y)",
            "CREATE TEMP VIEW v1_more AS SELECT * FROM runs",
            "SELECT load_extension('x')",
            "BEGIN",
            "SELECT 1; SELECT 2",
            "",
            &attach,
            &vacuum,
        ] {
            let answer = asked(&mut reader, sql);
            assert!(answer.is_err(), "{sql}: {answer:?}");
        }
        assert!(!dir.path().join("copy.db").exists());
        let words = asked(&mut reader, "SELECT * FROM runs").unwrap_err();
        assert!(words.ends_with("not runs: only the views v1_*"), "{words}");
        // What was refused holds for this statement only.
        assert_eq!(asked(&mut reader, "SELECT 1 FROM v1_runs"), Ok(0));
    }

    #[test]
    fn rows_bytes_and_time_are_bounded_and_it_stops_when_told() {
        let (_dir, mut reader) = reader();
        let rows = asked(&mut reader, &format!("{ENDLESS} i FROM n")).unwrap_err();
        assert!(rows.contains("more than 10 rows: add a LIMIT"), "{rows}");
        let bytes = asked(&mut reader, "SELECT hex(zeroblob(1000))").unwrap_err();
        assert!(bytes.contains("ask for less"), "{bytes}");
        let count = format!("{ENDLESS} count(*) FROM n");
        let short = QueryLimits { time_max: Duration::from_millis(50), ..LIMITS };
        let time = reader.query_views(&count, short, Arc::default()).unwrap_err();
        assert!(time.to_string().contains("stopped after 50ms"), "{time}");

        let stop = Arc::new(AtomicBool::new(false));
        let stopping = Arc::clone(&stop);
        let asking = std::thread::spawn(move || {
            let long = QueryLimits { time_max: Duration::from_mins(10), ..LIMITS };
            reader.query_views(&count, long, stopping).map(drop)
        });
        stop.store(true, Ordering::Relaxed);
        assert!(asking.join().unwrap().is_err());
    }
}
