//! Get and list.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode};
use serde_json::{Value, json};

use super::body::LiteBody;
use super::form::{self, Form};
use super::page::{self, Remaining, Token};
use super::query::Query;
use super::{answer, table};
use crate::failure::Failure;
use crate::kind::Subresource;
use crate::kind::{Kind, KindId};
use crate::lite::Lite;
use crate::scale;
use crate::selector::Selection;
use crate::store::{Gone, Key, Object, Part, State};
use crate::write::Target;

/// The time that a read waits for a future resourceVersion.
const FRESHNESS_WAIT: Duration = Duration::from_secs(3);

/// Waits for a kind to reach a version, or refuses.
pub(super) async fn wait_for(lite: &Lite, kind: &KindId, version: Option<u64>) -> Result<(), Failure> {
    let Some(version) = version else { return Ok(()) };
    if let Some(gone) = lite.store().look(|state| state.void(kind, version)).await {
        return Err(too_old(version, &gone));
    }
    if tokio::time::timeout(FRESHNESS_WAIT, lite.store().reach(kind, version)).await.is_ok() {
        return Ok(());
    }
    Err(Failure::future_version(version, lite.store().look(|state| state.version_of(kind)).await))
}

pub(super) async fn get(
    lite: &Lite,
    target: &Target,
    query: &Query,
    form: Form,
) -> Result<Response<LiteBody>, Failure> {
    wait_for(lite, &target.kind, query.exact_version()?).await?;
    let object = lite.store().look(|state| state.get(&target.kind, &target.key).cloned()).await;
    let object = object.ok_or_else(|| Failure::not_found(target.description(), &target.key.name))?;
    let object = target.kind.shown(&object);
    Ok(show(lite, target, &object, query, form, StatusCode::OK))
}

/// The response with one object in the requested form.
pub(super) fn show(
    lite: &Lite,
    target: &Target,
    object: &Arc<Object>,
    query: &Query,
    form: Form,
    code: StatusCode,
) -> Response<LiteBody> {
    if target.subresource == Some(Subresource::Scale) {
        let scale = scale::of(target.description(), object.value());
        let version = scale["metadata"]["resourceVersion"].as_str().unwrap_or_default();
        let shown = match form {
            Form::Whole => scale,
            Form::Metadata => form::metadata(&scale),
            Form::Table => table::of_scale(&scale, version, &query.include_object, lite.now().unix.as_secs()),
        };
        return answer::json(code, &shown);
    }
    match form {
        Form::Whole => answer::bytes(code, object.json()),
        Form::Table | Form::Metadata => {
            let unix_seconds = lite.now().unix.as_secs();
            answer::json(
                code,
                &form.one(target.description(), object.opened().value(), &query.include_object, unix_seconds),
            )
        }
    }
}

/// The selectors of a collection request, and the part of the kind that they restrict it to.
pub(super) fn select(kind: &KindId, namespace: Option<&str>, query: &Query) -> Result<(Selection, Part), Failure> {
    let selection = Selection::parse(kind.description(), &query.labels, &query.fields)?;
    let part = Part {
        // If the namespaces of the path and of the selector differ, the result is empty; the selection takes care of
        // that.
        namespace: namespace.or(selection.fields.namespace()).map(str::to_owned),
        name: selection.fields.name().map(str::to_owned),
    };
    Ok((selection, part))
}

