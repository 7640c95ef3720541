//! The native driver: requests to HTTP/1.1 endpoints, in plain text or over TLS. HTTP/1.1 requests are parsed without
//! an allocation by a strict parser, and HTTP/2 requests ([`http2`]) join after the head. It takes only unambiguous
//! requests; all others go to the Pingora driver, and a connection can switch between the two from request to request.
//! Both call the same steps in the same order.

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod agreement;
mod asking;
mod attempts;
mod compress;
mod downstream;
pub(crate) mod http2;
mod progress;
mod relay;
mod request;
mod response;
mod scratch;
mod stream;
mod tunnel;
mod upload;
mod write;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use self::attempts::{Transfer, UpstreamRequest};
use self::progress::Progress;
use self::request::{RequestHead, View};
use self::scratch::Scratch;
use crate::clock;
use crate::connection::ClientIo;
use crate::driver::Traffic;
use crate::http::body::{Framing, Piece};
use crate::observe::metrics::DriverUsed;
use crate::options::Options;
use crate::reason::Reason;
use crate::request::decide::Decided;
use crate::request::exchange::{Arrived, Replied};
use crate::request::phase;

/// What to do with a connection next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Next {
    /// The request is for the Pingora driver; none of its bytes were taken.
    Pingora,
    /// It was answered, and another one may follow.
    Again,
    /// It was the last one.
    Close,
}

/// Returns `true` if the settings enable this driver.
pub(crate) const fn serves(options: &Options) -> bool {
    matches!(options.driver, crate::options::Driver::Both)
}

/// Answers the request whose head of `head_bytes` bytes was read ahead, if this driver takes it. All lines of the head
/// must end with CRLF.
pub(crate) async fn carry(conn: &mut ClientIo, head_bytes: usize, traffic: &Traffic) -> Next {
    let mut scratch = Scratch::take();
    let head = conn.unread().get(..head_bytes).unwrap_or_default();
    if !scratch.request.read(head) {
        scratch.give();
        return Next::Pingora;
    }
    scratch.head.make_room();
    scratch.head.extend_from_slice(head);
    let next = request(conn, &mut scratch, traffic).await;
    scratch.give();
    next
}

async fn request(conn: &mut ClientIo, scratch: &mut Scratch, traffic: &Traffic) -> Next {
    let Scratch { head, request, room } = scratch;
    let view = request.view(head);
    let now = clock::now();
    let snapshot = traffic.published.pin();
    let routed = phase::route(&snapshot, &traffic.shared, conn.facts(), &view, &request.line());
    if routed.as_ref().is_ok_and(|routed| !routed.is_http1()) {
        return Next::Pingora;
    }
    let arrived = Arrived::new(DriverUsed::Native, snapshot, Arc::clone(&traffic.shared), now);
    let mut decided = arrived.decide(routed, conn.facts(), &view, fastrand::u128(..));
    conn.pass_all();
    conn.advance(head.len());
    let mut progress = Progress::new(request.framing, request.closes);
    progress.expects = request.expects;
    let outgoing = UpstreamRequest {
        head: &view,
        chunked: request.framing == Framing::Chunked,
        coded: false,
        closes: request.closes,
    };
    let options = &traffic.options;
    let mut transfer = Transfer { client: &mut *conn, room, progress: &mut progress, options };
    let (next, over) = loop {
        match decided {
            // Boxed: few requests wait here, and the others should not reserve space for it.
            Decided::Asks(pending) => decided = Box::pin(transfer.ask(pending, &view, &traffic.shared)).await,
            Decided::Forwards(ref mut forwarding) => {
                let over = transfer.forward(forwarding, &outgoing).await;
                break (if over.is_none() || progress.closes { Next::Close } else { Next::Again }, over);
            }
            Decided::Reply(ref replied) => {
                let rest = transfer.reply(replied, &view).await
                    && discard(transfer.client, transfer.progress, options.client.body_discard).await;
                break (if rest { Next::Again } else { Next::Close }, None);
            }
        }
    };
    decided.record(&view, &progress.end(view.target(), over));
    if progress.body.is_over() {
        // The unread bytes belong to the next request, and this one has no more.
        conn.pass_only(0);
    }
    next
}

impl Transfer<'_, ClientIo> {
    /// Answers a request without an endpoint. Returns `true` if another request may follow the rest of its body.
    async fn reply(&mut self, replied: &Replied, view: &View<'_>) -> bool {
        let reply = replied.reply();
        if reply.reason == Reason::ClientGone {
            return false;
        }
        // A client that waits for "100 Continue" may send its body or leave it out (RFC 9110, section 10.1.1): the next
        // bytes would be ambiguous.
        let undecided = self.progress.expects && !self.progress.body.is_over();
        // So are the bytes of a client that assumes the upgrade was accepted (RFC 9110 section 7.8).
        let upgrades = replied.exchange().asks_upgrade();
        let ending = self.progress.closes || self.client.facts().is_ending();
        let closes = ending || undecided || upgrades || reply.reason.closes();
        self.give(&replied.render(view), Some(replied.exchange()), closes).await && !closes
    }
}

/// Reads and discards the rest of a request's body. Returns `true` if it ended in time and well-formed.
async fn discard(conn: &mut ClientIo, progress: &mut Progress, within: Duration) -> bool {
    if progress.body.is_over() {
        return true;
    }
    let reading = async {
        loop {
            let unread = conn.unread();
            match progress.body.next(unread) {
                Ok(Piece::End) => return true,
                Ok(Piece::Unknown) => {
                    if !matches!(conn.read_ahead().await, Ok(1..)) {
                        return false;
                    }
                }
                Ok(Piece::Content(count)) => {
                    progress.bytes_in += count;
                    progress.body.took(count);
                    conn.advance(count);
                }
                Ok(Piece::Framing(count, then)) => {
                    progress.body = then;
                    conn.advance(count);
                }
                Err(_) => return false,
            }
        }
    };
    timeout(within, reading).await.unwrap_or(false)
}
