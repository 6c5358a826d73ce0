//! What must hold of the ledger, whatever has happened to the program.

use jiff::Timestamp;
use serde_json::Value;

use super::House;

/// Everything in the ledger that must never change by itself.
pub fn ledger(house: &House) -> Vec<Vec<Value>> {
    let tables = ["runs", "slots", "attempts", "tool_calls", "cleanups"];
    tables.iter().map(|table| house.rows(&format!("SELECT * FROM {table} ORDER BY 1, 2"))).collect()
}

/// The file is whole, and every row that another names is there.
pub fn assert_sound(house: &House) {
    assert_eq!(house.value("PRAGMA integrity_check"), "ok");
    assert_eq!(house.rows("PRAGMA foreign_key_check"), Vec::<Value>::new());
}

/// No instant of a job that is due each second is without its row, and none has two.
pub fn assert_no_gap(house: &House, job: &str) {
    let rows = house.rows(&format!(
        "SELECT due_at, due_until, slots FROM v1_slots WHERE job = '{job}' ORDER BY due_at"
    ));
    let at = |value: &Value| value.as_str().unwrap().parse::<Timestamp>().unwrap().as_second();
    let mut next = at(&rows[0][0]);
    for row in &rows {
        assert_eq!(at(&row[0]), next, "{rows:#?}");
        let seconds = at(&row[1]) - at(&row[0]) + 1;
        assert_eq!(row[2], seconds, "{rows:#?}");
        next += seconds;
    }
}
