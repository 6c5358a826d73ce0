//! A cron expression: its text, checked, with the column of whatever is wrong.
//!
//! Five fields, six with leading seconds, or an `@` name. The dialect is Unix (weekdays 0 and 7
//! are Sunday; day of month and day of week combine with OR unless either starts with `*`), and
//! everything else that people write in such a field is refused by name rather than guessed at.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use super::calendar::{Calendar, DayJoin};
use super::field::Field;
use super::unit::{Piece, Unit};

/// No expression that a person writes is longer, and errors quote it whole.
const TEXT_BYTES_MAX: usize = 512;

const NAMES: &[(&str, &str)] = &[
    ("@hourly", "0 * * * *"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@weekly", "0 0 * * 0"),
    ("@monthly", "0 0 1 * *"),
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
];

const FORM: &str = "minute hour day-of-month month day-of-week, with seconds before them if wanted";

/// Why a text is not a cron expression.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct CronError {
    /// Where, in characters from 1.
    pub column: usize,
    /// The field it is about, if it is about one.
    pub field: Option<&'static str>,
    /// What is wrong.
    pub message: String,
    /// What to write instead.
    pub help: Option<String>,
}

impl CronError {
    fn new(column: usize, message: impl Into<String>, help: impl Into<String>) -> Self {
        Self { column, field: None, message: message.into(), help: Some(help.into()) }
    }
}

/// How local times become instants where the clock changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pace {
    /// Minute and hour are fixed: a time of day, wanted once a day however long the day is.
    TimeOfDay,
    /// Minute or hour starts with `*`: a beat, which a clock change does not disturb.
    Elapsed,
}

/// A compiled cron expression. Cheap to clone.
#[derive(Debug, Clone)]
pub struct CronExpr {
    text: Arc<str>,
    calendar: Arc<Calendar>,
    pace: Pace,
    warnings: Arc<[String]>,
}

impl CronExpr {
    /// Compiles an expression. One that can never fire is an error.
    pub fn parse(text: &str) -> Result<Self, CronError> {
        check_characters(text)?;
        let pieces = split_fields(text)?;
        let fields = match pieces.as_slice() {
            [] => return Err(CronError::new(1, "the cron expression is empty", FORM)),
            [name] if name.text.starts_with('@') => parse_fields(&split_fields(named(*name)?)?)?,
            [first, ..] if first.text.starts_with('@') => {
                named(*first)?;
                let column = pieces[1].column;
                return Err(CronError::new(column, "nothing may follow an `@` name", FORM));
            }
            pieces => parse_fields(pieces)?,
        };
        Self::compile(text, &pieces, &fields)
    }

    fn compile(text: &str, pieces: &[Piece<'_>], fields: &[Field; 6]) -> Result<Self, CronError> {
        let Some(calendar) = Calendar::new(fields) else {
            let day = &pieces[pieces.len() - 3];
            return Err(CronError {
                column: day.column,
                field: Some(Unit::DayOfMonth.name()),
                message: format!("`{}` can never fire: no such date exists", text.trim()),
                help: Some("the chosen months are shorter than the chosen days".to_owned()),
            });
        };
        let [_, minute, hour, ..] = fields;
        let pace = if minute.starred || hour.starred { Pace::Elapsed } else { Pace::TimeOfDay };
        let warnings = warnings(fields, &calendar).into();
        Ok(Self { text: text.trim().into(), calendar: Arc::new(calendar), pace, warnings })
    }

    /// The text it was compiled from.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// What is legal and yet perhaps not meant.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    pub(super) fn calendar(&self) -> &Calendar {
        &self.calendar
    }

    pub(super) fn pace(&self) -> Pace {
        self.pace
    }
}

impl FromStr for CronExpr {
    type Err = CronError;

    fn from_str(text: &str) -> Result<Self, CronError> {
        Self::parse(text)
    }
}

impl fmt::Display for CronExpr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

