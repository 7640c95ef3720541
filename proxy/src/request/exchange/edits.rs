//! The edits of heads in an exchange, and the form of its own answers.

use tidegate_config::model::{AppProtocol, ForwardedFor, Head, Route};

use super::Exchange;
use crate::connection::ConnectionFacts;
use crate::http::edits::Edits;
use crate::http::names::HeaderNames;
use crate::reason::Reason;
use crate::request::answer::Answer;
use crate::request::form::Form;
use crate::request::phase::{Aimed, RequestFacts};
use crate::request::respond::{self, Filters, Labels, Received, Rendered};
use crate::request::rewrite::{self, RewriteInput};

impl Exchange {
    /// The edits of the request to the endpoint.
    pub(crate) fn request_edits<H: Head + HeaderNames>(&mut self, aimed: &Aimed, head: &H, edits: &mut Edits) {
        let Aimed { request, admitted, target, facts, .. } = aimed;
        let at = (&**admitted.route(), self.filters());
        let input =
            RewriteInput { grants: &admitted.grants, ..self.rewrite_input(request, at, target.protocol, facts) };
        rewrite::request(head, &input, edits);
        if let Some(copies) = &mut self.copies {
            copies.head(head, edits);
        }
    }

    /// The facts about the request for rewriting it, with a route and filters.
    pub(super) fn rewrite_input<'a>(
        &'a self,
        request: &'a RequestFacts,
        (route, filters): (&'a Route, Filters<'a>),
        protocol: AppProtocol,
        facts: &'a ConnectionFacts,
    ) -> RewriteInput<'a> {
        let port = match (self.effective.forwarded_for, &facts.tls) {
            (ForwardedFor::Append, _) => &*facts.text.port,
            (ForwardedFor::Replace, None) => "80",
            (ForwardedFor::Replace, Some(_)) => "443",
        };
        RewriteInput {
            route,
            filters,
            grants: &[],
            protocol,
            request,
            text: &facts.text,
            port,
            request_id: &self.request_id,
            correlation: self.correlation.as_ref(),
            start: self.start,
            forwarded_for: self.effective.forwarded_for,
            token: &self.shared.options.loop_token,
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
        respond::response(&self.filters(), &self.labels(), received, edits)?;
        self.grants.iter().for_each(|granted| respond::apply(&granted.response, edits));
        self.session_edits(edits);
        Ok(())
    }

    /// The rendered form of an answer of the edge's own for this request.
    pub(crate) fn render<H: Head + ?Sized>(&self, answer: &Answer, head: &H) -> Rendered {
        let labels = Labels { form: Form::asked_by(head), ..self.labels() };
        respond::render(answer, &labels, head.method(), &self.filters())
    }

    fn labels(&self) -> Labels<'_> {
        let correlation = self.correlation.as_ref();
        Labels {
            request_id: &self.request_id,
            correlation,
            server: self.shared.options.server_header,
            form: Form::Text,
        }
    }

    /// The filters of its route, and of its chosen share.
    pub(super) fn filters(&self) -> Filters<'_> {
        let route = self.route.as_ref().map_or(&[][..], |route| &route.filters);
        let chosen = self.route.as_ref().zip(self.share).and_then(|(route, place)| route.action.shares().get(place));
        let share = chosen.map_or(&[][..], |share| &share.filters);
        let secure = self.request.as_ref().is_some_and(|request| request.client.secure);
        Filters { route, share, secure, cors: self.cors.as_deref() }
    }
}
