//! The compression of a response body in transit: received bytes go through the encoder into the send buffer, and the
//! encoder is flushed when the endpoint pauses.

use std::task::{Context, Poll};

use tokio::task::coop;

use super::downstream::Downstream;
use super::progress::ResponsePart;
use super::relay::{Flow, Relay, Step};
use super::response::Response;
use super::scratch::RelayBuffers;
use super::write;
use crate::buffers::Buffer;
use crate::http::body::{Body, Piece};
use crate::http::compression::Fields;
use crate::http::gzip::{Goal, Gzip, ROOM_MIN};
use crate::reason::Reason;

/// The input of one step in bytes. Tokio counts the steps of a task, and yields to other tasks after 128 of them.
const PIECE_BYTES: usize = 2 * 1024;

/// The maximum output of one step in bytes.
const GIVEN_MAX: usize = 4 * 1024;

/// A response head, and its bytes.
pub(super) struct Received<'a>(pub(super) &'a Response, pub(super) &'a [u8]);

impl Fields for Received<'_> {
    fn each_value(&self, name: &'static str, see: &mut dyn FnMut(&[u8])) {
        self.0.values(self.1, name).for_each(see);
    }
}

impl<C: Downstream> Relay<'_, C> {
    /// Compresses the received part of the response's body.
    pub(super) fn compress(&mut self, mut body: Body, chunked: bool, cx: &mut Context<'_>) -> Result<Flow, Reason> {
        let mut flow = Flow::NeedsUpstreamRead;
        while self.room.to_client.space() >= ROOM_MIN {
            let RelayBuffers { from_endpoint: from, to_client: out, gzip: Some(gzip), .. } = &mut *self.room else {
                break;
            };
            let (count, goal) = match body.next(from).map_err(|_| Reason::UpstreamBroken)? {
                Piece::Unknown => break,
                Piece::Framing(count, then) => {
                    body = then;
                    from.advance(count);
                    continue;
                }
                Piece::Content(count) => (count.min(PIECE_BYTES), Goal::More),
                Piece::End => (0, Goal::End),
            };
            let Poll::Ready(turn) = coop::poll_proceed(cx) else {
                flow = Flow::NeedsDownstreamWrite;
                break;
            };
            turn.made_progress();
            let (taken, given) = encode(gzip, &from[..count], goal, chunked, out)?;
            self.progress.bytes_out += given;
            body.took(taken);
            from.advance(taken);
            if gzip.is_over() {
                return Ok(self.end(chunked));
            }
        }
        self.progress.response = ResponsePart::Body { body, chunked };
        Ok(flow)
    }

    /// Flushes the encoder, so that the client can read everything that the endpoint sent before it paused. Returns
    /// `true` if there was anything to flush.
    pub(super) fn flush_compressed(&mut self) -> Step {
        let ResponsePart::Body { chunked, .. } = self.progress.response else { return Ok(false) };
        let RelayBuffers { to_client: out, gzip: Some(gzip), .. } = &mut *self.room else { return Ok(false) };
        // When the task has used up its budget, it is unknown whether the endpoint pauses.
        if !gzip.has_unflushed() || out.space() < ROOM_MIN || !coop::has_budget_remaining() {
            return Ok(false);
        }
        self.progress.bytes_out += encode(gzip, &[], Goal::Flush, chunked, out)?.1;
        Ok(true)
    }
}

/// One step of the encoder, whose output is appended to `out`. Returns the number of bytes taken and given.
fn encode(
    gzip: &mut Gzip,
    content: &[u8],
    goal: Goal,
    chunked: bool,
    out: &mut Buffer,
) -> Result<(usize, usize), Reason> {
    let mut into = [0; GIVEN_MAX];
    let room = out.space().min(GIVEN_MAX);
    let moved = gzip.step(content, &mut into[..room], goal).map_err(|_| Reason::Internal)?;
    // An empty chunk would be the last one.
    if moved.given > 0 {
        out.make_room();
        write::content(&into[..moved.given], chunked, out.end());
    }
    Ok((moved.taken, moved.given))
}
