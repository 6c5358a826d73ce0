//! Every way in which a provider can fail × what there is beside it × when it happens.
//!
//! The third moment is before the run: a scheduled one asks its servers whether they are there.
//!
//! What must come of a combination is worked out here from the text of the rules of fallback, by a
//! second reader that shares no code with the program. All runs go at once through one `serve`,
//! because the waits between attempts are real; what differs is shown as one report.

#[expect(dead_code, reason = "the other tests of the whole program use the rest")]
mod support;

use std::fmt::{self, Write as _};
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::Ipv4Addr;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use support::ledger::{assert_all_ended, assert_sound};
use support::scripts::{PLAIN, by_hand, soon};
use support::stub::{Act, Stub, call, event, finish, head, refusal, reply, retry_after, text};
use support::{House, LONG, until};

/// Nothing else listens here: a port that was given up is not taken by another test.
const HERE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 7);

/// The same for the servers that fail before a run: both tests may run at once.
const BEFORE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 8);

/// The pace at which the runs are started.
const START_EVERY: Duration = ms(30);

/// What a loaded machine may add to a run.
const SLACK: Duration = Duration::from_secs(4);

/// What all the runs together may take.
const WHOLE_MAX: Duration = Duration::from_secs(55);

const fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// What the rules do about a way of failing.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Rule {
    /// Twice more on the same model, after these waits.
    Again([Duration; 2]),
    /// The request ends by a limit of ours, or of the server itself.
    Limit(Ends),
    /// The next fallback.
    Next,
    /// Neither again nor another model.
    Never,
    /// No failure at all: only the run's limit ends it.
    Deadline,
}

/// Whose limit it was.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Ends {
    /// Ours: the request has taken its window.
    Ours,
    /// The server's own (408, 504).
    Theirs,
}

/// A way to fail.
struct Way {
    name: &'static str,
    kind: &'static str,
    rule: Rule,
    /// What the server does once it gives way; nothing for one that refuses connections.
    acts: fn() -> Vec<Act>,
}

/// What there is beside the failing model.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Beside {
    /// `fallbacks = []`.
    Nothing,
    /// A healthy fallback, and time.
    Healthy,
    /// A healthy fallback, and little time.
    HealthyInHaste,
    /// A healthy fallback, but the failure comes when hardly any time is left.
    HealthyTooLate,
}

/// When it fails.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Moment {
    FirstRequest,
    AfterTool,
}

/// The limits of a combination.
#[derive(Debug, Clone, Copy)]
struct Limits {
    /// Of the run.
    run: Duration,
    /// Of a request to the failing provider; the run's own where the provider has none.
    window: Duration,
    /// How long the server works before it fails.
    delay: Duration,
}

/// A combination and the server that plays it.
struct Row {
    job: String,
    way: Way,
    beside: Beside,
    moment: Moment,
    stub: Stub,
}

/// What came of a combination, or must.
#[derive(Debug, Clone, PartialEq)]
struct Found {
    state: String,
    kind: String,
    /// Requests at the failing provider and at the healthy one.
    requests: (usize, usize),
    /// Models of the stored attempts.
    attempts: (usize, usize),
    tool_calls: usize,
    reply: Option<String>,
    /// Terminal lifecycle events that were told, where somebody listened.
    ends: usize,
}

const USUAL: Rule = Rule::Again([ms(1000), ms(4000)]);
const SILENT: Rule = Rule::Limit(Ends::Ours);

fn says(status: &str, words: &str) -> Vec<Act> {
    vec![Act::Say(refusal(status, &json!({"error": {"message": words}})))]
}

fn limited(wait: &str) -> Vec<Act> {
    vec![Act::Say(retry_after(
        wait,
        &refusal("429 Too Many Requests", &json!({"error": {"message": "not now"}})),
    ))]
}

fn streams(more: &str) -> Act {
    Act::Say(head() + &text("so far") + more)
}

fn reports(kind: &str) -> Vec<Act> {
    let error = json!({"error": {"message": "it went wrong", "type": kind}});
    vec![streams(&event(&error))]
}

