//! Whether the response of a request is compressed.

use super::Exchange;
use crate::clock;
use crate::http::compression::{Decision, Fields, Response};
use crate::http::edits::Edits;
use crate::http::gzip::Gzip;

impl Exchange {
    /// Decides whether the response is compressed, and lists what that changes of its head, after everything else that does; the
    /// encoder of its body, if it is. `length` is what the endpoint announces, where that frames the body.
    pub(crate) fn compress<F: Fields>(
        &mut self,
        status: u16,
        length: Option<u64>,
        fields: &F,
        edits: &mut Edits,
    ) -> Option<Gzip> {
        let negotiation = self.negotiation.take()?;
        let response = Response { status, length, fields, wall: clock::wall };
        let decision = negotiation.decide(&response);
        if decision == Decision::Never {
            return None;
        }
        let here = decision == Decision::Compressed && self.charge_compression();
        negotiation.edit(here, fields, edits);
        here.then(|| Gzip::new(negotiation.level()))
    }
}
