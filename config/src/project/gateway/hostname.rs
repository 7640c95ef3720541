//! Hostnames of listeners and routes.

use std::sync::Arc;

use crate::model::HostPattern;

/// Parses a hostname. A star stands for one label or more.
pub(super) fn hostname(text: &str) -> Result<HostPattern, &'static str> {
    HostPattern::parse(text).map(HostPattern::at_any_depth)
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
