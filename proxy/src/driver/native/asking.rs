//! A request that waits for an authorisation service, or for the store of limits. The part of its body that the
//! service gets is held until the request is forwarded.

use std::future::poll_fn;
use std::task::Poll;

use bytes::BytesMut;
use futures::future::{Either, select};

use super::attempts::Transfer;
use super::downstream::Downstream;
use super::request::RequestHead;
use crate::clock;
use crate::http::body::Piece;
use crate::reason::Reason;
use crate::request::decide::{Decided, Pending, PolicyAnswer};
use crate::shared::Shared;

/// The interim response after which a client sends its body.
const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

impl<C: Downstream> Transfer<'_, C> {
    /// Asks the question of a policy, and continues with the answer; if the result is a local reply with
    /// [`Reason::ClientGone`], the client has disconnected.
    pub(super) async fn ask<H: RequestHead>(&mut self, pending: Box<Pending>, head: &H, shared: &Shared) -> Decided {
        let asked = match self.hold(&pending).await {
            Ok(()) => self.wait(&pending, shared).await,
            Err(reason) => {
                // The rest of its body is not waited for a second time.
                self.progress.closes = true;
                Err(reason)
            }
        };
        pending.resume(asked, self.room.body_prefix.len(), head)
    }

    /// Waits for the answer, or for the client to disconnect.
    async fn wait(&mut self, pending: &Pending, shared: &Shared) -> Result<PolicyAnswer, Reason> {
        let body = if pending.body_bytes_max() > 0 { self.room.body_prefix.clone() } else { bytes::Bytes::new() };
        let (client, is_whole) = (&mut *self.client, self.progress.body.is_over());
        let gone = poll_fn(|cx| client.poll_gone(is_whole, cx));
        match select(Box::pin(pending.ask(body, shared)), gone).await {
            Either::Left((result, _)) => Ok(result),
            Either::Right(((), _)) => Err(Reason::ClientGone),
        }
    }

    /// Reads the body to its end, which must not exceed the maximum of the service and must arrive in time, within the
    /// deadline of the request.
    async fn hold(&mut self, pending: &Pending) -> Result<(), Reason> {
        let max = pending.body_bytes_max();
        if max == 0 {
            return Ok(());
        }
        let timeouts = self.options.client.write_stall;
        // HTTP/2 clients get no interim response, and do not wait for one for long.
        if std::mem::take(&mut self.progress.expects) && C::CHUNKS && !self.progress.body.is_over() {
            let out = &mut self.room.to_client;
            out.make_room();
            out.extend_from_slice(CONTINUE);
            if !self.send(false, timeouts, Some(pending.exchange())).await {
                return Err(Reason::ClientGone);
            }
        }
        let (until, late) = pending.hold_end(clock::now() + self.options.client.body_read_stall);
        let mut held = BytesMut::from(&*self.room.body_prefix);
        let Self { client, progress, .. } = self;
        let read = poll_fn(|cx| {
            loop {
                if held.len() > max {
                    return Poll::Ready(Err(Reason::BodyTooLarge));
                }
                let unread = client.unread();
                let count = match progress.body.next(unread) {
                    Err(_) => return Poll::Ready(Err(Reason::MalformedRequest)),
                    Ok(Piece::End) => return Poll::Ready(Ok(())),
                    Ok(Piece::Framing(count, then)) => {
                        progress.body = then;
                        count
                    }
                    Ok(Piece::Content(count)) => {
                        let count = count.min(max + 1 - held.len());
                        held.extend_from_slice(&unread[..count]);
                        progress.body.took(count);
                        progress.bytes_in += count;
                        count
                    }
                    Ok(Piece::Unknown) => match client.poll_read_ahead(cx) {
                        Poll::Pending => return client.poll_alarm(until, cx).map(|()| Err(late)),
                        Poll::Ready(Ok(1..)) => 0,
                        Poll::Ready(Ok(0)) if progress.body.closed().is_ok() => 0,
                        Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(Err(Reason::ClientGone)),
                    },
                };
                client.advance(count);
            }
        });
        read.await?;
        self.room.body_prefix = held.freeze();
        Ok(())
    }
}
