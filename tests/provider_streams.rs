//! Raw provider streams through a real socket, whole and in pieces, against their expected result.
//!
//! `cases/streams/` holds the bytes; some depend on CR line ends or on where they are cut, so the
//! files are served exactly as they are. `expected.json` beside them says what each means.

use std::collections::HashSet;
use std::path::PathBuf;
use std::time::Duration;

use futures_util::StreamExt as _;
use punctual::clock::{Clock as _, SystemClock};
use punctual::provider::{
    Anthropic, AssistantTurn, Completion, Endpoint, Fault, FaultClass, Finish, Message, Ollama,
    OpenAi, Provider, Proxies, Request, StreamEvent, Usage, http_client,
};
use reqwest::header::{HeaderMap, HeaderValue};
use secrecy::SecretString;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// No test waits longer than this for anything that should happen.
const SOON: Duration = Duration::from_secs(20);

// ---------------------------------------------------------------- the stub

/// What the stub answers: a head, then pieces of a body with a pause after each, then a hold.
#[derive(Clone)]
struct Answer {
    status: u16,
    headers: String,
    pieces: Vec<Vec<u8>>,
    pause: Duration,
    hold: Duration,
}

impl Answer {
    fn new(content_type: &str, body: &[u8]) -> Self {
        Self {
            status: 200,
            headers: format!("content-type: {content_type}\r\n"),
            pieces: vec![body.to_vec()],
            pause: Duration::ZERO,
            hold: Duration::ZERO,
        }
    }

    fn status(self, status: u16) -> Self {
        Self { status, ..self }
    }

    fn header(mut self, line: &str) -> Self {
        self.headers.push_str(line);
        self.headers.push_str("\r\n");
        self
    }

    fn in_pieces_of(self, size: usize) -> Self {
        let pieces = self.pieces.concat().chunks(size).map(<[u8]>::to_vec).collect();
        Self { pieces, ..self }
    }

    fn cut_at(self, cuts: &[usize]) -> Self {
        let body = self.pieces.concat();
        let ends = cuts.iter().copied().chain([body.len()]);
        let mut start = 0;
        let pieces = ends.map(|end| body[std::mem::replace(&mut start, end)..end].to_vec());
        Self { pieces: pieces.collect(), ..self }
    }

    fn pausing(self, pause: Duration) -> Self {
        Self { pause, ..self }
    }

    fn held(self, hold: Duration) -> Self {
        Self { hold, ..self }
    }
}

/// How a connection ended, and what was asked on it.
struct Served {
    head: String,
    body: Value,
    /// The client closed it while the stub still held it or wrote to it.
    client_closed: bool,
}

/// Serves one request, then closes.
async fn stub(answer: Answer) -> (String, JoinHandle<Served>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let serving = tokio::spawn(async move {
        let (socket, _) = listener.accept().await.unwrap();
        serve(socket, answer).await
    });
    (base, serving)
}

async fn serve(mut socket: TcpStream, answer: Answer) -> Served {
    socket.set_nodelay(true).unwrap();
    let (head, body) = read_request(&mut socket).await;
    let (mut reading, mut writing) = socket.into_split();
    let write = async {
        let Answer { status, headers, pieces, pause, hold } = answer;
        let start = format!("HTTP/1.1 {status} Word\r\nconnection: close\r\n{headers}\r\n");
        writing.write_all(start.as_bytes()).await?;
        for piece in pieces {
            writing.write_all(&piece).await?;
            writing.flush().await?;
            if !pause.is_zero() {
                sleep(pause).await;
            }
        }
        sleep(hold).await;
        std::io::Result::Ok(())
    };
    let client_closed = tokio::select! {
        written = write => written.is_err(),
        // The client sends nothing after its request: whatever is read is the end.
        _ = reading.read_u8() => true,
    };
    Served { head, body, client_closed }
}

async fn read_request(socket: &mut TcpStream) -> (String, Value) {
    let mut bytes = Vec::new();
    let head_end = loop {
        if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break at + 4;
        }
        assert_ne!(socket.read_buf(&mut bytes).await.unwrap(), 0, "a whole request head");
    };
    let head = String::from_utf8(bytes[..head_end].to_vec()).unwrap().to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let length: usize = length.map_or(0, |length| length.parse().unwrap());
    while bytes.len() < head_end + length {
        assert_ne!(socket.read_buf(&mut bytes).await.unwrap(), 0, "a whole request body");
    }
    (head, serde_json::from_slice(&bytes[head_end..]).unwrap_or_default())
}