/// Every way, with its kind of error and its rule.
fn ways() -> Vec<Way> {
    type Acts = fn() -> Vec<Act>;
    let table: [(&str, &str, Rule, Acts); 32] = [
        ("refuses", "model_unreachable", USUAL, Vec::new),
        ("closes at once", "network", USUAL, Vec::new),
        ("resets at once", "network", USUAL, || vec![Act::Reset]),
        ("is silent", "provider_timeout", SILENT, || vec![Act::Hold]),
        ("is silent, first token", "first_token_timeout", SILENT, || vec![Act::Hold]),
        ("head only", "idle_timeout", SILENT, || vec![Act::Say(head()), Act::Hold]),
        ("head only, first token", "first_token_timeout", SILENT, || {
            vec![Act::Say(head()), Act::Hold]
        }),
        ("only pings", "idle_timeout", SILENT, || {
            vec![Act::Say(head()), Act::Repeat(": ping\n\n".into(), ms(50))]
        }),
        ("stalls", "idle_timeout", SILENT, || vec![streams(""), Act::Hold]),
        ("drips", "deadline", Rule::Deadline, || {
            vec![streams(""), Act::Repeat(text("drip "), ms(100))]
        }),
        ("pours", "deadline", Rule::Deadline, || {
            vec![streams(""), Act::Repeat(text(&"pour ".repeat(1600)), ms(100))]
        }),
        ("floods", "not_a_stream", Rule::Next, || {
            vec![streams(""), Act::Repeat(text(&"flood ".repeat(20_000)), ms(1))]
        }),
        ("truncates", "incomplete_stream", USUAL, || vec![streams("")]),
        ("truncates a call", "incomplete_stream", USUAL, || {
            vec![streams(&call("exec", "{\"command\": \"echo never\"}"))]
        }),
        ("resets", "network", USUAL, || vec![streams(""), Act::Wait(ms(60)), Act::Reset]),
        ("reports server_error", "server_error", USUAL, || reports("server_error")),
        ("reports overloaded", "overloaded", USUAL, || reports("overloaded_error")),
        ("400", "bad_request", Rule::Never, || says("400 Bad Request", "wrong")),
        ("401", "auth", Rule::Next, || says("401 Unauthorized", "no such key")),
        ("402", "billing", Rule::Next, || says("402 Payment Required", "pay")),
        ("403", "auth", Rule::Next, || says("403 Forbidden", "not you")),
        ("404, no such model", "model_not_found", Rule::Next, || {
            says("404 Not Found", "the model `m` does not exist")
        }),
        ("404", "provider_error", Rule::Next, || says("404 Not Found", "no such path")),
        ("408", "provider_timeout", Rule::Limit(Ends::Theirs), || {
            says("408 Request Timeout", "too slow")
        }),
        ("429", "rate_limit", USUAL, || says("429 Too Many Requests", "not now")),
        ("429, for 2 s", "rate_limit", Rule::Again([ms(2000); 2]), || limited("2")),
        ("429, for an hour", "rate_limit", Rule::Again([ms(3_600_000); 2]), || limited("3600")),
        ("500", "server_error", USUAL, || says("500 Internal Server Error", "oh")),
        ("503", "server_error", USUAL, || says("503 Service Unavailable", "oh")),
        ("504", "provider_timeout", Rule::Limit(Ends::Theirs), || {
            says("504 Gateway Timeout", "nobody upstream")
        }),
        ("529", "overloaded", USUAL, || says("529 Too Busy", "full")),
        ("HTML", "not_a_stream", Rule::Next, || {
            let head = "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\nconnection: close\r\n\r\n";
            vec![Act::Say(format!("{head}<p>hello"))]
        }),
    ];
    table.map(|(name, kind, rule, acts)| Way { name, kind, rule, acts }).into()
}

impl Way {
    fn refuses(&self) -> bool {
        self.name == "refuses"
    }

