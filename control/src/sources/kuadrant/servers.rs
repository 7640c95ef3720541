//! The servers of URLs in policies: their hosts are looked up like the names of ExternalName Services, so that no
//! request waits for DNS, and an address that objects may not use is never connected to.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, LazyLock};

use tidegate_config::finding::Problem;
use tidegate_config::model::auth::CallServer;
use tidegate_config::model::{AppProtocol, Backend, BackendKey, Endpoint, Target, UpstreamTls, UpstreamVerification};
use tidegate_config::object::ObjectName;

use crate::attachment::Key;
use crate::sources::reader::Reader;

/// The limit of the requests in flight to one server of one namespace.
const REQUESTS_MAX: u32 = 64;

/// The refusal of a host or an address that the operator does not allow.
const NOT_ALLOWED: &str = "--policy-url-hosts does not allow it";

/// Certificates are verified with the system's authorities. One value, so that all servers share their TLS settings.
static BY_SYSTEM: LazyLock<Arc<UpstreamVerification>> =
    LazyLock::new(|| Arc::new(UpstreamVerification { authorities: None, names: Box::default() }));

/// A server with its addresses, and what its owner should know about them.
pub(super) struct FoundServer {
    pub(super) server: CallServer,
    pub(super) problems: Vec<Problem>,
}

/// Finds the addresses of a server for the policies of a namespace. Without any that may be used it has no target, and
/// no call is made.
pub(super) fn found(reader: &mut Reader<'_>, namespace: &Arc<str>, server: &CallServer) -> FoundServer {
    let host = &server.host;
    let hosts = &reader.options.policy_url_hosts;
    if !hosts.may_look_up(host) {
        let problem = Problem::AddressRefused { address: host.to_string(), why: NOT_ALLOWED.to_owned() };
        return FoundServer { server: server.clone(), problems: vec![problem] };
    }
    let (addresses, mut problems) = match host.parse::<IpAddr>() {
        Ok(address) => (vec![address], Vec::new()),
        Err(_name) => resolved(reader, host),
    };
    let mut endpoints = Vec::new();
    for address in addresses {
        let not_allowed = (!hosts.allows(host, Some(address))).then_some(NOT_ALLOWED);
        match reader.refusal(address, server.port).or(not_allowed) {
            None => endpoints.push(Endpoint::tcp(SocketAddr::new(address, server.port), None)),
            Some(why) => {
                let shown =
                    if **host == *address.to_string() { address.to_string() } else { format!("{address} of {host}") };
                problems.push(Problem::AddressRefused { address: shown, why: why.to_owned() });
            }
        }
    }
    endpoints.sort_unstable();
    endpoints.dedup();
    let target = (!endpoints.is_empty()).then(|| {
        let backend = BackendKey::tcp(ObjectName::new(Arc::clone(namespace), Arc::clone(host)), server.port);
        let fixed = Backend { requests_max: Some(REQUESTS_MAX), ..Backend::new(backend.clone(), endpoints.into()) };
        let protocol = if server.tls { AppProtocol::Https } else { AppProtocol::Http };
        let tls = server.tls.then(|| tls(reader, host));
        Arc::new(Target { backend, protocol, tls, fixed: Some(Arc::new(fixed)) })
    });
    FoundServer { server: CallServer { target, ..server.clone() }, problems }
}

fn resolved(reader: &mut Reader<'_>, host: &Arc<str>) -> (Vec<IpAddr>, Vec<Problem>) {
    reader.note(Key::of_name(host));
    let unresolved = |why: &str| vec![Problem::NameUnresolved { name: host.to_string(), why: why.to_owned() }];
    match reader.world().names.get(host) {
        // Soon there is an answer.
        None => (Vec::new(), Vec::new()),
        Some(Err(why)) => (Vec::new(), unresolved(why)),
        Some(Ok(addresses)) if addresses.is_empty() => (Vec::new(), unresolved("DNS has none")),
        Some(Ok(addresses)) => (addresses.to_vec(), Vec::new()),
    }
}

fn tls(reader: &Reader<'_>, host: &Arc<str>) -> UpstreamTls {
    let verification = match &reader.options.policy_authorities {
        // A target has either those of the system or others.
        None => Arc::clone(&BY_SYSTEM),
        Some(own) => Arc::new(UpstreamVerification { authorities: Some(own.clone()), names: Box::default() }),
    };
    UpstreamTls { server_name: Some(Arc::clone(host)), verification: Some(verification), client: None }
}
