//! One request to somebody outside, and what its answer means.
//!
//! Redirects are not followed, nothing is repeated behind our back, and a private address is
//! refused after its name was looked up, unless the configuration names it (semantics §10).

use std::error::Error;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::{HeaderMap, RETRY_AFTER};
use reqwest::redirect::Policy;
use reqwest::{Client, Response, StatusCode};
use url::{Host, Url};

use super::sent::Sent;
use crate::provider::install_crypto;

/// Connecting takes milliseconds; a machine that does not answer by then is away.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long the words of a refusal are waited for; its status is known by then.
const WORDS_TIMEOUT: Duration = Duration::from_secs(2);

/// How many of them are kept.
const WORDS_CHARS_MAX: usize = 200;

/// Sends requests. Its clients are made when the first request needs them: reading the root
/// certificates takes a while, and most processes send nothing.
#[derive(Debug, Clone, Default)]
pub(super) struct Http {
    /// Looks at each address.
    guarded: Arc<OnceLock<Client>>,
    /// For hosts that the configuration allows.
    open: Arc<OnceLock<Client>>,
}

/// A request to be made.
#[derive(Debug)]
pub(super) struct Request<'a> {
    pub(super) url: &'a str,
    pub(super) headers: HeaderMap,
    pub(super) body: Vec<u8>,
    /// From the connection to the answer.
    pub(super) timeout: Duration,
}

impl Http {
    /// Posts it and says what came of it.
    pub(super) async fn post(&self, request: Request<'_>, allow_hosts: &[String]) -> Sent {
        let Ok(url) = Url::parse(request.url.trim()) else {
            return Sent::Refused("its address is not a URL".into());
        };
        let client = match guard_for(&url, allow_hosts) {
            Ok(guard) => self.client(guard),
            Err(private) => return Sent::Refused(private.to_string()),
        };
        let client = match client {
            Ok(client) => client,
            Err(error) => return Sent::not_yet(format!("no client for requests: {error}")),
        };
        let posted = client
            .post(url)
            .headers(request.headers)
            .body(request.body)
            // Whatever is cut by this was connected, so that it may have arrived.
            .timeout(CONNECT_TIMEOUT + request.timeout)
            .send();
        match posted.await {
            Ok(response) => answered(response).await,
            Err(error) => unanswered(error),
        }
    }

    fn client(&self, guard: Guard) -> Result<Client, reqwest::Error> {
        let made = match guard {
            Guard::Up => &self.guarded,
            Guard::Down => &self.open,
        };
        if let Some(client) = made.get() {
            return Ok(client.clone());
        }
        let client = client(guard)?;
        Ok(made.get_or_init(|| client).clone())
    }
}

fn guard_for(url: &Url, allow_hosts: &[String]) -> Result<Guard, PrivateAddress> {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']).to_owned();
    let with_port = format!("{host}:{}", url.port_or_known_default().unwrap_or(0));
    if allow_hosts.iter().any(|it| *it == host || *it == with_port) {
        return Ok(Guard::Down);
    }
    // An address needs no lookup.
    let address = match url.host() {
        Some(Host::Ipv4(address)) => Some(IpAddr::from(address)),
        Some(Host::Ipv6(address)) => Some(IpAddr::from(address)),
        Some(Host::Domain(_)) | None => None,
    };
    match address {
        Some(address) if is_private(address) => Err(PrivateAddress(host)),
        Some(_) | None => Ok(Guard::Up),
    }
}

/// Whether addresses are looked at.
#[derive(Debug, Clone, Copy)]
enum Guard {
    Up,
    Down,
}

fn client(guard: Guard) -> Result<Client, reqwest::Error> {
    install_crypto();
    let builder = || {
        let builder = Client::builder()
            .user_agent(concat!("punctual/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT_TIMEOUT)
            .redirect(Policy::none())
            // A connection that was kept may be dead, and then nobody knows what arrived.
            .pool_max_idle_per_host(0)
            .retry(reqwest::retry::never());
        match guard {
            Guard::Up => builder.dns_resolver(Arc::new(PublicOnly)),
            // A proxy is for the way out, not for what is near.
            Guard::Down => builder.no_proxy(),
        }
    };
    // A machine without root certificates can still reach what needs none.
    builder().build().or_else(|_| builder().tls_certs_only([]).build())
}

/// A host that only this machine or its network knows.
#[derive(Debug)]
struct PrivateAddress(String);

impl fmt::Display for PrivateAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is a private address and not in `security.allow_hosts`", self.0)
    }
}

impl Error for PrivateAddress {}

/// Looks names up as everybody does, and refuses those that lead inside.
struct PublicOnly;

