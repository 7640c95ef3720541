//! The edits of both heads on their way through the edge.

use tidegate_config::model::Head;

use super::Forwarding;
use crate::http::edits::Edits;
use crate::http::names::HeaderNames;
use crate::reason::Reason;
use crate::request::respond::{self, Received};
use crate::request::rewrite;

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
}
