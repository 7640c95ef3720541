//! The session of an exchange, if its route has session persistence.

use std::sync::Arc;
use std::time::SystemTime;

use http::header::SET_COOKIE;
use tidegate_config::model::{EndpointId, Head, SessionCarrier, SessionPersistence, WeightedTarget};

use super::Exchange;
use crate::clock;
use crate::http::edits::Edits;
use crate::observe::metrics::Session as Counted;
use crate::request::persistence::{returning, token, write_cookie};

/// The state of the session during the request.
#[derive(Debug)]
pub(super) struct Session {
    policy: Arc<SessionPersistence>,
    /// The endpoint in the client's token.
    endpoint: Option<EndpointId>,
    /// Whether the client sent the token of a valid session.
    is_known: bool,
}

impl Exchange {
    /// Reads the client's session token, and pins the request to its endpoint. Returns the index of its share.
    pub(super) fn come_back<H: Head + ?Sized>(&mut self, shares: &[WeightedTarget], head: &H) -> Option<usize> {
        let policy = Arc::clone(self.route.as_ref()?.settings.session.as_ref()?);
        let back = returning(&policy, shares, |target| self.snapshot.backend_of(target), head, now_s());
        let endpoint = back.and_then(|back| back.endpoint);
        self.attempts.keep(endpoint);
        self.session = Some(Box::new(Session { policy, endpoint, is_known: back.is_some() }));
        back.map(|back| back.share)
    }

    /// Adds the edits that send the token to the client, unless the endpoint of its token answers, or is there and the session stays
    /// with it whoever answers.
    pub(super) fn session_edits(&self, edits: &mut Edits) {
        let Some(session) = &self.session else { return };
        let Some(answering) = self.attempts.last().map(|attempt| attempt.id()) else { return };
        if session.endpoint == Some(answering) {
            return self.shared.metrics.session(Counted::Kept);
        }
        let (Some(route), Some(share)) = (&self.route, self.share) else { return };
        let policy = &session.policy;
        if session.endpoint.is_some() && !policy.change_on_failure {
            return self.shared.metrics.session(Counted::Moved);
        }
        let Some(token) = token(policy, route.action.shares(), share, answering, now_s()) else { return };
        match &policy.carrier {
            SessionCarrier::Header(name) => edits.set(name.clone(), |out| out.extend_from_slice(&token)),
            SessionCarrier::Cookie(cookie) => {
                let secure = self.request.as_ref().is_some_and(|request| request.client.secure);
                let write = |out: &mut Vec<u8>| {
                    write_cookie(cookie, policy.absolute_timeout, (route, secure), &token, out);
                };
                edits.append(SET_COOKIE, write);
            }
        }
        self.shared.metrics.session(if session.is_known { Counted::Moved } else { Counted::Began });
    }
}

/// Seconds since the Unix epoch.
fn now_s() -> u32 {
    let since = clock::wall().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u32::try_from(since.as_secs()).unwrap_or(u32::MAX)
}
