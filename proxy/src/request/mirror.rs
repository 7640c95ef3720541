//! Mirrored requests. The copies neither delay the original request nor fail it, and their responses are ignored.

mod copy;

use std::io::Write as _;
use std::sync::Arc;

use bytes::Bytes;
use tidegate_config::model::{Backend, Filter, Head, Mirror};

use crate::budget::{Charge, Cost};
use crate::clock;
use crate::http::edited::edited;
use crate::http::edits::Edits;
use crate::http::names::HeaderNames;
use crate::observe::mirror_metrics::Outcome;
use crate::shared::Shared;
use crate::upstream::attempt::Here;
use crate::upstream::balance::Draw;

/// The maximum size of a buffered body; a larger request is not mirrored.
const BODY_BYTES_MAX: usize = 64 * 1024;

/// Copies in preparation: the received part of the request, and the targets.
#[derive(Debug)]
pub(crate) struct Copies {
    to: Vec<(Arc<Backend>, Charge)>,
    head: Vec<u8>,
    body: Vec<u8>,
    is_large: bool,
    /// Whether the method's requests have a `Content-Length`, which may be 0.
    has_length: bool,
    /// The random source for choosing endpoints.
    draw: Draw,
}

/// The mirrors among the filters that are selected at random, each by itself.
pub(crate) fn drawn<'f>(filters: impl Iterator<Item = &'f Filter>, draw: &mut Draw) -> Vec<&'f Mirror> {
    let mirrors = filters.filter_map(|filter| match filter {
        Filter::Mirror(mirror) => Some(mirror),
        Filter::RequestHeaders(_)
        | Filter::ResponseHeaders(_)
        | Filter::Path(_)
        | Filter::Host(_)
        | Filter::Cors(_) => None,
    });
    mirrors.filter(|mirror| draw.below(mirror.denominator as usize) < mirror.numerator as usize).collect()
}

impl Copies {
    /// The copies of a request for these mirrors; `None` if there is none to send.
    pub(crate) fn begin(
        mirrors: &[&Mirror],
        shared: &Shared,
        draw: Draw,
        backend_of: impl Fn(&Mirror) -> Option<Arc<Backend>>,
    ) -> Option<Self> {
        let mut to = Vec::new();
        for mirror in mirrors {
            let backend = backend_of(mirror).filter(|backend| !backend.endpoints.is_empty());
            match backend {
                _ if !mirror.to.protocol.is_plain_http1() => shared.mirrors.count(Outcome::Unsupported),
                None => shared.mirrors.count(Outcome::NoEndpoint),
                Some(_) if !shared.budget.charge_spare(Cost::MIRROR) => shared.mirrors.count(Outcome::NoRoom),
                Some(backend) => to.push((backend, shared.budget.keep(Cost::MIRROR))),
            }
        }
        let (head, body) = (Vec::new(), Vec::new());
        (!to.is_empty()).then_some(Self { to, head, body, is_large: false, has_length: false, draw })
    }

    /// Stores the head as sent to the endpoint, without the framing of the body.
    pub(crate) fn head<H: Head + HeaderNames>(&mut self, head: &H, edits: &Edits) {
        let headers = edited(head, edits);
        self.has_length = !matches!(head.method(), "GET" | "HEAD" | "DELETE" | "OPTIONS");
        self.head.clear();
        let out = &mut self.head;
        // Writing to a Vec cannot fail.
        write!(out, "{} ", head.method()).ok();
        match (edits.target(), head.query()) {
            (Some(target), _) => out.extend_from_slice(target),
            (None, None) => out.extend_from_slice(head.path().as_bytes()),
            (None, Some(query)) => drop(write!(out, "{}?{query}", head.path())),
        }
        out.extend_from_slice(b" HTTP/1.1\r\n");
        for (name, value) in &headers {
            out.extend_from_slice(name.as_str().as_bytes());
            out.extend_from_slice(b": ");
            out.extend_from_slice(value.as_bytes());
            out.extend_from_slice(b"\r\n");
        }
    }

    /// Stores a piece of the body that begins at a position: bytes that a further attempt sends again are known.
    pub(crate) fn piece(&mut self, position: u64, piece: &[u8]) {
        let known = (self.body.len() as u64).saturating_sub(position);
        let Some(new) = usize::try_from(known).ok().and_then(|known| piece.get(known..)) else { return };
        self.is_large |= self.body.len() + new.len() > BODY_BYTES_MAX;
        if self.is_large {
            self.body = Vec::new();
        } else {
            self.body.extend_from_slice(new);
        }
    }

