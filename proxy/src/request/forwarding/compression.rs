//! Compression of a request's response.

use super::Forwarding;
use crate::http::compression::{Decision, Fields, Response};
use crate::http::edits::Edits;
use crate::http::gzip::Gzip;

/// The effect of compression on a response.
#[derive(Debug)]
pub(crate) enum Coding {
    /// It keeps its body and its length.
    Unchanged,
    /// It has no body, and the compressed one would have another length.
    HeadOnly,
    /// Its body goes through the encoder, so its length is unknown.
    Gzip(Gzip),
}

impl Forwarding {
    /// Decides whether the response is compressed, and adds the edits of its head, after all others.
    pub(crate) fn compress<F: Fields>(&mut self, response: &Response<'_, F>, edits: &mut Edits) -> Coding {
        let Some(negotiation) = self.negotiation.take() else { return Coding::Unchanged };
        let coding = match negotiation.decide(response) {
            Decision::Never => return Coding::Unchanged,
            Decision::HeadOnly => Coding::HeadOnly,
            Decision::Compressed if self.charges.charge_compression(&self.exchange) => {
                Coding::Gzip(Gzip::new(negotiation.level()))
            }
            Decision::Compressed | Decision::NotHere => Coding::Unchanged,
        };
        negotiation.edit(!matches!(coding, Coding::Unchanged), response, edits);
        coding
    }
}
