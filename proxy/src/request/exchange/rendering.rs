//! The form of local replies to a request, and the parts of rewriting that do not depend on an endpoint.

use tidegate_config::model::{AppProtocol, Effective, Head, Route};

use super::Exchange;
use crate::request::local_reply::LocalReply;
use crate::request::phase::RequestFacts;
use crate::request::reply_format::ReplyFormat;
use crate::request::respond::{self, Filters, Rendered, ReplyFacts};
use crate::request::rewrite::RewriteInput;

impl Exchange {
    /// The facts about the request for rewriting it, with a route and filters.
    pub(in crate::request) fn rewrite_input<'a>(
        &'a self,
        request: &'a RequestFacts,
        (route, filters): (&'a Route, Filters<'a>),
        effective: &Effective,
        protocol: AppProtocol,
    ) -> RewriteInput<'a> {
        let policies = self.matched.as_ref().and_then(|matched| matched.policies.as_deref());
        RewriteInput {
            route,
            filters,
            decided_by: policies.map_or(&[], |policies| &policies.headers),
            protocol,
            request,
            text: &self.facts.text,
            named_port: self.facts.named_port,
            tls: self.facts.tls.is_some(),
            request_id: &self.request_id,
            correlation: self.correlation.as_ref(),
            start: self.start,
            forwarded_for: effective.forwarded_for,
            token: &self.shared().options.loop_token,
        }
    }

    /// The rendered form of a local reply for this request.
    pub(crate) fn render<H: Head + ?Sized>(&self, reply: &LocalReply, head: &H) -> Rendered {
        let labels = ReplyFacts { form: ReplyFormat::asked_by(head), ..self.labels() };
        respond::render(reply, &labels, head.method(), &self.filters())
    }

    pub(in crate::request) fn labels(&self) -> ReplyFacts<'_> {
        let correlation = self.correlation.as_ref();
        let server = self.shared().options.server_header;
        let (limit, form) = (self.outcome.limits.tightest.as_deref(), ReplyFormat::Text);
        ReplyFacts { request_id: &self.request_id, correlation, limit, server, form }
    }

    /// The filters of its route, and of its chosen share; and what its policies have added so far.
    pub(in crate::request) fn filters(&self) -> Filters<'_> {
        let route = self.matched.as_ref().map(|matched| &matched.route);
        let chosen = route.zip(self.share).and_then(|(route, place)| route.action.shares().get(place));
        let secure = self.request.as_ref().is_some_and(|request| request.client.secure);
        Filters {
            outcome: &self.outcome,
            route: route.map_or(&[], |route| &route.filters),
            share: chosen.map_or(&[], |share| &share.filters),
            secure,
        }
    }
}