// ---------------------------------------------------------------- the client

fn provider(dialect: &str, endpoint: Endpoint) -> Box<dyn Provider> {
    let client = http_client(Proxies::None).unwrap();
    match dialect {
        "openai" => Box::new(OpenAi::new(client, endpoint)),
        "anthropic" => Box::new(Anthropic::new(client, endpoint)),
        "ollama-ndjson" => Box::new(Ollama::new(client, endpoint)),
        other => panic!("no such dialect: {other}"),
    }
}

fn at(base: &str) -> Endpoint {
    Endpoint::new(base.parse().unwrap())
}

/// What a caller saw: the texts as they came, and how it ended.
#[derive(Debug, Default, PartialEq)]
struct Seen {
    text: String,
    reasoning: String,
    end: Option<Result<Completion, Fault>>,
}

async fn ask(provider: &dyn Provider, request: &Request) -> Seen {
    let mut seen = Seen::default();
    let asking = async {
        let mut stream = match provider.stream(request).await {
            Ok(stream) => stream,
            Err(fault) => {
                seen.end = Some(Err(fault));
                return;
            }
        };
        assert_eq!(stream.next().await, Some(Ok(StreamEvent::Opened)));
        while let Some(event) = stream.next().await {
            assert!(seen.end.is_none(), "nothing follows the end: {event:?}");
            match event {
                Ok(StreamEvent::Text(piece)) => seen.text.push_str(&piece),
                Ok(StreamEvent::Reasoning(piece)) => seen.reasoning.push_str(&piece),
                Ok(StreamEvent::Done(completion)) => seen.end = Some(Ok(*completion)),
                Ok(StreamEvent::Opened) => panic!("a stream is opened once"),
                Ok(StreamEvent::KeepAlive | StreamEvent::ToolFragment | StreamEvent::Usage(_)) => {}
                Err(fault) => seen.end = Some(Err(fault)),
            }
        }
    };
    timeout(SOON, asking).await.expect("an answer ends");
    seen
}

fn prompt() -> Request {
    Request::of_prompt("stub-1", "Say hello.")
}

/// Asks a stub that gives `answer`.
async fn exchange(dialect: &str, answer: Answer) -> (Seen, Served) {
    let (base, serving) = stub(answer).await;
    let seen = ask(provider(dialect, at(&base)).as_ref(), &prompt()).await;
    (seen, timeout(SOON, serving).await.expect("the stub ends").unwrap())
}

// ---------------------------------------------------------------- the fixtures

struct Fixture {
    name: String,
    expected: Value,
    bytes: Vec<u8>,
}

impl Fixture {
    fn dialect(&self) -> &str {
        self.expected["dialect"].as_str().unwrap()
    }

    fn answer(&self) -> Answer {
        let content_type = match self.name.rsplit('.').next() {
            Some("sse") => "text/event-stream",
            Some("ndjson") => "application/x-ndjson",
            Some("json") => "application/json",
            other => panic!("no such kind of stream: {other:?}"),
        };
        Answer::new(content_type, &self.bytes)
    }

    /// The clock decides these, not the parser.
    fn is_timed(&self) -> bool {
        self.expected["error"]["kind"] == "idle_timeout"
    }
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/cases/streams")
}

fn fixtures() -> Vec<Fixture> {
    let expected = std::fs::read(folder().join("expected.json")).unwrap();
    let expected: serde_json::Map<String, Value> = serde_json::from_slice(&expected).unwrap();
    let fixtures = expected.into_iter().map(|(name, expected)| {
        let bytes = std::fs::read(folder().join(&name)).unwrap();
        Fixture { name, expected, bytes }
    });
    fixtures.collect()
}

fn fixture(prefix: &str) -> Fixture {
    fixtures().into_iter().find(|fixture| fixture.name.starts_with(prefix)).unwrap()
}

fn usage_json(usage: Usage) -> Value {
    match (usage.input_tokens, usage.output_tokens) {
        (None, None) => Value::Null,
        (input, output) => json!({"input": input, "output": output}),
    }
}

fn finish_word(finish: Finish) -> &'static str {
    match finish {
        Finish::Stop => "stop",
        Finish::ToolCalls => "tool_calls",
        Finish::Length => "length",
        Finish::ContentFilter => "content_filter",
    }
}

