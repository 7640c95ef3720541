//! The Pingora driver: Pingora's phases, each with a call or two into the state of the request. The only place that
//! implements Pingora's `ProxyHttp`.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use http::header::{CONNECTION, CONTENT_LENGTH, EXPECT, SERVER, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use pingora::http::{RequestHeader, ResponseHeader};
use pingora::modules::http::HttpModules;
use pingora::protocols::Digest;
use pingora::proxy::{FailToProxy, ProxyHttp, ProxyWarnLogContext, Session};
use pingora::upstreams::peer::HttpPeer;
use pingora::{Error, ErrorType, Result};
use tidegate_config::model::{Head, request_host};
use tidegate_config::published::Published;
use tokio::time::sleep;

use super::asking;
use super::body_rates::{BodyRates, TooSlow};
use super::compress;
use super::context::{GRACE, RequestContext, State};
use super::endpoint_socket::OpenedConnector;
use super::failed::{broke, connect_failed, stop};
use super::fault;
use super::head::{FramedResponse, Parsed, detach, edit_request, edit_response, frame_response};
use super::http2;
use super::peer::{ConnectionNeeds, peer};
use super::session::{
    discard_body, facts, has_begun, is_before_http11, is_http2, keep_dates, refuses, set_deadlines, unless_gone,
    write_reply,
};
use crate::clock;
use crate::connection::response_deadline::ResponseDeadline;
use crate::http::edits::Edits;
use crate::http::gzip::Broken;
use crate::http::response::ends_with_head;
use crate::observe::metrics::DriverUsed;
use crate::reason::Reason;
use crate::request::decide::Decided;
use crate::request::exchange::{Arrived, End};
use crate::request::phase;
use crate::request::respond::Received;
use crate::shared::Shared;

/// Proxies requests according to the newest snapshot.
#[derive(Debug)]
pub(crate) struct PingoraDriver {
    published: Published,
    shared: Arc<Shared>,
}

impl PingoraDriver {
    /// A driver that reads these snapshots.
    pub(crate) const fn new(published: Published, shared: Arc<Shared>) -> Self {
        Self { published, shared }
    }

    /// The client gets a whole response. From now on the rest of an HTTP/1.1 request body is only read so that the
    /// connection can be closed.
    fn discard_rest(&self, session: &mut Session, ctx: &mut RequestContext) {
        if !is_http2(session) && !session.was_upgraded() && !session.is_body_done() {
            ctx.discards_body = true;
            session.set_read_timeout(Some(self.shared.options.client.body_discard));
        }
    }

    /// The state that all drivers share.
    pub(super) fn shared(&self) -> &Shared {
        &self.shared
    }
}

#[async_trait]
impl ProxyHttp for PingoraDriver {
    type CTX = RequestContext;

    fn new_ctx(&self) -> RequestContext {
        let arrived = Arrived::new(DriverUsed::Pingora, self.published.pin(), Arc::clone(&self.shared), clock::now());
        RequestContext {
            state: State::Arrived(arrived),
            link: None,
            due: ResponseDeadline::current(),
            grace: Duration::ZERO,
            uploads: false,
            response_seen: false,
            passed_over: false,
            refused: false,
            discards_body: false,
            rates: BodyRates::default(),
            gzip: None,
        }
    }

    /// None of Pingora's: compression is shared by both drivers.
    fn init_downstream_modules(&self, _: &mut HttpModules) {}

    async fn early_request_filter(&self, session: &mut Session, _: &mut RequestContext) -> Result<()> {
        set_deadlines(session, &self.shared);
        Ok(())
    }

    async fn request_filter(&self, session: &mut Session, ctx: &mut RequestContext) -> Result<bool> {
        let arrived = std::mem::replace(&mut ctx.state, State::Deciding);
        // Every connection has its facts, and Pingora calls this once, with the head of the request.
        let (State::Arrived(arrived), Some(facts)) = (arrived, facts(session)) else {
            return Error::e_explain(
                ErrorType::InternalError,
                "a request without a connection, or decided upon before",
            );
        };
        let head = Parsed::new(session.req_header());
        let routed = phase::route(arrived.snapshot(), &self.shared, &facts, &head, &head.line());
        let mut decided = arrived.decide(routed, &facts, &head, fastrand::u128(..));
        let mut body = BytesMut::new();
        ctx.state = loop {
            match decided {
                Decided::Asks(pending) => {
                    decided = Box::pin(asking::ask(session, pending, &mut body, &self.shared)).await;
                }
                Decided::Forwards(forwarding) => break State::Forwarding(forwarding),
                Decided::Reply(replied) => break State::Replied(replied),
            }
        };
        if let State::Forwarding(forwarding) = &ctx.state
            && forwarding.is_grpc_stream(&Parsed::new(session.req_header()))
        {
            ctx.rates = BodyRates::unbounded();
        }
        let State::Replied(replied) = &ctx.state else { return Ok(false) };
        if replied.reply().reason == Reason::ClientGone {
            return Err(stop(ctx, Reason::ClientGone));
        }
        write_reply(session, replied.exchange(), replied.reply(), Some(replied.exchange())).await?;
        discard_body(session).await;
        Ok(true)
    }

