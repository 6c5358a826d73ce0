//! What a server's refusal means.
//!
//! Servers name their errors in many ways: a status, a `type`, a `code` that is a word or a number,
//! or only prose. They are asked in that order of trust, finer words before coarser ones, and a
//! number counts only where it stands for itself: "503 tokens" in a sentence is no server error.

use std::time::Duration;

use jiff::Timestamp;
use jiff::civil;
use reqwest::StatusCode;
use reqwest::header::{HeaderMap, RETRY_AFTER};
use serde_json::Value;

use super::{Fault, FaultClass};

/// How much of an error body is read.
pub const ERROR_BODY_BYTES_MAX: usize = 8 << 10;

/// The fault that an HTTP response with an error status is. `now` is the wall clock, for a
/// `Retry-After` that is a date.
pub fn classify(status: u16, headers: &HeaderMap, body: &[u8], now: Timestamp) -> Fault {
    let body = String::from_utf8_lossy(&body[..body.len().min(ERROR_BODY_BYTES_MAX)]);
    let words = serde_json::from_str(&body).ok().and_then(|body| Said::of_body(&body));
    let said = words.unwrap_or_else(|| Said::of_plain_text(&body));
    let class = said.class(Some(status));
    let message = if said.message.is_empty() { status_line(status) } else { said.message };
    Fault {
        code: said.kind.or(said.code),
        status: Some(status),
        retry_after: retry_after(headers, now),
        ..Fault::new(class, message)
    }
}

/// A server's error inside a stream that had begun well.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ServerWords {
    pub class: FaultClass,
    pub message: String,
    pub code: Option<String>,
}

impl ServerWords {
    /// Reads an `error` value: an object, or bare text.
    pub fn in_stream(error: &Value) -> Self {
        let said = Said::of_error(error);
        let named = said.kind.is_some() || said.code.is_some();
        let class = match said.class(None) {
            FaultClass::Other if !named => FaultClass::ServerError,
            class => class,
        };
        let code = said.kind.or(said.code).unwrap_or_else(|| "server_error".to_owned());
        let message = if said.message.is_empty() {
            "the server reported an error without words".to_owned()
        } else {
            said.message
        };
        Self { class, message, code: Some(code) }
    }
}

/// The parts of an error that servers agree on.
#[derive(Debug, Default)]
struct Said {
    message: String,
    kind: Option<String>,
    code: Option<String>,
}

impl Said {
    /// Reads a whole error body.
    fn of_body(body: &Value) -> Option<Self> {
        let body = match body {
            Value::Array(list) => list.first()?,
            body => body,
        };
        if let Some(error) = body.get("error").filter(|error| !error.is_null()) {
            let mut said = Self::of_error(error);
            // Some servers put the words beside the error: {"error": true, "message": "..."}.
            if said.message.is_empty() {
                said.message = text_of(body.get("message"));
            }
            return Some(said);
        }
        let said = Self::of_error(body);
        (!said.message.is_empty() && body.is_object()).then_some(said)
    }

    /// Reads the error itself.
    fn of_error(error: &Value) -> Self {
        let word = |key: &str| match error.get(key) {
            Some(Value::String(text)) if !text.is_empty() => Some(text.clone()),
            Some(Value::Number(number)) => Some(number.to_string()),
            _ => None,
        };
        let message = match error {
            Value::String(text) => text.clone(),
            _ => ["message", "detail", "error"]
                .iter()
                .map(|key| text_of(error.get(key)))
                .find(|text| !text.is_empty())
                .unwrap_or_default(),
        };
        // `{"type": "error", ...}` names the event, not the error.
        let kind = word("type").filter(|kind| kind != "error");
        Self { message, kind, code: word("code").or_else(|| word("status")) }
    }

    fn of_plain_text(body: &str) -> Self {
        let text = body.trim();
        // A page for a browser is nobody's words about this request.
        let message = if text.starts_with('<') { "" } else { text };
        Self { message: message.to_owned(), ..Self::default() }
    }

    fn class(&self, status: Option<u16>) -> FaultClass {
        let kind = self.kind.as_deref().unwrap_or_default().to_ascii_lowercase();
        let code = self.code.as_deref().unwrap_or_default().to_ascii_lowercase();
        let prose = self.message.to_lowercase();
        let status = status.or_else(|| code.parse().ok()).or_else(|| kind.parse().ok());
        fine_class(&code)
            .or_else(|| fine_class(&kind))
            .or_else(|| overflow_class(status, &prose))
            .or_else(|| status.and_then(|status| status_class(status, &kind, &prose)))
            .or_else(|| coarse_class(&kind))
            .or_else(|| coarse_class(&code))
            .or_else(|| status.is_none().then(|| prose_class(&prose)).flatten())
            .unwrap_or(FaultClass::Other)
    }
}