    fn limits(&self, beside: Beside) -> Limits {
        use Beside::{Healthy, HealthyInHaste, HealthyTooLate, Nothing};
        let (run, window) = match (self.rule, beside) {
            (Rule::Limit(Ends::Ours), Nothing | Healthy) => (16_000, 1000),
            (Rule::Deadline, Nothing | Healthy) => (16_000, 3000),
            (Rule::Limit(Ends::Theirs), Nothing | Healthy) => (16_000, 5000),
            (_, Nothing | Healthy) => (16_000, 16_000),
            // Two windows are more than there is from the first failure on.
            (Rule::Limit(Ends::Ours), HealthyInHaste) => (5000, 1700),
            (_, HealthyInHaste) => (5000, 5000),
            (Rule::Limit(Ends::Ours), HealthyTooLate) => (12_000, 9200),
            (_, HealthyTooLate) => (12_000, 12_000),
        };
        let is_late = beside == HealthyTooLate
            && !matches!(self.rule, Rule::Deadline | Rule::Limit(Ends::Ours));
        Limits { run: ms(run), window: ms(window), delay: ms(if is_late { 9200 } else { 0 }) }
    }

    /// The keys of its provider.
    fn keys(&self, limits: Limits) -> String {
        let window = limits.window.as_millis();
        match self.kind {
            _ if limits.window == limits.run => String::new(),
            "first_token_timeout" => format!("first_token_timeout = \"{window}ms\""),
            _ => format!("timeout = \"{window}ms\""),
        }
    }
}

/// What a second reader of the rules expects, and how long it takes at least.
fn expected(way: &Way, beside: Beside, moment: Moment) -> (Found, Duration) {
    let limits = way.limits(beside);
    let has_fallback = beside != Beside::Nothing;
    let may_begin = |at: Duration| at + (limits.run / 4).max(ms(500)) <= limits.run;
    let takes = if way.rule == SILENT { limits.window } else { limits.delay };
    let mut now = takes;
    let mut failures = 1;
    match way.rule {
        Rule::Again(waits) => {
            for wait in waits {
                if !may_begin(now) || !may_begin(now + wait) {
                    break;
                }
                now += wait + takes;
                failures += 1;
            }
        }
        Rule::Limit(_) => {
            let fits = limits.run.saturating_sub(now) >= 2 * limits.window;
            if may_begin(now) && (!has_fallback || fits) {
                now += takes;
                failures += 1;
            }
        }
        Rule::Deadline => now = limits.run,
        Rule::Next | Rule::Never => {}
    }
    let goes_on =
        has_fallback && may_begin(now) && !matches!(way.rule, Rule::Never | Rule::Deadline);
    let state = match way.rule {
        _ if goes_on => "succeeded",
        Rule::Deadline => "timed_out",
        _ => "failed",
    };
    let calls = usize::from(moment == Moment::AfterTool);
    let heard = if way.refuses() { 0 } else { failures };
    let found = Found {
        state: state.into(),
        kind: if goes_on { "-" } else { way.kind }.into(),
        requests: (heard + calls, goes_on.into()),
        attempts: (failures, goes_on.into()),
        tool_calls: calls,
        reply: goes_on.then(|| "fine".into()),
        ends: usize::from(is_followed(beside)),
    };
    (found, now)
}

impl Row {
    fn new(n: usize, way: Way, beside: Beside, moment: Moment) -> Self {
        let before = usize::from(moment == Moment::AfterTool);
        let (acts, refuses, delay) = (way.acts, way.refuses(), way.limits(beside).delay);
        let stub = Stub::at(HERE, move |n| {
            let late = [Act::Wait(delay)].into_iter();
            if n >= before {
                return late.chain(acts()).collect();
            }
            let tool = head() + &call("exec", "{\"command\": \"echo x\"}") + &finish("tool_calls");
            // One that is gone afterwards can be late in nothing but its last answer.
            let gone = [Act::CloseDoor].into_iter().chain(late).filter(|_| refuses);
            gone.chain([Act::Say(tool)]).collect()
        });
        Self { job: format!("r{n}"), way, beside, moment, stub }
    }

    fn provider(&self) -> String {
        let (job, url) = (&self.job, self.stub.url());
        let keys = self.way.keys(self.way.limits(self.beside));
        format!("[models.providers.{job}]\napi = \"openai\"\nbase_url = \"{url}\"\n{keys}\n")
    }

