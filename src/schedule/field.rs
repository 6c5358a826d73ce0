//! One field of a cron expression: its text becomes the set of its values.
//!
//! Strict on purpose. What other readers take silently (`*/90`, a stray comma, `50-10`) is a
//! misunderstanding that shows itself as a job which never runs, so it is refused here, with the
//! column of the item. Text that reaches this file is ASCII, so a byte is a column.

use super::day_rule::DayRule;
use super::expr::CronError;
use super::unit::{Piece, Unit, span_bits};

/// More days of their own kind than this are a list of numbers.
const RULES_MAX: usize = 8;

/// The values of one field.
#[derive(Debug, Clone)]
pub(super) struct Field {
    /// Bit n is value n; Sunday is bit 0.
    pub bits: u64,
    /// Days that depend on their month, beside those of `bits`.
    pub rules: Vec<DayRule>,
    /// Whether the text starts with `*`, which changes what the expression means.
    pub starred: bool,
    /// A step that does not come out even, in words.
    pub uneven: Option<String>,
}

impl Field {
    pub(super) fn parse(unit: Unit, piece: Piece<'_>) -> Result<Self, CronError> {
        let mut bits = 0;
        let mut rules = Vec::new();
        for item in piece.split(',') {
            match DayRule::parse(unit, item)? {
                None => bits |= parse_item(unit, item)?,
                Some(rule) if rules.len() < RULES_MAX => rules.push(rule),
                Some(_) => {
                    let name = unit.name();
                    let message = format!("the {name} field has more than {RULES_MAX} such days");
                    return Err(item.refused(unit, message, None));
                }
            }
        }
        if unit == Unit::DayOfWeek {
            bits = (bits | (bits >> 7)) & unit.full();
        }
        let starred = piece.text.starts_with('*');
        let uneven = if rules.is_empty() { uneven_step(unit, piece.text, bits) } else { None };
        Ok(Self { bits, rules, starred, uneven })
    }
}

fn parse_item(unit: Unit, item: Piece<'_>) -> Result<u64, CronError> {
    if item.text.is_empty() {
        let message = format!("an item of the {} list is empty", unit.name());
        return Err(item.refused(unit, message, Some("remove the stray comma".to_owned())));
    }
    if item.text.contains('?') {
        let message = format!("`?` is not supported yet in the {} field", unit.name());
        return Err(item.refused(unit, message, Some("write `*`".to_owned())));
    }
    let Some((base, step)) = item.split_once('/') else {
        let (from, to) = parse_base(unit, item)?.bounds(unit, OpenEnd::Single);
        return Ok(span_bits(from, to, 1));
    };
    let (from, to) = parse_base(unit, base)?.bounds(unit, OpenEnd::ToLast);
    let step = parse_step(unit, step, to - from)?;
    Ok(span_bits(from, to, step))
}

/// What stands before the slash.
enum Base {
    Star,
    Value(u32),
    Range(u32, u32),
}

/// What a single value means: itself, or (before a step) everything from it on.
#[derive(Clone, Copy)]
enum OpenEnd {
    Single,
    ToLast,
}

impl Base {
    fn bounds(self, unit: Unit, open: OpenEnd) -> (u32, u32) {
        match (self, open) {
            (Self::Star, _) => (unit.min(), unit.max()),
            (Self::Value(value), OpenEnd::Single) => (value, value),
            (Self::Value(value), OpenEnd::ToLast) => (value, unit.max().max(value)),
            (Self::Range(from, to), _) => (from, to),
        }
    }
}

fn parse_base(unit: Unit, base: Piece<'_>) -> Result<Base, CronError> {
    if base.text == "*" {
        return Ok(Base::Star);
    }
    let Some((from, to)) = base.split_once('-') else {
        return parse_value(unit, base).map(Base::Value);
    };
    let first = parse_value(unit, from)?;
    let last = match parse_value(unit, to)? {
        // `FRI-SUN` ends with the week; only there is a Sunday the seventh day.
        0 if unit == Unit::DayOfWeek && first > 0 && to.text != "0" => 7,
        last => last,
    };
    if first > last {
        let message = format!("the {} range `{}` runs backwards", unit.name(), base.text);
        let end = unit.max();
        let help = format!("write it as two ranges: `{first}-{end},{}-{last}`", unit.min());
        return Err(base.refused(unit, message, Some(help)));
    }
    Ok(Base::Range(first, last))
}