fn text_of(value: Option<&Value>) -> String {
    match value {
        Some(Value::String(text)) => text.trim().to_owned(),
        // FastAPI lists what it finds wrong.
        Some(list @ Value::Array(_)) => list.to_string(),
        _ => String::new(),
    }
}

/// Names that say more than a status does.
fn fine_class(name: &str) -> Option<FaultClass> {
    Some(match name {
        "context_length_exceeded" | "exceed_context_size_error" | "context_window_exceeded" => {
            FaultClass::ContextOverflow
        }
        "overloaded_error" | "overloaded" | "engine_overloaded" | "engine_overloaded_error" => {
            FaultClass::Overloaded
        }
        "rate_limit_error"
        | "rate_limit_exceeded"
        | "resource_exhausted"
        | "too_many_requests"
        | "rate_limited" => FaultClass::RateLimit,
        "insufficient_quota"
        | "billing_error"
        | "billing_hard_limit_reached"
        | "payment_required"
        | "insufficient_credits" => FaultClass::Billing,
        "authentication_error" | "permission_error" | "invalid_api_key" | "unauthorized" => {
            FaultClass::Auth
        }
        "model_not_found" => FaultClass::ModelNotFound,
        "timeout_error" | "request_timeout" | "gateway_timeout" => FaultClass::Timeout,
        "content_filter" | "content_policy_violation" | "refusal" => FaultClass::ContentFilter,
        _ => return None,
    })
}

/// Names that are used for many things; a status says more.
fn coarse_class(name: &str) -> Option<FaultClass> {
    Some(match name {
        "server_error"
        | "api_error"
        | "internal_error"
        | "internal_server_error"
        | "internalservererror"
        | "unavailable"
        | "unavailable_error"
        | "service_unavailable"
        | "bad_gateway" => FaultClass::ServerError,
        "invalid_request_error"
        | "bad_request"
        | "badrequesterror"
        | "invalid_argument"
        | "request_too_large" => FaultClass::BadRequest,
        "not_found_error" => FaultClass::ModelNotFound,
        _ => return None,
    })
}

fn overflow_class(status: Option<u16>, prose: &str) -> Option<FaultClass> {
    // "Too many tokens per minute" is a matter of rate, whatever else the sentence says.
    if matches!(status, Some(429 | 401..=404 | 529)) {
        return None;
    }
    let phrases = [
        "prompt is too long",
        "input is too long",
        "context length",
        "context window",
        "context size",
        "maximum context",
    ];
    phrases.iter().any(|phrase| prose.contains(phrase)).then_some(FaultClass::ContextOverflow)
}

fn status_class(status: u16, kind: &str, prose: &str) -> Option<FaultClass> {
    Some(match status {
        429 => FaultClass::RateLimit,
        529 => FaultClass::Overloaded,
        408 | 504 => FaultClass::Timeout,
        401 | 403 => FaultClass::Auth,
        402 => FaultClass::Billing,
        404 if kind == "not_found_error" || prose.starts_with("model:") => {
            FaultClass::ModelNotFound
        }
        400 | 404 if names_unknown_model(prose) => FaultClass::ModelNotFound,
        400 | 413 | 422 => FaultClass::BadRequest,
        503 if prose.contains("overloaded") || prose.contains("capacity") => FaultClass::Overloaded,
        500..=599 => FaultClass::ServerError,
        // A number that is no status (a vendor's own) leaves it to the other words.
        100..=499 => FaultClass::Other,
        _ => return None,
    })
}

/// The last resort: a server that says it in a sentence only.
fn prose_class(prose: &str) -> Option<FaultClass> {
    let table: &[(FaultClass, &[&str])] = &[
        (
            FaultClass::RateLimit,
            &["rate limit", "too many requests", "resource exhausted", "tokens per day"],
        ),
        (FaultClass::Overloaded, &["overloaded", "at capacity", "over capacity"]),
        (FaultClass::Timeout, &["gateway timeout", "gateway time-out", "request timeout"]),
        (FaultClass::ServerError, &["internal server error", "bad gateway", "service unavailable"]),
        (FaultClass::Auth, &["unauthorized", "invalid api key", "invalid x-api-key"]),
        (FaultClass::Billing, &["payment required", "insufficient credits"]),
    ];
    if names_unknown_model(prose) {
        return Some(FaultClass::ModelNotFound);
    }
    let hit = table.iter().find(|(_, phrases)| phrases.iter().any(|words| prose.contains(words)));
    hit.map(|(class, _)| *class)
}

