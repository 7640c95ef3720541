//! Whether the response of a request is compressed.

use super::Exchange;
use crate::http::compression::{Decision, Fields, Response};
use crate::http::edits::Edits;
use crate::http::gzip::Gzip;

/// What compression makes of a response.
#[derive(Debug)]
pub(crate) enum Coding {
    /// It keeps its body and its length.
    Unchanged,
    /// It has no body, and its length would be that of the other one.
    HeadOnly,
    /// Its body goes through the encoder, and nobody knows its length beforehand.
    Gzip(Gzip),
}

impl Exchange {
    /// Decides whether the response is compressed, and lists what that changes of its head, after everything else that does.
    pub(crate) fn compress<F: Fields>(&mut self, response: &Response<'_, F>, edits: &mut Edits) -> Coding {
        let Some(negotiation) = self.negotiation.take() else { return Coding::Unchanged };
        let coding = match negotiation.decide(response) {
            Decision::Never => return Coding::Unchanged,
            Decision::HeadOnly => Coding::HeadOnly,
            Decision::Compressed if self.charge_compression() => Coding::Gzip(Gzip::new(negotiation.level())),
            Decision::Compressed | Decision::NotHere => Coding::Unchanged,
        };
        negotiation.edit(!matches!(coding, Coding::Unchanged), response, edits);
        coding
    }
}
