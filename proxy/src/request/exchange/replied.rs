//! A request that the edge answers itself, without an endpoint.

use tidegate_config::model::Head;

use super::{End, Ended, Exchange};
use crate::request::local_reply::LocalReply;
use crate::request::respond::Rendered;

/// A request with the local reply to it.
#[derive(Debug)]
pub(crate) struct Replied {
    exchange: Exchange,
    reply: LocalReply,
}

impl Replied {
    pub(in crate::request) const fn new(exchange: Exchange, reply: LocalReply) -> Self {
        Self { exchange, reply }
    }

    /// The part that every request has.
    pub(crate) const fn exchange(&self) -> &Exchange {
        &self.exchange
    }

    /// The answer.
    pub(crate) const fn reply(&self) -> &LocalReply {
        &self.reply
    }

    /// The rendered form of the answer.
    pub(crate) fn render<H: Head + ?Sized>(&self, head: &H) -> Rendered {
        self.exchange.render(&self.reply, head)
    }

    /// Records the request. Only the first call counts.
    pub(crate) fn record<H: Head + ?Sized>(&mut self, head: &H, end: &End<'_>) {
        self.exchange.record(Some(head), Ended { reply: Some(&self.reply), attempts: None }, end);
    }
}
