//! The kinds that the served API is to serve, and of which nothing is known yet.

use tidegate_config::object::Kind;
use tidegate_control::{CachedCondition, CachedKind, CachedStates, CollectionReadiness, Resource};
use tidegate_lite::ExpectedKind;

/// The kinds that routing reads and that have been neither listed nor restored. One that the API server denies or does
/// not have is not waited for.
pub(super) fn routed(routed: &[Kind], collections: &[CollectionReadiness]) -> Vec<ExpectedKind> {
    let state = |kind: Kind| collections.iter().find(|it| it.kind == kind && it.namespace.is_none());
    let unknown = |kind: Kind| state(kind).is_none_or(|it| !it.synced && it.restored_as_of_s.is_none() && !it.denied);
    routed.iter().copied().filter(|kind| unknown(*kind)).map(of_kind).collect()
}

fn of_kind(kind: Kind) -> ExpectedKind {
    let Resource { group, version, plural } = Resource::of(kind);
    let [group, version, plural] = [group, version, plural].map(|text| text.to_string());
    ExpectedKind { group, version: Some(version), plural }
}

/// The cached kinds that have been neither listed nor restored, likewise.
pub(super) fn cached(kinds: &[CachedKind], states: &CachedStates) -> Vec<ExpectedKind> {
    let unknown = |kind: &&CachedKind| {
        let state = states.get(&*kind.to_string());
        state.is_none_or(|state| state.standing == CachedCondition::Unknown && !state.denied)
    };
    let expected = |kind: &CachedKind| ExpectedKind {
        group: kind.group.to_string(),
        version: kind.version.as_deref().map(str::to_owned),
        plural: kind.plural.to_string(),
    };
    kinds.iter().filter(unknown).map(expected).collect()
}

#[cfg(test)]
mod tests {
    use tidegate_control::CachedState;

    use super::*;

    #[track_caller]
    fn check_cached(standing: CachedCondition, denied: bool, want: bool) {
        let kind = CachedKind::new("deployments", "apps", None);
        let state = CachedState { standing, denied, ..CachedState::default() };
        let states = [(kind.to_string().into(), state)].into();
        assert_eq!(!cached(&[kind], &states).is_empty(), want, "{standing:?} {denied}");
    }

    #[test]
    fn cached_kinds_are_expected_until_they_are_known() {
        check_cached(CachedCondition::Unknown, false, true);
        check_cached(CachedCondition::Unknown, true, false);
        check_cached(CachedCondition::Kept(1), false, false);
        check_cached(CachedCondition::Current, false, false);
        check_cached(CachedCondition::Absent, false, false);
        let kinds = [CachedKind::new("pods", "", Some("v1"))];
        let want = ExpectedKind { group: String::new(), version: Some("v1".to_owned()), plural: "pods".to_owned() };
        assert_eq!(cached(&kinds, &CachedStates::default()), [want], "nothing is known");
    }

    #[track_caller]
    fn check_routed(change: impl FnOnce(&mut CollectionReadiness), want: bool) {
        let mut collection = CollectionReadiness {
            kind: Kind::Service,
            namespace: None,
            synced: false,
            restored_as_of_s: None,
            failing: None,
            denied: false,
            resource_version: None,
        };
        change(&mut collection);
        assert_eq!(!routed(&[Kind::Service], &[collection.clone()]).is_empty(), want, "{collection:?}");
    }

    #[test]
    fn routed_kinds_are_expected_until_they_are_known() {
        check_routed(|_| {}, true);
        check_routed(|it| it.failing = Some("away".to_owned()), true);
        check_routed(|it| it.synced = true, false);
        check_routed(|it| it.restored_as_of_s = Some(1), false);
        check_routed(|it| it.denied = true, false);
        check_routed(|it| it.kind = Kind::Ingress, true);
        assert_eq!(routed(&[Kind::Ingress], &[])[0].plural, "ingresses");
    }
}
