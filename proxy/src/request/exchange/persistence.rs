//! The session of an exchange, where its route keeps any.

use std::sync::Arc;
use std::time::SystemTime;

use http::header::SET_COOKIE;
use tidegate_config::model::{EndpointId, Head, SessionCarrier, SessionPersistence, WeightedTarget};

use super::Exchange;
use crate::clock;
use crate::http::edits::Edits;
use crate::observe::metrics::Session as Counted;
use crate::request::persistence::{returning, token, write_cookie};

/// What is known of the session while the request is carried.
#[derive(Debug)]
pub(super) struct Session {
    policy: Arc<SessionPersistence>,
    /// The endpoint that the client came back to.
    endpoint: Option<EndpointId>,
    /// Whether it presented the token of a session that is not over.
    is_known: bool,
}

impl Exchange {
    /// Looks for the session of the client, and leads the request there; the place of the share that it belongs to.
    pub(super) fn come_back<H: Head + ?Sized>(&mut self, shares: &[WeightedTarget], head: &H) -> Option<usize> {
        let policy = Arc::clone(self.route.as_ref()?.settings.session.as_ref()?);
        let back = returning(&policy, shares, |target| self.snapshot.backend_of(target), head, now_s());
        let endpoint = back.and_then(|back| back.endpoint);
        self.attempts.keep(endpoint);
        self.session = Some(Box::new(Session { policy, endpoint, is_known: back.is_some() }));
        back.map(|back| back.share)
    }

    /// Lists what tells the client the token of its session, unless it has come back to the endpoint that answers.
    pub(super) fn session_edits(&self, edits: &mut Edits) {
        let Some(session) = &self.session else { return };
        let Some(answering) = self.attempts.last().map(|attempt| attempt.id()) else { return };
        if session.endpoint == Some(answering) {
            return self.shared.metrics.session(Counted::Kept);
        }
        let (Some(route), Some(share)) = (&self.route, self.share) else { return };
        let policy = &session.policy;
        let Some(token) = token(policy, route.action.shares(), share, answering, now_s()) else { return };
        match &policy.carrier {
            SessionCarrier::Header(name) => edits.set(name, |out| out.extend_from_slice(&token)),
            SessionCarrier::Cookie(cookie) => {
                let secure = self.request.as_ref().is_some_and(|request| request.client.secure);
                let write = |out: &mut Vec<u8>| {
                    write_cookie(cookie, policy.absolute_timeout, (route, secure), &token, out);
                };
                edits.append(&SET_COOKIE, write);
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