    fn file(&self) -> String {
        let job = &self.job;
        let fallback = match self.beside {
            Beside::Nothing => String::new(),
            _ => format!("\"good/{job}\""),
        };
        let models = format!("[agent]\nmodel = \"{job}/m\"\nfallbacks = [{fallback}]");
        let timeout = self.way.limits(self.beside).run.as_millis();
        by_hand("go", "", &format!("timeout = \"{timeout}ms\"")).replace("[agent]", &models)
    }

    /// What came of it, and how long it took.
    fn found(&self, house: &House, good: &Stub, ends: usize) -> (Found, Duration) {
        let job = &self.job;
        let run = &house.rows(&format!(
            "SELECT state, coalesce(error_kind, '-'), reply, duration_ms, run_id
             FROM v1_runs WHERE job = '{job}'"
        ))[0];
        let count = |sql: &str| {
            let count = house.value(&sql.replace('?', run[4].as_str().unwrap()));
            usize::try_from(count.as_u64().unwrap()).unwrap()
        };
        let asked = good.requests().iter().filter(|it| it["model"] == job.as_str()).count();
        let attempts = |is: &str| {
            count(&format!(
                "SELECT count(*) FROM v1_attempts WHERE run_id = '?' AND model {is} '{job}/m'"
            ))
        };
        let found = Found {
            state: run[0].as_str().unwrap().into(),
            kind: run[1].as_str().unwrap().into(),
            requests: (self.stub.requests().len(), asked),
            attempts: (attempts("="), attempts("<>")),
            tool_calls: count("SELECT count(*) FROM v1_tool_calls WHERE run_id = '?'"),
            reply: run[2].as_str().map(Into::into),
            ends,
        };
        (found, ms(run[3].as_u64().unwrap()))
    }
}

/// All combinations that there are.
fn matrix() -> Vec<Row> {
    use Beside::{Healthy, HealthyInHaste, HealthyTooLate, Nothing};
    let mut rows = Vec::new();
    for moment in [Moment::FirstRequest, Moment::AfterTool] {
        for beside in [Nothing, Healthy, HealthyInHaste, HealthyTooLate] {
            // Nobody refuses a connection slowly, unless a tool has come before.
            let is_possible = |way: &Way| {
                !(way.refuses() && (beside, moment) == (HealthyTooLate, Moment::FirstRequest))
            };
            for way in ways().into_iter().filter(is_possible) {
                rows.push(Row::new(rows.len(), way, beside, moment));
            }
        }
    }
    for row in &rows {
        if row.way.refuses() && row.moment == Moment::FirstRequest {
            row.stub.close_door();
        }
    }
    rows
}

/// Whether somebody listens to such a run. Everybody hears the events of all: a crowd of listeners
/// is a load of its own.
fn is_followed(beside: Beside) -> bool {
    beside == Beside::Healthy
}

/// Asks for a run of a job; returns what is answered after its acceptance.
fn begin(socket: &Path, job: &str) -> impl Iterator<Item = Value> + Send + use<> {
    let mut socket = UnixStream::connect(socket).unwrap();
    socket.set_read_timeout(Some(LONG)).unwrap();
    let request = json!({"verb": "run", "job": job, "slot": null, "force": false});
    socket.write_all(format!("{request}\n").as_bytes()).unwrap();
    let lines = BufReader::new(socket).lines();
    let mut replies = lines.map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap());
    let first = replies.next().unwrap();
    assert!(first["accepted"]["run_id"].is_string(), "{job}: {first}");
    replies
}

/// How many ends of a run are told.
fn count_ends(replies: impl Iterator<Item = Value>) -> usize {
    let is_end = |reply: &Value| {
        reply["event"]["stream"] == "lifecycle"
            && (reply["event"]["phase"] == "end" || reply["event"]["phase"] == "error")
    };
    replies.filter(is_end).count()
}

