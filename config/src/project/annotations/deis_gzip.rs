//! The annotations of the router's Deployment about compression, under `router.deis.io/nginx.gzip.`.

use std::sync::Arc;

use super::deis::Router;
use super::deis_app::annotation;
use super::deis_value::{agents, boolean, media_types, one_of, proxied, size};
use super::{Annotation, OnInvalid, set};
use crate::model::{Compression, DisabledAgents, MediaTypes, Proxied};

/// The defaults of the router.
const LEVEL: u8 = 5;
const LENGTH_MIN: u64 = 256;
const TYPES: [&str; 15] = [
    "application/atom+xml",
    "application/javascript",
    "application/json",
    "application/rss+xml",
    "application/vnd.ms-fontobject",
    "application/x-font-ttf",
    "application/x-web-app-manifest+json",
    "application/xhtml+xml",
    "application/xml",
    "font/opentype",
    "image/svg+xml",
    "image/x-icon",
    "text/css",
    "text/plain",
    "text/x-component",
];

/// The values of the annotations.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Gzip {
    enabled: Option<bool>,
    level: Option<u8>,
    disabled: Option<DisabledAgents>,
    http10: Option<bool>,
    length_min: Option<u64>,
    proxied: Option<Box<[Proxied]>>,
    types: Option<MediaTypes>,
    vary: Option<bool>,
}

impl Gzip {
    /// The compression of responses, unless it is disabled.
    pub(super) fn compression(self) -> Option<Arc<Compression>> {
        let Self { enabled, level, disabled, http10, length_min, proxied, types, vary } = self;
        enabled.unwrap_or(true).then(|| {
            Arc::new(Compression {
                level: level.unwrap_or(LEVEL),
                length_min: length_min.unwrap_or(LENGTH_MIN),
                types: types.unwrap_or_else(|| MediaTypes::new(TYPES.into_iter())),
                http10: http10.unwrap_or(false),
                proxied: proxied.unwrap_or_else(|| [Proxied::Any].into()),
                disabled: disabled.unwrap_or(DisabledAgents::Msie6),
                vary: vary.unwrap_or(true),
            })
        })
    }
}

pub(super) const ENABLED: Annotation<Router> = annotation!(
    "gzip.enabled",
    "boolean",
    "`true`",
    "Compresses responses of status 200, 403 and 404 with gzip for clients that take it, if they are not compressed already and nothing forbids it (`no-transform`).",
    Default,
    None,
    |router, text| set(&mut router.gzip.enabled, boolean(text))
);

pub(super) const COMP_LEVEL: Annotation<Router> = annotation!(
    "gzip.compLevel",
    "`1` to `9`",
    "`5`",
    "From the fastest to the smallest.",
    Default,
    None,
    |router, text| set(
        &mut router.gzip.level,
        one_of(text, &["1", "2", "3", "4", "5", "6", "7", "8", "9"]).map(|digit| digit.parse().unwrap_or(LEVEL))
    )
);

pub(super) const DISABLE: Annotation<Router> = annotation!(
    "gzip.disable",
    "regular expression, or `msie6`",
    "`msie6`",
    "User agents that get nothing compressed: those with a match anywhere, without regard to case. `msie6` is Internet Explorer 4 to 6, except 6 with `SV1`; an empty value is no user agent. An expression has neither backreferences nor look-around, and has a [limited price](limits.md#regular-expressions).",
    Default,
    None,
    |router, text| set(&mut router.gzip.disabled, agents(text))
);

pub(super) const HTTP_VERSION: Annotation<Router> = annotation!(
    "gzip.httpVersion",
    "`1.0` or `1.1`",
    "`1.1`",
    "The least version of a request whose response is compressed. In HTTP/1.0 the connection ends with it.",
    Default,
    None,
    |router, text| set(&mut router.gzip.http10, one_of(text, &["1.0", "1.1"]).map(|version| version == "1.0"))
);

pub(super) const MIN_LENGTH: Annotation<Router> = annotation!(
    "gzip.minLength",
    "size, or 0",
    "`256`",
    "The least `Content-Length` that is compressed. A response without one is too, unless its endpoint speaks HTTP/2.",
    Default,
    None,
    |router, text| set(&mut router.gzip.length_min, size(text, true))
);

pub(super) const PROXIED: Annotation<Router> = annotation!(
    "gzip.proxied",
    "words between spaces",
    "`any`",
    "Which responses to requests with `Via` are compressed: `off`, `expired`, `no-cache`, `no-store`, `private`, `no_last_modified`, `no_etag`, `auth` or `any`, as nginx has them.",
    Default,
    None,
    |router, text| set(&mut router.gzip.proxied, proxied(text))
);

pub(super) const MEDIA_TYPES: Annotation<Router> = annotation!(
    "gzip.types",
    "media types between spaces",
    "scripts, style sheets, plain text, JSON, XML, feeds, SVG, icons and fonts",
    "What is compressed besides `text/html`.",
    Default,
    None,
    |router, text| set(&mut router.gzip.types, media_types(text))
);

pub(super) const VARY: Annotation<Router> = annotation!(
    "gzip.vary",
    "`on` or `off`",
    "`on`",
    "`Vary: Accept-Encoding` on what is compressed for some clients.",
    Default,
    None,
    |router, text| set(&mut router.gzip.vary, one_of(text, &["on", "off"]).map(|word| word == "on"))
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_compression_is_that_of_the_deis_router() {
        let usual = Gzip::default().compression().unwrap();
        let Compression { level, length_min, types, http10, proxied, disabled, vary } = &*usual;
        assert_eq!((*level, *length_min, *http10, *vary), (5, 256, false, true));
        assert_eq!((&**proxied, disabled), ([Proxied::Any].as_slice(), &DisabledAgents::Msie6));
        let held = TYPES.iter().filter(|name| types.holds(name.as_bytes())).count();
        assert_eq!((held, types.holds(b"image/png"), types.holds(b"text/event-stream")), (15, false, false));
    }
}
