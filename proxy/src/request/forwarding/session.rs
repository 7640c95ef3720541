//! The session of a forwarded request, if its route has session persistence.

use std::sync::Arc;
use std::time::SystemTime;

use http::header::SET_COOKIE;
use tidegate_config::model::{Backend, EndpointId, Head, Route, SessionCarrier, SessionPersistence, Target};

use super::Forwarding;
use crate::clock;
use crate::http::edits::Edits;
use crate::observe::metrics::Session as Counted;
use crate::request::persistence::{returning, token, write_cookie};

/// The state of the session during the request.
#[derive(Debug)]
pub(in crate::request) struct Session {
    policy: Arc<SessionPersistence>,
    /// The endpoint in the client's token.
    pub(super) endpoint: Option<EndpointId>,
    /// Whether the client sent the token of a valid session.
    is_known: bool,
}

impl Session {
    /// Reads the client's session token. Returns the session, if the route has session persistence, and the index of
    /// its share of the route.
    pub(in crate::request) fn of<'b, H: Head + ?Sized>(
        route: &'b Route,
        backend_of: impl Fn(&'b Target) -> Option<&'b Arc<Backend>>,
        head: &H,
    ) -> (Option<Box<Self>>, Option<usize>) {
        let Some(policy) = &route.settings.session else { return (None, None) };
        let back = returning(policy, route.action.shares(), backend_of, head, now_s());
        let endpoint = back.and_then(|back| back.endpoint);
        let session = Self { policy: Arc::clone(policy), endpoint, is_known: back.is_some() };
        (Some(Box::new(session)), back.map(|back| back.share))
    }
}

impl Forwarding {
    /// Adds the edits that send the token to the client, unless the endpoint of its token answers, or exists and the
    /// session stays with it when another one answers.
    pub(super) fn session_edits(&self, edits: &mut Edits) {
        let Some(session) = &self.session else { return };
        let Some(answering) = self.attempts.last().map(|attempt| attempt.id()) else { return };
        let metrics = &self.shared().metrics;
        if session.endpoint == Some(answering) {
            return metrics.session(Counted::Kept);
        }
        let policy = &session.policy;
        if session.endpoint.is_some() && !policy.change_on_failure {
            return metrics.session(Counted::Moved);
        }
        let shares = self.admitted.shares();
        let token = self.exchange.share.and_then(|share| token(policy, shares, share, answering, now_s()));
        let Some(token) = token else { return };
        match &policy.carrier {
            SessionCarrier::Header(name) => edits.set(name.clone(), |out| out.extend_from_slice(&token)),
            SessionCarrier::Cookie(cookie) => {
                let at = (&**self.admitted.route(), self.request.client.secure);
                let write = |out: &mut Vec<u8>| write_cookie(cookie, policy.absolute_timeout, at, &token, out);
                edits.append(SET_COOKIE, write);
            }
        }
        metrics.session(if session.is_known { Counted::Moved } else { Counted::Began });
    }
}

/// Seconds since the Unix epoch.
fn now_s() -> u32 {
    let since = clock::wall().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u32::try_from(since.as_secs()).unwrap_or(u32::MAX)
}