/// Runs every row at the same time. Returns how many ends each has told.
fn run_all(house: &House, rows: &[Row]) -> Vec<usize> {
    let socket = house.path("state/punctual.sock");
    let ends = std::thread::scope(|scope| {
        let begun: Vec<_> = rows
            .iter()
            .map(|row| {
                // Not all in one instant: each is about a provider, none about a crowd.
                std::thread::sleep(START_EVERY);
                let replies = begin(&socket, &row.job);
                is_followed(row.beside).then(|| scope.spawn(|| count_ends(replies)))
            })
            .collect();
        begun.into_iter().map(|it| it.map_or(0, |it| it.join().unwrap())).collect()
    });
    let open = "SELECT count(*) = 0 FROM v1_runs WHERE finished_at IS NULL";
    house.until(open);
    ends
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { state, kind, requests, attempts, tool_calls, reply, ends } = self;
        let reply = reply.as_deref().unwrap_or("-");
        write!(
            f,
            "{state:9} {kind:19} requests {requests:?} attempts {attempts:?} \
             tool calls {tool_calls} reply {reply:4} ends {ends}"
        )
    }
}

/// The rows that differ, with all their columns.
fn report(house: &House, rows: &[Row], good: &Stub, ends: &[usize]) -> String {
    let mut report = String::new();
    for (row, &ends) in rows.iter().zip(ends) {
        let (expected, least) = expected(&row.way, row.beside, row.moment);
        let (found, took) = row.found(house, good, ends);
        // The store rounds both ends of a run down to the millisecond.
        if found != expected || took + ms(5) < least || took > least + SLACK {
            let Row { job, way, beside, moment, .. } = row;
            let most = least + SLACK;
            writeln!(
                report,
                "{job} {} / {beside:?} / {moment:?}\n  \
                 expected {expected} in {least:?} to {most:?}\n  found    {found} in {took:?}",
                way.name
            )
            .unwrap();
        }
    }
    report
}

/// How many sockets a process has open.
fn sockets(pid: u32) -> usize {
    let files = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    let links = files.filter_map(|file| std::fs::read_link(file.path()).ok());
    links.filter(|link| link.to_string_lossy().starts_with("socket:")).count()
}

#[test]
fn every_way_of_failing_ends_as_the_rules_say() {
    let rows = matrix();
    let good = Stub::at(HERE, |_| vec![Act::Say(reply("fine"))]);
    let mut config = format!(
        "[scheduler]\nmax_concurrent_runs = 0\n\
         [models.providers.good]\napi = \"openai\"\nbase_url = \"{}\"\n",
        good.url()
    );
    for row in &rows {
        config += &row.provider();
    }
    let house = House::new(&config);
    for row in &rows {
        house.job(&row.job, &row.file());
    }
    let serve = house.serve();
    let sockets_before = sockets(serve.pid());

    let ends = run_all(&house, &rows);
    let report = report(&house, &rows, &good, &ends);
    assert!(report.is_empty(), "of {} rows these differ:\n{report}", rows.len());
    let took =
        "SELECT 86400 * (julianday(max(finished_at)) - julianday(min(queued_at))) FROM v1_runs";
    let took = Duration::from_secs_f64(house.value(took).as_f64().unwrap());
    assert!(took < WHOLE_MAX, "{took:?}");

    // Nothing of any run is left.
    house.assert_nothing_is_left();
    let status = house.say(&["status", "--json"]).json()["running"].clone();
    assert_eq!(status["runs"], json!([]));
    let lanes = status["lanes"].as_array().unwrap();
    assert!(lanes.iter().all(|lane| lane["held"] == 0 && lane["waiting"] == 0), "{lanes:?}");
    until("every connection is closed", || sockets(serve.pid()) <= sockets_before);
    assert_all_ended(&house);
    assert_eq!(house.value("SELECT count(*) FROM v1_runs"), rows.len());
    assert_eq!(house.value("SELECT count(DISTINCT job) FROM v1_runs"), rows.len());
    assert_eq!(serve.stop().code, Some(0));
    assert_sound(&house);
}

/// A slot whose server fails when it is asked whether it is there, and is well afterwards.
struct SetUp {
    job: String,
    way: Way,
    has_fallback: bool,
    stub: Stub,
}

/// What came of a slot, or must: its decision and reason, its run's state, requests at its own
/// server and at the healthy one.
type SlotFound = (String, Option<String>, Option<String>, (usize, usize));

