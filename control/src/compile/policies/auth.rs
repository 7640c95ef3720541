//! The rules of a path in the order in which they are evaluated.

use std::sync::Arc;

use tidegate_config::model::auth::{AuthEntry, AuthRule, PathAuth};

/// Sorts the rules that are in effect on a path into their phases; `None` if there are none. Those of enforced policies
/// are first, then those in shadow mode; each in the order of their priorities, then of their names.
pub(super) fn sorted<'e>(entries: impl Iterator<Item = &'e AuthEntry>) -> Option<PathAuth> {
    let mut auth = PathAuth::default();
    let (mut authentication, mut metadata, mut authorization) = Default::default();
    let (mut success, mut callbacks, mut unusable) = Default::default();
    let mut any = false;
    for entry in entries {
        any = true;
        match entry {
            AuthEntry::Authentication(rule) => put(&mut authentication, rule),
            AuthEntry::Metadata(rule) => put(&mut metadata, rule),
            AuthEntry::Authorization(rule) => put(&mut authorization, rule),
            AuthEntry::Success(rule) => put(&mut success, rule),
            AuthEntry::Unauthenticated(rule) => {
                auth.unauthenticated.get_or_insert_with(|| Arc::clone(rule));
            }
            AuthEntry::Unauthorized(rule) => {
                auth.unauthorized.get_or_insert_with(|| Arc::clone(rule));
            }
            AuthEntry::Callback(rule) => put(&mut callbacks, rule),
            AuthEntry::Unusable(rule) => put(&mut unusable, rule),
        }
    }
    auth.authentication = in_order(authentication);
    auth.metadata = in_order(metadata);
    auth.authorization = in_order(authorization);
    auth.success = in_order(success);
    auth.callbacks = in_order(callbacks);
    auth.unusable = in_order(unusable);
    any.then_some(auth)
}

fn put<R>(rules: &mut Vec<Arc<AuthRule<R>>>, rule: &Arc<AuthRule<R>>) {
    rules.push(Arc::clone(rule));
}

fn in_order<R>(mut rules: Vec<Arc<AuthRule<R>>>) -> Box<[Arc<AuthRule<R>>]> {
    // Rules for headers and for filters may have one name: these stay in the order of their sections.
    rules.sort_by(|a, b| (a.shadow, a.priority, &a.name).cmp(&(b.shadow, b.priority, &b.name)));
    rules.into()
}
