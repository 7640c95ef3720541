//! The state of policies for an explanation.

use std::sync::Arc;

use tidegate_config::model::auth::{AuthDenial, AuthGrant, PathAuth};
use tidegate_config::model::{Attributes, Charged, Head, Limit, PolicyState};

/// Nothing is charged, and a request without credentials passes where a client with valid ones would. Credentials that
/// are given are checked.
pub(super) struct InFavour;

impl<'r> PolicyState<'r> for InFavour {
    fn charge<H: Head + ?Sized>(&mut self, _: &'r [Arc<Limit>], _: &Attributes<'_, H>) -> Charged<'r> {
        Charged::Counted
    }

    fn authorise<H: Head + ?Sized>(
        &mut self,
        auth: &'r PathAuth,
        attributes: &Attributes<'_, H>,
    ) -> Result<AuthGrant, AuthDenial> {
        if auth.unusable.is_empty() && !auth.is_given_credentials(attributes.head) {
            return Ok(AuthGrant::default());
        }
        auth.decide(attributes, |jwt, token, now| jwt.verify(token, now).map(Arc::new))
    }
}
