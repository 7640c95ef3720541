//! The decision whether a response is compressed, from the heads of both messages and the settings of the route, and
//! the resulting edits of its head. Both drivers call it; [`super::gzip`] encodes the bytes.

use std::sync::Arc;
use std::time::SystemTime;

use http::HeaderMap;
use http::header::{ACCEPT_RANGES, CONTENT_ENCODING, ETAG, VARY};
use tidegate_config::model::{Compression, Head, Proxied};

use super::edits::Edits;
use super::names::is_grpc_type;
use super::weight::each_weighted;

/// The status of a response that validates a cached one.
const NOT_MODIFIED: u16 = 304;

/// The facts about a request that the decision needs.
#[derive(Debug)]
pub(crate) struct Negotiation {
    compression: Arc<Compression>,
    /// Whether the client may get a compressed response.
    accepts: bool,
    is_head: bool,
    is_http10: bool,
    /// Whether it came through another proxy.
    via: bool,
    authorized: bool,
}

/// The head of a response, as far as the decision needs it.
#[derive(Debug)]
pub(crate) struct Response<'a, F> {
    /// The status.
    pub(crate) status: u16,
    /// The announced length, if it frames the body, or would frame the body of a GET.
    pub(crate) length: Option<u64>,
    /// Whether it comes over HTTP/2, where the head does not say whether a body follows, and where Pingora sends chunks
    /// to HTTP/1.0 clients.
    pub(crate) over_http2: bool,
    /// Its headers.
    pub(crate) fields: &'a F,
    /// The clock.
    pub(crate) wall: fn() -> SystemTime,
}

/// The headers of a response.
pub(crate) trait Fields {
    /// Calls `see` with every value of a header; the name is in lower case.
    fn each_value(&self, name: &'static str, see: &mut dyn FnMut(&[u8]));
}

impl Fields for HeaderMap {
    fn each_value(&self, name: &'static str, see: &mut dyn FnMut(&[u8])) {
        self.get_all(name).iter().for_each(|value| see(value.as_bytes()));
    }
}

/// The decision about a response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Decision {
    /// It is not compressed for any client.
    Never,
    /// It is not compressed for this client.
    NotHere,
    /// It has the headers of a compressed response, but no body: it answers HEAD, or is a 304.
    HeadOnly,
    /// It is compressed.
    Compressed,
}

impl Negotiation {
    /// The facts in the head of a request.
    pub(crate) fn of<H: Head>(compression: &Arc<Compression>, head: &H, is_http10: bool) -> Self {
        let named = |name| head.header(name).is_some();
        let disabled = head.header("user-agent").is_some_and(|agent| compression.disabled.hold(agent));
        let refused = is_http10 && !compression.http10 || disabled;
        let each = |name, see: &mut dyn FnMut(&[u8])| head.each_value(name, see);
        Self {
            compression: Arc::clone(compression),
            accepts: !refused && accepts_gzip(head) && !any_word(|see| each("cache-control", see), b"no-transform"),
            is_head: head.method() == "HEAD",
            is_http10,
            via: named("via"),
            authorized: named("authorization"),
        }
    }

    /// The compression level.
    pub(crate) fn level(&self) -> u8 {
        self.compression.level
    }

    /// Decides about a response. Whether any client gets it compressed is decided first, because caches must know
    /// (`Vary`).
    pub(crate) fn decide<F: Fields>(&self, response: &Response<'_, F>) -> Decision {
        if !self.is_worth(response) {
            return Decision::Never;
        }
        let framed = !(self.is_http10 && response.over_http2);
        if !self.accepts || !framed || self.via && !self.is_for_proxies(response) {
            Decision::NotHere
        } else if self.is_head || response.status == NOT_MODIFIED {
            Decision::HeadOnly
        } else {
            Decision::Compressed
        }
    }

    /// Returns `true` if a response is compressed for any client at all. A 304 does not have the length, and often not
    /// the type, of the response it stands for.
    fn is_worth<F: Fields>(&self, response: &Response<'_, F>) -> bool {
        let Response { status, length, over_http2, fields, .. } = *response;
        let is_unmodified = status == NOT_MODIFIED;
        let each = |name| move |see: &mut dyn FnMut(&[u8])| fields.each_value(name, see);
        let has = |name| first(each(name), |_| Some(())).is_some();
        // Compression makes an empty body longer.
        let long = length.map_or(!over_http2, |length| length >= self.compression.length_min.max(1));
        let listed = |value: &[u8]| self.compression.types.holds(value) && !is_grpc_type(value);
        let coded = |value: &[u8]| !value.is_empty() && !value.eq_ignore_ascii_case(b"identity");
        (is_unmodified || matches!(status, 200 | 403 | 404) && long)
            && first(each("content-type"), |value| Some(listed(value))).unwrap_or(is_unmodified)
            && first(each("content-encoding"), |value| coded(value).then_some(())).is_none()
            && !has("content-range")
            // A digest is computed from the uncompressed bytes (RFC 9530).
            && !["content-digest", "repr-digest", "digest", "content-md5"].into_iter().any(has)
            && !any_word(each("cache-control"), b"no-transform")
    }

