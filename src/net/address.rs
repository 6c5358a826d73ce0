//! Which addresses lead inside.

use std::error::Error;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use url::{Host, Url};

/// Whether addresses are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guard {
    /// What its name stands for is judged too.
    Up,
    /// The configuration allows this host by name.
    Down,
}

/// A host that only this machine or its network knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrivateAddress(pub(super) String);

impl fmt::Display for PrivateAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is a private address and not in `security.allow_hosts`", self.0)
    }
}

impl Error for PrivateAddress {}

/// How `url` may be reached. `allow_hosts` are the names, or names with ports, that may lead
/// anywhere.
pub fn guard_for(url: &Url, allow_hosts: &[String]) -> Result<Guard, PrivateAddress> {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']).to_owned();
    let with_port = format!("{host}:{}", url.port_or_known_default().unwrap_or(0));
    if allow_hosts.iter().any(|it| *it == host || *it == with_port) {
        return Ok(Guard::Down);
    }
    // An address needs no lookup. However it was written (decimal, octal, hexadecimal, short), the
    // parser of URLs has made an address of it.
    let address = match url.host() {
        Some(Host::Ipv4(address)) => Some(IpAddr::from(address)),
        Some(Host::Ipv6(address)) => Some(IpAddr::from(address)),
        Some(Host::Domain(_)) | None => None,
    };
    match address {
        Some(address) if leads_inside(address) => Err(PrivateAddress(host)),
        Some(_) | None => Ok(Guard::Up),
    }
}

/// Whether an address leads to this machine, its network, or nowhere.
pub fn leads_inside(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => leads_inside_v4(address),
        IpAddr::V6(address) => leads_inside_v6(address),
    }
}

fn leads_inside_v4(address: Ipv4Addr) -> bool {
    let [first, second, third, _] = address.octets();
    let shared = first == 100 && (64..128).contains(&second);
    let of_protocols = (first, second, third) == (192, 0, 0);
    let for_benchmarks = first == 198 && (18..20).contains(&second);
    address.is_loopback()
        || address.is_private()
        || address.is_link_local()
        || address.is_multicast()
        || address.is_documentation()
        || shared
        || of_protocols
        || for_benchmarks
        || first == 0
        // Reserved, and broadcast.
        || first >= 240
}

fn leads_inside_v6(address: Ipv6Addr) -> bool {
    let site_local = address.segments()[0] & 0xffc0 == 0xfec0;
    address.is_loopback()
        || address.is_unspecified()
        || address.is_unique_local()
        || address.is_unicast_link_local()
        || address.is_multicast()
        || site_local
        || inner_v4(address).is_some_and(leads_inside_v4)
}

/// The IPv4 address that is written inside of one of IPv6, for hosts and translators that take it
/// out again.
fn inner_v4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let v4 = |high: u16, low: u16| Ipv4Addr::from(u32::from(high) << 16 | u32::from(low));
    match address.segments() {
        // Mapped and compatible (`::1` and `::` are judged before), ISATAP, NAT64 with its two
        // prefixes, and 6to4.
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low]
        | [_, _, _, _, 0 | 0x200, 0x5efe, high, low]
        | [0x64, 0xff9b, 0 | 1, _, _, _, high, low]
        | [0x2002, high, low, ..] => Some(v4(high, low)),
        // Teredo: the client, with its bits turned over.
        [0x2001, 0, _, _, _, _, high, low] => Some(v4(!high, !low)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // semantics §10: loopback, private and link-local targets are refused, however written.
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
            "192.0.0.192",
            "198.18.0.1",
            "192.0.2.1",
            "240.0.0.1",
            "255.255.255.255",
            "::1",
            "::",
            "::127.0.0.1",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "::ffff:10.0.0.1",
            "64:ff9b::a00:1",
            "64:ff9b:1::a00:1",
            "2002:7f00:1::",
            "2001:0:1:2:3:4:80ff:fffe",
            "2001:db8::5efe:10.0.0.1",
        ] {
            assert!(leads_inside(inside.parse().unwrap()), "{inside}");
        }
        for outside in [
            "1.1.1.1",
            "172.32.0.1",
            "100.128.0.1",
            "198.20.0.1",
            "2606:4700::1",
            "::ffff:1.1.1.1",
            "64:ff9b::101:101",
            "2002:101:101::",
        ] {
            assert!(!leads_inside(outside.parse().unwrap()), "{outside}");
        }
    }

    #[test]
    fn an_address_is_judged_however_it_is_written_and_allowed_by_name_and_port() {
        let judged = |url: &str, allowed: &[&str]| {
            let allowed: Vec<_> = allowed.iter().map(|&it| it.to_owned()).collect();
            guard_for(&Url::parse(url).unwrap(), &allowed)
        };
        for url in [
            "http://127.0.0.1/",
            "http://2130706433/",
            "http://0x7f000001/",
            "http://0177.0.0.1/",
            "http://127.1/",
            "http://[::1]/",
            "http://[::ffff:127.0.0.1]/",
            "http://[64:ff9b::7f00:1]/",
            "http://169.254.169.254/latest/meta-data/",
            "http://１２７.0.0.1/",
        ] {
            assert!(judged(url, &[]).is_err(), "{url}");
        }
        // A name is judged when it has been looked up.
        assert_eq!(judged("http://localhost/", &[]), Ok(Guard::Up));
        assert_eq!(judged("http://127.0.0.1:80/", &["127.0.0.1"]), Ok(Guard::Down));
        assert_eq!(judged("http://127.0.0.1/", &["127.0.0.1:80"]), Ok(Guard::Down));
        assert!(judged("http://127.0.0.1:81/", &["127.0.0.1:80", "127.0.0"]).is_err());
        assert_eq!(judged("http://[::1]:8/", &["::1"]), Ok(Guard::Down));
    }
}
