//! Service (`v1`): the ports that are backends.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::annotations::deis::{self, DeisApp, DeisBuilder};
use super::annotations::{self, ServiceEffects};
use super::field::{FindingList, InvalidValue, read_or_default};
use super::gateway::{GatewayService, gateway_service};
use super::public_address::{self, PublicAddress};
use super::raw_object::{Annotations, RawObject, created_s};
use super::{HeldExpressions, Projection};
use crate::model::{AppProtocol, HostPattern, ProxyHeader, Transport};
use crate::object::{Age, ObjectName};

/// The maximum number of ports of one Service.
pub(super) const PORTS_MAX: usize = 1024;

/// The parts of a Service that routing reads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Service {
    /// Its name.
    pub name: ObjectName,
    /// The source of its endpoints.
    pub kind: ServiceKind,
    /// Its TCP and UDP ports.
    pub ports: Box<[ServicePort]>,
    /// The maximum number of requests in flight to the endpoints of each port, from its annotation; 0 for no limit,
    /// `None` for the operator's setting.
    pub requests_max: Option<u32>,
    /// The application, if it is one of a Deis router.
    pub deis: Option<Arc<DeisApp>>,
    /// The settings of the Deis builder, if its annotations have any.
    pub deis_builder: Option<Arc<DeisBuilder>>,
    /// The PROXY protocol header that its connections begin with, if they are passed on unread.
    pub proxy_header: Option<ProxyHeader>,
    /// The time without datagrams after which flows to its UDP ports end, from its annotation.
    pub udp_idle_timeout: Option<Duration>,
    /// Its contents as the Service of a Gateway, if it is one.
    pub gateway: Option<Arc<GatewayService>>,
}

/// The label, with the value `true`, of Services that a Deis router routes.
const ROUTABLE: &str = "router.deis.io/routable";

/// The source of a Service's endpoints.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ServiceKind {
    /// EndpointSlices, whether the Service has a cluster address or is headless.
    Slices,
    /// `spec.externalName`, in lower case without a trailing dot: a DNS name to resolve.
    ExternalName(Arc<str>),
}

/// One of `spec.ports`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServicePort {
    /// `name`; empty for the only port of a Service.
    pub name: Arc<str>,
    /// `port`.
    pub number: u16,
    /// `targetPort` where it is a number: the port of an ExternalName's addresses.
    pub target: Option<u16>,
    /// `protocol`.
    pub transport: Transport,
    /// `appProtocol` of a TCP port.
    pub protocol: AppProtocol,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", expecting = "an object")]
struct SpecJson<'a> {
    #[serde(rename = "type")]
    kind: Option<String>,
    external_name: Option<String>,
    #[serde(borrow)]
    ports: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", expecting = "an object")]
struct PortJson {
    name: Option<Arc<str>>,
    port: Option<i64>,
    protocol: Option<String>,
    target_port: Option<Value>,
    app_protocol: Option<String>,
}

impl Projection for Service {
    const EXPRESSION_MARKS: &'static [&'static str] = &[deis::REGEX_DOMAIN, deis::PROXY_LOCATIONS];

    fn project(source: &RawObject<'_>, findings: &mut FindingList) -> Result<Self, InvalidValue> {
        let spec: SpecJson<'_> = read_or_default(source.spec, "spec")?;
        let kind = match spec.kind.as_deref() {
            Some("ExternalName") => external_name(&spec.external_name.unwrap_or_default(), findings),
            Some(_) | None => ServiceKind::Slices,
        };
        let entries = findings.entries(spec.ports, PORTS_MAX, "spec.ports");
        let ports = entries.filter_map(|(field, raw)| port(raw, &field, findings)).collect();
        // The ports are valid even if the annotations are not.
        let annotations = source.annotations().unwrap_or_else(|InvalidValue { field, value, why }| {
            findings.ignored(&field, &value, why);
            Annotations::default()
        });
        let is_application = source.label(ROUTABLE).as_deref() == Some("true");
        let ServiceEffects { requests_max, proxy_header, udp_idle_timeout, policy } =
            annotations::of_service(&annotations, is_application, findings);
        let deis = is_application.then(|| {
            // Its findings are shown where Deis applications are routed, and nowhere else.
            let mut findings = FindingList::new(source.meta.object.clone());
            let age = Age { created_s: created_s(source.created, &mut findings), name: source.name().clone() };
            let label = source.label("app");
            let app = deis::of_app(age, label.as_deref(), &annotations, source.compiling, &mut findings);
            Arc::new(DeisApp { policy, findings: findings.into_findings().into(), ..app })
        });
        let mut of_builder = FindingList::new(source.meta.object.clone());
        let deis_builder = deis::of_builder(&annotations, &mut of_builder).map(|builder| {
            // As above.
            Arc::new(DeisBuilder { findings: of_builder.into_findings().into(), ..builder })
        });
        let (name, gateway) = (source.name().clone(), gateway_service::of(source).map(Arc::new));
        Ok(Self { name, kind, ports, requests_max, deis, deis_builder, proxy_header, udp_idle_timeout, gateway })
    }

    fn addresses(source: &RawObject<'_>) -> Vec<PublicAddress> {
        public_address::of_service(source)
    }

    fn expressions(&self) -> Option<HeldExpressions<'_>> {
        let app = self.deis.as_ref()?;
        HeldExpressions::of(app.age.created_s, app.expressions())
    }

    fn leave_out_expressions(&mut self, why: &str, findings: &mut FindingList) {
        if let Some(app) = &mut self.deis {
            Arc::make_mut(app).leave_out_expressions(why, findings);
        }
    }
}

