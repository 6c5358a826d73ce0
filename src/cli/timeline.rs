//! `runs --timeline`: when each job ran, drawn in the terminal, one row a job.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use jiff::{SignedDuration, Timestamp};

use super::context::Place;
use super::output::{self, Done, Failed, counted, first_line, length, local};
use super::paint::{painted, say_painted};
use crate::run::State;
use crate::schedule::Zone;
use crate::store::{Lived, Reader, SlotFilter, SlotSummary};

/// What is drawn when nobody says.
const USUAL: SignedDuration = SignedDuration::from_hours(24);

/// Where there is no terminal to ask.
const WIDTH: usize = 80;

/// The longest job id that is shown whole.
const NAME_MAX: usize = 28;

/// Below this nothing can be told apart.
const BAR_MIN: usize = 16;

/// Room for the sums behind a row: `  1234 runs, 23h 59m`.
const SUM: usize = 21;

/// A time on the axis, and how far the next one is.
const LABEL: usize = 6;
const LABEL_EVERY: usize = 10;

/// Decisions that are looked at; a period with more of them is a wall of marks anyway.
const SLOTS_MAX: u32 = 1_000_000;

/// One place of a row; the later ones cover the earlier ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Mark {
    Nothing,
    Ran,
    Runs,
    Cancelled,
    Skipped,
    Missed,
    Failed,
}

impl Mark {
    const ALL: [Self; 6] =
        [Self::Ran, Self::Runs, Self::Failed, Self::Missed, Self::Skipped, Self::Cancelled];

    fn words(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Ran => "ran",
            Self::Runs => "runs",
            Self::Cancelled => "cancelled",
            Self::Skipped => "skipped or held",
            Self::Missed => "missed",
            Self::Failed => "failed",
        }
    }

    fn sign(self, letters: Letters) -> char {
        let (plain, drawn) = match self {
            Self::Nothing => ('.', '·'),
            Self::Ran => ('#', '█'),
            Self::Runs => ('+', '▒'),
            Self::Cancelled => ('/', '╱'),
            Self::Skipped => ('o', '○'),
            Self::Missed => ('!', '!'),
            Self::Failed => ('x', '×'),
        };
        match letters {
            Letters::Ascii => plain,
            Letters::Unicode => drawn,
        }
    }

    fn style(self) -> Style {
        match self {
            Self::Nothing => Style::new().dimmed(),
            Self::Ran => AnsiColor::Green.on_default(),
            Self::Runs => AnsiColor::Cyan.on_default(),
            Self::Cancelled | Self::Skipped => AnsiColor::Yellow.on_default(),
            Self::Missed | Self::Failed => AnsiColor::Red.on_default().bold(),
        }
    }
}

impl From<State> for Mark {
    fn from(state: State) -> Self {
        match state {
            State::Succeeded => Self::Ran,
            State::Queued => Self::Nothing,
            State::Running => Self::Runs,
            State::Cancelled => Self::Cancelled,
            State::Failed | State::TimedOut | State::Interrupted => Self::Failed,
        }
    }
}

/// What the terminal can show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Letters {
    Ascii,
    Unicode,
}

impl Letters {
    /// As the locale says, in its own order of precedence.
    fn of_locale() -> Self {
        let set = |name: &&str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].iter().find_map(set).unwrap_or_default();
        let locale = locale.to_lowercase();
        if locale.contains("utf-8") || locale.contains("utf8") {
            Self::Unicode
        } else {
            Self::Ascii
        }
    }
}

/// A period on a sheet of paper.
struct Sheet<'a> {
    from: Timestamp,
    until: Timestamp,
    zone: &'a Zone,
    letters: Letters,
    /// Room for names.
    names: usize,
    /// Places in a row.
    bar: usize,
}

/// What a job did in it.
#[derive(Debug, Default)]
struct Lane {
    marks: Vec<Mark>,
    runs: usize,
    busy: Duration,
}

/// What has happened, by job.
struct Happened {
    runs: Vec<Lived>,
    slots: Vec<SlotSummary>,
    /// The named lane of jobs that have one.
    lanes: BTreeMap<String, String>,
}