    /// Requests to HTTP/2 endpoints are forwarded without Pingora.
    async fn proxy_upstream_filter(&self, session: &mut Session, ctx: &mut RequestContext) -> Result<bool> {
        if !ctx.is_over_http2() {
            return Ok(true);
        }
        // Boxed, because other requests should not have its size.
        Box::pin(http2::forward(self, session, ctx)).await?;
        Ok(false)
    }

    async fn upstream_peer(&self, session: &mut Session, ctx: &mut RequestContext) -> Result<Box<HttpPeer>> {
        if let Some(pause) = ctx.forwarding()?.pause(clock::now(), fastrand::u64(..)) {
            unless_gone(session, sleep(pause)).await.map_err(|reason| stop(ctx, reason))?;
        }
        // Over HTTP/2, nothing else ends the wait for a client that has stopped sending.
        let uploads = !is_http2(session) && !session.is_body_empty();
        let head = Parsed::new(session.req_header());
        let limits = &self.shared.options.upstream;
        let host = head.authority().and_then(request_host).unwrap_or_default();
        let pause = if uploads { self.shared.options.client.body_read_stall } else { Duration::ZERO };
        let to_head = session.req_header().method == Method::HEAD;
        let overruns = &self.shared.metrics.upstream_overruns;
        let need = ConnectionNeeds { host: &host, pool_size: limits.pool_size, to_head, overruns, pause };
        // Connecting ends at the deadline too, and is answered.
        ctx.grace = GRACE;
        let attempt = ctx.forwarding()?.attempt(clock::now(), fastrand::u64(..)).map(|attempt| {
            let after = if attempt.response.is_some() { GRACE } else { Duration::ZERO };
            (peer(&attempt, &need), attempt.connect_timeout(), after)
        });
        ctx.uploads = uploads && attempt.is_ok();
        ctx.agree();
        let ((mut peer, link), within, after) = attempt.map_err(|reason| stop(ctx, reason))?;
        // Opened here and not by Pingora, which would not notice meanwhile that the client disconnects.
        let opened = unless_gone(session, OpenedConnector::of(Arc::clone(&link), within)).await;
        peer.options.custom_l4 = Some(Arc::new(opened.map_err(|reason| stop(ctx, reason))?));
        (ctx.link, ctx.grace) = (Some(link), after);
        Ok(Box::new(peer))
    }

    async fn connected_to_upstream(
        &self,
        session: &mut Session,
        reused: bool,
        _: &HttpPeer,
        _: std::os::unix::io::RawFd,
        _: Option<&Digest>,
        ctx: &mut RequestContext,
    ) -> Result<()> {
        let now = clock::now();
        let reused = ctx.is_reused(reused);
        let awaits = ctx.uploads && session.req_header().headers.contains_key(EXPECT);
        let forwarding = ctx.forwarding()?;
        forwarding.connected(reused, now);
        if awaits {
            // The body waits for "100 Continue" from the endpoint.
            forwarding.awaited(now);
        }
        ctx.agree();
        Ok(())
    }

    /// Runs after Pingora has removed the hop-by-hop headers, so that no client can have the headers removed that are
    /// set here.
    async fn upstream_request_filter(
        &self,
        session: &mut Session,
        request: &mut RequestHeader,
        ctx: &mut RequestContext,
    ) -> Result<()> {
        let mut edits = Edits::default();
        let forwarding = ctx.forwarding()?;
        forwarding.request_edits(&Parsed::new(session.req_header()), &mut edits);
        if session.is_body_empty() {
            forwarding.request_is_whole();
        }
        if session.is_body_done() {
            // The client got the interim response when its body was held, which may be empty.
            request.remove_header(&EXPECT);
        }
        edit_request(edits, request)
    }

    async fn request_body_filter(
        &self,
        session: &mut Session,
        body: &mut Option<Bytes>,
        is_last: bool,
        ctx: &mut RequestContext,
    ) -> Result<()> {
        let piece = body.as_deref().filter(|_| !session.was_upgraded()).unwrap_or_default();
        let length = piece.len();
        ctx.forwarding()?.body(piece, is_last).map_err(|reason| stop(ctx, reason))?;
        let sent = ctx.rates.sent(body, is_last, self.shared.rates(), clock::now());
        sent.map_err(|TooSlow| stop(ctx, Reason::BodyStalled))?;
        if ctx.uploads && (is_last || length > 0) {
            let forwarding = ctx.forwarding()?;
            if is_last {
                forwarding.awaited(clock::now());
            } else {
                forwarding.not_awaited();
            }
            ctx.agree();
        }
        if is_last && body.as_ref().is_some_and(Bytes::is_empty) {
            // Pingora would send it to an HTTP/1.1 endpoint as a chunk of size 0, and the last chunk after it.
            *body = None;
        }
        Ok(())
    }

