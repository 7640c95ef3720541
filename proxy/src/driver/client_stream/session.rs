//! A client's stream as a session of Pingora's proxy.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::Stream;
use h2::Reason;
use http::HeaderMap;
use pingora::http::{RequestHeader, ResponseHeader};
use pingora::protocols::Digest;
use pingora::protocols::http::HttpTask;
use pingora::protocols::http::body_buffer::FixedBuffer;
use pingora::protocols::http::custom::CustomMessageWrite;
use pingora::protocols::http::custom::server::Session;
use pingora::protocols::http::v1::client::http_req_header_to_wire;
use pingora::protocols::l4::socket::SocketAddr;
use pingora::{Error, ErrorType, Result};
use tokio::time::timeout;

use super::ClientStream;

/// The maximum size of a body that is held so that it can be sent again.
const HELD_BYTES_MAX: usize = 64 * 1024;

/// The reader of messages beside requests, which HTTP/2 has not.
type MessageReader = Box<dyn Stream<Item = Result<Bytes>> + Unpin + Send + Sync + 'static>;

#[async_trait]
impl Session for ClientStream {
    fn req_header(&self) -> &RequestHeader {
        &self.request
    }

    fn req_header_mut(&mut self) -> &mut RequestHeader {
        &mut self.request
    }

    async fn read_body_bytes(&mut self) -> Result<Option<Bytes>> {
        self.piece().await
    }

    async fn drain_request_body(&mut self) -> Result<()> {
        let limit = self.drain.unwrap_or(Duration::MAX);
        let draining = async {
            while !self.is_received() && self.piece().await?.is_some() {}
            Ok(())
        };
        timeout(limit, draining)
            .await
            .unwrap_or_else(|_| Error::e_explain(ErrorType::ReadTimedout, "a client does not end its body"))
    }

    async fn write_response_header(&mut self, head: Box<ResponseHeader>, is_end: bool) -> Result<()> {
        self.send_head(head, is_end)
    }

    async fn write_response_header_ref(&mut self, head: &ResponseHeader, is_end: bool) -> Result<()> {
        self.send_head(Box::new(head.clone()), is_end)
    }

    async fn write_body(&mut self, piece: Bytes, is_end: bool) -> Result<()> {
        self.send_piece(piece, is_end).await
    }

    async fn write_trailers(&mut self, trailers: HeaderMap) -> Result<()> {
        self.send_trailers(trailers)
    }

    async fn response_duplex_vec(&mut self, parts: Vec<HttpTask>) -> Result<bool> {
        let mut is_end = false;
        for part in parts {
            is_end |= self.send(part).await?;
        }
        if is_end {
            self.send_end()?;
        }
        Ok(is_end)
    }

    /// A stalled body has no limit of its own, as in Pingora's sessions of streams.
    fn set_read_timeout(&mut self, _: Option<Duration>) {}

    fn get_read_timeout(&self) -> Option<Duration> {
        None
    }

    fn set_write_timeout(&mut self, limit: Option<Duration>) {
        self.write_stall = limit;
    }

    fn get_write_timeout(&self) -> Option<Duration> {
        self.write_stall
    }

    fn set_total_drain_timeout(&mut self, limit: Option<Duration>) {
        self.drain = limit;
    }

    fn get_total_drain_timeout(&self) -> Option<Duration> {
        self.drain
    }

    fn request_summary(&self) -> String {
        format!("{} {}", self.request.method, self.request.uri)
    }

    fn response_written(&self) -> Option<&ResponseHeader> {
        self.written.as_deref()
    }

    async fn shutdown(&mut self, _: u32, _: &str) {
        self.reset(Reason::INTERNAL_ERROR);
    }

    fn is_body_done(&mut self) -> bool {
        self.is_received()
    }

    async fn finish(&mut self) -> Result<()> {
        self.send_end()
    }

    fn is_body_empty(&mut self) -> bool {
        self.is_bodiless()
    }

    /// After the end of the body, or without one, it waits for the client to reset the stream.
    async fn read_body_or_idle(&mut self, is_read: bool) -> Result<Option<Bytes>> {
        if !is_read && !self.is_received() {
            return self.piece().await;
        }
        match poll_fn(|cx| self.poll_gone(cx)).await {
            Ok(reason) => Error::e_explain(ErrorType::H2Error, format!("the client reset the stream: {reason}")),
            Err(error) => Err(Error::because(ErrorType::H2Error, "the connection of a client ended", error)),
        }
    }

    fn body_bytes_sent(&self) -> usize {
        self.sent
    }

    fn body_bytes_read(&self) -> usize {
        self.received
    }

    fn digest(&self) -> Option<&Digest> {
        Some(&self.digest)
    }

    fn digest_mut(&mut self) -> Option<&mut Digest> {
        Arc::get_mut(&mut self.digest)
    }

    fn client_addr(&self) -> Option<&SocketAddr> {
        self.digest.socket_digest.as_ref()?.peer_addr()
    }

    fn server_addr(&self) -> Option<&SocketAddr> {
        self.digest.socket_digest.as_ref()?.local_addr()
    }

    fn pseudo_raw_h1_request_header(&self) -> Bytes {
        http_req_header_to_wire(&self.request).unwrap_or_default().freeze()
    }

    fn enable_retry_buffering(&mut self) {
        self.held.get_or_insert_with(|| FixedBuffer::new(HELD_BYTES_MAX));
    }

    fn retry_buffer_truncated(&self) -> bool {
        self.held.as_ref().is_some_and(FixedBuffer::is_truncated)
    }

    fn get_retry_buffer(&self) -> Option<Bytes> {
        self.held.as_ref().filter(|held| !held.is_truncated())?.get_buffer()
    }

    async fn finish_custom(&mut self) -> Result<()> {
        Ok(())
    }

    fn take_custom_message_reader(&mut self) -> Option<MessageReader> {
        None
    }

    fn restore_custom_message_reader(&mut self, _: MessageReader) -> Result<()> {
        Ok(())
    }

    fn take_custom_message_writer(&mut self) -> Option<Box<dyn CustomMessageWrite>> {
        None
    }

    fn restore_custom_message_writer(&mut self, _: Box<dyn CustomMessageWrite>) -> Result<()> {
        Ok(())
    }
}