/// Draws the period that ends at `until` (now, if nobody says).
pub(super) fn draw(
    place: &Place,
    history: Option<&Reader>,
    job: Option<&str>,
    since: Option<Timestamp>,
    until: Option<Timestamp>,
    now: Timestamp,
) -> Done {
    let until = until.unwrap_or(now);
    let from = since.unwrap_or_else(|| until.checked_sub(USUAL).unwrap_or(until));
    if from >= until {
        return Err(Failed::usage("a period of no length cannot be drawn"));
    }
    let mut happened = match history {
        Some(reader) => Happened::read(reader, job, from, until)?,
        None => Happened { runs: Vec::new(), slots: Vec::new(), lanes: BTreeMap::new() },
    };
    happened.runs.iter_mut().filter(|run| run.ended.is_none()).for_each(|run| {
        run.ended = Some(now.max(run.began));
    });
    let (names, bar) = happened.rooms(width());
    let letters = Letters::of_locale();
    let sheet = Sheet { from, until, zone: &place.zone, letters, names, bar };
    match sheet.picture(&happened) {
        None => {
            output::note("nothing happened in that time");
            Ok(std::process::ExitCode::SUCCESS)
        }
        Some(lines) => say_painted(&lines.join("\n")),
    }
}

fn width() -> usize {
    let columns = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
    let asked = || terminal_size::terminal_size().map(|(width, _)| usize::from(width.0));
    columns.or_else(asked).filter(|&width| width > 0).unwrap_or(WIDTH)
}

impl Happened {
    fn read(
        reader: &Reader,
        job: Option<&str>,
        from: Timestamp,
        until: Timestamp,
    ) -> Result<Self, Failed> {
        let mut runs = reader.lived(from, until)?;
        runs.retain(|run| job.is_none_or(|job| run.job == job));
        let job = job.map(str::to_owned);
        let filter = SlotFilter { job, since: Some(from), limit: SLOTS_MAX };
        let slots = reader.slots(&filter)?;
        Ok(Self { runs, slots, lanes: reader.lanes()?.into_iter().collect() })
    }
}

