//! Requests for kinds of which a watch cache does not know yet whether the upstream server has them. A client must not
//! take them for missing: controllers delete what a missing object owned.

use super::route::{Document, Route, segments};
use crate::kind::{ExpectedKind, Kinds};

/// The kind that a request has to wait for: that of its path, or one of its document, if that would be empty. A
/// document that has some kinds is served without the others: an edge whose upstream server is away must go on serving
/// those that it knows.
pub(super) fn missing<'e>(path: &str, kinds: &Kinds, expected: &'e [ExpectedKind]) -> Option<&'e ExpectedKind> {
    if expected.is_empty() {
        return None;
    }
    let mut expected = expected.iter().filter(|kind| !is_served(kinds, kind));
    match Route::parse(path, kinds) {
        Some(Route::Document(document)) if is_empty(&document, kinds) => {
            expected.find(|kind| describes(&document, kind))
        }
        Some(Route::Document(_)) => None,
        Some(Route::Collection { .. } | Route::Object(_)) => None,
        None => expected.find(|kind| is_within(path, kind)),
    }
}

fn is_served(kinds: &Kinds, expected: &ExpectedKind) -> bool {
    kinds
        .iter()
        .map(|kind| kind.description())
        .any(|kind| kind.plural == expected.plural && expected.may_be_in(&kind.group, &kind.version))
}

/// Returns `true` if a document that names kinds would name none.
fn is_empty(document: &Document, kinds: &Kinds) -> bool {
    !kinds.iter().map(|kind| kind.description()).any(|kind| match document {
        Document::Version | Document::Health | Document::OpenApiV2 | Document::OpenApiIndex => true,
        Document::CoreVersions => kind.group.is_empty(),
        Document::Groups => !kind.group.is_empty(),
        Document::Group(group) => kind.group == *group,
        Document::Resources { group, version } | Document::OpenApi { group, version } => {
            kind.group == *group && kind.version == *version
        }
    })
}

/// Returns `true` if a document names all kinds of a group that the kind is in.
fn describes(document: &Document, kind: &ExpectedKind) -> bool {
    match document {
        Document::Version | Document::Health | Document::OpenApiV2 | Document::OpenApiIndex => false,
        Document::CoreVersions => kind.group.is_empty(),
        Document::Groups => !kind.group.is_empty(),
        Document::Group(group) => kind.group == *group,
        Document::Resources { group, version } | Document::OpenApi { group, version } => kind.may_be_in(group, version),
    }
}

/// Returns `true` for the path of a collection, an object or a subresource of a kind.
fn is_within(path: &str, kind: &ExpectedKind) -> bool {
    let Some(segments) = segments(path) else { return false };
    let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
    let (group, version, rest) = match &*segments {
        ["api", version, rest @ ..] => ("", *version, rest),
        ["apis", group, version, rest @ ..] => (*group, *version, rest),
        _ => return false,
    };
    let plural = match rest {
        ["namespaces", _, plural, ..] if *plural == kind.plural => Some(plural),
        [plural, ..] => Some(plural),
        [] => None,
    };
    kind.may_be_in(group, version) && plural.is_some_and(|plural| *plural == kind.plural)
}