/// The kind as `expected.json` names it.
fn kind(fault: &Fault) -> &'static str {
    match fault.class {
        _ if fault.is_provider_word() => "provider_error",
        FaultClass::IncompleteStream => "incomplete_stream",
        FaultClass::TruncatedToolCall => "truncated_tool_call",
        FaultClass::MalformedToolCall => "malformed_tool_call",
        FaultClass::EmptyResponse => "empty_response",
        FaultClass::NotAStream => "not_a_stream",
        _ => "another",
    }
}

/// What was seen, in the words of `expected.json`.
fn result_json(seen: &Seen, expected: &Value) -> Value {
    let mut result = match seen.end.as_ref().expect("an end") {
        Ok(Completion { turn, finish, usage }) => completion_json(turn, *finish, *usage, expected),
        Err(fault) => fault_json(fault, expected),
    };
    for key in ["dialect", "note", "plan"] {
        if let Some(value) = expected.get(key) {
            result[key] = value.clone();
        }
    }
    result
}

fn completion_json(turn: &AssistantTurn, finish: Finish, usage: Usage, expected: &Value) -> Value {
    let ids: HashSet<_> = turn.tool_calls.iter().map(|call| &call.id).collect();
    assert_eq!(ids.len(), turn.tool_calls.len(), "ids are unique");
    let calls = turn.tool_calls.iter().enumerate().map(|(at, call)| {
        let made_here = expected["tool_calls"][at]["id"] == "<generated>" && !call.id.is_empty();
        let id = if made_here { "<generated>" } else { &call.id };
        json!({"id": id, "name": call.name, "arguments": call.arguments})
    });
    let mut result = json!({
        "text": turn.text,
        "tool_calls": calls.collect::<Vec<_>>(),
        "finish": finish_word(finish),
        "usage": usage_json(usage),
        "error": null,
    });
    if !turn.reasoning.is_empty() {
        result["reasoning"] = turn.reasoning.clone().into();
    }
    if !turn.thinking.is_empty() {
        result["thinking"] = turn.thinking.clone().into();
    }
    result
}

fn fault_json(fault: &Fault, expected: &Value) -> Value {
    let mut error = json!({
        "kind": kind(fault),
        "retryable": fault.class.is_retryable(),
        "partial_text": fault.partial_text,
    });
    if fault.is_provider_word() {
        error["class"] = fault.code.clone().into();
    }
    if expected["error"].get("message").is_some() {
        error["message"] = fault.message.clone().into();
    }
    // A fault has no finish reason of its own: this one is the reason for it.
    let finish = (fault.class == FaultClass::TruncatedToolCall).then_some("length");
    json!({
        "text": "",
        "tool_calls": [],
        "finish": finish,
        "usage": usage_json(fault.usage),
        "error": error,
    })
}

async fn check(fixture: &Fixture, answer: Answer) {
    let name = &fixture.name;
    let (seen, _) = exchange(fixture.dialect(), answer).await;
    assert_eq!(result_json(&seen, &fixture.expected), fixture.expected, "{name}");
    match seen.end.as_ref().unwrap() {
        Ok(done) => {
            assert_eq!(seen.text, done.turn.text, "{name}: the pieces are the text");
            let thought: String = done
                .turn
                .thinking
                .iter()
                .filter_map(|block| block["thinking"].as_str())
                .chain([done.turn.reasoning.as_str()])
                .collect();
            assert_eq!(seen.reasoning, thought, "{name}: the pieces are the reasoning");
        }
        Err(fault) => assert_eq!(seen.text, fault.partial_text, "{name}: what had arrived"),
    }
}

async fn check_all(shape: impl Fn(Answer) -> Answer) {
    let mut checked = 0;
    for fixture in fixtures().iter().filter(|fixture| !fixture.is_timed()) {
        check(fixture, shape(fixture.answer())).await;
        checked += 1;
    }
    assert_eq!(checked, 28);
}

// B80 (04, 05, 32, 58), B81 (12, 14, 22, 54, 55), B83 (06, 32), B84 (08), B85 (10), B86 (02, 03, 18,
// 51), B87 (26), B88 (27), B89 (18, 20, 29), B91 (20, 22, 37).
#[tokio::test]
async fn every_fixture_whole() {
    check_all(|answer| answer).await;
}

#[tokio::test]
async fn every_fixture_one_byte_at_a_time() {
    check_all(|answer| answer.in_pieces_of(1)).await;
}

#[tokio::test]
async fn every_fixture_three_bytes_at_a_time() {
    check_all(|answer| answer.in_pieces_of(3)).await;
}

#[tokio::test]
async fn every_fixture_seven_bytes_at_a_time() {
    check_all(|answer| answer.in_pieces_of(7)).await;
}