impl Resolve for PublicOnly {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let host = name.as_str().to_owned();
            let found: Vec<SocketAddr> =
                tokio::net::lookup_host((host.as_str(), 0)).await?.collect();
            if found.iter().any(|address| is_private(address.ip())) {
                return Err(Box::new(PrivateAddress(host)) as Box<dyn Error + Send + Sync>);
            }
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

/// Whether an address leads to this machine, its network, or nowhere.
fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_private_v4(address),
        IpAddr::V6(address) => is_private_v6(address),
    }
}

fn is_private_v4(address: Ipv4Addr) -> bool {
    let [first, second, ..] = address.octets();
    let shared = first == 100 && (64..128).contains(&second);
    address.is_loopback()
        || address.is_private()
        || address.is_link_local()
        || address.is_multicast()
        || address.is_broadcast()
        || shared
        || first == 0
}

fn is_private_v6(address: Ipv6Addr) -> bool {
    // An IPv4 address can be written inside of one of IPv6, also for translators.
    let [a, b, .., high, low] = address.segments();
    let translated = a == 0x64 && b == 0xff9b;
    let inner = translated.then(|| Ipv4Addr::from(u32::from(high) << 16 | u32::from(low)));
    address.is_loopback()
        || address.is_unspecified()
        || address.is_unique_local()
        || address.is_unicast_link_local()
        || address.is_multicast()
        || address.to_ipv4_mapped().or(inner).is_some_and(is_private_v4)
}

async fn answered(response: Response) -> Sent {
    let status = response.status();
    if status.is_success() {
        return Sent::Arrived;
    }
    if status.is_redirection() {
        return Sent::Refused(format!("answered {status}: redirects are not followed"));
    }
    let asked = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
    let after = asked.and_then(|text| text.trim().parse().ok()).map(Duration::from_secs);
    let words = words_of(response).await;
    let why = if words.is_empty() {
        format!("answered {status}")
    } else {
        format!("answered {status}: {words}")
    };
    if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS {
        Sent::NotYet { why, after }
    } else {
        Sent::Refused(why)
    }
}

async fn words_of(mut response: Response) -> String {
    let piece = tokio::time::timeout(WORDS_TIMEOUT, response.chunk()).await;
    let Ok(Ok(Some(bytes))) = piece else { return String::new() };
    let text = String::from_utf8_lossy(&bytes);
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    words.chars().take(WORDS_CHARS_MAX).collect()
}

fn unanswered(error: reqwest::Error) -> Sent {
    // Its address may be a key.
    let error = error.without_url();
    let causes = || std::iter::successors(error.source(), |&error| error.source());
    if let Some(private) = causes().find_map(|it| it.downcast_ref::<PrivateAddress>()) {
        return Sent::Refused(private.to_string());
    }
    let words = causes().fold(error.to_string(), |text, cause| {
        let cause = cause.to_string();
        if text.ends_with(&cause) { text } else { format!("{text}: {cause}") }
    });
    if error.is_connect() {
        Sent::not_yet(words)
    } else if error.is_builder() {
        Sent::Refused(words)
    } else {
        Sent::Lost(format!("no answer came: {words}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_lead_inside_are_known() {
        for inside in [
            "127.0.0.1",
            "127.9.9.9",
            "10.1.2.3",
            "172.31.0.1",
            "192.168.0.1",
            "169.254.169.254",
            "100.64.0.1",
            "0.0.0.0",
            "::1",
            "::",
            "fc00::1",
            "fe80::1",
            "::ffff:10.0.0.1",
            "64:ff9b::a00:1",
        ] {
            assert!(is_private(inside.parse().unwrap()), "{inside}");
        }
        for outside in ["1.1.1.1", "172.32.0.1", "100.128.0.1", "2606:4700::1", "::ffff:1.1.1.1"] {
            assert!(!is_private(outside.parse().unwrap()), "{outside}");
        }
    }

    #[tokio::test]
    async fn a_name_that_leads_inside_is_refused_after_the_lookup_and_allowed_by_name() {
        let http = Http::default();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        for host in ["localhost", "127.0.0.1", "2130706433", "[::1]", "[::ffff:127.0.0.1]"] {
            let url = format!("http://{host}:{port}/");
            let request = || Request {
                url: &url,
                headers: HeaderMap::new(),
                body: Vec::new(),
                timeout: Duration::from_secs(5),
            };
            let refused = http.post(request(), &[]).await;
            assert!(
                matches!(&refused, Sent::Refused(why) if why.contains("private")),
                "{refused:?}"
            );
        }
        // Allowed, it is asked, and nobody listens: nothing can have arrived.
        let url = format!("http://localhost:{port}/");
        for allowed in ["localhost".to_owned(), format!("localhost:{port}")] {
            let (headers, body, timeout) = (HeaderMap::new(), Vec::new(), Duration::from_secs(5));
            let sent = http.post(Request { url: &url, headers, body, timeout }, &[allowed]).await;
            assert!(matches!(sent, Sent::NotYet { .. }), "{sent:?}");
        }
    }
}