    async fn response_filter(
        &self,
        session: &mut Session,
        response: &mut ResponseHeader,
        ctx: &mut RequestContext,
    ) -> Result<()> {
        ctx.response_seen = true;
        let to_head = session.req_header().method == Method::HEAD;
        let framed = frame_response(response, to_head, is_http2(session));
        let FramedResponse { is_chunked, is_stray } = framed.map_err(|_| stop(ctx, Reason::UpstreamBroken))?;
        let status = response.status;
        if status == StatusCode::SWITCHING_PROTOCOLS {
            // The end of an upgrade response that was not requested would be ambiguous (RFC 9110 section 15.2.2).
            if !ctx.forwarding()?.asks_upgrade() {
                return Err(stop(ctx, Reason::UpstreamBroken));
            }
            session.set_read_timeout(Some(ctx.forwarding()?.tunnel_idle()));
            facts(session).inspect(|facts| facts.becomes_tunnel());
            ctx.rates = BodyRates::unbounded();
            ctx.link.as_ref().inspect(|link| link.becomes_tunnel());
        } else if status.is_informational() {
            for name in ["connection", "keep-alive", "proxy-connection", "upgrade"] {
                response.remove_header(name);
            }
            return Ok(());
        } else if ctx.forwarding()?.asks_upgrade() || facts(session).is_some_and(|facts| facts.is_ending()) {
            // Bytes for a protocol that the endpoint has refused look like requests.
            session.set_keepalive(None);
        }
        let is_empty = response.headers.get(CONTENT_LENGTH).is_some_and(|length| length == "0");
        let (status, now) = (status.as_u16(), clock::now());
        let is_bodiless = status != 101 && (is_empty || ends_with_head(status, to_head));
        if is_stray {
            ctx.link.as_ref().inspect(|link| link.must_not_be_reused());
        }
        if is_bodiless {
            // Pingora does not report the end of a response without a body.
            ctx.response_is_over();
        }
        let replayable = !session.as_ref().retry_buffer_truncated();
        if ctx.forwarding()?.passes_over(status, replayable, now) {
            ctx.passed_over = true;
            return Err(Error::explain(ErrorType::HTTPStatus(status), "passed over"));
        }
        ctx.forwarding()?.response_began(status, now);
        ctx.agree();
        if is_chunked && is_before_http11(session) {
            // HTTP/1.0 has no chunked coding, so the body ends with the connection (RFC 9112 section 6.1).
            response.remove_header(&TRANSFER_ENCODING);
            session.set_keepalive(None);
        }
        if is_http2(session) {
            detach(response)?;
        }
        let connection = response.headers.get_all(CONNECTION).iter().map(HeaderValue::as_bytes);
        let mut edits = Edits::default();
        let has_server = response.headers.contains_key(SERVER);
        let received = Received { status, connection, has_server };
        let listed = ctx.forwarding()?.response_edits(received, &mut edits);
        listed.map_err(|reason| stop(ctx, reason))?;
        let over_http2 = ctx.is_over_http2();
        ctx.gzip = compress::begin(session, response, ctx.forwarding()?, over_http2, &mut edits)?;
        edit_response(edits, response)?;
        keep_dates(session, response);
        if is_bodiless {
            self.discard_rest(session, ctx);
        }
        Ok(())
    }

    /// Over HTTP/1.1, [`crate::connection`] checks the rate of the client.
    fn response_body_filter(
        &self,
        session: &mut Session,
        body: &mut Option<Bytes>,
        is_last: bool,
        ctx: &mut RequestContext,
    ) -> Result<Option<Duration>> {
        if is_last {
            ctx.response_is_over();
        }
        if let Some(gzip) = &mut ctx.gzip {
            let compressed = compress::piece(gzip, body, is_last);
            compressed.map_err(|Broken| stop(ctx, Reason::Internal))?;
        }
        if is_http2(session) {
            let given = ctx.rates.given(body, self.shared.rates(), clock::now());
            given.map_err(|TooSlow| stop(ctx, Reason::ClientGone))?;
        }
        ctx.passed();
        if is_last {
            self.discard_rest(session, ctx);
        }
        Ok(None)
    }