#[tokio::test]
async fn every_fixture_64_bytes_at_a_time() {
    check_all(|answer| answer.in_pieces_of(64)).await;
}

// B82.
#[tokio::test]
async fn characters_cut_between_packets_stay_whole() {
    let fixture = fixture("16-");
    let plan = std::fs::read(folder().join("16-utf8-split.plan.json")).unwrap();
    let plan: Value = serde_json::from_slice(&plan).unwrap();
    let cuts: Vec<usize> = serde_json::from_value(plan["cuts"].clone()).unwrap();
    let answer = fixture.answer().cut_at(&cuts).pausing(Duration::from_millis(5));
    assert_eq!(answer.pieces.len(), 7);
    check(&fixture, answer).await;
}

// ---------------------------------------------------------------- ends and clocks

#[tokio::test]
async fn an_answer_ends_at_its_end_marker_though_the_socket_is_held() {
    for prefix in ["12-", "35-", "50-", "54-", "20-", "22-"] {
        let fixture = fixture(prefix);
        let answer = fixture.answer().held(Duration::from_secs(30));
        let start = SystemClock.monotonic();
        let (seen, served) = exchange(fixture.dialect(), answer).await;
        let took = start.elapsed();
        assert_eq!(result_json(&seen, &fixture.expected), fixture.expected);
        assert!(took < Duration::from_secs(2), "{prefix} took {took:?}");
        assert!(served.client_closed, "{prefix}: the connection is given up");
    }
}

#[tokio::test]
async fn a_finish_reason_without_end_marker_ends_soon_though_the_socket_is_held() {
    let fixture = fixture("04-");
    let answer = fixture.answer().held(Duration::from_mins(1));
    let (seen, served) = exchange(fixture.dialect(), answer).await;
    assert_eq!(result_json(&seen, &fixture.expected), fixture.expected);
    assert!(served.client_closed);
}

/// A caller's no-progress timer, as the watchdog has one: which events came until it tripped.
async fn until_no_progress(answer: Answer, limit: Duration) -> (Vec<StreamEvent>, Served) {
    let (base, serving) = stub(answer).await;
    let provider = provider("openai", at(&base));
    let request = prompt();
    let mut stream = provider.stream(&request).await.unwrap();
    let mut events = Vec::new();
    let progress = async {
        loop {
            let event = stream.next().await.expect("the stub holds on").unwrap();
            let is_progress = event.is_progress();
            events.push(event);
            if is_progress {
                break;
            }
        }
    };
    assert!(timeout(limit, progress).await.is_err(), "no progress was made");
    drop(stream);
    (events, timeout(SOON, serving).await.expect("the stub sees the end").unwrap())
}

// B73.
#[tokio::test]
async fn a_silent_stream_is_seen_as_silent_and_dropping_it_closes_the_connection() {
    let answer = fixture("33-").answer().held(Duration::from_mins(1));
    let (events, served) = until_no_progress(answer, Duration::from_millis(800)).await;
    assert_eq!(events, [StreamEvent::Opened, StreamEvent::KeepAlive]);
    assert!(served.client_closed);
}

// B74.
#[tokio::test]
async fn keep_alives_are_seen_and_are_no_progress() {
    let fixture = fixture("34-");
    let text = String::from_utf8(fixture.bytes.clone()).unwrap();
    let cuts: Vec<_> = text.match_indices(": keep-alive").map(|(at, _)| at).collect();
    let answer = fixture
        .answer()
        .cut_at(&cuts)
        .pausing(Duration::from_millis(100))
        .held(Duration::from_mins(1));
    let (events, served) = until_no_progress(answer, Duration::from_millis(800)).await;
    assert_eq!(events[0], StreamEvent::Opened);
    let keep_alives = &events[1..];
    assert!(keep_alives.len() >= 3, "the transport lives: {keep_alives:?}");
    assert!(keep_alives.iter().all(|event| *event == StreamEvent::KeepAlive));
    assert!(served.client_closed);
}

// B77.
#[tokio::test]
async fn a_slow_stream_is_not_cut() {
    let fixture = fixture("01-");
    let answer = fixture.answer().in_pieces_of(200).pausing(Duration::from_millis(300));
    check(&fixture, answer).await;
}