pub(super) async fn list(
    lite: &Lite,
    kind: &KindId,
    namespace: Option<&str>,
    query: &Query,
    form: Form,
) -> Result<Response<LiteBody>, Failure> {
    query.check_options()?;
    let token = Token::parse(query)?;
    let (selection, part) = select(kind, namespace, query)?;
    let version = query.exact_version()?;
    wait_for(lite, kind, version).await?;
    let legacy_exact = query.limit > 0 && query.version_match.is_none();
    let exact = version.filter(|_| legacy_exact || query.version_match.as_deref() == Some("Exact"));
    // Any version is acceptable for "0": that list is returned whole, as the real server's cache does.
    let limit = usize::try_from(query.limit).unwrap_or(usize::MAX);
    let limit = if limit == 0 || (query.version == "0" && token.is_none()) { usize::MAX } else { limit };
    let look = |state: &State| {
        if !state.serves(kind) {
            return Err(Failure::no_resource());
        }
        if token.as_ref().is_some_and(|token| token.version > state.version_of(kind)) {
            return Err(Token::expired());
        }
        // A selector reads the objects, which is done without the lock.
        let most = if selection.all { limit } else { usize::MAX };
        Ok(match (&token, exact) {
            (Some(Token { version, after, remaining }), _) => {
                let then = state.list_at(kind, &part, *version, Some(after)).map_err(|_| Token::expired())?;
                // A client may continue with another namespace or selector, which has another number.
                let all = remaining.as_ref().filter(|it| selection.all && it.namespace == part.namespace);
                taken(then, most, *version, all.map(|it| it.count))
            }
            (None, Some(exact)) => {
                let then = state.list_at(kind, &part, exact, None).map_err(|gone| too_old(exact, &gone))?;
                taken(then, most, exact, None)
            }
            (None, None) => taken(state.list(kind, &part), most, state.version_of(kind), None),
        })
    };
    let (mut objects, version, mut remaining) = lite.store().look(look).await?;
    if !selection.all {
        let selected = objects.into_iter().filter(|(_, it)| selection.matches(kind.shown(it).opened().value()));
        objects = selected.take(limit.saturating_add(1)).collect();
        remaining = objects.len().saturating_sub(limit);
        objects.truncate(limit);
    }
    let last = objects.last().filter(|_| remaining > 0);
    let counted = Some(remaining).filter(|_| query.labels.is_empty() && query.fields.is_empty());
    let next = last.map(|(key, _)| Token {
        version,
        after: key.clone(),
        remaining: counted.map(|count| Remaining { namespace: part.namespace.clone(), count }),
    });
    let metadata = page::metadata(version, next.as_ref(), counted);
    let objects: Vec<Arc<Object>> = objects.into_iter().map(|(_, object)| kind.shown(&object)).collect();
    Ok(shown(lite, kind, objects, metadata, query, form))
}

/// Up to a number of objects of a list, its version, and the number of remaining ones; `all` is the number of all of
/// them, if it is known.
fn taken<'a>(
    mut list: impl Iterator<Item = (&'a Key, &'a Arc<Object>)>,
    limit: usize,
    version: u64,
    all: Option<usize>,
) -> (Vec<(Key, Arc<Object>)>, u64, usize) {
    let objects: Vec<_> = list.by_ref().take(limit).map(|(key, object)| (key.clone(), object.clone())).collect();
    let remaining = match (list.next(), all) {
        (None, _) => 0,
        (Some(_), Some(all)) => all.saturating_sub(objects.len()).max(1),
        (Some(_), None) => list.count() + 1,
    };
    (objects, version, remaining)
}

/// The response with a list in the requested form.
fn shown(
    lite: &Lite,
    kind: &KindId,
    objects: Vec<Arc<Object>>,
    metadata: Value,
    query: &Query,
    form: Form,
) -> Response<LiteBody> {
    let description = kind.description();
    match form {
        Form::Whole => {
            answer::body(StatusCode::OK, LiteBody::pieces(Pieces::new(description, objects.into_iter(), &metadata)))
        }
        Form::Metadata => answer::json(
            StatusCode::OK,
            &json!({
                "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
                "items": objects.iter().map(|object| form::metadata(object.opened().value())).collect::<Vec<_>>(),
            }),
        ),
        Form::Table => {
            let objects: Vec<_> = objects.iter().map(Object::opened).collect();
            let objects = objects.iter().map(|object| object.value());
            let unix_seconds = lite.now().unix.as_secs();
            let mut table = table::of(description, objects, "", &query.include_object, unix_seconds);
            table["metadata"] = metadata;
            answer::json(StatusCode::OK, &table)
        }
    }
}

