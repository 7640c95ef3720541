//! The response of an HTTP/2 endpoint, piece by piece. The endpoint may send as much again as the client has taken.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use h2::RecvStream;
use h2::client::ResponseFuture;
use pingora::http::ResponseHeader;
use pingora::protocols::http::HttpTask;
use tokio::time::timeout;

/// The time in which an endpoint has to end a stream whose client has the whole response. A stream that is reset before
/// counts against the errors after which h2 ends a connection.
const END_WAIT: Duration = Duration::from_secs(1);

/// The response's half of a stream.
#[derive(Debug)]
pub(super) struct Response {
    stage: Stage,
    /// The bytes that the client was given, and the endpoint may not send again yet.
    given: usize,
    /// The bytes that came while the client was taking others.
    held: BytesMut,
    /// The error behind them.
    failed: Option<h2::Error>,
}

#[derive(Debug)]
enum Stage {
    Head(ResponseFuture),
    Body(RecvStream),
    Over,
}

impl Response {
    /// The response to a request.
    pub(super) fn new(answered: ResponseFuture) -> Self {
        Self { stage: Stage::Head(answered), given: 0, held: BytesMut::new(), failed: None }
    }

    /// Returns `true` if nothing more follows.
    pub(super) const fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Over)
    }

    /// The client wants no more. The stream is reset if the endpoint does not end it.
    pub(super) fn end(&mut self) {
        let Stage::Body(mut body) = std::mem::replace(&mut self.stage, Stage::Over) else { return };
        if self.held.is_empty() && !body.is_end_stream() {
            tokio::spawn(timeout(END_WAIT, async move {
                while body.data().await.is_some_and(|piece| piece.is_ok_and(|piece| piece.is_empty())) {}
            }));
        }
    }

    /// Takes the data that arrives while the client is taking other parts. It is copied into one buffer, which the
    /// window of the stream bounds.
    pub(super) fn hold(&mut self, cx: &mut Context<'_>) {
        while let Stage::Body(body) = &mut self.stage
            && self.failed.is_none()
        {
            match body.poll_data(cx) {
                Poll::Ready(Some(Ok(piece))) => self.held.extend_from_slice(&piece),
                Poll::Ready(Some(Err(error))) => self.failed = Some(error),
                // The end and the trailers stay in h2.
                Poll::Ready(None) | Poll::Pending => return,
            }
        }
    }

    /// The next part. Interim responses are left out.
    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<HttpTask, h2::Error>> {
        loop {
            match &mut self.stage {
                Stage::Head(answered) => {
                    let (parts, mut body) = ready!(Pin::new(answered).poll(cx))?.into_parts();
                    let is_end = ends(&mut body, cx)?;
                    self.stage = if is_end { Stage::Over } else { Stage::Body(body) };
                    return Poll::Ready(Ok(HttpTask::Header(Box::new(ResponseHeader::from(parts)), is_end)));
                }
                Stage::Body(body) if !self.held.is_empty() => {
                    let piece = std::mem::take(&mut self.held).freeze();
                    self.given += piece.len();
                    let is_end = self.failed.is_none() && ends(body, cx)?;
                    if is_end {
                        self.stage = Stage::Over;
                    }
                    return Poll::Ready(Ok(HttpTask::Body(Some(piece), is_end)));
                }
                Stage::Body(_) if self.failed.is_some() => {
                    self.stage = Stage::Over;
                    let Some(error) = self.failed.take() else { continue };
                    return Poll::Ready(Err(error));
                }
                Stage::Body(body) => match ready!(body.poll_data(cx)) {
                    Some(piece) => {
                        // h2 gives out parts of its buffers, so that a client that takes nothing could keep a whole
                        // buffer with a byte. Without this part, h2 reads into the same buffer again.
                        let piece = Bytes::copy_from_slice(&piece?);
                        self.given += piece.len();
                        let is_end = ends(body, cx)?;
                        if is_end {
                            self.stage = Stage::Over;
                        } else if piece.is_empty() {
                            continue;
                        }
                        return Poll::Ready(Ok(HttpTask::Body(Some(piece), is_end)));
                    }
                    None => {
                        let trailers = ready!(body.poll_trailers(cx))?;
                        self.stage = Stage::Over;
                        return Poll::Ready(Ok(match trailers {
                            Some(trailers) => HttpTask::Trailer(Some(Box::new(trailers))),
                            None => HttpTask::Body(None, true),
                        }));
                    }
                },
                Stage::Over => return Poll::Pending,
            }
        }
    }

    /// The client has taken the data, and the endpoint may send as much again.
    pub(super) fn taken(&mut self) {
        let given = std::mem::take(&mut self.given);
        if let Stage::Body(body) = &mut self.stage {
            // It fails for a stream that is over.
            body.flow_control().release_capacity(given).ok();
        }
    }
}

/// Returns `true` if nothing follows. h2 says so of a stream that has failed, too, and tells its error afterwards.
fn ends(body: &mut RecvStream, cx: &mut Context<'_>) -> Result<bool, h2::Error> {
    if !body.is_end_stream() {
        return Ok(false);
    }
    match body.poll_data(cx) {
        Poll::Ready(Some(Err(error))) => Err(error),
        Poll::Ready(Some(Ok(_)) | None) | Poll::Pending => Ok(true),
    }
}
