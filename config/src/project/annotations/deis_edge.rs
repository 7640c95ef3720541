//! Annotations of the router's Deployment about all connections: TLS, the PROXY protocol, the size of request heads,
//! the access log; and about requests for unknown hosts.

use std::net::IpAddr;
use std::sync::Arc;

use rustls::CipherSuite;

use super::cipher_list::{cipher_list, is_tls13};
use super::deis_value::{one_of, positive, size};
use crate::model::{ConnectionsMax, EdgeSettings, LogFormat, RequestHeadLimits, TlsSettings, TlsVersions};
use crate::project::field::FindingList;
use crate::project::raw_object::annotation_field;

pub(super) const PROTOCOLS: [&str; 6] = ["SSLv2", "SSLv3", "TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3"];

/// The buffers of nginx for a request head: their number and their size in bytes.
const HEAD_BUFFERS: usize = 4;
const HEAD_BUFFER_BYTES: usize = 32 * 1024;

/// The maximum number of buffers, and the largest head: the memory that every client can occupy.
const HEAD_BUFFERS_MAX: usize = 64;
const HEAD_BYTES_MAX: usize = 512 * 1024;

/// The least allowed limit of a line, and of a head.
const LINE_BYTES_MIN: usize = 1024;
const HEAD_BYTES_MIN: usize = 4 * 1024;

/// The least allowed number of connections: with fewer an edge could not serve several clients at once.
const CONNECTIONS_MIN: u32 = 64;

/// The values of the annotations about all connections.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Edge {
    pub(super) proxy_protocol: Option<bool>,
    pub(super) protocols: Option<Named<TlsVersions>>,
    pub(super) ciphers: Option<Named<Box<[CipherSuite]>>>,
    pub(super) tickets: Option<bool>,
    pub(super) http2: Option<bool>,
    pub(super) head_buffers: Option<usize>,
    pub(super) head_buffer_bytes: Option<usize>,
    pub(super) log_format: Option<Arc<LogFormat>>,
    pub(super) early_data: Option<Box<[Box<str>]>>,
    pub(super) connections: Option<u32>,
    pub(super) workers: Option<Option<u32>>,
}

/// The value of a list, and its unsupported entries, each once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Named<T> {
    pub(super) value: T,
    pub(super) gone: Vec<String>,
}

/// Versions of TLS between spaces.
pub(super) fn protocols(text: &str) -> Result<Named<TlsVersions>, String> {
    let mut gone = Vec::new();
    let (mut has12, mut has13) = (false, false);
    for word in text.split_whitespace() {
        match one_of(word, &PROTOCOLS)? {
            "TLSv1.2" => has12 = true,
            "TLSv1.3" => has13 = true,
            old => gone.push(old.to_owned()),
        }
    }
    let value = match (has12, has13) {
        (true, true) => TlsVersions::Both,
        (true, false) => TlsVersions::Only12,
        (false, true) => TlsVersions::Only13,
        (false, false) => return Err("names neither TLSv1.2 nor TLSv1.3".to_owned()),
    };
    Ok(Named { value, gone })
}

/// A cipher list of OpenSSL; an empty one stands for the library's own.
pub(super) fn ciphers(text: &str) -> Result<Named<Box<[CipherSuite]>>, String> {
    if text.trim().is_empty() { Ok(Named { value: Box::default(), gone: Vec::new() }) } else { cipher_list(text) }
}

/// The number of buffers for a head.
pub(super) fn buffers(text: &str) -> Result<usize, String> {
    let number = usize::try_from(positive(text)?).ok().filter(|number| *number <= HEAD_BUFFERS_MAX);
    number.ok_or_else(|| format!("is more than {HEAD_BUFFERS_MAX}"))
}

/// The size of one buffer.
pub(super) fn buffer_size(text: &str) -> Result<usize, String> {
    match usize::try_from(size(text, true)?) {
        // nginx accepts as much in any case, and no request fits into less.
        Ok(..LINE_BYTES_MIN) => Err("is less than 1k".to_owned()),
        Ok(bytes @ ..=HEAD_BYTES_MAX) => Ok(bytes),
        Ok(_) | Err(_) => Err("is more than 512k".to_owned()),
    }
}

