//! The state of policies for an explanation.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::SystemTime;

use tidegate_config::model::auth::{
    AuthFacts, AuthResult, AuthRuleName, CacheKey, CallAnswer, CallFault, CallPlace, Jwt, PathAuth, TokenFault,
    VerifiedToken,
};
use tidegate_config::model::{Attributes, Charged, Head, Limit, PolicyState};

/// Nothing is charged, and a request without credentials passes where a client with valid ones would. Credentials that
/// are given are checked, as far as that needs nobody else: what depends on the answer of a server is assumed to allow
/// the request.
#[derive(Default)]
pub(super) struct InFavour {
    /// The answers that are assumed.
    answers: HashMap<CallPlace, CallAnswer>,
    /// The calls that cannot be made.
    faults: HashMap<CallPlace, CallFault>,
}

impl<'r> PolicyState<'r> for InFavour {
    fn charge<H: Head + ?Sized>(&mut self, _: &'r [Arc<Limit>], _: &Attributes<'_, H>) -> Charged<'r> {
        Charged::Counted
    }

    fn authorise<H: Head + ?Sized>(&mut self, auth: &'r PathAuth, attributes: &Attributes<'_, H>) -> AuthResult {
        if auth.unusable.is_empty() && !auth.is_given_credentials(attributes.head) {
            return AuthResult::Granted(Box::default());
        }
        // Each round has calls of later rules.
        loop {
            match auth.decide(attributes, self) {
                AuthResult::Waits(calls) => {
                    self.answers.extend(calls.into_iter().map(|call| (call.place, call.call.in_favour())));
                }
                // Only their true answers would show whether it is refused.
                AuthResult::Refused(_) if !self.answers.is_empty() => return AuthResult::Granted(Box::default()),
                decided @ (AuthResult::Granted(_) | AuthResult::Refused(_)) => return decided,
            }
        }
    }
}

impl AuthFacts for InFavour {
    fn verify(&mut self, jwt: &Jwt, token: &str, now: SystemTime) -> Result<Arc<VerifiedToken>, TokenFault> {
        jwt.verify(token, now).map(Arc::new)
    }

    fn answer(&mut self, place: CallPlace, _: Option<&CacheKey>) -> Option<CallAnswer> {
        self.answers.get(&place).cloned().or_else(|| self.faults.get(&place).map(|fault| Err(*fault)))
    }

    fn fail(&mut self, place: CallPlace, _: AuthRuleName, fault: CallFault) {
        self.faults.insert(place, fault);
    }
}
