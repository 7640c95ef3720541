//! A request that the edge answers itself, without an endpoint.

use tidegate_config::model::Head;

use super::{End, Ended, Exchange};
use crate::request::answer::Answer;
use crate::request::respond::Rendered;

/// A request with the edge's own answer to it.
#[derive(Debug)]
pub(crate) struct Answered {
    exchange: Exchange,
    answer: Answer,
}

impl Answered {
    pub(in crate::request) const fn new(exchange: Exchange, answer: Answer) -> Self {
        Self { exchange, answer }
    }

    /// The part that every request has.
    pub(crate) const fn exchange(&self) -> &Exchange {
        &self.exchange
    }

    /// The answer.
    pub(crate) const fn answer(&self) -> &Answer {
        &self.answer
    }

    /// The rendered form of the answer.
    pub(crate) fn render<H: Head + ?Sized>(&self, head: &H) -> Rendered {
        self.exchange.render(&self.answer, head)
    }

    /// Records the request. Only the first call counts.
    pub(crate) fn record<H: Head + ?Sized>(&mut self, head: &H, end: &End<'_>) {
        self.exchange.record(Some(head), Ended { answer: Some(&self.answer), attempts: None }, end);
    }
}