    /// Returns `true` if the head is stored.
    pub(crate) const fn has_head(&self) -> bool {
        !self.head.is_empty()
    }

    /// Sends the copies, after the request is complete.
    pub(crate) fn send(mut self, shared: &Arc<Shared>, here: Here<'_>) {
        if self.is_large {
            self.to.iter().for_each(|_| shared.mirrors.count(Outcome::TooLarge));
            return;
        }
        if self.has_length || !self.body.is_empty() {
            write!(self.head, "content-length: {}\r\n", self.body.len()).ok();
        }
        self.head.extend_from_slice(b"connection: close\r\n\r\n");
        self.head.append(&mut self.body);
        let bytes = Bytes::from(self.head);
        for (backend, charge) in self.to {
            copy::send(shared, (&backend, here), bytes.clone(), charge, (clock::now(), &mut self.draw));
        }
    }

    /// The request did not complete, or no endpoint took it.
    pub(crate) fn abandon(self, shared: &Shared) {
        self.to.iter().for_each(|_| shared.mirrors.count(Outcome::Abandoned));
    }
}

#[cfg(test)]
mod tests {
    use http::header::HOST;
    use http::{HeaderName, HeaderValue};
    use tidegate_config::model::AppProtocol;

    use super::*;
    use crate::sample::Sample;
    use crate::sample_model::weighted;

    fn mirror(numerator: u32, denominator: u32) -> Filter {
        let to = Arc::clone(weighted("copy", AppProtocol::Http, 1).target().unwrap());
        Filter::Mirror(Mirror { to, numerator, denominator })
    }

    fn copies() -> Copies {
        Copies {
            to: Vec::new(),
            head: Vec::new(),
            body: Vec::new(),
            is_large: false,
            has_length: false,
            draw: Draw::new(1),
        }
    }

    #[test]
    fn each_mirror_draws_its_own_lot() {
        let filters = [mirror(1, 1), mirror(0, 1), mirror(20, 100), mirror(1, 1000), Filter::Host("x".into())];
        let mut counts = [0_u32; 4];
        let mut draw = Draw::new(7);
        for _ in 0..10_000 {
            for mirror in drawn(filters.iter(), &mut draw) {
                let place = filters.iter().position(|own| matches!(own, Filter::Mirror(own) if own == mirror)).unwrap();
                counts[place] += 1;
            }
        }
        assert_eq!(counts[..2], [10_000, 0]);
        assert!((1_800..2_200).contains(&counts[2]) && (2..30).contains(&counts[3]), "{counts:?}");
    }

    #[test]
    fn a_copy_says_the_same_and_frames_it_anew() {
        let head = Sample::get("a.test", "/x?y=1").method("POST").with("x-own", "1").with("x-own", "2");
        let head = head.with("connection", "close, x-hop").with("x-hop", "3").with("transfer-encoding", "chunked");
        let mut edits = Edits::default();
        edits.set(&HOST, |out| out.extend_from_slice(b"b.internal"));
        edits.add(&HeaderName::from_static("x-more"), &HeaderValue::from_static("4"));
        let mut copy = copies();
        assert!(!copy.has_head());
        copy.head(&head, &edits);
        let text = String::from_utf8(copy.head.clone()).unwrap();
        let mut lines: Vec<_> = text.split_terminator("\r\n").collect();
        assert_eq!(lines.remove(0), "POST /x?y=1 HTTP/1.1");
        lines.sort_unstable();
        assert_eq!(lines, ["host: b.internal", "x-more: 4", "x-own: 1", "x-own: 2"]);
        assert!(copy.has_head() && copy.has_length);
        edits.set_target(|out| out.extend_from_slice(b"/new"));
        copy.head(&Sample::get("a.test", "/x"), &edits);
        assert!(copy.head.starts_with(b"GET /new HTTP/1.1\r\n") && !copy.has_length);
    }

    #[test]
    fn a_body_is_kept_once_and_up_to_a_limit() {
        let mut copy = copies();
        copy.piece(0, b"abc");
        // A further attempt begins from the start, with other pieces.
        for (position, piece) in [(0, &b"ab"[..]), (2, b"cde"), (5, b"f"), (0, b"abcdef")] {
            copy.piece(position, piece);
        }
        assert_eq!((copy.body.as_slice(), copy.is_large), (b"abcdef".as_slice(), false));
        copy.piece(6, &[b'x'; BODY_BYTES_MAX - 6]);
        assert!(!copy.is_large);
        copy.piece(BODY_BYTES_MAX as u64, b"x");
        assert!(copy.is_large && copy.body.is_empty());
    }
}