/// A version that has left the history.
fn too_old(version: u64, gone: &Gone) -> Failure {
    let oldest = gone.complete_after;
    Failure::expired(format!("The resourceVersion for the provided list is too old: {version} ({oldest})"))
}

/// The number of bytes of a list that are serialized at once: a list of any length delays other requests no longer than
/// that takes.
const PIECE_BYTES: usize = 64 << 10;

/// A list of whole objects, assembled piece by piece from their JSON.
struct Pieces<I> {
    /// The start of the next piece.
    head: Vec<u8>,
    objects: I,
    /// `true` if an object came before.
    follows: bool,
    ended: bool,
}

impl<I: Iterator<Item = Arc<Object>>> Pieces<I> {
    fn new(kind: &Kind, objects: I, metadata: &Value) -> Self {
        let head = format!(
            "{{\"kind\":\"{}\",\"apiVersion\":\"{}\",\"metadata\":{metadata},\"items\":[",
            kind.list_kind,
            kind.api_version()
        );
        Self { head: head.into_bytes(), objects, follows: false, ended: false }
    }
}

impl<I: Iterator<Item = Arc<Object>>> Iterator for Pieces<I> {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        if self.ended {
            return None;
        }
        let mut piece = std::mem::take(&mut self.head);
        while piece.len() < PIECE_BYTES && !self.ended {
            if let Some(object) = self.objects.next() {
                piece.extend_from_slice(if std::mem::replace(&mut self.follows, true) { b"," } else { b"" });
                piece.extend_from_slice(&object.json());
            } else {
                piece.extend_from_slice(b"]}");
                self.ended = true;
            }
        }
        Some(piece.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks a list of this many objects of this size: the list is whole, and no piece of it much longer than the
    /// limit.
    #[track_caller]
    fn check(objects: usize, bytes: usize, pieces: usize) {
        let kind = crate::kind::KindId::built_in("Service").unwrap();
        let description = kind.description();
        let object = |n: usize| Arc::new(Object::new(json!({"n": n, "text": "x".repeat(bytes)}), 7));
        let got: Vec<Bytes> =
            Pieces::new(description, (0..objects).map(object), &json!({"resourceVersion": "7"})).collect();
        assert_eq!(got.len(), pieces, "{objects} of {bytes} bytes");
        assert!(got.iter().all(|piece| piece.len() < PIECE_BYTES + bytes + 100));
        let list: Value = serde_json::from_slice(&got.concat()).unwrap();
        let numbers: Vec<u64> = list["items"].as_array().unwrap().iter().filter_map(|it| it["n"].as_u64()).collect();
        assert_eq!(numbers, (0..objects as u64).collect::<Vec<_>>());
    }

    #[test]
    fn a_page_after_the_first_reads_one_object_more_than_it_shows() {
        let objects: Vec<_> = (0..10)
            .map(|n| (Key { namespace: "a".to_owned(), name: n.to_string() }, Arc::new(Object::new(json!({}), 7))))
            .collect();
        let check = |after: usize, limit: usize, all: Option<usize>, want: (usize, usize, usize)| {
            let read = std::cell::Cell::new(0);
            let list = objects[after..].iter().map(|(key, object)| (key, object)).inspect(|_| read.set(read.get() + 1));
            let (shown, _, remaining) = taken(list, limit, 7, all);
            assert_eq!((shown.len(), remaining, read.get()), want, "{limit} after {after} of {all:?}");
        };
        check(0, 3, None, (3, 7, 10));
        check(3, 3, Some(7), (3, 4, 4));
        check(6, 3, Some(4), (3, 1, 4));
        check(9, 3, Some(1), (1, 0, 1));
        // Whatever a client has made of its token, it gets the whole list.
        check(3, 3, Some(0), (3, 1, 4));
        check(9, 3, Some(100), (1, 0, 1));
    }

    #[test]
    fn a_list_comes_in_pieces() {
        check(0, 0, 1);
        check(1, 10, 1);
        check(3, PIECE_BYTES / 2, 2);
        check(4, PIECE_BYTES / 2, 3);
        check(2, PIECE_BYTES, 3);
        check(1000, 1000, 16);
    }
}
