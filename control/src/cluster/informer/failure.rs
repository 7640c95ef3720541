//! The failures of lists and watches, and how to proceed after them. Pure.

use std::fmt;
use std::time::Duration;

use tidegate_config::project::Unidentified;

/// The reason why a list or a watch failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// The server responded with an error status, by HTTP or by an ERROR event.
    Refused {
        /// The status code.
        code: u16,
        /// The message of the server.
        why: String,
        /// The delay that the server requests.
        retry_after: Option<Duration>,
    },
    /// The headers of the response did not arrive in time.
    NoHeaders,
    /// The body of the response stalled.
    Stalled,
    /// The connection could not be established, or broke.
    Broken {
        /// The error of the transport.
        why: String,
    },
    /// The response is not a list or a watch event.
    Unreadable {
        /// The reason, without any bytes of the response.
        why: String,
    },
    /// A watch event does not identify its object.
    Unidentified(Unidentified),
    /// A page, or an object in it, exceeds its size limit.
    PageTooLong,
    /// A watch event exceeds its size limit.
    FrameTooLong,
    /// A list exceeds the limit of pages.
    Endless,
    /// A watch ended early without new events.
    Short,
}

/// The cause of a failure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum About {
    /// The server or the network: requests for other kinds fail as well, and once one of them succeeds, this one is
    /// worth another attempt.
    Server,
    /// The request itself, or a delay requested by the server.
    Request,
    /// The resourceVersion.
    Version,
}

/// The reason for a list; the label `reason` of `tidegate_lists_total`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ListReason {
    /// There is no state yet.
    Start,
    /// The previous list failed.
    Retry,
    /// The server no longer has the events since the known resourceVersion (410).
    Expired,
    /// The server rejects watches from the known resourceVersion for another reason, or fails repeatedly.
    Refused,
    /// The server has not reached the kept resourceVersion, or serves another cluster.
    VersionRegressed,
    /// An event could not be decoded.
    Undecodable,
    /// The previous list contained an item without an identity.
    Incomplete,
    /// A periodic list, in case an event was missed.
    Periodic,
    /// The server of copies lacks objects.
    Lacking,
    /// The control loop requested it.
    Asked,
}

impl ListReason {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Retry => "retry",
            Self::Expired => "expired",
            Self::Refused => "refused",
            Self::VersionRegressed => "version-regressed",
            Self::Undecodable => "undecodable",
            Self::Incomplete => "incomplete",
            Self::Periodic => "periodic",
            Self::Lacking => "missing-objects",
            Self::Asked => "requested",
        }
    }
}

impl Failure {
    /// The label `reason` of the failure metrics: one of a fixed set.
    pub(super) const fn reason(&self) -> &'static str {
        match self {
            Self::Refused { code, .. } => status_label(*code),
            Self::NoHeaders => "no-headers",
            Self::Stalled => "stalled",
            Self::Broken { .. } => "broken",
            Self::Unreadable { .. } => "unreadable",
            Self::Unidentified(_) => "unidentified",
            Self::PageTooLong => "page-too-long",
            Self::FrameTooLong => "frame-too-long",
            Self::Endless => "endless",
            Self::Short => "short",
        }
    }

    /// The reason for a list after a watch failed like this. `None` if the watch can be resumed from the same
    /// resourceVersion, because no events were lost.
    pub(super) const fn calls_for_list(&self) -> Option<ListReason> {
        match self {
            Self::Refused { code, .. } => match code {
                410 => Some(ListReason::Expired),
                // Neither credentials nor load depend on the resourceVersion, and a list costs an overloaded server
                // more.
                401 | 403 | 429 => None,
                // "Too large resource version": the server's state has been restored to an older one.
                504 => Some(ListReason::Refused),
                500..=599 => None,
                _ => Some(ListReason::Refused),
            },
            Self::Unidentified(_) | Self::Unreadable { .. } | Self::FrameTooLong => Some(ListReason::Undecodable),
            Self::NoHeaders | Self::Stalled | Self::Broken { .. } | Self::PageTooLong | Self::Endless | Self::Short => {
                None
            }
        }
    }

    /// Whether a resourceVersion expired. One expiry is a normal event in the life of a watch.
    pub(super) const fn is_expired(&self) -> bool {
        matches!(self.about(), About::Version)
    }

    /// Whether the server reports an internal error, as for an event whose object it cannot decode or decrypt.
    pub(super) const fn is_internal(&self) -> bool {
        matches!(self, Self::Refused { code: 500, .. })
    }

    /// Whether the server denies access or does not have the resource. Another attempt only succeeds after a change of
    /// permissions or of the API.
    pub(super) const fn is_denied(&self) -> bool {
        matches!(self, Self::Refused { code: 403 | 404, .. })
    }

    /// The cause of the failure.
    pub(super) const fn about(&self) -> About {
        match self {
            Self::NoHeaders | Self::Stalled | Self::Broken { .. } => About::Server,
            // Credentials are the same for every kind.
            Self::Refused { code: 401 | 500..=599, retry_after: None, .. } => About::Server,
            Self::Refused { code: 410, .. } => About::Version,
            Self::Refused { .. }
            | Self::Unreadable { .. }
            | Self::Unidentified(_)
            | Self::PageTooLong
            | Self::FrameTooLong
            | Self::Endless
            | Self::Short => About::Request,
        }
    }

    /// The delay that the server requests.
    pub(super) const fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Refused { retry_after, .. } => *retry_after,
            Self::NoHeaders
            | Self::Stalled
            | Self::Broken { .. }
            | Self::Unreadable { .. }
            | Self::Unidentified(_)
            | Self::PageTooLong
            | Self::FrameTooLong
            | Self::Endless
            | Self::Short => None,
        }
    }
}

