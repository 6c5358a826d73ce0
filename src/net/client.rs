//! Clients that go nowhere but where they may.

use std::error::Error;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use reqwest::Client;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::redirect::Policy;
use url::Url;

use super::address::{Guard, PrivateAddress, guard_for, leads_inside};
use crate::provider::{Proxies, install_crypto};

/// Connecting takes milliseconds; a machine that does not answer by then is away.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The clients for what others have named. They follow no redirect, keep no connection and repeat
/// nothing behind anybody's back. They are made when the first request needs them: reading the root
/// certificates takes a while, and most processes send nothing. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Clients {
    proxies: Proxies,
    /// Looks at each address.
    guarded: Arc<OnceLock<Client>>,
    /// For hosts that the configuration allows.
    open: Arc<OnceLock<Client>>,
}

/// Why there is no client for an address.
#[derive(Debug, thiserror::Error)]
pub enum NoWay {
    /// It leads inside.
    #[error(transparent)]
    Private(#[from] PrivateAddress),
    /// None could be made.
    #[error("no client for requests: {0}")]
    Client(#[source] reqwest::Error),
}

impl Clients {
    /// Clients that use these proxies on their way out. What a proxy looks up is judged by nobody
    /// here: an address that a model names goes without.
    pub fn new(proxies: Proxies) -> Self {
        Self { proxies, guarded: Arc::default(), open: Arc::default() }
    }

    /// The client for `url`; an error if that leads inside and is not among `allow_hosts`. A name
    /// is judged when the client looks it up: see [`private_in`].
    pub fn to(&self, url: &Url, allow_hosts: &[String]) -> Result<Client, NoWay> {
        let guard = guard_for(url, allow_hosts)?;
        let made = match guard {
            Guard::Up => &self.guarded,
            Guard::Down => &self.open,
        };
        if let Some(client) = made.get() {
            return Ok(client.clone());
        }
        let client = client(guard, self.proxies).map_err(NoWay::Client)?;
        Ok(made.get_or_init(|| client).clone())
    }
}

fn client(guard: Guard, proxies: Proxies) -> Result<Client, reqwest::Error> {
    install_crypto();
    let builder = || {
        let builder = Client::builder()
            .user_agent(concat!("punctual/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT_TIMEOUT)
            .redirect(Policy::none())
            // A connection that was kept may be dead, and then nobody knows what arrived.
            .pool_max_idle_per_host(0)
            .retry(reqwest::retry::never());
        match (guard, proxies) {
            (Guard::Up, Proxies::OfEnvironment) => builder.dns_resolver(Arc::new(PublicOnly)),
            (Guard::Up, Proxies::None) => builder.dns_resolver(Arc::new(PublicOnly)).no_proxy(),
            // A proxy is for the way out, not for what is near.
            (Guard::Down, _) => builder.no_proxy(),
        }
    };
    // A machine without root certificates can still reach what needs none.
    builder().build().or_else(|_| builder().tls_certs_only([]).build())
}

/// Looks names up as everybody does, and refuses those that lead inside. The connection is made to
/// what is returned here, so that no second lookup can say something else.
struct PublicOnly;

impl Resolve for PublicOnly {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let host = name.as_str().to_owned();
            let found = tokio::net::lookup_host((host.as_str(), 0)).await?.collect();
            let found = public(host, found)?;
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

/// All of what a name stands for, unless any of it leads inside: the other addresses of such a name
/// are no excuse.
fn public(host: String, found: Vec<SocketAddr>) -> Result<Vec<SocketAddr>, PrivateAddress> {
    if found.iter().any(|address| leads_inside(address.ip())) {
        return Err(PrivateAddress(host));
    }
    Ok(found)
}

fn causes(error: &reqwest::Error) -> impl Iterator<Item = &(dyn Error + 'static)> {
    std::iter::successors(error.source(), |&error| error.source())
}

/// The private address that a request was refused for, once its name was looked up.
pub fn private_in(error: &reqwest::Error) -> Option<&PrivateAddress> {
    causes(error).find_map(|cause| cause.downcast_ref())
}

/// What went wrong with its causes, without the address: that may be a key.
pub fn words_of(error: reqwest::Error) -> String {
    let error = error.without_url();
    causes(&error).fold(error.to_string(), |text, cause| {
        let cause = cause.to_string();
        if text.ends_with(&cause) { text } else { format!("{text}: {cause}") }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_one_address_inside_is_refused_whatever_its_others_are() {
        let at = |texts: &[&str]| texts.iter().map(|it| it.parse().unwrap()).collect::<Vec<_>>();
        let outside = at(&["1.1.1.1:0", "[2606:4700::1]:0"]);
        assert_eq!(public("h".into(), outside.clone()), Ok(outside));
        for mixed in [&["1.1.1.1:0", "127.0.0.1:0"], &["[fe80::1]:0", "1.1.1.1:0"]] {
            assert_eq!(public("h".into(), at(mixed)), Err(PrivateAddress("h".into())));
        }
    }

    #[tokio::test]
    async fn a_name_is_judged_by_the_lookup_that_the_connection_uses() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let port = listener.local_addr().unwrap().port();
        for host in ["localhost", "LOCALHOST"] {
            let url = Url::parse(&format!("http://{host}:{port}/")).unwrap();
            let client = Clients::new(Proxies::None).to(&url, &[]).unwrap();
            let error = client.get(url).send().await.unwrap_err();
            assert!(private_in(&error).is_some(), "{error:?}");
        }
        let nobody = listener.accept().unwrap_err();
        assert_eq!(nobody.kind(), std::io::ErrorKind::WouldBlock);
    }
}
