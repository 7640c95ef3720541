//! The edits of both heads on their way through the edge, and the compression of the response.

use tidegate_config::model::Head;

use super::Forwarding;
use crate::http::compression::{Decision, Fields, Response};
use crate::http::edits::Edits;
use crate::http::gzip::Gzip;
use crate::http::names::HeaderNames;
use crate::reason::Reason;
use crate::request::respond::{self, Received};
use crate::request::rewrite;

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
    /// The edits of the request to the endpoint.
    pub(crate) fn request_edits<H: Head + HeaderNames>(&mut self, head: &H, edits: &mut Edits) {
        let Self { exchange, request, admitted, effective, target, .. } = &*self;
        let at = (&**admitted.route(), exchange.filters());
        let input = exchange.rewrite_input(request, at, effective, target.protocol);
        rewrite::request(head, &input, edits);
        if let Some(copies) = &mut self.copies {
            copies.head(head, edits);
        }
    }

    /// The edits of the response to the client.
    ///
    /// # Errors
    /// [`Reason::UpstreamBroken`] if the endpoint names too many headers in `Connection`.
    pub(crate) fn response_edits<'v>(
        &self,
        received: Received<impl Iterator<Item = &'v [u8]>>,
        edits: &mut Edits,
    ) -> Result<(), Reason> {
        let exchange = &self.exchange;
        respond::response(&exchange.filters(), &exchange.labels(), received, edits)?;
        self.session_edits(edits);
        Ok(())
    }

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
