//! The habits of providers that have no recorded stream, as tables: what is fed, what it means.
//!
//! Every stream is fed whole and byte by byte; no socket is needed for that.

use punctual::provider::{Api, Fault, FaultClass, Framing, Heard, StreamEvent, StreamParser};
use serde_json::{Value, json};

/// Feeds `stream` in pieces of `size`, closes, and tells the end in one JSON value.
fn parse(api: Api, framing: Framing, stream: &str, size: usize) -> Value {
    let mut parser = StreamParser::new(api, framing);
    let mut heard = Heard::new();
    for piece in stream.as_bytes().chunks(size) {
        parser.feed(piece, &mut heard);
    }
    parser.finish(&mut heard);
    assert!(parser.is_over());
    let last = heard.pop_back().expect("an end");
    assert!(heard.iter().all(|event| !matches!(event, Err(_) | Ok(StreamEvent::Done(_)))));
    match last {
        Ok(StreamEvent::Done(done)) => {
            let calls = done.turn.tool_calls.iter();
            let calls: Vec<_> = calls.map(|call| json!([call.name, call.arguments])).collect();
            json!({
                "finish": format!("{:?}", done.finish),
                "text": done.turn.text,
                "calls": calls,
                "thinking": done.turn.thinking,
                "reasoning": done.turn.reasoning,
                "usage": [done.usage.input_tokens, done.usage.output_tokens],
            })
        }
        Ok(event) => panic!("the last event is the end, not {event:?}"),
        Err(Fault { class, message, code, partial_text, .. }) => json!({
            "fault": format!("{class:?}"),
            "message": message,
            "code": code,
            "partial": partial_text,
        }),
    }
}

/// Checks that each key of `expected` is so in what `stream` means, however it is cut.
#[track_caller]
fn check(api: Api, framing: Framing, stream: &str, expected: &Value) {
    for size in [usize::MAX, 64, 7, 1] {
        let found = parse(api, framing, stream, size);
        for (key, value) in expected.as_object().unwrap() {
            assert_eq!(&found[key], value, "`{key}` of {found:#} in pieces of {size}: {stream}");
        }
    }
}

#[track_caller]
fn openai(stream: &str, expected: &Value) {
    check(Api::OpenAi, Framing::Sse, stream, expected);
}

/// Events of `data` lines, closed with `[DONE]`.
fn sse(payloads: &[&str]) -> String {
    let events = payloads.iter().chain(&["[DONE]"]).map(|data| format!("data: {data}\n\n"));
    events.collect()
}

/// Events as Anthropic names them.
fn events(payloads: &[Value]) -> String {
    let events = payloads.iter().map(|payload| {
        format!("event: {}\ndata: {payload}\n\n", payload["type"].as_str().unwrap())
    });
    events.collect()
}

const OK: &str = r#"{"choices":[{"delta":{"content":"ok"}}]}"#;
const STOP: &str = r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#;

// B83, B84.
#[test]
fn framing_07_09_31() {
    let ok = json!({"finish": "Stop", "text": "ok"});
    // 07: no space after the colon.
    openai(&sse(&[OK, STOP]).replace("data: ", "data:"), &ok);
    // 09: keep-alives wrapped into payloads, and empty ones.
    openai(&sse(&[": keep-alive", "", OK, ":ping", STOP, " "]), &ok);
    // 31: a byte order mark, and JSON over several data lines.
    let split = OK.replace(',', ",\ndata: ").replace("[{", "[\ndata: {");
    openai(&format!("\u{feff}{}", sse(&[&split, STOP])), &ok);
    // Carriage returns alone.
    openai(&sse(&[OK, STOP]).replace('\n', "\r"), &ok);
    // No end marker and no blank line after the last event.
    openai(format!("data: {OK}\n\ndata: {STOP}").trim_end(), &ok);
}

#[test]
fn an_end_marker_without_a_finish_reason_is_an_end() {
    openai(&sse(&[OK]), &json!({"finish": "Stop", "text": "ok"}));
}

#[test]
fn nothing_after_the_end_counts() {
    let stream = format!("{}data: {OK}\n\n", sse(&[OK, STOP]));
    openai(&stream, &json!({"finish": "Stop", "text": "ok"}));
}

