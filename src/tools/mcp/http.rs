//! The way to a server that runs already.
//!
//! Who configures an address means it: a private one, or one on this machine, is reached like any
//! other. What is near is reached without a proxy.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{HeaderName, HeaderValue};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::common::client_side_sse::ExponentialBackoff;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use secrecy::{ExposeSecret as _, SecretString};

use super::wire::MESSAGE_BYTES_MAX;
use crate::provider::{Locality, Proxies, http_client};

/// What there is to say of an error page.
const ERROR_BYTES_MAX: usize = 4 * 1024;

/// A stream that breaks is opened again so often in a row.
const RECONNECTS_MAX: usize = 3;

/// The first wait before that; it doubles.
const RECONNECT_AFTER: Duration = Duration::from_millis(500);

/// A connection that is not made yet.
pub(super) fn transport(
    url: &SecretString,
    token: Option<&SecretString>,
    headers: &[(String, SecretString)],
) -> Result<StreamableHttpClientTransport<reqwest::Client>, String> {
    let url = url.expose_secret().trim();
    let proxies = match Locality::of(url, "", "") {
        Locality::Local => Proxies::None,
        Locality::SelfHosted | Locality::Cloud => Proxies::OfEnvironment,
    };
    let client = http_client(proxies).map_err(|error| error.to_string())?;
    let mut more = HashMap::new();
    for (name, value) in headers {
        let header = HeaderName::try_from(name.as_str()).ok();
        let value = HeaderValue::try_from(value.expose_secret().trim()).ok();
        let (Some(header), Some(mut value)) = (header, value) else {
            return Err(format!("`{name}` is no header"));
        };
        value.set_sensitive(true);
        more.insert(header, value);
    }
    let mut retry = ExponentialBackoff::default();
    retry.max_times = Some(RECONNECTS_MAX);
    retry.base_duration = RECONNECT_AFTER;
    let mut config = StreamableHttpClientTransportConfig::with_uri(url)
        .custom_headers(more)
        .max_sse_event_size(MESSAGE_BYTES_MAX)
        .max_json_response_size(MESSAGE_BYTES_MAX)
        .max_error_response_size(ERROR_BYTES_MAX);
    config.retry_config = Arc::new(retry);
    if let Some(token) = token {
        config = config.auth_header(token.expose_secret().trim());
    }
    Ok(StreamableHttpClientTransport::with_client(client, config))
}