/// The maximum number of connections per worker.
pub(super) fn connections(text: &str) -> Result<u32, String> {
    let number = u32::try_from(positive(text)?).map_err(|_| "is too large".to_owned())?;
    if number < CONNECTIONS_MIN { Err(format!("is less than {CONNECTIONS_MIN}")) } else { Ok(number) }
}

/// The number of workers; `None` for that of the process.
pub(super) fn workers(text: &str) -> Result<Option<u32>, String> {
    match text {
        "auto" => Ok(None),
        number => u32::try_from(positive(number)?).map(Some).map_err(|_| "is too large".to_owned()),
    }
}

/// Methods separated by bars, each in upper case; an empty text for none.
pub(super) fn methods(text: &str) -> Result<Box<[Box<str>]>, String> {
    const METHODS: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"];
    if text.is_empty() {
        return Ok(Box::default());
    }
    text.split('|').map(|word| one_of(word, &METHODS).map(Box::from)).collect()
}

/// The format of a line of the access log, by name or as text.
pub(super) fn log_format(text: &str) -> Result<Arc<LogFormat>, String> {
    LogFormat::named(text).map_or_else(|| LogFormat::parse(text), Ok).map(Arc::new)
}

impl Edge {
    /// The settings of all connections, with findings about unsupported entries of lists.
    pub(super) fn settings(self, findings: &mut FindingList) -> EdgeSettings {
        let mut report = |key: &str, gone: Vec<String>, why: &str| {
            if !gone.is_empty() {
                findings.without_effect(
                    &annotation_field(&format!("router.deis.io/nginx.{key}")),
                    &gone.join(" "),
                    why,
                );
            }
        };
        let versions = self.protocols.map(|Named { value, gone }| {
            report("ssl.protocols", gone, "versions before TLSv1.2 are not supported (RFC 8996)");
            value
        });
        let suites = self.ciphers.map(|Named { value, gone }| {
            report(
                "ssl.ciphers",
                gone,
                "cipher suites without forward secrecy or authenticated encryption are not supported",
            );
            value
        });
        let versions = versions.unwrap_or_default();
        let serves = |suite: &CipherSuite| match versions {
            TlsVersions::Both => true,
            TlsVersions::Only12 => !is_tls13(*suite),
            TlsVersions::Only13 => is_tls13(*suite),
        };
        let suites = suites.filter(|suites| !suites.is_empty());
        let useless = suites.as_deref().filter(|suites| !suites.iter().any(serves));
        if let Some(useless) = useless {
            let named = useless.iter().filter_map(|suite| suite.as_str()).map(str::to_owned).collect();
            report(
                "ssl.ciphers",
                named,
                "none of them belongs to a version in ssl.protocols, so all suites of those versions apply",
            );
        }
        let line = self.head_buffer_bytes.unwrap_or(HEAD_BUFFER_BYTES);
        let whole =
            line.saturating_mul(self.head_buffers.unwrap_or(HEAD_BUFFERS)).clamp(HEAD_BYTES_MIN, HEAD_BYTES_MAX);
        let usual = TlsSettings::default();
        EdgeSettings {
            proxy_protocol: self.proxy_protocol.unwrap_or_default(),
            request_head: RequestHeadLimits { line_bytes_max: Some(line), bytes_max: Some(whole) },
            tls: TlsSettings {
                versions,
                cipher_suites: suites.filter(|suites| suites.iter().any(serves)),
                tickets: self.tickets.unwrap_or(usual.tickets),
                http2: self.http2.unwrap_or(usual.http2),
                early_data: self.early_data.filter(|methods| !methods.is_empty()),
            },
            log_format: self.log_format,
            connections_max: self
                .connections
                .map(|per_worker| ConnectionsMax { per_worker, workers: self.workers.flatten() }),
        }
    }
}

/// The values of the annotations about requests for unknown hosts.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct DefaultService {
    pub(super) enabled: Option<bool>,
    pub(super) address: Option<IpAddr>,
    pub(super) name: Option<Arc<str>>,
}

