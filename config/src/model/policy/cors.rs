//! Cross-origin requests (CORS): the allowed origins, methods and headers.

use std::sync::Arc;

use http::HeaderName;
use serde::Serialize;

use super::super::backend::WeightedTarget;
use super::super::condition::Head;
use super::super::filter::Filter;
use super::super::preflight::is_preflight;
use super::super::route::Route;
use super::super::web_origin::{OriginPattern, RequestOrigin};

/// The CORS policy of a route ([Fetch standard](https://fetch.spec.whatwg.org/#http-cors-protocol)).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cors {
    /// The allowed origins.
    pub origins: AnyOr<OriginPattern>,
    /// Whether requests may carry credentials.
    pub credentials: bool,
    /// The allowed methods besides GET, HEAD and POST.
    pub methods: AnyOr<Arc<str>>,
    /// The allowed request headers.
    pub headers: AnyOr<HeaderName>,
    /// The response headers that pages may read.
    pub exposed: AnyOr<HeaderName>,
    /// How long a client may cache the answer to a preflight, in seconds.
    pub max_age_s: u32,
}

/// A list, or a star for everything.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AnyOr<T> {
    /// Everything.
    Any,
    /// These.
    These(Box<[T]>),
}

impl Cors {
    /// The status of the answer to a preflight.
    pub const PREFLIGHT_STATUS: u16 = 200;

    /// The last CORS filter of a list, which holds.
    #[must_use]
    pub fn of(filters: &[Filter]) -> Option<&Arc<Self>> {
        filters.iter().rev().find_map(|filter| match filter {
            Filter::Cors(cors) => Some(cors),
            Filter::RequestHeaders(_)
            | Filter::ResponseHeaders(_)
            | Filter::Path(_)
            | Filter::Host(_)
            | Filter::Mirror(_) => None,
        })
    }

    /// The policy of a request that goes to a share of a route: that of the share, or else that of the route.
    #[must_use]
    pub fn applied<'r>(route: &'r Route, share: Option<&'r WeightedTarget>) -> Option<&'r Arc<Self>> {
        share.and_then(|share| Self::of(&share.filters)).or_else(|| Self::of(&route.filters))
    }

    /// Returns `true` for a [preflight](https://fetch.spec.whatwg.org/#cors-preflight-request), which a route with such
    /// a filter answers itself.
    #[must_use]
    pub fn is_preflight<H: Head + ?Sized>(head: &H) -> bool {
        is_preflight(head)
    }

    /// The origin of a request as sent, if pages of that origin may send requests. The star allows every origin, `null`
    /// included; nothing else allows `null`. A text that is not an origin is never allowed.
    #[must_use]
    pub fn allowed<'h, H: Head + ?Sized>(&self, head: &'h H) -> Option<&'h str> {
        let (origin, text) = RequestOrigin::of(head)?;
        let is_allowed = match (&self.origins, origin) {
            (AnyOr::Any, _) => true,
            (AnyOr::These(_), RequestOrigin::Opaque) => false,
            (AnyOr::These(patterns), RequestOrigin::Tuple(origin)) => {
                patterns.iter().any(|pattern| pattern.matches(&origin))
            }
        };
        is_allowed.then_some(text)
    }
}

impl Serialize for Cors {
    /// The allowed origins, and whether credentials are.
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let origins = match &self.origins {
            AnyOr::Any => "*".to_owned(),
            AnyOr::These(origins) => origins.iter().map(OriginPattern::to_string).collect::<Vec<_>>().join(" "),
        };
        let credentials = if self.credentials { ", with credentials" } else { "" };
        serializer.collect_str(&format_args!("{origins}{credentials}"))
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::sample::SampleHead;
    use super::*;

    #[track_caller]
    fn check(origins: AnyOr<OriginPattern>, headers: &'static [&'static [u8]], want: Option<&str>) {
        let (methods, headers_allowed, exposed) = (AnyOr::Any, AnyOr::Any, AnyOr::Any);
        let cors = Cors { origins, credentials: false, methods, headers: headers_allowed, exposed, max_age_s: 5 };
        let lines: Vec<_> = headers.iter().map(|value| ("origin", value)).collect();
        assert_eq!(cors.allowed(&SampleHead::new("GET").with(&lines)), want, "{headers:?}");
    }

    #[test]
    fn only_one_whole_origin_is_allowed() {
        let of = |text: &str| AnyOr::These([OriginPattern::parse(text).unwrap()].into());
        check(of("https://*.w.test"), &[b"https://a.w.test"], Some("https://a.w.test"));
        check(of("https://*.w.test"), &[b"https://evil.test/.w.test"], None);
        check(of("https://*.w.test"), &[b"https://a.w.test", b"https://a.w.test"], None);
        check(of("https://*.w.test"), &[b"https://a.w.test", b"https://evil.test"], None);
        check(of("https://*"), &[b"null"], None);
        check(of("https://*"), &[], None);
        check(AnyOr::Any, &[b"null"], Some("null"));
        check(AnyOr::Any, &[b"app://local"], Some("app://local"));
        check(AnyOr::Any, &[b"https://evil.test/.w.test"], None);
        check(AnyOr::Any, &[b"https://a.test https://b.test"], None);
        check(AnyOr::Any, &[b"\xff"], None);
        check(AnyOr::Any, &[b""], None);
        check(AnyOr::Any, &[b"null", b"null"], None);
        check(AnyOr::These(Box::default()), &[b"https://a.test"], None);
    }
}