// B81.
#[test]
fn errors_inside_a_stream_13_15() {
    let words = json!({"fault": "ServerError", "message": "boom", "partial": "ok"});
    // In the choice, with a finish reason to match.
    openai(
        &sse(&[
            OK,
            r#"{"choices":[{"delta":{},"finish_reason":"error","error":{"code":502,"message":"boom"}}]}"#,
        ]),
        &words,
    );
    openai(&sse(&[OK, r#"{"error":{"code":502,"message":"boom"},"choices":[]}"#]), &words);
    openai(&sse(&[OK, r#"{"error":"boom"}"#]), &words);
    // As an event of its own name, as a bare object, and as a field of the stream.
    let named =
        format!("data: {OK}\n\nevent: error\ndata: {{\"message\":\"boom\",\"code\":500}}\n\n");
    openai(&named, &words);
    openai(&sse(&[OK, r#"{"object":"error","message":"boom","code":500}"#]), &words);
    let field = format!(
        "data: {OK}\n\nerror: {{\"code\":500,\"message\":\"boom\",\"type\":\"server_error\"}}\n"
    );
    openai(&field, &words);
    openai(
        &sse(&[OK, r#"{"choices":[{"delta":{},"finish_reason":"error"}]}"#]),
        &json!({"fault": "ServerError", "code": "server_error", "partial": "ok"}),
    );
}

// B86, B87.
#[test]
fn calls_17_19_25_30() {
    let call = |body: &str| format!(r#"{{"choices":[{{"delta":{{"tool_calls":[{body}]}}}}]}}"#);
    let both = json!({"finish": "ToolCalls", "calls": [["a", {"x": 1}], ["b", {"y": 2}]]});
    // 17: two calls at one index, told apart by their ids.
    openai(
        &sse(&[
            &call(r#"{"index":0,"id":"1","function":{"name":"a","arguments":"{\"x\":1}"}}"#),
            &call(r#"{"index":0,"id":"2","function":{"name":"b","arguments":"{\"y\""}}"#),
            &call(r#"{"index":0,"function":{"arguments":":2}"}}"#),
            STOP,
        ]),
        &both,
    );
    // 19: arguments as objects.
    openai(
        &sse(&[
            &call(r#"{"index":0,"id":"1","function":{"name":"a","arguments":{"x":1}}}"#),
            &call(r#"{"index":1,"id":"2","function":{"name":"b","arguments":{"y":2}}}"#),
            STOP,
        ]),
        &both,
    );
    // 25: id and name come again with each fragment, the last time empty or null.
    openai(
        &sse(&[
            &call(r#"{"index":0,"id":"1","function":{"name":"a","arguments":"{\"x\""}}"#),
            &call(r#"{"index":0,"id":"1","function":{"name":"a","arguments":":1}"}}"#),
            &call(r#"{"index":0,"id":"","function":{"name":null,"arguments":""}}"#),
            &call(r#"{"index":1,"id":"2","function":{"name":"b","arguments":"{\"y\":2}"}}"#),
            STOP,
        ]),
        &both,
    );
    // 30: no index: a name begins a call, the rest goes on with it; indexes that do not begin at 0.
    openai(
        &sse(&[
            &call(r#"{"id":"1","function":{"name":"a","arguments":"{\"x\""}}"#),
            &call(r#"{"function":{"arguments":":1}"}}"#),
            &call(r#"{"id":"2","function":{"name":"b","arguments":"{\"y\":2}"}}"#),
            STOP,
        ]),
        &both,
    );
    openai(
        &sse(&[
            &call(r#"{"index":4,"id":"1","function":{"name":"a","arguments":"{\"x\":1}"}}"#),
            &call(r#"{"index":9,"id":"2","function":{"name":"b","arguments":"{\"y\":2}"}}"#),
            STOP,
        ]),
        &both,
    );
    // The form before there were several calls.
    openai(
        &sse(&[
            r#"{"choices":[{"delta":{"function_call":{"name":"a","arguments":"{\"x\""}}}]}"#,
            r#"{"choices":[{"delta":{"function_call":{"arguments":":1}"}},"finish_reason":"function_call"}]}"#,
        ]),
        &json!({"finish": "ToolCalls", "calls": [["a", {"x": 1}]]}),
    );
}

// B85 (38), B88 (28), B92 (24).
#[test]
fn ends_24_28_38() {
    // 24: a clean stop with nothing.
    openai(&sse(&[STOP]), &json!({"fault": "EmptyResponse", "partial": ""}));
    // 28: a call cut without the finish reason saying so.
    let cut = r#"{"choices":[{"delta":{"content":"so","tool_calls":[{"index":0,"id":"1","function":{"name":"bash","arguments":"{\"cmd\":\"rm -rf /tmp/x"}}]},"finish_reason":"tool_calls"}]}"#;
    openai(&sse(&[cut]), &json!({"fault": "MalformedToolCall", "partial": "so"}));
    // 38: a chunk without choices at all.
    let usage = r#"{"usage":{"prompt_tokens":4,"completion_tokens":3}}"#;
    openai(&sse(&[OK, STOP, usage]), &json!({"text": "ok", "usage": [4, 3]}));
    // The last usage stands.
    let running = r#"{"choices":[],"usage":{"prompt_tokens":4,"completion_tokens":1}}"#;
    openai(&sse(&[OK, running, STOP, usage]), &json!({"usage": [4, 3]}));
    // The limit with text only is the caller's to judge.
    let length = r#"{"choices":[{"delta":{},"finish_reason":"length"}]}"#;
    openai(&sse(&[OK, length]), &json!({"finish": "Length", "text": "ok"}));
    let filter = r#"{"choices":[{"delta":{},"finish_reason":"content_filter"}]}"#;
    openai(&sse(&[OK, filter]), &json!({"finish": "ContentFilter", "text": "ok"}));
    let refusal = r#"{"choices":[{"delta":{"refusal":"I will not."}}]}"#;
    openai(&sse(&[refusal, STOP]), &json!({"finish": "ContentFilter", "text": "I will not."}));
}

#[test]
fn reasoning_is_no_text_whatever_it_is_called() {
    let both = r#"{"choices":[{"delta":{"reasoning_content":"hm","reasoning":"hm"}}]}"#;
    openai(&sse(&[both, OK, STOP]), &json!({"text": "ok", "reasoning": "hm"}));
    let other = r#"{"choices":[{"delta":{"content":null,"reasoning":"hm"}}]}"#;
    openai(&sse(&[other, OK, STOP]), &json!({"text": "ok", "reasoning": "hm"}));
    openai(&sse(&[other, STOP]), &json!({"fault": "EmptyResponse"}));
    let parts = r#"{"choices":[{"delta":{"content":[{"type":"thinking","thinking":[{"type":"text","text":"hm"}]},{"type":"text","text":"ok"}]}}]}"#;
    openai(&sse(&[parts, STOP]), &json!({"text": "ok", "reasoning": "hm"}));
}

// B89, B91.
#[test]
fn ollama_20_21() {
    let check = |stream: &str, expected: &Value| {
        check(Api::Ollama, Framing::Ndjson, stream, expected);
    };
    // 21: the calls in the line that says `done`, which says `stop`; an index that starts anew.
    let call = json!({"function": {"index": 0, "name": "a", "arguments": {"x": 1}}});
    let message = json!({"role": "assistant", "content": "", "tool_calls": [call, call]});
    let line = json!({"message": message, "done": true, "done_reason": "stop", "eval_count": 2});
    check(
        &format!("{line}\n"),
        &json!({"finish": "ToolCalls", "calls": [["a", {"x": 1}], ["a", {"x": 1}]], "usage": [null, 2]}),
    );
    check(
        "{\"message\":{\"thinking\":\"hm\",\"content\":\"ok\"},\"done\":false}\n{\"done\":true}",
        &json!({"finish": "Stop", "text": "ok", "reasoning": "hm"}),
    );
    check(
        "{\"message\":{\"content\":\"ok\"}}\n{\"done\":true,\"done_reason\":\"length\"}\n",
        &json!({"finish": "Length"}),
    );
    check("{\"message\":{\"content\":\"ok\"}}\n", &json!({"fault": "IncompleteStream"}));
    check("{\"done\":true,\"done_reason\":\"load\"}\n", &json!({"fault": "EmptyResponse"}));
}

fn anthropic(stream: &[Value], expected: &Value) {
    check(Api::Anthropic, Framing::Sse, &events(stream), expected);
}

fn start(block: &Value) -> Value {
    json!({"type": "content_block_start", "index": 0, "content_block": block})
}

fn delta(delta: &Value) -> Value {
    json!({"type": "content_block_delta", "index": 0, "delta": delta})
}

fn stop(reason: &str) -> Value {
    json!({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 5}})
}

// B80 (59), B87 (53, 56), B88 (57), B90 (53).
#[test]
fn anthropic_53_56_57_59() {
    let block_stop = json!({"type": "content_block_stop", "index": 0});
    let message_stop = json!({"type": "message_stop"});
    // 53: thinking without words keeps its signature.
    let thinking = json!({"type": "thinking", "thinking": "", "signature": ""});
    let signature = json!({"type": "signature_delta", "signature": "sig"});
    let text = json!({"type": "content_block_start", "index": 1,
        "content_block": {"type": "text", "text": "ok"}});
    anthropic(
        &[
            start(&thinking),
            delta(&signature),
            block_stop.clone(),
            text,
            stop("end_turn"),
            message_stop.clone(),
        ],
        &json!({
            "finish": "Stop", "text": "ok",
            "thinking": [{"type": "thinking", "thinking": "", "signature": "sig"}],
        }),
    );
    // 56: the whole input in the start of the block, and an empty fragment after it.
    let tool = json!({"type": "tool_use", "id": "t", "name": "a", "input": {"x": 1}});
    let empty = json!({"type": "input_json_delta", "partial_json": ""});
    anthropic(
        &[start(&tool), delta(&empty), block_stop.clone(), stop("tool_use"), message_stop.clone()],
        &json!({"finish": "ToolCalls", "calls": [["a", {"x": 1}]]}),
    );
    // No input at all.
    let tool = json!({"type": "tool_use", "id": "t", "name": "a", "input": {}});
    anthropic(
        &[start(&tool), block_stop.clone(), stop("tool_use"), message_stop.clone()],
        &json!({"finish": "ToolCalls", "calls": [["a", {}]]}),
    );
    // 57: the limit inside a call.
    let half = json!({"type": "input_json_delta", "partial_json": "{\"cmd\":\"rm -rf"});
    anthropic(
        &[start(&tool), delta(&half), block_stop, stop("max_tokens"), message_stop.clone()],
        &json!({"fault": "TruncatedToolCall"}),
    );
    // 59: a stop reason, then the end of the connection.
    let text = start(&json!({"type": "text", "text": "ok"}));
    anthropic(&[text.clone(), stop("end_turn")], &json!({"finish": "Stop", "text": "ok"}));
    anthropic(
        &[text, stop("refusal"), message_stop],
        &json!({"finish": "ContentFilter", "text": "ok", "usage": [null, 5]}),
    );
}

#[test]
fn anthropic_counts_are_totals_with_the_cache_in_them() {
    let usage = json!({"input_tokens": 3, "cache_read_input_tokens": 10,
        "cache_creation_input_tokens": 4, "output_tokens": 1});
    let message = json!({"type": "message_start", "message": {"usage": usage}});
    let text = start(&json!({"type": "text", "text": "ok"}));
    let expected = json!({"usage": [17, 5]});
    anthropic(&[message, text, stop("end_turn"), json!({"type": "message_stop"})], &expected);
}

// B91.
#[test]
fn one_body_where_a_stream_was_asked_for() {
    let message = json!({"type": "message", "stop_reason": "tool_use",
        "usage": {"input_tokens": 1, "output_tokens": 2},
        "content": [{"type": "text", "text": "ok"},
            {"type": "tool_use", "id": "t", "name": "a", "input": {"x": 1}}]});
    let whole =
        json!({"finish": "ToolCalls", "text": "ok", "calls": [["a", {"x": 1}]], "usage": [1, 2]});
    check(Api::Anthropic, Framing::Json, &message.to_string(), &whole);
    let line = json!({"message": {"content": "ok"}, "done": true});
    check(Api::Ollama, Framing::Json, &line.to_string(), &json!({"text": "ok"}));
    let error = json!({"fault": "ServerError", "message": "boom"});
    for api in [Api::OpenAi, Api::Anthropic, Api::Ollama] {
        let body = r#"{"error":{"type":"server_error","message":"boom"}}"#;
        check(api, Framing::Json, body, &error);
        check(api, Framing::Json, r#"{"hello":"world"}"#, &json!({"fault": "NotAStream"}));
        check(api, Framing::Json, "", &json!({"fault": "NotAStream"}));
        check(api, Framing::Json, "[]", &json!({"fault": "NotAStream"}));
        check(api, Framing::Json, r#"{"choices":[{"mess"#, &json!({"fault": "IncompleteStream"}));
    }
}

#[test]
fn what_is_no_json_is_no_stream_and_what_is_cut_is_incomplete() {
    openai(&sse(&[OK, "oops"]), &json!({"fault": "NotAStream", "partial": "ok"}));
    openai(&sse(&[OK, "17"]), &json!({"fault": "NotAStream", "partial": "ok"}));
    let cut = format!("data: {OK}\n\ndata: {}", &STOP[..20]);
    openai(&cut, &json!({"fault": "IncompleteStream", "partial": "ok"}));
    let cut = format!("data: {OK}\n\ndata: {STOP}\n\ndata: {{\"usa");
    openai(&cut, &json!({"finish": "Stop", "text": "ok"}));
    openai("", &json!({"fault": "IncompleteStream"}));
}

#[test]
fn a_broken_transport_costs_only_what_had_not_come() {
    let outcome = |stream: &str| {
        let mut parser = StreamParser::new(Api::OpenAi, Framing::Sse);
        let mut heard = Heard::new();
        parser.feed(stream.as_bytes(), &mut heard);
        parser.break_off(FaultClass::Network, "reset", &mut heard);
        heard.pop_back().unwrap()
    };
    let fault = Fault { partial_text: "ok".to_owned(), ..Fault::new(FaultClass::Network, "reset") };
    assert_eq!(outcome(&format!("data: {OK}\n\n")), Err(fault.clone()));
    let whole = outcome(&format!("data: {OK}\n\ndata: {STOP}\n\n"));
    assert!(matches!(whole, Ok(StreamEvent::Done(_))), "{whole:?}");
    // A refusal that is still being said is not over.
    let refusal = r#"{"choices":[{"delta":{"refusal":"ok"}}]}"#;
    assert_eq!(outcome(&format!("data: {refusal}\n\n")), Err(fault));
}