    /// A compressed body ends in place of its trailers, which are not forwarded.
    async fn response_trailer_filter(
        &self,
        session: &mut Session,
        trailers: &mut HeaderMap,
        ctx: &mut RequestContext,
    ) -> Result<Option<Bytes>> {
        // To a client of HTTP/1 they are not sent in any case, and its body is complete.
        if refuses(session, trailers).await && is_http2(session) {
            return Err(stop(ctx, Reason::UpstreamBroken));
        }
        let Some(gzip) = &mut ctx.gzip else { return Ok(None) };
        let mut rest = None;
        compress::piece(gzip, &mut rest, true).map_err(|Broken| stop(ctx, Reason::Internal))?;
        Ok(rest)
    }

    fn fail_to_connect(
        &self,
        _: &mut Session,
        _: &HttpPeer,
        ctx: &mut RequestContext,
        error: Box<Error>,
    ) -> Box<Error> {
        connect_failed(ctx, error)
    }

    fn error_while_proxy(
        &self,
        _: &HttpPeer,
        session: &mut Session,
        error: Box<Error>,
        ctx: &mut RequestContext,
        reused: bool,
    ) -> Box<Error> {
        broke(session, error, ctx, reused)
    }

    async fn fail_to_proxy(&self, session: &mut Session, error: &Error, ctx: &mut RequestContext) -> FailToProxy {
        if let State::Arrived(_) | State::Deciding = &ctx.state {
            // A fault of the edge, before there is anything to record.
            self.shared.metrics.answered(Reason::Internal);
            drop(session.respond_error(Reason::Internal.status()).await);
            return FailToProxy { error_code: Reason::Internal.status(), can_reuse_downstream: false };
        }
        if ctx.discards_body {
            // The client has its response.
            return FailToProxy { error_code: 0, can_reuse_downstream: false };
        }
        let mut reason = fault::reason(error);
        if let State::Forwarding(forwarding) = &mut ctx.state {
            reason = forwarding.in_time(reason, clock::now());
            if session.was_upgraded() && matches!(reason, Reason::UpstreamTimeout | Reason::BodyStalled) {
                reason = Reason::TunnelIdle;
            }
        }
        let status = ctx.failed(reason);
        let reply = match &ctx.state {
            State::Forwarding(forwarding) => forwarding.reply().map(|reply| (forwarding.exchange(), reply, None)),
            State::Replied(replied) => Some((replied.exchange(), replied.reply(), Some(replied.exchange()))),
            State::Arrived(_) | State::Deciding | State::Recorded => None,
        };
        let due = reply.filter(|(_, reply, _)| reply.reason != Reason::ClientGone && !has_begun(session));
        let Some((exchange, reply, payer)) = due else {
            return FailToProxy { error_code: 0, can_reuse_downstream: false };
        };
        // Pingora closes the connection after every failure of a request that it sent to an endpoint itself, and the
        // answer has to announce it. After the others it can stay open, unless the request is not read to its end.
        let may_go_on = ctx.is_over_http2() && !is_http2(session) && session.is_body_done();
        if !may_go_on || facts(session).is_none_or(|facts| facts.is_ending()) {
            session.set_keepalive(None);
        }
        // If this fails, the client has disconnected too.
        let given = write_reply(session, exchange, reply, payer).await.is_ok();
        discard_body(session).await;
        let goes_on = given && session.get_keepalive().is_some();
        ctx.refused = !is_http2(session) && !goes_on;
        FailToProxy { error_code: status, can_reuse_downstream: goes_on }
    }

    async fn logging(&self, session: &mut Session, error: Option<&Error>, ctx: &mut RequestContext) {
        let head = Parsed::new(session.req_header());
        let target = String::from_utf8_lossy(session.req_header().raw_path());
        let end = End {
            status: session.response_written().map(|response| response.status.as_u16()),
            is_cut: error.is_some_and(|error| fault::reason(error) == Reason::ClientGone),
            bytes_in: session.body_bytes_read(),
            bytes_out: session.body_bytes_sent(),
            target: &target,
            now: clock::now(),
            wall: clock::wall(),
        };
        // From here on its charges are free again, and not only with the connection.
        match std::mem::replace(&mut ctx.state, State::Recorded) {
            State::Forwarding(mut forwarding) => forwarding.record(Some(&head), &end),
            State::Replied(mut replied) => replied.record(&head, &end),
            State::Arrived(_) | State::Deciding | State::Recorded => {}
        }
        // The deadline belongs to the connection, which outlives the request.
        ctx.agree();
        if ctx.refused {
            // Closed with unread pipelined requests, the connection would be reset, and the answer with it.
            session.as_mut().shutdown().await;
        }
    }

    /// Errors are in the metrics and the access log.
    fn suppress_error_log(&self, _: &Session, _: &RequestContext, _: &Error) -> bool {
        true
    }

    fn suppress_proxy_warn_log(&self, _: &Session, _: &RequestContext, _: &Error, _: ProxyWarnLogContext) -> bool {
        true
    }
}
