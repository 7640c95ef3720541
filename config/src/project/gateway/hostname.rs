//! Hostnames of listeners and routes.

use std::sync::Arc;

use crate::model::{HostPattern, WildcardDepth};

/// Parses a hostname. A star stands for one label or more.
pub(super) fn hostname(text: &str) -> Result<HostPattern, &'static str> {
    HostPattern::parse(text).map(|host| match host {
        HostPattern::Wildcard(suffix, WildcardDepth::One) => HostPattern::Wildcard(suffix, WildcardDepth::Any),
        host @ (HostPattern::Exact(_)
        | HostPattern::Wildcard(_, WildcardDepth::Any)
        | HostPattern::FirstLabel(_)
        | HostPattern::Expression(_)
        | HostPattern::Any) => host,
    })
}

/// Parses a hostname without a star.
pub(super) fn precise_hostname(text: &str) -> Result<Arc<str>, &'static str> {
    match HostPattern::parse(text)? {
        HostPattern::Exact(name) => Ok(name),
        HostPattern::Wildcard(..) | HostPattern::FirstLabel(_) | HostPattern::Expression(_) | HostPattern::Any => {
            Err("is a wildcard, where a single name is required")
        }
    }
}
