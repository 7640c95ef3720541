//! The annotations of a Service.

use std::time::Duration;

use super::{Annotation, OnInvalid, TIDEGATE, read, set};
use crate::model::ProxyHeader;
use crate::project::annotation_value::{Zero, duration, proxy_header, whole};
use crate::project::field::Found;
use crate::project::source::Annotations;

/// What the annotations of a Service ask for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(in crate::project) struct ServiceEffects {
    /// Requests that may be at its endpoints; 0 for any number.
    pub(in crate::project) requests_max: Option<u32>,
    /// The header that connections which are passed on unread begin with.
    pub(in crate::project) proxy_header: Option<ProxyHeader>,
    /// Silence after which flows of datagrams to its UDP ports end.
    pub(in crate::project) udp_idle_timeout: Option<Duration>,
}

/// Every annotation of a Service.
pub(super) const SERVICE: [Annotation<ServiceEffects>; 3] = [
    Annotation {
        key: "requests-max",
        form: "whole number, or 0 for any number",
        default: |_| "that of `--service-requests-max`".to_owned(),
        effect: "Requests that may be at the endpoints of each port at the same time; a further one is answered 503 with the reason `service-overloaded`.",
        otherwise: OnInvalid::Default,
        inert: None,
        read: |effects, text| set(&mut effects.requests_max, whole(text)),
    },
    Annotation {
        key: "send-proxy-protocol",
        form: "`v1` or `v2`",
        default: |_| "none".to_owned(),
        effect: "The header of the PROXY protocol with which connections to its endpoints begin, where they are passed on unread: the endpoints learn who the client is.",
        otherwise: OnInvalid::Default,
        inert: None,
        read: |effects, text| set(&mut effects.proxy_header, proxy_header(text)),
    },
    Annotation {
        key: "udp-idle-timeout",
        form: "time",
        default: |_| "60s".to_owned(),
        effect: "Silence in both directions after which a flow of datagrams to its UDP ports ends. Where a UDPRoute leads to several Services, the longest of theirs holds for all of its flows.",
        otherwise: OnInvalid::Default,
        inert: None,
        read: |effects, text| set(&mut effects.udp_idle_timeout, duration(text, Zero::Refused)),
    },
];

/// Reads the annotations of a Service, none of which restricts access.
pub(in crate::project) fn of_service(annotations: &Annotations<'_>, found: &mut Found) -> ServiceEffects {
    let mut effects = ServiceEffects::default();
    read(TIDEGATE, &SERVICE, &mut effects, annotations, found);
    effects
}
