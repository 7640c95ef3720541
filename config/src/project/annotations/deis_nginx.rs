//! The annotations of the router's Deployment about nginx itself, which have no effect here. They are parsed, so that
//! an invalid value makes a finding as well.

use super::deis::Router;
use super::deis_app::annotation;
use super::deis_value::{any, boolean, one_of, positive, size, time};
use super::{Annotation, OnInvalid};

/// The reason why settings of nginx itself have no effect.
const NGINX: &str = "it is a setting of nginx, which Tidegate does not use";

/// The reason why the settings of nginx's buffers have no effect. They are not even lower bounds, because the buffers
/// here are larger than nginx's defaults.
const BUFFERS: &str = "a response streams through a buffer that grows from 16k to 256k as it needs, and its head may have 64k in any case";

/// Every annotation of the router that has no effect, in the order of the manual.
pub(super) const NGINX_ONLY: &[Annotation<Router>] = &[
    annotation!(
        "ssl.sessionCache",
        "text",
        "none",
        "None.",
        Default,
        Some("sessions are resumed by tickets"),
        |_, text| any(text)
    ),
    annotation!(
        "ssl.sessionTimeout",
        "time",
        "`10m`",
        "None.",
        Default,
        Some("tickets live for as long as their keys, which rotate"),
        |_, text| time(text).map(drop)
    ),
    annotation!("ssl.bufferSize", "size", "`4k`", "None.", Default, Some(NGINX), |_, text| size(text, false).map(drop)),
    annotation!(
        "disableServerTokens",
        "boolean",
        "`false`",
        "None.",
        Default,
        Some("Tidegate never reveals its version"),
        |_, text| boolean(text).map(drop)
    ),
    annotation!(
        "errorLogLevel",
        "a level of nginx",
        "`error`",
        "None.",
        Default,
        Some("it is set by the flag --log-level"),
        |_, text| one_of(text, &["debug", "info", "notice", "warn", "error", "crit", "alert", "emerg"]).map(drop)
    ),
    annotation!("trafficStatusZoneSize", "size", "`1m`", "None.", Default, Some(NGINX), |_, text| size(text, false)
        .map(drop)),
    annotation!("serverNameHashMaxSize", "size", "`512`", "None.", Default, Some(NGINX), |_, text| size(text, false)
        .map(drop)),
    annotation!("serverNameHashBucketSize", "size", "`64`", "None.", Default, Some(NGINX), |_, text| size(text, false)
        .map(drop)),
    annotation!("proxyBuffers.enabled", "boolean", "`false`", "None.", Default, Some(BUFFERS), |_, text| boolean(text)
        .map(drop)),
    annotation!("proxyBuffers.number", "whole number", "`8`", "None.", Default, Some(BUFFERS), |_, text| positive(
        text
    )
    .map(drop)),
    annotation!("proxyBuffers.size", "size", "`4k`", "None.", Default, Some(BUFFERS), |_, text| size(text, false)
        .map(drop)),
    annotation!("proxyBuffers.busySize", "size", "`8k`", "None.", Default, Some(BUFFERS), |_, text| size(text, false)
        .map(drop)),
    annotation!(
        "loadModsecurityModule",
        "boolean",
        "`false`",
        "None.",
        Default,
        Some("there is no web application firewall; put one in front"),
        |_, text| boolean(text).map(drop)
    ),
];
