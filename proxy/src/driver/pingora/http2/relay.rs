//! One attempt at an HTTP/2 endpoint: the request's body one way and the response the other, at once.

use std::future::{pending, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::Bytes;
use futures::FutureExt;
use http::{Method, StatusCode};
use pingora::protocols::http::HttpTask;
use pingora::proxy::{ProxyHttp, Session};
use pingora::{Error, ErrorType, Result};
use tokio::task::unconstrained;
use tokio::time::{Sleep, sleep_until};

use super::Timeouts;
use super::response::Response;
use super::upload::Upload;
use crate::clock;
use crate::driver::pingora::context::RequestContext;
use crate::driver::pingora::failed::stop;
use crate::driver::pingora::fault;
use crate::driver::pingora::proxy_http::PingoraDriver;
use crate::driver::pingora::session::is_http2;
use crate::http::response::ends_with_head;
use crate::reason::Reason;
use crate::upstream::http2::StreamSlot;

/// The maximum number of parts of a response that are written at once: usually its head, its body and its trailers.
const PARTS_MAX: usize = 4;

/// A request between its client and its endpoint.
pub(super) struct Relay<'a> {
    pub(super) driver: &'a PingoraDriver,
    pub(super) session: &'a mut Session,
    pub(super) ctx: &'a mut RequestContext,
    pub(super) place: &'a StreamSlot,
    pub(super) timeouts: Timeouts,
    pub(super) upload: Upload,
    pub(super) response: Response,
    /// When the client took the last part of the response; at first, when the request began.
    pub(super) last_read: Instant,
}

/// The expected event on the client's side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Expected {
    /// The next piece of the body.
    Piece,
    /// Nothing but its end.
    End,
    /// Nothing but its end, and it may send more of the body, which is not read.
    Closing,
}

/// An event on either side.
enum Event {
    Client(Result<Option<Bytes>>),
    Pushed,
    Refused,
    Endpoint(Result<HttpTask, h2::Error>),
    Overdue,
}

/// Waits for the client.
async fn client(session: &mut Session, expected: Expected) -> Result<Option<Bytes>> {
    match expected {
        Expected::Piece => session.downstream_session.read_body_or_idle(false).await,
        Expected::End => session.downstream_session.read_body_or_idle(true).await,
        Expected::Closing if is_http2(session) => session.downstream_session.read_body_or_idle(true).await,
        Expected::Closing => pending().await,
    }
}