/// A name that cannot be resolved leaves the Service without endpoints: no controller makes slices for this type. A
/// text like an IPv4 address passes the API server's checks and would be looked up in DNS as a name, without result.
fn external_name(text: &str, findings: &mut FindingList) -> ServiceKind {
    const FIELD: &str = "spec.externalName";
    if text.is_empty() {
        findings.unusable(FIELD, "a Service of type ExternalName", "needs a name");
        return ServiceKind::Slices;
    }
    match HostPattern::parse(text.strip_suffix('.').unwrap_or(text)) {
        Ok(HostPattern::Exact(name)) => return ServiceKind::ExternalName(name),
        Ok(HostPattern::Wildcard(..) | HostPattern::FirstLabel(_) | HostPattern::Expression(_) | HostPattern::Any) => {
            findings.unusable(FIELD, text, "is a wildcard, not a DNS name");
        }
        Err(why) => findings.unusable(FIELD, text, why),
    }
    ServiceKind::Slices
}

fn port(raw: &RawValue, field: &str, findings: &mut FindingList) -> Option<ServicePort> {
    let json: PortJson = findings.entry(raw, field)?;
    let transport = transport(json.protocol.as_deref())?;
    let Some(number) = json.port.and_then(port_number) else {
        let value = json.port.map_or_else(|| "a port without a number".to_owned(), |number| number.to_string());
        findings.dropped(&format!("{field}.port"), &value, "is not between 1 and 65535");
        return None;
    };
    let target = json.target_port.as_ref().and_then(Value::as_i64).and_then(port_number);
    let protocol = match transport {
        Transport::Tcp => app_protocol(json.app_protocol.as_deref().unwrap_or_default(), field, findings),
        Transport::Udp => AppProtocol::default(),
    };
    Some(ServicePort { name: json.name.unwrap_or_default(), number, target, transport, protocol })
}

/// The transport protocol of a port; `None` for one that is not supported, such as SCTP.
pub(super) fn transport(protocol: Option<&str>) -> Option<Transport> {
    match protocol {
        None | Some("TCP") => Some(Transport::Tcp),
        Some("UDP") => Some(Transport::Udp),
        Some(_) => None,
    }
}

/// A valid port number.
pub(super) fn port_number(number: i64) -> Option<u16> {
    u16::try_from(number).ok().filter(|number| *number > 0)
}

/// `appProtocol` is either a service name of IANA, compared without case (RFC 6335 section 5.1), or has a prefix, and
/// is compared exactly. Other names belong to other programs and make no finding, unless they look like a variant of
/// HTTP.
fn app_protocol(text: &str, field: &str, findings: &mut FindingList) -> AppProtocol {
    const LIKE_HTTP: [&str; 4] = ["http", "grpc", "h2", "ws"];
    match text {
        "" => return AppProtocol::Http,
        "kubernetes.io/h2c" => return AppProtocol::H2c,
        "kubernetes.io/ws" => return AppProtocol::Ws,
        "kubernetes.io/wss" => return AppProtocol::Https,
        _ => {}
    }
    let lower = text.to_ascii_lowercase();
    match &*lower {
        "http" => AppProtocol::Http,
        "https" => AppProtocol::Https,
        "grpc" => AppProtocol::H2c,
        _ => {
            let bare = lower.rsplit('/').next().unwrap_or_default();
            if lower.starts_with("kubernetes.io/") || LIKE_HTTP.iter().any(|start| bare.starts_with(start)) {
                let why = "is not http, https, grpc, kubernetes.io/h2c, kubernetes.io/ws or kubernetes.io/wss";
                findings.ignored(&format!("{field}.appProtocol"), text, why);
            }
            AppProtocol::Http
        }
    }
}
