//! Whether a model runs here: the idle window depends on it (semantics §3).
//!
//! Judged from the text of the base URL alone. A lookup would make the answer depend on the
//! network, and could block.

use std::net::{Ipv4Addr, Ipv6Addr};

use url::{Host, Url};

/// Where a model runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Locality {
    /// On this machine or its private network.
    Local,
    /// On a host that only a private resolver knows; counts as local in scheduled runs.
    SelfHosted,
    /// Anywhere else.
    Cloud,
}

impl Locality {
    /// The locality of `model` at provider `provider` (its id; may be empty), whose base URL is
    /// `base_url`. What does not parse counts as cloud.
    pub fn of(base_url: &str, provider: &str, model: &str) -> Self {
        let may_relay = provider.is_empty() || provider.starts_with("ollama");
        if may_relay && model.ends_with(":cloud") {
            return Self::Cloud;
        }
        let url = Url::parse(base_url.trim()).ok();
        match url
            .as_ref()
            .filter(|url| matches!(url.scheme(), "http" | "https"))
            .and_then(Url::host)
        {
            Some(Host::Domain(name)) => of_name(name),
            Some(Host::Ipv4(address)) if is_local_v4(address) => Self::Local,
            Some(Host::Ipv6(address)) if is_local_v6(address) => Self::Local,
            Some(Host::Ipv4(_) | Host::Ipv6(_)) | None => Self::Cloud,
        }
    }
}

/// `name` is in lower case: the URL parser sees to it.
fn of_name(name: &str) -> Locality {
    let name = name.strip_suffix('.').unwrap_or(name);
    match name {
        "localhost" => Locality::Local,
        "host.docker.internal" | "docker.orb.internal" | "host.orb.internal" => {
            Locality::SelfHosted
        }
        _ if name.strip_suffix(".local").is_some_and(|host| !host.is_empty()) => Locality::Local,
        _ if name.contains('.') => Locality::Cloud,
        _ => Locality::SelfHosted,
    }
}

fn is_local_v4(address: Ipv4Addr) -> bool {
    let [first, second, ..] = address.octets();
    let shared = first == 100 && (64..128).contains(&second);
    address.is_unspecified() || address.is_loopback() || address.is_private() || shared
}

fn is_local_v6(address: Ipv6Addr) -> bool {
    address.is_loopback()
        || address.is_unique_local()
        || address.is_unicast_link_local()
        || address.to_ipv4_mapped().is_some_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::Locality::{self, Cloud, Local, SelfHosted};

    #[test]
    fn the_host_decides() {
        let table = [
            ("localhost", Local),
            ("LOCALHOST", Local),
            ("localhost.", Local),
            ("0.0.0.0", Local),
            ("127.0.0.1", Local),
            ("127.255.0.2", Local),
            ("10.0.0.5", Local),
            ("172.16.5.10", Local),
            ("172.31.255.255", Local),
            ("172.15.0.1", Cloud),
            ("172.32.0.1", Cloud),
            ("192.168.1.20", Local),
            ("192.169.1.20", Cloud),
            ("100.64.0.5", Local),
            ("100.127.255.255", Local),
            ("100.128.0.1", Cloud),
            ("100.63.0.1", Cloud),
            ("my-rig.local", Local),
            ("[::1]", Local),
            ("[::ffff:127.0.0.1]", Local),
            ("[::ffff:10.0.0.1]", Cloud),
            ("[fd00::1]", Local),
            ("[fc00::1]", Local),
            ("[fe80::1]", Local),
            ("[febf::1]", Local),
            ("[fec0::1]", Cloud),
            ("[2001:db8::1]", Cloud),
            ("host.docker.internal", SelfHosted),
            ("docker.orb.internal", SelfHosted),
            ("host.orb.internal", SelfHosted),
            ("ollama-host", SelfHosted),
            ("other.docker.internal", Cloud),
            ("10.0.0.5.evil.com", Cloud),
            ("localhost.evil.com", Cloud),
            ("api.openai.com", Cloud),
        ];
        for (host, expected) in table {
            let url = format!("http://{host}:8080/v1");
            assert_eq!(Locality::of(&url, "local", "m"), expected, "{url}");
        }
    }

    #[test]
    fn what_does_not_parse_is_cloud() {
        for text in ["", "127.0.0.1", "localhost:8080/v1", "http://", "http://[::1", "file:///x"] {
            assert_eq!(Locality::of(text, "local", "m"), Cloud, "{text:?}");
        }
    }

    #[test]
    fn a_cloud_model_behind_a_local_relay_is_cloud() {
        let table = [
            ("", "x:cloud", Cloud),
            ("ollama", "x:cloud", Cloud),
            ("ollama-2", "x:cloud", Cloud),
            ("local", "x:cloud", Local),
            ("ollama", "x:cloudy", Local),
            ("ollama", "cloud", Local),
        ];
        for (provider, model, expected) in table {
            let found = Locality::of("http://127.0.0.1:11434", provider, model);
            assert_eq!(found, expected, "{provider:?} {model}");
        }
    }
}