    /// Returns `true` if a response to a request of another proxy is compressed, by the rule of nginx's `gzip_proxied`.
    fn is_for_proxies<F: Fields>(&self, Response { fields, wall, .. }: &Response<'_, F>) -> bool {
        let asked = |condition| self.compression.proxied.contains(&condition);
        let each = |name| move |see: &mut dyn FnMut(&[u8])| fields.each_value(name, see);
        let has = |name| first(each(name), |_| Some(())).is_some();
        if asked(Proxied::Off) {
            return false;
        }
        if asked(Proxied::Any) || asked(Proxied::Auth) && self.authorized {
            return true;
        }
        if let Some(expires) = first(each("expires"), |value| Some(date(value))) {
            let date = first(each("date"), |value| Some(date(value))).unwrap_or_else(|| Some(wall()));
            return asked(Proxied::Expired) && expires.zip(date).is_some_and(|(expires, date)| expires < date);
        }
        if has("cache-control") {
            let words = [
                (Proxied::NoCache, b"no-cache".as_slice()),
                (Proxied::NoStore, b"no-store"),
                (Proxied::Private, b"private"),
            ];
            return words
                .into_iter()
                .any(|(condition, word)| asked(condition) && any_word(each("cache-control"), word));
        }
        !(asked(Proxied::NoLastModified) && has("last-modified") || asked(Proxied::NoEtag) && has("etag"))
    }

    /// Adds the edits of the head of a response that some client gets compressed; `here` is `true` for this client. A
    /// 304 has the headers of the response it stands for (RFC 9110 section 15.4.5), except those about a body.
    pub(crate) fn edit<F: Fields>(
        &self,
        here: bool,
        Response { status, fields, .. }: &Response<'_, F>,
        edits: &mut Edits,
    ) {
        let each = |name| move |see: &mut dyn FnMut(&[u8])| fields.each_value(name, see);
        if self.compression.vary && !any_word(each("vary"), b"accept-encoding") && !any_word(each("vary"), b"*") {
            edits.add(VARY, &http::HeaderValue::from_static("Accept-Encoding"));
        }
        if !here {
            return;
        }
        if *status != NOT_MODIFIED {
            edits.set(CONTENT_ENCODING, |out| out.extend_from_slice(b"gzip"));
            // A range of the compressed body is not one of the original.
            edits.remove(ACCEPT_RANGES);
        }
        // The bytes differ from those of the tag, and have the same meaning (RFC 9110 section 8.8.1). A folded value is
        // not a tag.
        let is_plain = |tag: &[u8]| tag.iter().all(|byte| *byte > b' ' && *byte != 0x7f);
        first(each("etag"), |tag| {
            if !is_plain(tag) {
                edits.remove(ETAG);
            } else if !tag.starts_with(b"W/") {
                edits.set(ETAG, |out| [b"W/", tag].into_iter().for_each(|part| out.extend_from_slice(part)));
            }
            Some(())
        });
    }
}

/// The first result of `of` for the values.
fn first<T>(each: impl Fn(&mut dyn FnMut(&[u8])), mut of: impl FnMut(&[u8]) -> Option<T>) -> Option<T> {
    let mut found = None;
    each(&mut |value| {
        if found.is_none() {
            found = of(value);
        }
    });
    found
}

/// Returns `true` if `word` is among the comma-separated words, without their part after `=`.
fn any_word(each: impl Fn(&mut dyn FnMut(&[u8])), word: &[u8]) -> bool {
    let is = |part: &[u8]| {
        let name = part.split(|byte| *byte == b'=').next().unwrap_or_default();
        name.trim_ascii().eq_ignore_ascii_case(word)
    };
    let says = |value: &[u8]| value.split(|byte| *byte == b',').any(is);
    first(each, |value| says(value).then_some(())).is_some()
}

fn date(value: &[u8]) -> Option<SystemTime> {
    std::str::from_utf8(value).ok().and_then(|text| httpdate::parse_http_date(text).ok())
}

/// Returns `true` if a client accepts gzip (RFC 9110 section 12.5.3), and does not prefer the uncompressed body. A
/// client without `Accept-Encoding` gets no gzip. An invalid weight refuses.
fn accepts_gzip<H: Head>(head: &H) -> bool {
    let (mut gzip, mut any, mut identity): (Option<u16>, Option<u16>, Option<u16>) = (None, None, None);
    each_weighted(head, "accept-encoding", &mut |name, weight| {
        let is = |coding: &[u8]| name.eq_ignore_ascii_case(coding);
        let place = if is(b"gzip") || is(b"x-gzip") {
            &mut gzip
        } else if is(b"*") {
            &mut any
        } else if is(b"identity") {
            &mut identity
        } else {
            return;
        };
        *place = Some(place.map_or(weight, |other| other.min(weight)));
    });
    let weight = gzip.or(any).unwrap_or_default();
    weight > 0 && identity.is_none_or(|identity| identity <= weight)
}

#[cfg(test)]
mod tests;