/// Status codes that API servers and proxies are known to use have a label of their own.
const fn status_label(code: u16) -> &'static str {
    match code {
        400 => "status-400",
        401 => "status-401",
        403 => "status-403",
        404 => "status-404",
        410 => "status-410",
        422 => "status-422",
        429 => "status-429",
        500 => "status-500",
        502 => "status-502",
        503 => "status-503",
        504 => "status-504",
        _ => match code / 100 {
            4 => "status-4xx",
            5 => "status-5xx",
            _ => "status-other",
        },
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused { code, why, .. } => write!(f, "the API server answered {code}: {why}"),
            Self::NoHeaders => f.write_str("no answer in time"),
            Self::Stalled => f.write_str("the response stalled"),
            Self::Broken { why } => write!(f, "connection: {why}"),
            Self::Unreadable { why } => write!(f, "the response cannot be read: {why}"),
            Self::Unidentified(why) => write!(f, "an event does not identify its object: {why}"),
            Self::PageTooLong => f.write_str("a page of the list exceeds a size limit"),
            Self::FrameTooLong => f.write_str("an event is too long"),
            Self::Endless => f.write_str("the list has too many pages"),
            Self::Short => f.write_str("the API server ended the watch at once"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(code: u16, list: Option<ListReason>, label: &str) {
        let failure = Failure::Refused { code, why: String::new(), retry_after: None };
        assert_eq!((failure.calls_for_list(), failure.reason()), (list, label));
    }

    #[test]
    fn failures_that_affect_every_kind_concern_the_server() {
        let of = |code, retry_after| Failure::Refused { code, why: String::new(), retry_after }.about();
        let second = Some(Duration::from_secs(1));
        assert_eq!([401, 500, 502, 503, 504].map(|code| of(code, None)), [About::Server; 5]);
        assert_eq!([401, 429, 503].map(|code| of(code, second)), [About::Request; 3]);
        assert_eq!([400, 403, 404, 422, 429].map(|code| of(code, None)), [About::Request; 5]);
        assert_eq!((of(410, None), of(410, second)), (About::Version, About::Version));
        let broken = Failure::Broken { why: String::new() };
        assert_eq!([broken, Failure::NoHeaders, Failure::Stalled].map(|it| it.about()), [About::Server; 3]);
        assert_eq!([Failure::Short, Failure::FrameTooLong].map(|it| it.about()), [About::Request; 2]);
    }

    #[test]
    fn only_failures_of_the_version_cause_a_list() {
        check(410, Some(ListReason::Expired), "status-410");
        check(400, Some(ListReason::Refused), "status-400");
        check(404, Some(ListReason::Refused), "status-404");
        check(504, Some(ListReason::Refused), "status-504");
        check(418, Some(ListReason::Refused), "status-4xx");
        check(302, Some(ListReason::Refused), "status-other");
        check(401, None, "status-401");
        check(403, None, "status-403");
        check(429, None, "status-429");
        check(500, None, "status-500");
        check(503, None, "status-503");
        check(599, None, "status-5xx");
    }
}
