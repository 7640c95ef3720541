//! What can go wrong with a list or a watch, and what follows from it. Pure.

use std::fmt;
use std::time::Duration;

use tidegate_config::project::Unidentified;

/// Why a list or a watch ended otherwise than by doing what it was asked.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The server answered with a status other than success, by HTTP or by an ERROR event.
    Refused {
        /// The status code.
        code: u16,
        /// The server's words.
        why: String,
        /// How long the server wants to be left alone.
        retry_after: Option<Duration>,
    },
    /// The headers of the answer did not come in time.
    NoHeaders,
    /// The body of the answer stopped coming.
    Stalled,
    /// The connection could not be made, or broke.
    Broken {
        /// Why, from the transport.
        why: String,
    },
    /// What came is no list, or no watch event.
    Unreadable {
        /// Why, without any of the bytes.
        why: String,
    },
    /// A watch event does not say which object it is about.
    Unidentified(Unidentified),
    /// A page is longer than its bound.
    PageTooLong,
    /// A watch event is longer than its bound.
    FrameTooLong,
    /// A list has more pages than its bound.
    Endless,
    /// A watch ended at once and told nothing new.
    Short,
}

/// What a failure says something about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum About {
    /// The server, or the way to it: requests for other kinds fail as well, and when one of them is answered, this one is worth
    /// another try.
    Server,
    /// What was asked for, or the server's wish to be left alone.
    Request,
    /// The resourceVersion.
    Version,
}

/// Why a list is made; the label `reason` of `tidegate_lists_total`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ListReason {
    /// Nothing is known yet.
    Start,
    /// The list before failed.
    Retry,
    /// The server no longer has what happened since the known resourceVersion (410).
    Expired,
    /// The server refuses to watch from the known resourceVersion for another reason, or fails at each try to.
    Refused,
    /// The server has not reached the resourceVersion that was kept over a restart, or serves another cluster.
    SetBack,
    /// An event was lost because it could not be read.
    Undecodable,
    /// The list before held an item that does not say which object it is.
    Incomplete,
    /// It is time to see whether what is known has drifted from what is there.
    Drift,
    /// Whoever serves what is read has less than it was told.
    Lacking,
    /// The control loop asked for it.
    Asked,
}

impl ListReason {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Retry => "retry",
            Self::Expired => "expired",
            Self::Refused => "refused",
            Self::SetBack => "set_back",
            Self::Undecodable => "undecodable",
            Self::Incomplete => "incomplete",
            Self::Drift => "drift",
            Self::Lacking => "lacking",
            Self::Asked => "asked",
        }
    }
}

impl Failure {
    /// The label `reason` of the failure metrics: one of a closed list.
    pub(super) const fn reason(&self) -> &'static str {
        match self {
            Self::Refused { code, .. } => status_label(*code),
            Self::NoHeaders => "no_headers",
            Self::Stalled => "stalled",
            Self::Broken { .. } => "broken",
            Self::Unreadable { .. } => "unreadable",
            Self::Unidentified(_) => "unidentified",
            Self::PageTooLong => "page_too_long",
            Self::FrameTooLong => "frame_too_long",
            Self::Endless => "endless",
            Self::Short => "short",
        }
    }

    /// Whether a watch that failed so has to be replaced by a list. `None` means that it can go on from the same
    /// resourceVersion, because nothing that it would have told is lost.
    pub(super) const fn calls_for_list(&self) -> Option<ListReason> {
        match self {
            Self::Refused { code, .. } => match code {
                410 => Some(ListReason::Expired),
                // Neither credentials nor load depend on the resourceVersion, and a list costs a loaded server more.
                401 | 403 | 429 => None,
                // "Too large resource version": the server has been set back to before what is known here.
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

    /// Whether a resourceVersion grew too old. Once, that belongs to the normal life of a watch and is nobody's fault.
    pub(super) const fn is_expired(&self) -> bool {
        matches!(self.about(), About::Version)
    }

    /// Whether the server says that it failed by itself, as it does at an event whose object it can neither decode nor decrypt.
    pub(super) const fn is_internal(&self) -> bool {
        matches!(self, Self::Refused { code: 500, .. })
    }

    /// Whether the server answered that this may not be read, or is not there. Another try is answered otherwise only when
    /// somebody has changed that.
    pub(super) const fn is_denied(&self) -> bool {
        matches!(self, Self::Refused { code: 403 | 404, .. })
    }

    /// What it says something about.
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

    /// How long the server wants to be left alone.
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

/// Codes that an API server or something before it is known to answer have a label of their own.
const fn status_label(code: u16) -> &'static str {
    match code {
        400 => "status_400",
        401 => "status_401",
        403 => "status_403",
        404 => "status_404",
        410 => "status_410",
        422 => "status_422",
        429 => "status_429",
        500 => "status_500",
        502 => "status_502",
        503 => "status_503",
        504 => "status_504",
        _ => match code / 100 {
            4 => "status_4xx",
            5 => "status_5xx",
            _ => "status_other",
        },
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused { code, why, .. } => write!(f, "the API server answered {code}: {why}"),
            Self::NoHeaders => f.write_str("no answer in time"),
            Self::Stalled => f.write_str("the answer stopped coming"),
            Self::Broken { why } => write!(f, "connection: {why}"),
            Self::Unreadable { why } => write!(f, "the answer cannot be read: {why}"),
            Self::Unidentified(why) => write!(f, "an event cannot be told to belong to any object: {why}"),
            Self::PageTooLong => f.write_str("a page of the list is too long"),
            Self::FrameTooLong => f.write_str("an event is too long"),
            Self::Endless => f.write_str("the list has too many pages"),
            Self::Short => f.write_str("the watch was ended at once"),
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
    fn what_every_kind_would_meet_is_about_the_server() {
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
    fn only_what_depends_on_the_version_calls_for_a_list() {
        check(410, Some(ListReason::Expired), "status_410");
        check(400, Some(ListReason::Refused), "status_400");
        check(404, Some(ListReason::Refused), "status_404");
        check(504, Some(ListReason::Refused), "status_504");
        check(418, Some(ListReason::Refused), "status_4xx");
        check(302, Some(ListReason::Refused), "status_other");
        check(401, None, "status_401");
        check(403, None, "status_403");
        check(429, None, "status_429");
        check(500, None, "status_500");
        check(503, None, "status_503");
        check(599, None, "status_5xx");
    }
}