impl Relay<'_> {
    /// Carries the attempt to its end.
    pub(super) async fn run(mut self) -> Result<()> {
        self.resend().await?;
        let mut timer = pin!(sleep_until((self.last_read + self.timeouts.read).into()));
        while !(self.upload.is_over() && self.response.is_over()) {
            match self.next(timer.as_mut()).await {
                Event::Client(piece) => self.piece(piece.map_err(Error::into_down)?).await?,
                Event::Pushed => self.upload.note(clock::now()),
                Event::Refused => self.upload.refuse(),
                Event::Endpoint(Ok(task)) => self.deliver(task).await?,
                Event::Endpoint(Err(error)) => return Err(self.failed(error)),
                Event::Overdue => self.overdue()?,
            }
        }
        if self.upload.is_refused() {
            // The rest of the body is unread.
            self.session.set_keepalive(None);
        }
        Ok(())
    }

    /// Sends the part of the body that an earlier attempt, or an authorisation service, has read.
    async fn resend(&mut self) -> Result<()> {
        let is_done = self.session.as_mut().is_body_done();
        let held = self.session.as_mut().get_retry_buffer();
        if !self.upload.is_over() && (held.is_some() || is_done) {
            self.send(held, is_done).await?;
        }
        Ok(())
    }

    /// The next event, of whichever side.
    async fn next(&mut self, mut timer: Pin<&mut Sleep>) -> Event {
        let until = self.until();
        if let Some(until) = until.filter(|until| timer.deadline().into_std() > *until) {
            timer.as_mut().reset(until.into());
        }
        let Self { session, upload, response, .. } = self;
        let (waits, is_over) = (upload.waits(), response.is_over());
        let expected = match (upload.is_over(), waits) {
            (false, false) => Expected::Piece,
            (true, _) if !upload.is_refused() => Expected::End,
            _ => Expected::Closing,
        };
        let endpoint = |cx: &mut Context<'_>| {
            if waits && upload.poll_push(cx).is_ready() {
                return Poll::Ready(Event::Pushed);
            }
            if is_over && !upload.is_over() && upload.poll_reset(cx).is_ready() {
                return Poll::Ready(Event::Refused);
            }
            if is_over { Poll::Pending } else { response.poll_next(cx).map(Event::Endpoint) }
        };
        tokio::select! {
            piece = client(session, expected) => Event::Client(piece),
            event = poll_fn(endpoint) => event,
            () = timer.as_mut(), if until.is_some() => {
                if let Some(until) = until.filter(|until| *until > clock::now()) {
                    timer.reset(until.into());
                }
                Event::Overdue
            }
        }
    }

    /// The time until which something has to happen.
    fn until(&self) -> Option<Instant> {
        [self.read_end(), self.write_end(), self.client_end(), self.ctx.due()].into_iter().flatten().min()
    }

    /// The time of the last progress.
    fn progress(&self) -> Instant {
        self.upload.moved().map_or(self.last_read, |moved| moved.max(self.last_read))
    }

    /// The time until which the endpoint has to send more. Until it has the whole request, it may be silent.
    fn read_end(&self) -> Option<Instant> {
        let owes = !self.response.is_over() && (self.upload.is_over() || self.upload.waits());
        owes.then(|| self.progress() + self.timeouts.read)
    }

    /// The time until which the client has to send more of the body. Streams that may be silent for longer have a
    /// longer read timeout.
    fn client_end(&self) -> Option<Instant> {
        let awaited = !self.upload.is_over() && !self.upload.waits();
        let silence =
            if self.response.is_over() { self.timeouts.body } else { self.timeouts.body.max(self.timeouts.read) };
        awaited.then(|| self.progress() + silence)
    }

    /// The time until which it has to take more of the body.
    fn write_end(&self) -> Option<Instant> {
        self.upload.moved().filter(|_| self.upload.waits()).map(|moved| moved + self.timeouts.write)
    }

    /// Fails if the endpoint, the client, or the whole response, is overdue.
    fn overdue(&mut self) -> Result<()> {
        let now = clock::now();
        let is_past = |end: Option<Instant>| end.is_some_and(|end| end <= now);
        if !is_past(self.read_end()) && !is_past(self.ctx.due()) {
            if is_past(self.client_end()) && !self.response.is_over() {
                return Err(Error::explain(ErrorType::ReadTimedout, "a client does not end its body").into_down());
            }
            if is_past(self.write_end()) || is_past(self.client_end()) {
                // Its response may come nevertheless.
                self.upload.refuse();
            }
            return Ok(());
        }
        Err(Error::explain(ErrorType::ReadTimedout, "an HTTP/2 endpoint is overdue").into_up())
    }

    /// A piece of the request's body from the client; `None` at its end.
    async fn piece(&mut self, piece: Option<Bytes>) -> Result<()> {
        let is_last = self.session.as_mut().is_body_done() || piece.is_none();
        self.send(piece, is_last).await
    }

    async fn send(&mut self, mut piece: Option<Bytes>, is_last: bool) -> Result<()> {
        self.driver.request_body_filter(self.session, &mut piece, is_last, self.ctx).await?;
        let piece = piece.unwrap_or_default();
        if is_last || !piece.is_empty() {
            self.upload.give(piece, is_last, clock::now());
        }
        Ok(())
    }

    /// Gives the client a part of the response, and those that have arrived with it.
    async fn deliver(&mut self, first: HttpTask) -> Result<()> {
        let mut parts = Vec::with_capacity(PARTS_MAX);
        let mut failed = None;
        parts.push(self.edited(first).await?);
        if let Some(HttpTask::Header(_, true)) = parts.first() {
            // The endpoint may send more, which is not read.
            self.response.end();
        }
        while parts.len() < PARTS_MAX && !self.response.is_over() {
            let next = unconstrained(poll_fn(|cx| self.response.poll_next(cx)));
            match next.now_or_never() {
                None => break,
                Some(Ok(part)) => parts.push(self.edited(part).await?),
                Some(Err(error)) => {
                    failed = Some(error);
                    break;
                }
            }
        }
        let is_end = self.write(parts).await?;
        if let Some(error) = failed {
            return Err(self.failed(error));
        }
        if is_end {
            self.response.end();
        }
        self.response.taken();
        self.last_read = clock::now();
        Ok(())
    }

    /// Writes parts of the response. Meanwhile the next ones are held. Returns `true` if the response is complete.
    async fn write(&mut self, parts: Vec<HttpTask>) -> Result<bool> {
        let Self { session, response, .. } = self;
        let mut write = pin!(session.write_response_tasks(parts));
        poll_fn(|cx| {
            let written = write.as_mut().poll(cx);
            if written.is_pending() {
                response.hold(cx);
            }
            written
        })
        .await
    }

    /// A part of the response as the client gets it.
    async fn edited(&mut self, part: HttpTask) -> Result<HttpTask> {
        let Self { driver, session, ctx, .. } = self;
        Ok(match part {
            HttpTask::Header(mut head, is_end) => {
                // Frames leave no room for another protocol (RFC 9113 section 8.6).
                if head.status == StatusCode::SWITCHING_PROTOCOLS {
                    return Err(stop(ctx, Reason::UpstreamBroken));
                }
                driver.response_filter(session, &mut head, ctx).await?;
                let to_head = session.req_header().method == Method::HEAD;
                let is_end = is_end || ends_with_head(head.status.as_u16(), to_head);
                HttpTask::Header(head, is_end)
            }
            HttpTask::Body(mut piece, is_end) => {
                driver.response_body_filter(session, &mut piece, is_end, ctx)?;
                HttpTask::Body(piece, is_end)
            }
            HttpTask::Trailer(Some(mut trailers)) => {
                match driver.response_trailer_filter(session, &mut trailers, ctx).await? {
                    Some(rest) => HttpTask::Body(Some(rest), true),
                    None => HttpTask::Trailer(Some(trailers)),
                }
            }
            other @ (HttpTask::Trailer(None) | HttpTask::UpgradedBody(..) | HttpTask::Done | HttpTask::Failed(_)) => {
                other
            }
        })
    }

    fn failed(&self, error: h2::Error) -> Box<Error> {
        if error.is_go_away() {
            self.place.retire();
        }
        fault::of_stream(error, self.ctx.response_seen)
    }
}