/// After this, a byte is a column.
fn check_characters(text: &str) -> Result<(), CronError> {
    if text.len() > TEXT_BYTES_MAX {
        let message = format!("the cron expression is longer than {TEXT_BYTES_MAX} bytes");
        return Err(CronError::new(1, message, FORM));
    }
    let strange = |c: char| !(c.is_ascii_graphic() || c == ' ' || c == '\t');
    let Some((index, found)) = text.chars().enumerate().find(|(_, c)| strange(*c)) else {
        return Ok(());
    };
    let name = match found {
        '\u{a0}' => " (no-break space)",
        '\u{202f}' => " (narrow no-break space)",
        '\u{200b}' => " (zero-width space)",
        '\u{feff}' => " (byte order mark)",
        '\n' | '\r' => " (line break)",
        '\u{2013}' | '\u{2014}' => " (dash)",
        _ => "",
    };
    let message = format!("unexpected character U+{:04X}{name}", u32::from(found));
    Err(CronError::new(index + 1, message, "separate fields with plain spaces"))
}

/// The words between spaces. A zone before the fields is refused here, where its `=` shows it.
fn split_fields(text: &str) -> Result<Vec<Piece<'_>>, CronError> {
    let mut pieces = Vec::new();
    for text_and_blanks in (Piece { text, column: 1 }).split(' ') {
        pieces.extend(text_and_blanks.split('\t').filter(|piece| !piece.text.is_empty()));
    }
    if let Some((key, zone)) = pieces.first().and_then(|first| first.text.split_once('='))
        && ["TZ", "CRON_TZ"].iter().any(|known| key.eq_ignore_ascii_case(known))
    {
        let message = format!("`{key}=` inside the expression is not supported yet");
        let help = format!("write `timezone = \"{zone}\"` beside it");
        return Err(CronError::new(pieces[0].column, message, help));
    }
    Ok(pieces)
}