fn parse_value(unit: Unit, piece: Piece<'_>) -> Result<u32, CronError> {
    let text = piece.text;
    if text.is_empty() {
        let message = format!("a value of the {} field is missing", unit.name());
        return Err(piece.refused(unit, message, Some(unit.expected())));
    }
    if let Some(index) = unit.names().iter().position(|name| text.eq_ignore_ascii_case(name)) {
        return Ok(u32::try_from(index).expect("there are at most twelve names") + unit.min());
    }
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        let message = format!("`{text}` is not a value of the {} field", unit.name());
        return Err(piece.refused(unit, message, Some(unit.expected())));
    }
    match text.parse() {
        Ok(value) if (unit.min()..=unit.written_max()).contains(&value) => Ok(value),
        _ => {
            let message = format!("{text} is out of range for the {} field", unit.name());
            Err(piece.refused(unit, message, Some(unit.expected())))
        }
    }
}

fn parse_step(unit: Unit, piece: Piece<'_>, width: u32) -> Result<u32, CronError> {
    let text = piece.text;
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        let message = format!("`{text}` is not a step of the {} field", unit.name());
        let help = "a step is a number from 1".to_owned();
        return Err(piece.refused(unit, message, Some(help)));
    }
    match text.parse() {
        Ok(0) => Err(piece.refused(unit, "a step of 0 never moves on".to_owned(), None)),
        Ok(step) if step == 1 || step <= width => Ok(step),
        _ => {
            let message = format!("the step {text} is larger than its {} range", unit.name());
            let help = format!("at most {width} here; a longer period is written with `every`");
            Err(piece.refused(unit, message, Some(help)))
        }
    }
}