impl DefaultService {
    /// The destination of those requests, and its name in reports.
    pub(super) fn settings(self, findings: &mut FindingList) -> Option<(IpAddr, Arc<str>)> {
        if self.enabled != Some(true) {
            return None;
        }
        if self.address.is_none() {
            let field = annotation_field("router.deis.io/nginx.defaultServiceEnabled");
            findings.without_effect(&field, "true", "there is no valid defaultServiceIP");
        }
        Some((self.address?, self.name.filter(|name| !name.is_empty()).unwrap_or_else(|| "default-service".into())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::{Kind, ObjectName, ObjectRef};

    #[test]
    fn versions_before_1_2_are_dropped() {
        let check = |text, want: Result<(TlsVersions, &str), &str>| {
            let got = protocols(text).map(|named| (named.value, named.gone.join(" ")));
            let got = got.as_ref().map(|(value, gone)| (*value, gone.as_str())).map_err(String::as_str);
            assert_eq!(got, want, "{text:?}");
        };
        check("TLSv1.2 TLSv1.3", Ok((TlsVersions::Both, "")));
        check("TLSv1 TLSv1.1 TLSv1.2", Ok((TlsVersions::Only12, "TLSv1 TLSv1.1")));
        check(" TLSv1.3 ", Ok((TlsVersions::Only13, "")));
        check("SSLv3", Err("names neither TLSv1.2 nor TLSv1.3"));
        check("", Err("names neither TLSv1.2 nor TLSv1.3"));
        check("TLSv1.4", Err("is not one of SSLv2, SSLv3, TLSv1, TLSv1.1, TLSv1.2, TLSv1.3"));
    }

    #[test]
    fn a_version_without_a_listed_cipher_suite_gets_all_of_its_suites() {
        let edge = |versions: &str, list: &str| {
            let (protocols, ciphers) = (protocols(versions).ok(), ciphers(list).ok());
            let mut findings =
                FindingList::new(ObjectRef::new(Kind::Deployment, ObjectName::new("deis", "deis-router")));
            let tls = Edge { protocols, ciphers, ..Edge::default() }.settings(&mut findings).tls;
            (tls.cipher_suites.is_some(), findings.into_findings().len())
        };
        assert_eq!(edge("TLSv1.2", "TLS_AES_128_GCM_SHA256"), (false, 1));
        assert_eq!(
            edge("TLSv1.3", "!TLS_AES_128_GCM_SHA256:!TLS_AES_256_GCM_SHA384:!TLS_CHACHA20_POLY1305_SHA256:HIGH"),
            (false, 1)
        );
        assert_eq!(edge("TLSv1.3", "HIGH"), (true, 0));
        assert_eq!(edge("TLSv1.2", ""), (false, 0));
    }

    #[test]
    fn the_connection_limit_is_per_worker() {
        let check = |per_worker: &str, number: &str, want: Option<u64>| {
            let (connections, workers) = (connections(per_worker).ok(), workers(number).ok());
            let mut findings =
                FindingList::new(ObjectRef::new(Kind::Deployment, ObjectName::new("deis", "deis-router")));
            let edge = Edge { connections, workers, ..Edge::default() }.settings(&mut findings);
            assert_eq!(edge.connections_max.map(|max| max.in_all(4)), want, "{per_worker} of {number}");
        };
        check("768", "auto", Some(4 * 768));
        check("768", "2", Some(2 * 768));
        check("768", "none", Some(4 * 768));
        check("63", "auto", None);
        check("4294967295", "4294967295", Some(u64::from(u32::MAX) * u64::from(u32::MAX)));
        assert_eq!(connections("4294967296"), Err("is too large".to_owned()));
        assert_eq!(workers("0"), Err("is not a whole number from 1".to_owned()));
    }

    #[test]
    fn head_sizes_are_limited() {
        assert_eq!(buffers("65"), Err("is more than 64".to_owned()));
        assert_eq!(buffer_size("1m"), Err("is more than 512k".to_owned()));
        assert_eq!(buffer_size("32"), Err("is less than 1k".to_owned()));
        assert_eq!(buffer_size("0"), Err("is less than 1k".to_owned()));
        let most = Edge { head_buffers: Some(64), head_buffer_bytes: Some(HEAD_BYTES_MAX), ..Edge::default() };
        let object = crate::object::ObjectRef::new(
            crate::object::Kind::Deployment,
            crate::object::ObjectName::new("deis", "deis-router"),
        );
        let settings = most.settings(&mut FindingList::new(object));
        assert_eq!(settings.request_head.bytes_max, Some(HEAD_BYTES_MAX));
    }
}
