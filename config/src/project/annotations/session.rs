//! The annotations of an Ingress about sessions.

use std::sync::Arc;
use std::time::Duration;

use super::TIDEGATE;
use crate::model::{SameSite, SessionCarrier, SessionCookie, SessionKey, SessionPersistence};
use crate::object::Uid;
use crate::project::field::FindingList;
use crate::project::raw_object::annotation_field;

/// The values of the annotations. `name` enables sessions, and the others are attributes of its cookie.
#[derive(Default)]
pub(super) struct SessionDraft {
    pub(super) name: Option<Arc<str>>,
    pub(super) max_age: Option<Duration>,
    pub(super) path: Option<Arc<str>>,
    pub(super) same_site: Option<SameSite>,
    pub(super) secure: Option<bool>,
    pub(super) change_on_failure: Option<bool>,
}

impl SessionDraft {
    /// Sets the missing values.
    pub(super) fn fill(&mut self, other: Self) {
        let Self { name, max_age, path, same_site, secure, change_on_failure } = std::mem::take(self);
        *self = Self {
            name: name.or(other.name),
            max_age: max_age.or(other.max_age),
            path: path.or(other.path),
            same_site: same_site.or(other.same_site),
            secure: secure.or(other.secure),
            change_on_failure: change_on_failure.or(other.change_on_failure),
        };
    }

    /// The sessions of an Ingress with this uid. Its rules share one key: a rule to the same Service as another accepts
    /// its tokens.
    pub(super) fn persistence(self, uid: Option<Uid>, findings: &mut FindingList) -> Option<Arc<SessionPersistence>> {
        let Self { name, max_age, path, same_site, secure, change_on_failure } = self;
        let field = |key: &str| annotation_field(&format!("{}{key}", TIDEGATE.prefix));
        let Some(name) = name else {
            let others = [
                ("session-cookie-max-age", max_age.is_some()),
                ("session-cookie-path", path.is_some()),
                ("session-cookie-samesite", same_site.is_some()),
                ("session-cookie-secure", secure.is_some()),
                ("session-cookie-change-on-failure", change_on_failure.is_some()),
            ];
            for (key, _) in others.into_iter().filter(|(_, is_set)| *is_set) {
                findings.without_effect(
                    &field(key),
                    "",
                    "no annotation such as tidegate.io/session-cookie enables sessions",
                );
            }
            return None;
        };
        let Some(uid) = uid else {
            findings.ignored(&field("session-cookie"), &name, "needs an object with a uid");
            return None;
        };
        let (permanent, same_site) = (max_age.is_some(), same_site.unwrap_or_default());
        let carrier = SessionCarrier::Cookie(SessionCookie { name, path, permanent, same_site, secure });
        let (key, absolute_timeout) = (SessionKey::of_rule(uid, ""), max_age);
        let change_on_failure = change_on_failure.unwrap_or(true);
        Some(Arc::new(SessionPersistence { key, carrier, absolute_timeout, change_on_failure }))
    }
}