impl SetUp {
    fn all() -> Vec<Self> {
        let both = [false, true].into_iter();
        let all =
            both.flat_map(|has_fallback| ways().into_iter().map(move |it| (it, has_fallback)));
        let row = |(n, (way, has_fallback)): (usize, (Way, bool))| {
            let (acts, refuses) = (way.acts, way.refuses());
            let stub = Stub::at(BEFORE, |_| vec![Act::Say(reply("fine"))]).when_probed(acts);
            if refuses {
                stub.close_door();
            }
            Self { job: format!("s{n}"), way, has_fallback, stub }
        };
        all.enumerate().map(row).collect()
    }

    fn file(&self, due: Timestamp) -> String {
        let (job, fallback) = (&self.job, if self.has_fallback { "\"good/m\"" } else { "" });
        let models = format!("[agent]\nmodel = \"{job}/m\"\nfallbacks = [{fallback}]");
        let slot = format!("[schedule]\nat = \"{due:.3}\"\ncatchup_window = \"6s\"\n");
        slot + &PLAIN.replace("[agent]", &models)
    }

    /// Only who refuses a connection is not there; and one that is there is enough.
    fn expected(&self) -> SlotFound {
        let text = |it: &str| Some(it.to_owned());
        match (self.way.refuses(), self.has_fallback) {
            (true, false) => ("missed".into(), text("model_unreachable"), None, (0, 0)),
            (true, true) => ("started".into(), None, text("succeeded"), (0, 1)),
            (false, _) => ("started".into(), None, text("succeeded"), (1, 0)),
        }
    }

    fn found(&self, house: &House, good: &Stub) -> SlotFound {
        let job = &self.job;
        let slot = &house.rows(&format!(
            "SELECT s.decision, s.reason, r.state FROM v1_slots s LEFT JOIN v1_runs r USING (run_id)
             WHERE s.job = '{job}'"
        ))[0];
        let text = |at: usize| slot[at].as_str().map(str::to_owned);
        let asks = |it: &Value| it["messages"].to_string().contains(&format!("`{job}`"));
        let asked = good.requests().iter().filter(|it| asks(it)).count();
        (text(0).unwrap(), text(1), text(2), (self.stub.requests().len(), asked))
    }
}

#[test]
fn every_way_of_failing_before_a_run_holds_it_back_or_does_not_as_the_rules_say() {
    let rows = SetUp::all();
    let good = Stub::at(BEFORE, |_| vec![Act::Say(reply("fine"))]);
    let mut config = format!(
        "[scheduler]\nmax_concurrent_runs = 0\n\
         [models.providers.good]\napi = \"openai\"\nbase_url = \"{}\"\n",
        good.url()
    );
    for SetUp { job, stub, .. } in &rows {
        let url = stub.url();
        write!(config, "[models.providers.{job}]\napi = \"openai\"\nbase_url = \"{url}\"\n")
            .unwrap();
    }
    let house = House::new(&config);
    let due = soon() + Duration::from_secs(1);
    for row in &rows {
        house.job(&row.job, &row.file(due));
    }
    let serve = house.serve();
    house.until(&format!(
        "SELECT count(*) = {} FROM v1_slots s LEFT JOIN v1_runs r USING (run_id)
         WHERE s.decision = 'missed' OR r.finished_at IS NOT NULL",
        rows.len()
    ));
    let mut report = String::new();
    for row in &rows {
        let (expected, found) = (row.expected(), row.found(&house, &good));
        if expected != found {
            let SetUp { job, way, has_fallback, .. } = row;
            writeln!(
                report,
                "{job} {} / fallback {has_fallback}\n  expected {expected:?}\n  found    {found:?}",
                way.name
            )
            .unwrap();
        }
    }
    assert!(report.is_empty(), "of {} rows these differ:\n{report}", rows.len());
    // Whoever is silent, or never stops, is waited for no longer than its limit.
    let late = house.value("SELECT max(late_ms) FROM v1_slots WHERE decision = 'started'");
    assert!(late.as_i64() < Some(2500 + 4000), "{late}");
    assert_eq!(serve.stop().code, Some(0));
    house.assert_nothing_is_left();
    assert_sound(&house);
}