/// "Not found" is said of many things; here it must be said of a model.
fn names_unknown_model(prose: &str) -> bool {
    let phrases = ["not found", "not exist", "not a valid model", "unknown model", "no such model"];
    prose.contains("model") && phrases.iter().any(|phrase| prose.contains(phrase))
}

fn status_line(status: u16) -> String {
    let phrase = StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason());
    phrase.map_or_else(|| format!("HTTP {status}"), |phrase| format!("HTTP {status} {phrase}"))
}

pub(super) fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    if let Some(millis) = text("retry-after-ms").and_then(|text| text.parse::<u32>().ok()) {
        return Some(Duration::from_millis(millis.into()));
    }
    let text = text(RETRY_AFTER.as_str())?;
    if let Ok(seconds) = text.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let at = http_date(text)?;
    Some(Duration::try_from(at.duration_since(now)).unwrap_or(Duration::ZERO))
}

/// A date in one of the three forms of RFC 9110.
fn http_date(text: &str) -> Option<Timestamp> {
    let parser = jiff::fmt::rfc2822::DateTimeParser::new();
    if let Ok(at) = parser.parse_timestamp(text) {
        return Some(at);
    }
    ["%A, %d-%b-%y %H:%M:%S GMT", "%a %b %e %H:%M:%S %Y"]
        .iter()
        .find_map(|form| civil::DateTime::strptime(form, text).ok())
        .and_then(|at| jiff::tz::TimeZone::UTC.to_timestamp(at).ok())
}

#[cfg(test)]
mod tests {
    use FaultClass::{
        Auth, BadRequest, Billing, ContentFilter, ContextOverflow, ModelNotFound, Other,
        Overloaded, RateLimit, ServerError, Timeout,
    };
    use serde_json::json;

    use super::*;

    fn now() -> Timestamp {
        "2026-11-30T09:00:00Z".parse().unwrap()
    }

    fn fault(status: u16, body: &str) -> Fault {
        classify(status, &HeaderMap::new(), body.as_bytes(), now())
    }

