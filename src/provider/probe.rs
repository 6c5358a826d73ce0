//! Whether a server of models is there.

use std::time::Duration;

use reqwest::Client;
use tokio::net::TcpStream;
use tokio::time::timeout;
use url::Url;

use super::http::{Endpoint, chain};
use super::parser::Api;

/// What is kept back of the limit for a bare connection.
const CONNECT: Duration = Duration::from_millis(500);

/// How much of the list is read, so that the connection can be used again.
const LIST_BYTES_MAX: usize = 1 << 16;

/// Asks the server at `base_url` for its models, without a key. Whatever it answers, it can be
/// reached; one that is silent can be reached if it accepts a connection. Otherwise it says why
/// not, within `limit`.
pub async fn probe(
    client: &Client,
    api: Api,
    base_url: &Url,
    limit: Duration,
) -> Result<(), String> {
    let list = read_list(client, models_url(api, base_url));
    match timeout(limit.saturating_sub(CONNECT), list).await {
        Ok(Err(error)) if error.is_connect() => Err(chain(error)),
        Ok(Ok(()) | Err(_)) => Ok(()),
        Err(_) => connect(base_url).await,
    }
}

async fn read_list(client: &Client, url: Url) -> reqwest::Result<()> {
    let mut response = client.get(url).send().await?;
    let mut read = 0;
    while let Some(piece) = response.chunk().await? {
        read += piece.len();
        if read > LIST_BYTES_MAX {
            break;
        }
    }
    Ok(())
}

async fn connect(base_url: &Url) -> Result<(), String> {
    let place = (base_url.host_str(), base_url.port_or_known_default());
    let (Some(host), Some(port)) = place else { return Err("the URL names no host".into()) };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    match timeout(CONNECT, TcpStream::connect((host, port))).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("it accepts no connection in time".into()),
    }
}

fn models_url(api: Api, base_url: &Url) -> Url {
    let endpoint = Endpoint::new(base_url.clone());
    let path: &[&str] = match api {
        Api::OpenAi => &["models"],
        Api::Anthropic if endpoint.ends_with("v1") => &["models"],
        Api::Anthropic => &["v1", "models"],
        Api::Ollama if endpoint.ends_with("api") => &["tags"],
        Api::Ollama => &["api", "tags"],
    };
    endpoint.url(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_api_has_its_list_of_models() {
        let table = [
            (Api::OpenAi, "http://h:1/v1", "http://h:1/v1/models"),
            (Api::Anthropic, "http://h:1", "http://h:1/v1/models"),
            (Api::Anthropic, "http://h:1/v1", "http://h:1/v1/models"),
            (Api::Ollama, "http://h:1", "http://h:1/api/tags"),
            (Api::Ollama, "http://h:1/api", "http://h:1/api/tags"),
        ];
        for (api, base, expected) in table {
            assert_eq!(models_url(api, &Url::parse(base).unwrap()).as_str(), expected);
        }
    }
}
