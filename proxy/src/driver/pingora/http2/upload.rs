//! The body of a request on its way to an HTTP/2 endpoint: one piece at a time, as far as the endpoint's window allows.

use std::task::{Context, Poll, ready};
use std::time::Instant;

use bytes::Bytes;
use h2::SendStream;

/// The request's half of a stream.
#[derive(Debug)]
pub(super) struct Upload {
    stream: SendStream<Bytes>,
    /// The rest of the current piece.
    piece: Bytes,
    /// Whether it is the last one.
    is_last: bool,
    /// When the endpoint took the last bytes, or the current piece came.
    moved: Option<Instant>,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// More follows.
    Open,
    /// The endpoint has been given all of it.
    Whole,
    /// The endpoint takes no more.
    Refused,
}

impl Upload {
    /// The body on a stream; `is_empty` if the request has none.
    pub(super) const fn new(stream: SendStream<Bytes>, is_empty: bool) -> Self {
        let stage = if is_empty { Stage::Whole } else { Stage::Open };
        Self { stream, piece: Bytes::new(), is_last: false, moved: None, stage }
    }

    /// Returns `true` if nothing more is sent.
    pub(super) fn is_over(&self) -> bool {
        self.stage != Stage::Open
    }

    /// Returns `true` if the endpoint took no more before the end.
    pub(super) fn is_refused(&self) -> bool {
        self.stage == Stage::Refused
    }

    /// Returns `true` while a piece waits for the endpoint.
    pub(super) fn waits(&self) -> bool {
        self.stage == Stage::Open && (self.is_last || !self.piece.is_empty())
    }

    /// When the endpoint took the last bytes, or the current piece came.
    pub(super) const fn moved(&self) -> Option<Instant> {
        self.moved
    }

    /// Takes the next piece.
    pub(super) fn give(&mut self, piece: Bytes, is_last: bool, now: Instant) {
        (self.piece, self.is_last, self.moved) = (piece, is_last, Some(now));
    }

    /// The endpoint takes no more.
    pub(super) fn refuse(&mut self) {
        self.stage = Stage::Refused;
        self.piece = Bytes::new();
        // A window that comes later is for other streams.
        self.stream.reserve_capacity(0);
    }

    /// Sends the current piece. Ready when the endpoint has taken some of it, or takes no more.
    pub(super) fn poll_push(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut room = 0;
        while room == 0 && !self.piece.is_empty() {
            self.stream.reserve_capacity(self.piece.len());
            match ready!(self.stream.poll_capacity(cx)) {
                Some(Ok(bytes)) => room = bytes.min(self.piece.len()),
                Some(Err(_)) | None => {
                    self.refuse();
                    return Poll::Ready(());
                }
            }
        }
        let part = self.piece.split_to(room);
        let is_end = self.is_last && self.piece.is_empty();
        match self.stream.send_data(part, is_end) {
            Ok(()) if is_end => self.stage = Stage::Whole,
            Ok(()) => {}
            Err(_) => self.refuse(),
        }
        Poll::Ready(())
    }

    /// Notes that the endpoint has taken something.
    pub(super) const fn note(&mut self, now: Instant) {
        self.moved = Some(now);
    }

    /// Ready when the endpoint takes no more.
    pub(super) fn poll_reset(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.stream.poll_reset(cx).map(drop)
    }
}