    #[test]
    #[expect(clippy::too_many_lines, reason = "one table")]
    fn every_shape_of_error_body_gives_its_class_its_words_and_its_name() {
        let table: &[(u16, &str, FaultClass, &str, Option<&str>)] = &[
            // OpenAI.
            (
                429,
                r#"{"error":{"message":"Rate limit reached","type":"requests","code":"rate_limit_exceeded"}}"#,
                RateLimit,
                "Rate limit reached",
                Some("requests"),
            ),
            (
                429,
                r#"{"error":{"message":"You exceeded your current quota","type":"insufficient_quota","code":"insufficient_quota"}}"#,
                Billing,
                "You exceeded your current quota",
                Some("insufficient_quota"),
            ),
            (
                401,
                r#"{"error":{"message":"Incorrect API key","type":"invalid_request_error","code":"invalid_api_key"}}"#,
                Auth,
                "Incorrect API key",
                Some("invalid_request_error"),
            ),
            (
                404,
                r#"{"error":{"message":"The model `x` does not exist","type":"invalid_request_error","code":"model_not_found"}}"#,
                ModelNotFound,
                "The model `x` does not exist",
                Some("invalid_request_error"),
            ),
            (
                400,
                r#"{"error":{"message":"too big","type":"invalid_request_error","code":"context_length_exceeded"}}"#,
                ContextOverflow,
                "too big",
                Some("invalid_request_error"),
            ),
            // Anthropic.
            (
                529,
                r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
                Overloaded,
                "Overloaded",
                Some("overloaded_error"),
            ),
            (
                404,
                r#"{"type":"error","error":{"type":"not_found_error","message":"model: x"}}"#,
                ModelNotFound,
                "model: x",
                Some("not_found_error"),
            ),
            (
                400,
                r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 9 > 8"}}"#,
                ContextOverflow,
                "prompt is too long: 9 > 8",
                Some("invalid_request_error"),
            ),
            (
                500,
                r#"{"type":"error","error":{"type":"api_error","message":"Internal server error"}}"#,
                ServerError,
                "Internal server error",
                Some("api_error"),
            ),
            // Ollama.
            (404, r#"{"error":"model 'x' not found"}"#, ModelNotFound, "model 'x' not found", None),
            // llama.cpp.
            (
                503,
                r#"{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}"#,
                ServerError,
                "Loading model",
                Some("unavailable_error"),
            ),
            (
                400,
                r#"{"error":{"code":400,"message":"the request exceeds it","type":"exceed_context_size_error"}}"#,
                ContextOverflow,
                "the request exceeds it",
                Some("exceed_context_size_error"),
            ),
            // vLLM, FastAPI, and a list around it.
            (
                400,
                r#"{"object":"error","message":"bad","type":"BadRequestError","code":400}"#,
                BadRequest,
                "bad",
                Some("BadRequestError"),
            ),
            (422, r#"{"detail":[{"msg":"no"}]}"#, BadRequest, r#"[{"msg":"no"}]"#, None),
            (404, r#"{"detail":"Not Found"}"#, Other, "Not Found", None),
            (404, "no route /models/x", Other, "no route /models/x", None),
            (400, "x is not a valid model ID", ModelNotFound, "x is not a valid model ID", None),
            (
                503,
                r#"[{"error":{"code":503,"message":"The model is overloaded","status":"UNAVAILABLE"}}]"#,
                Overloaded,
                "The model is overloaded",
                Some("503"),
            ),
            // Plain text, a page, nothing.
            (500, " upstream failed \n", ServerError, "upstream failed", None),
            (502, "<html>Bad</html>", ServerError, "HTTP 502 Bad Gateway", None),
            (503, "", ServerError, "HTTP 503 Service Unavailable", None),
            (599, "", ServerError, "HTTP 599", None),
            (408, "", Timeout, "HTTP 408 Request Timeout", None),
            (504, "", Timeout, "HTTP 504 Gateway Timeout", None),
            (402, "", Billing, "HTTP 402 Payment Required", None),
            (403, "", Auth, "HTTP 403 Forbidden", None),
            (409, "", Other, "HTTP 409 Conflict", None),
            (
                429,
                "context window: too many tokens per minute",
                RateLimit,
                "context window: too many tokens per minute",
                None,
            ),
        ];
        for (status, body, class, message, code) in table {
            let expected = Fault {
                code: code.map(str::to_owned),
                status: Some(*status),
                ..Fault::new(*class, *message)
            };
            assert_eq!(fault(*status, body), expected, "{status} {body}");
        }
    }

    #[test]
    fn an_error_inside_a_stream_is_known_by_its_words_alone() {
        let table = [
            (json!({"type": "server_error", "message": "m"}), ServerError, "server_error"),
            (json!({"type": "overloaded_error", "message": "m"}), Overloaded, "overloaded_error"),
            (json!({"code": 400, "message": "no"}), BadRequest, "400"),
            (json!({"code": 400, "message": "prompt is too long: 5"}), ContextOverflow, "400"),
            (json!({"code": 502, "message": "upstream"}), ServerError, "502"),
            (
                json!({"code": "rate_limit_exceeded", "message": "m"}),
                RateLimit,
                "rate_limit_exceeded",
            ),
            (json!({"code": "content_filter", "message": "m"}), ContentFilter, "content_filter"),
            (json!({"type": "own_word", "message": "see 503 in prose"}), Other, "own_word"),
            (json!("an error was encountered"), ServerError, "server_error"),
            (json!("model 'x' not found"), ModelNotFound, "server_error"),
            (json!("Too Many Requests"), RateLimit, "server_error"),
        ];
        for (error, class, code) in table {
            let words = ServerWords::in_stream(&error);
            assert_eq!((words.class, words.code.as_deref()), (class, Some(code)), "{error}");
        }
    }

    #[test]
    fn a_number_in_prose_is_no_status() {
        assert_eq!(fault(400, "limit of 503 tokens, 429 used").class, BadRequest);
        let words = ServerWords::in_stream(&json!({"type": "odd", "message": "429 of 500"}));
        assert_eq!(words.class, Other);
    }

    #[test]
    fn retry_after_is_taken_in_every_form() {
        let table = [
            ("7", Some(Duration::from_secs(7))),
            (" 1.5 ", Some(Duration::from_millis(1500))),
            ("Mon, 30 Nov 2026 09:01:00 GMT", Some(Duration::from_mins(1))),
            ("Monday, 30-Nov-26 09:01:00 GMT", Some(Duration::from_mins(1))),
            ("Mon Nov 30 09:01:00 2026", Some(Duration::from_mins(1))),
            ("Mon, 30 Nov 2026 08:00:00 GMT", Some(Duration::ZERO)),
            ("-3", None),
            ("NaN", None),
            ("soon", None),
        ];
        for (text, expected) in table {
            let headers = HeaderMap::from_iter([(RETRY_AFTER, text.parse().unwrap())]);
            assert_eq!(classify(429, &headers, b"", now()).retry_after, expected, "{text}");
        }
    }

    #[test]
    fn a_long_body_is_cut() {
        let long = "x".repeat(3 * ERROR_BODY_BYTES_MAX);
        assert_eq!(fault(500, &long).message.len(), ERROR_BODY_BYTES_MAX);
    }
}