fn named(name: Piece<'_>) -> Result<&'static str, CronError> {
    let known = NAMES.iter().find(|(known, _)| name.text.eq_ignore_ascii_case(known));
    if let Some((_, fields)) = known {
        return Ok(fields);
    }
    let (message, help) = match name.text.to_ascii_lowercase().as_str() {
        "@every" => ("`@every` is not supported yet".to_owned(), "write `every = \"5m\"`".into()),
        "@reboot" => (
            "`@reboot` is not supported yet".to_owned(),
            "a schedule names instants, not starts of this program".into(),
        ),
        other => {
            let names: Vec<_> = NAMES.iter().map(|(name, _)| *name).collect();
            (format!("`{other}` is not a known name"), format!("one of {}", names.join(", ")))
        }
    };
    Err(CronError::new(name.column, message, help))
}

fn parse_fields(pieces: &[Piece<'_>]) -> Result<[Field; 6], CronError> {
    let seconds = Piece { text: "0", column: 1 };
    let pieces: [Piece<'_>; 6] = match *pieces {
        [minute, hour, day, month, weekday] => [seconds, minute, hour, day, month, weekday],
        [second, minute, hour, day, month, weekday] => [second, minute, hour, day, month, weekday],
        [_, _, _, _, _, _, year] => {
            let message = "seven fields: a year is not supported yet";
            return Err(CronError::new(year.column, message, FORM));
        }
        [.., last] => {
            let message = format!("a cron expression has five or six fields, not {}", pieces.len());
            return Err(CronError::new(last.column, message, FORM));
        }
        [] => return Err(CronError::new(1, "the cron expression is empty", FORM)),
    };
    let mut fields = Vec::with_capacity(Unit::ALL.len());
    for (unit, piece) in Unit::ALL.into_iter().zip(pieces) {
        fields.push(Field::parse(unit, piece)?);
    }
    Ok(fields.try_into().expect("one field for each of six units"))
}

fn warnings(fields: &[Field; 6], calendar: &Calendar) -> Vec<String> {
    let mut warnings: Vec<_> = fields.iter().filter_map(|field| field.uneven.clone()).collect();
    if calendar.join() == DayJoin::Either {
        warnings.push(
            "day of month and day of week are both set: it fires on days that match either"
                .to_owned(),
        );
        if !calendar.some_month_has_the_day() {
            warnings.push("the day of month does not exist in the chosen months".to_owned());
        }
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> (usize, Option<&'static str>, String) {
        let error = CronExpr::parse(text).expect_err(text);
        (error.column, error.field, error.message)
    }

    #[test]
    fn forms_that_are_not_ours_are_refused_by_name() {
        let table = [
            ("", 1, "the cron expression is empty"),
            (" \t ", 1, "the cron expression is empty"),
            ("0 0 * * * * 2099", 13, "seven fields: a year is not supported yet"),
            ("0 0 * *", 7, "a cron expression has five or six fields, not 4"),
            ("1 2 3 4 5 6 7 8", 15, "a cron expression has five or six fields, not 8"),
            ("@every 5m", 1, "`@every` is not supported yet"),
            ("@reboot", 1, "`@reboot` is not supported yet"),
            (" @dialy", 2, "`@dialy` is not a known name"),
            ("@daily 5", 8, "nothing may follow an `@` name"),
            ("TZ=UTC 0 0 * * *", 1, "`TZ=` inside the expression is not supported yet"),
            (
                "CRON_TZ=Asia/Tokyo @daily",
                1,
                "`CRON_TZ=` inside the expression is not supported yet",
            ),
            ("0 0\u{a0}* * *", 4, "unexpected character U+00A0 (no-break space)"),
            ("0 9–17 * * *", 4, "unexpected character U+2013 (dash)"),
            ("0 0 * * *\n", 10, "unexpected character U+000A (line break)"),
        ];
        for (text, column, message) in table {
            assert_eq!(refused(text), (column, None, message.to_owned()), "{text:?}");
        }
        let long = format!("{} 0 * * *", "1,".repeat(400));
        assert_eq!(refused(&long).2, "the cron expression is longer than 512 bytes");
    }

    #[test]
    fn an_error_points_at_its_item_with_and_without_seconds() {
        for (text, column, field) in [
            ("61 * * * *", 1, "minute"),
            ("* 24 * * *", 3, "hour"),
            ("0 0 0 1 *", 5, "day of month"),
            ("0  0 * 13 *", 8, "month"),
            ("0 0 * * 1,8", 11, "day of week"),
            ("0 0 * * 1,", 11, "day of week"),
            ("61 0 0 * * *", 1, "second"),
            ("0 61 0 * * *", 3, "minute"),
            ("0 0 1,32W * *", 7, "day of month"),
            ("0 0 * * 5#6", 9, "day of week"),
        ] {
            let (at, name, _) = refused(text);
            assert_eq!((at, name), (column, Some(field)), "{text}");
        }
    }

    #[test]
    fn dates_that_do_not_exist_are_refused() {
        for text in [
            "0 0 30 2 *",
            "0 0 31 4 *",
            "0 0 31 2,4,6 *",
            "0 0 0 30-31 2 */2",
            "0 0 L-29 2 *",
            "0 0 31W 2,4 *",
            "0 0 */20 4 5#2",
        ] {
            let error = CronExpr::parse(text).unwrap_err();
            assert!(error.message.contains("can never fire"), "{}", error.message);
            assert_eq!(error.field, Some("day of month"));
        }
        for text in [
            "0 0 29 2 *",
            "0 0 31 4,5 *",
            "0 0 31 4 1",
            "0 0 */28 2 MON",
            "0 0 L-28 2 *",
            "0 0 29W 2 *",
            "0 0 * 2 5#5",
            "0 0 31W 4 1",
        ] {
            CronExpr::parse(text).unwrap();
        }
    }

    #[test]
    fn names_are_short_for_fields() {
        for (name, fields) in NAMES {
            let (name, fields) = (CronExpr::parse(name).unwrap(), CronExpr::parse(fields).unwrap());
            let from = "2026-02-03T04:05:06".parse().unwrap();
            let first = |expr: &CronExpr| expr.calendar().first_from(from).unwrap();
            assert_eq!((first(&name), name.pace()), (first(&fields), fields.pace()));
        }
        assert_eq!(CronExpr::parse("@Daily").unwrap().to_string(), "@Daily");
    }

    #[test]
    fn what_is_legal_but_odd_is_warned_about() {
        let warnings = |text: &str| CronExpr::parse(text).unwrap().warnings().to_vec();
        assert_eq!(
            warnings("*/7 * * * *"),
            ["`*/7` in the minute field is uneven: after 56 it starts again at 0"]
        );
        assert_eq!(warnings("0 9 1,15 * 5").len(), 1);
        assert_eq!(warnings("0 0 31 4 1").len(), 2);
        assert_eq!(warnings("0 9 1 * *"), Vec::<String>::new());
    }
}