#[tokio::test]
async fn a_broken_transport_is_told_from_an_incomplete_answer() {
    let body = fixture("05-").bytes;
    let promised = Answer::new("text/event-stream", &body).header("content-length: 99999");
    let chunk = [format!("{:x}\r\n", body.len()).as_bytes(), &body, b"\r\n"].concat();
    let chunked = Answer::new("text/event-stream", &chunk).header("transfer-encoding: chunked");
    for answer in [promised, chunked] {
        let (seen, _) = exchange("openai", answer).await;
        let fault = seen.end.unwrap().unwrap_err();
        assert_eq!(fault.class, FaultClass::IncompleteStream, "{fault}");
        assert_eq!(fault.partial_text, "The report shows that the total was");
    }
}

// ---------------------------------------------------------------- heads and refusals

#[tokio::test]
async fn a_refusal_keeps_the_servers_words_and_its_wish_to_wait() {
    let body = br#"{"error":{"message":"slow down","type":"rate_limit_error","code":null}}"#;
    let answer = Answer::new("application/json", body).status(429).header("retry-after: 7");
    let (seen, _) = exchange("openai", answer).await;
    let expected = Fault {
        code: Some("rate_limit_error".to_owned()),
        status: Some(429),
        retry_after: Some(Duration::from_secs(7)),
        ..Fault::new(FaultClass::RateLimit, "slow down")
    };
    assert_eq!(seen.end, Some(Err(expected)));
}

#[tokio::test]
async fn a_refusal_whose_body_never_ends_is_known_by_its_status() {
    let answer = Answer::new("text/plain", b"down for now").status(503);
    let (seen, _) = exchange("openai", answer.held(Duration::from_mins(1))).await;
    let fault = seen.end.unwrap().unwrap_err();
    assert_eq!((fault.class, fault.message.as_str()), (FaultClass::ServerError, "down for now"));
}

// B91.
#[tokio::test]
async fn a_page_is_no_stream() {
    for content_type in ["text/html; charset=utf-8", "text/plain", "image/png"] {
        let page = Answer::new(content_type, b"<html>Please log in</html>");
        let (seen, _) = exchange("openai", page).await;
        let fault = seen.end.unwrap().unwrap_err();
        assert_eq!(kind(&fault), "not_a_stream");
        assert!(fault.message.contains(content_type), "{fault}");
        assert!(fault.message.contains("Please log in"), "{fault}");
    }
}

#[tokio::test]
async fn nobody_listening_is_told_from_a_connection_that_breaks() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let seen = ask(provider("openai", at(&base)).as_ref(), &prompt()).await;
    let fault = seen.end.unwrap().unwrap_err();
    assert_eq!(fault.class, FaultClass::Unreachable, "{fault}");

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let closing = tokio::spawn(async move {
        // The client may try once more on a new connection.
        for _ in 0..5 {
            let (mut socket, _) = listener.accept().await.unwrap();
            read_request(&mut socket).await;
        }
    });
    let seen = ask(provider("openai", at(&base)).as_ref(), &prompt()).await;
    let fault = seen.end.unwrap().unwrap_err();
    assert_eq!(fault.class, FaultClass::Network, "{fault}");
    closing.abort();
}

#[tokio::test]
async fn requests_are_small_and_say_who_asks() {
    let key = "sk-test-0123456789abcdef";
    let table = [
        ("openai", "/v1", "post /v1/chat/completions ", format!("authorization: bearer {key}")),
        ("anthropic", "", "post /v1/messages ", format!("x-api-key: {key}")),
        ("anthropic", "/v1/", "post /v1/messages ", "anthropic-version: 2023-06-01".to_owned()),
        ("ollama-ndjson", "", "post /api/chat ", format!("authorization: bearer {key}")),
    ];
    for (dialect, path, line, header) in table {
        let (base, serving) = stub(Answer::new("text/html", b"")).await;
        let mut endpoint = at(&format!("{base}{path}")).with_key(SecretString::from(key));
        endpoint.headers =
            HeaderMap::from_iter([("x-team".parse().unwrap(), HeaderValue::from_static("night"))]);
        ask(provider(dialect, endpoint).as_ref(), &prompt()).await;
        let served = timeout(SOON, serving).await.unwrap().unwrap();
        assert!(served.head.starts_with(line), "{}", served.head);
        assert!(served.head.contains(&header), "{}", served.head);
        assert!(served.head.contains("x-team: night"), "{}", served.head);
        assert!(served.head.len() + served.body.to_string().len() < 1024);
        let last = &served.body["messages"][0];
        let said = match dialect {
            // The last message is marked for the cache.
            "anthropic" => json!([marked(json!({"type": "text", "text": "Say hello."}))]),
            _ => json!("Say hello."),
        };
        assert_eq!(*last, json!({"role": "user", "content": said}));
    }
}

