//! The form of a request in which an authorisation service gets it.

use tidegate_config::model::{AppProtocol, Head};

use super::Undecided;
use crate::clock;
use crate::http::edited::edited;
use crate::http::edits::Edits;
use crate::http::names::HeaderNames;
use crate::request::policy::external_auth::AuthRequest;
use crate::request::respond::Filters;
use crate::request::rewrite;
use crate::request::validate::ValidRequest;

impl Undecided {
    /// The request as an authorisation service sees it.
    pub(super) fn shown<H: Head + HeaderNames>(&self, valid: &ValidRequest<'_>, head: &H) -> AuthRequest {
        let Self { exchange, request, matched, .. } = self;
        let facts = &exchange.facts;
        let mut edits = Edits::default();
        // Before the edits of its route, but after those of the services that have allowed it.
        let filters = Filters { route: &[], share: &[], ..exchange.filters() };
        let at = (&*matched.route, filters);
        rewrite::request(head, &exchange.rewrite_input(request, at, &self.effective, AppProtocol::Http), &mut edits);
        let target = match (edits.target(), head.query()) {
            (Some(target), _) => String::from_utf8_lossy(target).into(),
            (None, Some(query)) => format!("{}?{query}", head.path()).into(),
            (None, None) => head.path().into(),
        };
        let client = (request.client.address, if request.client.trusted { 0 } else { facts.peer.port() });
        AuthRequest {
            method: head.method().into(),
            target,
            scheme: request.client.scheme(),
            protocol: request.protocol.as_str(),
            headers: edited(head, &edits),
            request_id: exchange.request_id.as_str().into(),
            client: client.into(),
            local: facts.local,
            server_name: facts.tls.as_ref().and_then(|tls| tls.server_name.clone()),
            time: clock::wall(),
            size: valid.content_length,
        }
    }
}