impl Sheet<'_> {
    /// The lines of the picture; `None` if there is nothing to draw.
    fn picture(&self, happened: &Happened) -> Option<Vec<String>> {
        let rows = self.rows(happened);
        if rows.is_empty() {
            return None;
        }
        let mut lines = vec![self.title(), self.axis()];
        let mut last = None;
        for ((lane, job), row) in &rows {
            if !happened.lanes.is_empty() && last != Some(lane) {
                let title = lane.map_or("no lane".into(), |lane| format!("lane {lane}"));
                lines.push(painted(&title, Style::new().bold()));
                last = Some(lane);
            }
            lines.push(self.row(job, row));
        }
        lines.push(self.legend(rows.values()));
        Some(lines)
    }

    /// The jobs of each named lane together, by their names.
    fn rows<'b>(&self, happened: &'b Happened) -> BTreeMap<(Option<&'b String>, &'b str), Lane> {
        let mut lanes = BTreeMap::new();
        let key = |job: &'b str| (happened.lanes.get(job), job);
        let empty = || Lane { marks: vec![Mark::Nothing; self.bar], ..Lane::default() };
        for run in happened.runs.iter().filter(|run| self.shows(run.began, run.ended)) {
            self.add_run(lanes.entry(key(&run.job)).or_insert_with(empty), run);
        }
        for slot in &happened.slots {
            if let Some((mark, first, last)) = self.of_slot(slot) {
                let lane: &mut Lane = lanes.entry(key(&slot.job)).or_insert_with(empty);
                cover(&mut lane.marks[first..=last], mark);
            }
        }
        lanes
    }

    fn shows(&self, began: Timestamp, ended: Option<Timestamp>) -> bool {
        began < self.until && ended.unwrap_or(began) >= self.from
    }

    fn add_run(&self, lane: &mut Lane, run: &Lived) {
        let ended = run.ended.unwrap_or(run.began);
        lane.runs += 1;
        let inside = ended.min(self.until).duration_since(run.began.max(self.from));
        lane.busy += Duration::try_from(inside).unwrap_or_default();
        let (first, last) = (self.place(run.began), self.place(ended));
        let (through, end) = match Mark::from(run.state) {
            // How it went is known where it ended.
            mark @ (Mark::Failed | Mark::Cancelled) => (Mark::Ran, mark),
            mark => (mark, mark),
        };
        cover(&mut lane.marks[first..=last], through);
        // What ended later is not seen to end.
        if ended < self.until {
            cover(&mut lane.marks[last..=last], end);
        }
    }

    fn of_slot(&self, slot: &SlotSummary) -> Option<(Mark, usize, usize)> {
        let mark = match slot.decision.as_str() {
            "skipped" | "held" => Mark::Skipped,
            "missed" => Mark::Missed,
            _ => return None,
        };
        let first: Timestamp = slot.due_at.parse().ok()?;
        let last: Timestamp = slot.due_until.parse().ok()?;
        self.shows(first, Some(last)).then(|| (mark, self.place(first), self.place(last)))
    }

    /// Where an instant is in a row; what lies outside is at its ends.
    fn place(&self, at: Timestamp) -> usize {
        let after = at.as_millisecond().saturating_sub(self.from.as_millisecond()).max(0);
        let places = i64::try_from(self.bar).unwrap_or(i64::MAX);
        let place = after.saturating_mul(places) / self.millis();
        usize::try_from(place).unwrap_or(0).min(self.bar - 1)
    }

    fn millis(&self) -> i64 {
        (self.until.as_millisecond() - self.from.as_millisecond()).max(1)
    }

    fn title(&self) -> String {
        let shown = |at| local(at, self.zone.rules());
        let one = u64::try_from(self.millis()).unwrap_or(0) / (self.bar as u64);
        let one = length(Duration::from_secs((one / 1000).max(1)));
        format!("{} to {}, a place is {one}", shown(self.from), shown(self.until))
    }

    /// Times at the places where they are.
    fn axis(&self) -> String {
        let format = match self.until.duration_since(self.from).as_hours() {
            0..=48 => "%H:%M",
            49..=240 => "%d %Hh",
            _ => "%b %d",
        };
        let mut axis = " ".repeat(self.names + 2);
        for place in (0..self.bar.saturating_sub(LABEL)).step_by(LABEL_EVERY) {
            let after = self.millis() * i64::try_from(place).unwrap_or(0)
                / i64::try_from(self.bar).unwrap_or(1);
            let at = self.from + SignedDuration::from_millis(after);
            let label =
                at.to_zoned_datetime(self.zone.rules().clone()).strftime(format).to_string();
            write!(axis, "{label:<LABEL_EVERY$}").expect("a string takes everything");
        }
        axis.trim_end().to_owned()
    }

    fn row(&self, job: &str, lane: &Lane) -> String {
        let name = first_line(job, self.names);
        let mut row = format!("{name:<0$}  ", self.names);
        for same in lane.marks.chunk_by(|one, next| one == next) {
            let signs = same[0].sign(self.letters).to_string().repeat(same.len());
            row.push_str(&painted(&signs, same[0].style()));
        }
        if lane.runs > 0 {
            let busy = Duration::from_secs(lane.busy.as_secs());
            let runs = counted(lane.runs, "run");
            write!(row, "  {runs}, {}", length(busy)).expect("a string takes everything");
        }
        row
    }

    /// What the marks mean that there are.
    fn legend<'b>(&self, lanes: impl Iterator<Item = &'b Lane>) -> String {
        let seen: Vec<_> = lanes.flat_map(|lane| lane.marks.iter().copied()).collect();
        let meaning = |mark: &Mark| {
            format!(
                "{} {}",
                painted(&mark.sign(self.letters).to_string(), mark.style()),
                mark.words()
            )
        };
        let meanings = Mark::ALL.iter().filter(|mark| seen.contains(mark)).map(meaning);
        meanings.collect::<Vec<_>>().join("   ")
    }
}

impl Happened {
    /// Room for the names and for a row, on paper of this width.
    fn rooms(&self, width: usize) -> (usize, usize) {
        let jobs = self.runs.iter().map(|run| &run.job).chain(self.slots.iter().map(|it| &it.job));
        let names = jobs.map(|job| job.chars().count()).max().unwrap_or(0).min(NAME_MAX);
        (names, width.saturating_sub(names + 2 + SUM).max(BAR_MIN))
    }
}

/// What is covered already by something graver stays.
fn cover(places: &mut [Mark], mark: Mark) {
    for place in places {
        *place = mark.max(*place);
    }
}