/// A step from the field's start on that meets its start again after another distance.
fn uneven_step(unit: Unit, text: &str, bits: u64) -> Option<String> {
    let (base, step) = text.split_once('/')?;
    let step: u32 = step.parse().ok().filter(|step| *step > 1)?;
    if base.contains('-') {
        return None;
    }
    let (first, last) = (bits.trailing_zeros(), bits.ilog2());
    let wrap = unit.max() + 1 - unit.min() + first - last;
    let even = wrap == step && unit != Unit::DayOfMonth;
    (!even).then(|| {
        let name = unit.name();
        format!("`{text}` in the {name} field is uneven: after {last} it starts again at {first}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(unit: Unit, text: &str) -> Result<Vec<u32>, (usize, String)> {
        let field = Field::parse(unit, Piece { text, column: 1 })
            .map_err(|error| (error.column, error.message))?;
        Ok((0..64).filter(|value| field.bits & (1 << value) != 0).collect())
    }

    #[test]
    fn fields_mean_what_cron_means() {
        use Unit::{DayOfMonth, DayOfWeek, Hour, Minute, Month};
        let table: &[(Unit, &str, &[u32])] = &[
            (Minute, "5/15", &[5, 20, 35, 50]),
            (Minute, "*/20", &[0, 20, 40]),
            (Minute, "10-30/10,59", &[10, 20, 30, 59]),
            (Minute, "007", &[7]),
            (Hour, "8,11,2", &[2, 8, 11]),
            (Hour, "23-23", &[23]),
            (DayOfMonth, "*/10", &[1, 11, 21, 31]),
            (Month, "jan,DEC", &[1, 12]),
            (Month, "Jul-Sep", &[7, 8, 9]),
            (DayOfWeek, "MON-FRI", &[1, 2, 3, 4, 5]),
            (DayOfWeek, "7", &[0]),
            (DayOfWeek, "5-7", &[0, 5, 6]),
            (DayOfWeek, "fri-sun", &[0, 5, 6]),
            (DayOfWeek, "0-7", &[0, 1, 2, 3, 4, 5, 6]),
            (DayOfWeek, "1/2", &[1, 3, 5]),
            (DayOfWeek, "*/2", &[0, 2, 4, 6]),
            (DayOfWeek, "WED", &[3]),
        ];
        for (unit, text, expected) in table {
            assert_eq!(values(*unit, text).as_deref(), Ok(*expected), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_meant_is_refused_at_its_column() {
        use Unit::{DayOfMonth, DayOfWeek, Hour, Minute, Month};
        let table: &[(Unit, &str, usize, &str)] = &[
            (Minute, "", 1, "an item of the minute list is empty"),
            (Minute, "1,,2", 3, "an item of the minute list is empty"),
            (DayOfWeek, "1,", 3, "an item of the day of week list is empty"),
            (Minute, "*/0", 3, "a step of 0 never moves on"),
            (Minute, "*/90", 3, "the step 90 is larger than its minute range"),
            (Minute, "*/60", 3, "the step 60 is larger than its minute range"),
            (Minute, "0,55/5", 6, "the step 5 is larger than its minute range"),
            (DayOfMonth, "1-31/40", 6, "the step 40 is larger than its day of month range"),
            (Minute, "50-10", 1, "the minute range `50-10` runs backwards"),
            (DayOfWeek, "SAT-MON", 1, "the day of week range `SAT-MON` runs backwards"),
            (DayOfWeek, "5-0", 1, "the day of week range `5-0` runs backwards"),
            (DayOfWeek, "7-2", 1, "the day of week range `7-2` runs backwards"),
            (Minute, "61", 1, "61 is out of range for the minute field"),
            (Hour, "1,24", 3, "24 is out of range for the hour field"),
            (DayOfMonth, "0", 1, "0 is out of range for the day of month field"),
            (DayOfWeek, "8", 1, "8 is out of range for the day of week field"),
            (Minute, "99999999999", 1, "99999999999 is out of range for the minute field"),
            (Minute, "-5", 1, "a value of the minute field is missing"),
            (Minute, "5-", 3, "a value of the minute field is missing"),
            (Minute, "*/", 3, "`` is not a step of the minute field"),
            (Minute, "5/2/2", 3, "`2/2` is not a step of the minute field"),
            (Minute, "**", 1, "`**` is not a value of the minute field"),
            (Minute, "+5", 1, "`+5` is not a value of the minute field"),
            (Month, "JANUARY", 1, "`JANUARY` is not a value of the month field"),
            (Hour, "MON", 1, "`MON` is not a value of the hour field"),
        ];
        for (unit, text, column, message) in table {
            assert_eq!(values(*unit, text), Err((*column, (*message).to_owned())), "{text}");
        }
    }

    #[test]
    fn days_that_depend_on_their_month_stand_beside_plain_ones() {
        let field = |unit, text| Field::parse(unit, Piece { text, column: 1 });
        let listed = field(Unit::DayOfMonth, "1,15W,L").unwrap();
        let rules = [DayRule::NearestWorkday(15), DayRule::BeforeLast(0)];
        assert_eq!((listed.bits, listed.rules), (1 << 1, rules.to_vec()));
        for (unit, text, column, part) in [
            (Unit::DayOfMonth, "?", 1, "`?` is not supported yet"),
            (Unit::DayOfMonth, "1,5L", 3, "`L` (the last one of a month) is not supported yet"),
            (Unit::DayOfMonth, "1-L", 3, "`L` is not a value"),
            (Unit::DayOfMonth, "L/2", 1, "`L` is not a value"),
            (Unit::DayOfWeek, "5#1,5#2,5#3,5#4,5#5,1L,2L,3L,4L", 30, "more than 8 such days"),
        ] {
            let error = field(unit, text).expect_err(text);
            assert_eq!(error.column, column, "{text}");
            assert!(error.message.contains(part), "{text}: {}", error.message);
        }
    }

    #[test]
    fn only_steps_that_come_out_uneven_are_warned_about() {
        let uneven =
            |unit, text| Field::parse(unit, Piece { text, column: 1 }).unwrap().uneven.is_some();
        assert!(uneven(Unit::Minute, "*/7"));
        assert!(uneven(Unit::Minute, "5/25"));
        assert!(uneven(Unit::DayOfMonth, "*/2"));
        assert!(!uneven(Unit::Minute, "*/15"));
        assert!(!uneven(Unit::Minute, "5/15"));
        assert!(!uneven(Unit::Minute, "0-30/7"));
        assert!(!uneven(Unit::Hour, "*/6"));
    }
}