#[tokio::test]
async fn a_key_never_comes_back_in_a_fault() {
    let key = "sk-test-0123456789abcdef";
    let echo = format!(
        r#"{{"error":{{"message":"bad key {key} (sk-test-****cdef) at /v1?key={key}","type":"invalid_request_error"}}}}"#
    );
    let in_stream = format!("data: {echo}\n\n");
    let answers = [
        Answer::new("application/json", echo.as_bytes()).status(401),
        Answer::new("text/event-stream", in_stream.as_bytes()),
        Answer::new("text/html", echo.as_bytes()),
    ];
    for answer in answers {
        let (base, serving) = stub(answer).await;
        let endpoint = at(&base).with_key(SecretString::from(key));
        let seen = ask(provider("openai", endpoint).as_ref(), &prompt()).await;
        let shown = format!("{seen:?}");
        assert!(shown.contains("bad key [masked] ([masked]) at /v1?key=[masked]"), "{shown}");
        assert!(!shown.contains(&key[..8]), "{shown}");
        timeout(SOON, serving).await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn a_key_does_not_follow_a_redirect_to_another_host() {
    let (elsewhere, never) = stub(Answer::new("text/html", b"")).await;
    let location = format!("location: {}/v1/messages", elsewhere.replace("127.0.0.1", "localhost"));
    let (base, serving) = stub(Answer::new("text/plain", b"").status(307).header(&location)).await;
    let endpoint = at(&base).with_key(SecretString::from("sk-test-0123456789abcdef"));
    let seen = ask(provider("anthropic", endpoint).as_ref(), &prompt()).await;
    let fault = seen.end.unwrap().unwrap_err();
    assert_eq!((fault.status, fault.class), (Some(307), FaultClass::Other), "{fault}");
    timeout(SOON, serving).await.unwrap().unwrap();
    assert!(!never.is_finished(), "nobody came there");
    never.abort();
}

// ---------------------------------------------------------------- what goes back

/// Thinking and calls of one turn are in the next request, unchanged and in order.
#[tokio::test]
async fn thinking_and_reasoning_go_back_with_the_tool_result() {
    let fixture = fixture("52-");
    let (seen, _) = exchange("anthropic", fixture.answer()).await;
    let turn = seen.end.unwrap().unwrap().turn;
    let body = next_request("anthropic", turn).await;
    let mut blocks = fixture.expected["thinking"].as_array().unwrap().clone();
    blocks.push(json!({
        "type": "tool_use", "id": "toolu_11", "name": "read_file", "input": {"path": "a.txt"},
    }));
    assert_eq!(body["messages"][1], json!({"role": "assistant", "content": blocks}));
    let result = json!({"type": "tool_result", "tool_use_id": "toolu_11", "content": "42"});
    let result = marked(result);
    assert_eq!(body["messages"][2], json!({"role": "user", "content": [result]}));

    let stream = [
        r#"{"choices":[{"delta":{"reasoning_content":"Look first."}}]}"#,
        r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c","function":{"name":"read_file","arguments":"{}"}}]}}]}"#,
        "[DONE]",
    ]
    .map(|data| format!("data: {data}\n\n"))
    .concat();
    let (seen, _) = exchange("openai", Answer::new("text/event-stream", stream.as_bytes())).await;
    let body = next_request("openai", seen.end.unwrap().unwrap().turn).await;
    assert_eq!(body["messages"][1]["reasoning_content"], "Look first.");
    assert_eq!(body["messages"][2], json!({"role": "tool", "tool_call_id": "c", "content": "42"}));
}

/// The block as it is marked for the cache of prompts.
fn marked(mut block: Value) -> Value {
    block["cache_control"] = json!({"type": "ephemeral"});
    block
}

async fn next_request(dialect: &str, turn: AssistantTurn) -> Value {
    let mut request = prompt();
    let result = Message::ToolResult {
        call_id: turn.tool_calls[0].id.clone(),
        name: turn.tool_calls[0].name.clone(),
        content: "42".to_owned(),
        is_error: false,
    };
    std::sync::Arc::make_mut(&mut request.messages).extend([Message::Assistant(turn), result]);
    let (base, serving) = stub(Answer::new("text/html", b"")).await;
    ask(provider(dialect, at(&base)).as_ref(), &request).await;
    timeout(SOON, serving).await.unwrap().unwrap().body
}
