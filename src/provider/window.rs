//! How much a server says that its model can take in at once.

use std::time::Duration;

use reqwest::header::{ACCEPT, HeaderValue};
use reqwest::{Client, RequestBuilder};
use serde_json::{Value, json};
use tokio::time::timeout;
use url::Url;

use super::http::Endpoint;
use super::parser::Api;

/// More of an answer is not read: a list of models is far shorter.
const ANSWER_BYTES_MAX: usize = 4 << 20;

/// The most that an Ollama server is asked to hold ready where nobody has said how much, in tokens.
/// Its models could take more, and need memory for all that they could take.
const OLLAMA_WINDOW_MAX: u64 = 32_768;

/// The window of `model` in tokens, if the server at `endpoint` tells it within `limit`. No model is
/// asked anything, and none is loaded for it.
pub async fn served_window(
    client: &Client,
    api: Api,
    endpoint: &Endpoint,
    model: &str,
    limit: Duration,
) -> Option<u64> {
    let asked = async {
        match api {
            Api::Ollama => of_ollama(client, endpoint, model).await,
            Api::OpenAi => match of_list(client, endpoint, model).await {
                Some(window) => Some(window),
                None => of_properties(client, endpoint, model).await,
            },
            Api::Anthropic => None,
        }
    };
    timeout(limit, asked).await.ok().flatten().filter(|&it| it > 0)
}

async fn of_ollama(client: &Client, endpoint: &Endpoint, model: &str) -> Option<u64> {
    let path: &[&str] = if endpoint.ends_with("api") { &["show"] } else { &["api", "show"] };
    let request = client.post(endpoint.url(path)).json(&json!({"model": model}));
    ollama_window(&answer(endpoint, request).await?)
}

/// What its description sets, else what it was made for.
fn ollama_window(shown: &Value) -> Option<u64> {
    let lines = shown["parameters"].as_str().unwrap_or_default().lines();
    let mut set = lines.filter_map(|line| {
        let (name, value) = line.trim().split_once(char::is_whitespace)?;
        (name == "num_ctx").then(|| value.trim().parse().ok())?
    });
    let made_for = || {
        let facts = shown["model_info"].as_object()?;
        let fact = facts.iter().find(|(name, _)| name.ends_with(".context_length"))?;
        Some(fact.1.as_u64()?.min(OLLAMA_WINDOW_MAX))
    };
    set.next_back().or_else(made_for)
}

/// vLLM and many others say it in their list of models.
async fn of_list(client: &Client, endpoint: &Endpoint, model: &str) -> Option<u64> {
    let request = client.get(endpoint.url(&["models"]));
    listed_window(&answer(endpoint, request).await?, model)
}

fn listed_window(list: &Value, model: &str) -> Option<u64> {
    let models = list["data"].as_array()?;
    let entry = match models.iter().find(|it| it["id"] == model) {
        Some(entry) => entry,
        // A server of one model answers to any name.
        None if models.len() == 1 => &models[0],
        None => return None,
    };
    // What a model was trained for (`n_ctx_train`) is not what is served.
    let keys = ["max_model_len", "context_length", "context_window", "max_context_length"];
    let said = keys.iter().find_map(|key| entry[key].as_u64());
    said.or_else(|| entry["meta"]["n_ctx"].as_u64())
}

/// llama.cpp says it beside its API.
async fn of_properties(client: &Client, endpoint: &Endpoint, model: &str) -> Option<u64> {
    let request = client.get(properties_url(endpoint, model));
    properties_window(&answer(endpoint, request).await?)
}

fn properties_url(endpoint: &Endpoint, model: &str) -> Url {
    let mut url = endpoint.base_url.clone();
    if let Ok(mut segments) = url.path_segments_mut() {
        segments.pop_if_empty();
        if endpoint.ends_with("v1") {
            segments.pop();
        }
        segments.push("props");
    }
    url.query_pairs_mut().append_pair("model", model).append_pair("autoload", "false");
    url
}

fn properties_window(properties: &Value) -> Option<u64> {
    let of_slot = &properties["default_generation_settings"]["n_ctx"];
    of_slot.as_u64().or_else(|| properties["n_ctx"].as_u64())
}

async fn answer(endpoint: &Endpoint, request: RequestBuilder) -> Option<Value> {
    let headers = endpoint.bearer().ok()?;
    let request = request.header(ACCEPT, HeaderValue::from_static("application/json"));
    let mut response = request.headers(headers).send().await.ok()?.error_for_status().ok()?;
    let mut body = Vec::new();
    while let Some(piece) = response.chunk().await.ok()? {
        body.extend_from_slice(&piece);
        if body.len() > ANSWER_BYTES_MAX {
            return None;
        }
    }
    serde_json::from_slice(&body).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_server_tells_it_in_its_own_place() {
        let info = json!({"general.architecture": "qwen3", "qwen3.context_length": 262_144});
        let table = [
            (ollama_window(&json!({"model_info": info})), Some(32_768)),
            (
                ollama_window(&json!({
                    "model_info": info,
                    "parameters": "stop  \"<|im_end|>\"\nnum_ctx                        65536",
                })),
                Some(65_536),
            ),
            (ollama_window(&json!({"model_info": {"llama.context_length": 4096}})), Some(4_096)),
            (ollama_window(&json!({})), None),
            (
                listed_window(
                    &json!({"data": [{"id": "a", "max_model_len": 1}, {"id": "m", "max_model_len": 9}]}),
                    "m",
                ),
                Some(9),
            ),
            (listed_window(&json!({"data": [{"id": "x", "context_length": 7}]}), "m"), Some(7)),
            (
                listed_window(
                    &json!({"data": [{"id": "m", "meta": {"n_ctx_train": 9, "n_ctx": 5}}]}),
                    "m",
                ),
                Some(5),
            ),
            (listed_window(&json!({"data": [{"id": "m", "meta": {"n_ctx_train": 9}}]}), "m"), None),
            (listed_window(&json!({"data": [{"id": "a"}, {"id": "b"}]}), "m"), None),
            (listed_window(&json!([]), "m"), None),
            (
                properties_window(&json!({"default_generation_settings": {"n_ctx": 8192}})),
                Some(8_192),
            ),
            (properties_window(&json!({"n_ctx": 1024})), Some(1_024)),
            (properties_window(&json!(null)), None),
        ];
        for (at, (found, expected)) in table.into_iter().enumerate() {
            assert_eq!(found, expected, "{at}");
        }
    }

    #[test]
    fn properties_are_beside_the_api() {
        for base in ["http://h:1/v1", "http://h:1/", "http://h:1/v1/"] {
            let endpoint = Endpoint::new(Url::parse(base).unwrap());
            let url = properties_url(&endpoint, "a b");
            assert_eq!(url.as_str(), "http://h:1/props?model=a+b&autoload=false");
        }
    }
}
