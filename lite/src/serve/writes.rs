//! Requests that change objects: their contents become options and a target for `write`.

use bytes::Bytes;
use http::{Response, StatusCode};
use serde_json::{Value, json};

use super::answer;
use super::body::LiteBody;
use super::form::Form;
use super::query::{self, Query};
use super::read::{select, show};
use crate::failure::Failure;
use crate::json::Fault;
use crate::kind::KindId;
use crate::lite::Lite;
use crate::patch::Patch;
use crate::store::Key;
use crate::write::{self, Config, Deleted, Edit, Policy, Preconditions, Target, WriteOptions};

/// The media type of an apply.
pub(super) const APPLY: &str = "application/apply-patch+yaml";

/// Kinds whose deletion is answered with the object, where others get a Status.
const RETURNED: &[&str] = &["Pod", "Service"];

fn write_options(lite: &Lite, query: &Query) -> WriteOptions {
    WriteOptions {
        dry_run: query.dry_run,
        validation: query.validation,
        faults: Vec::new(),
        moment: lite.now(),
        manager: query.manager.clone(),
    }
}

pub(super) fn create(
    lite: &Lite,
    kind: &KindId,
    namespace: Option<&str>,
    query: &Query,
    form: Form,
    (object, faults): (Value, Vec<Fault>),
) -> Result<Response<LiteBody>, Failure> {
    if kind.description().namespaced() && namespace.is_none() {
        return Err(Failure::method_not_allowed());
    }
    query.check_manager("CreateOptions", None)?;
    let key = Key { namespace: namespace.unwrap_or_default().to_owned(), name: String::new() };
    let target = Target { kind: kind.clone(), key, subresource: None };
    let options = WriteOptions { faults, ..write_options(lite, query) };
    let checked = write::create(&lite.store().read(), &target, object, &options)?;
    let written = lite.store().commit(|state| write::commit(state, checked, &options.moment));
    Ok(answer::warn(show(lite, &target, &written.object, query, form, StatusCode::CREATED), &written.warnings))
}

pub(super) fn replace(
    lite: &Lite,
    target: &Target,
    query: &Query,
    form: Form,
    (object, faults): (Value, Vec<Fault>),
) -> Result<Response<LiteBody>, Failure> {
    query.check_manager("UpdateOptions", None)?;
    edit(lite, target, query, form, (&Edit::Replace(object), faults))
}

pub(super) fn patch(
    lite: &Lite,
    target: &Target,
    query: &Query,
    form: Form,
    (media_type, body): (&str, &Bytes),
) -> Result<Response<LiteBody>, Failure> {
    let applies = media_type == APPLY;
    query.check_manager("PatchOptions", Some(applies))?;
    if applies {
        let (config, faults) = Config::parse(body, query.force.unwrap_or_default(), query.validation)?;
        return edit(lite, target, query, form, (&Edit::Apply(config), faults));
    }
    let patch = Edit::Patch(Patch::parse(media_type, body)?);
    edit(lite, target, query, form, (&patch, Patch::faults(media_type, body)))
}

fn edit(
    lite: &Lite,
    target: &Target,
    query: &Query,
    form: Form,
    (edit, faults): (&Edit, Vec<Fault>),
) -> Result<Response<LiteBody>, Failure> {
    let options = WriteOptions { faults, ..write_options(lite, query) };
    let (checked, creates) = {
        let state = lite.store().read();
        (write::apply(&state, target, edit, &options)?, state.get(&target.kind, &target.key).is_none())
    };
    let written = lite.store().commit(|state| write::commit(state, checked, &options.moment));
    let code = if creates { StatusCode::CREATED } else { StatusCode::OK };
    Ok(answer::warn(show(lite, target, &written.object, query, form, code), &written.warnings))
}

/// Returns `true` if the query or the options of a deletion request a dry run.
fn is_dry(query: &Query, options: &Value) -> Result<bool, Failure> {
    let mut dry = query.dry_run;
    for value in options["dryRun"].as_array().into_iter().flatten() {
        dry |= query::dry_run(value.as_str().unwrap_or("?"))?;
    }
    Ok(dry)
}

pub(super) fn delete(
    lite: &Lite,
    target: &Target,
    query: &Query,
    delete_options: &Value,
) -> Result<Response<LiteBody>, Failure> {
    let options = WriteOptions { dry_run: is_dry(query, delete_options)?, ..write_options(lite, query) };
    let preconditions = Preconditions::read(delete_options, &query.propagation)?;
    let deleted = lite.store().commit(|state| write::delete(state, target, &options, &preconditions))?;
    Ok(match deleted {
        Deleted::Gone(object) if target.description().built_in().is_some_and(|kind| RETURNED.contains(&kind)) => {
            answer::bytes(StatusCode::OK, target.kind.shown(&object).json())
        }
        Deleted::Terminating(object) => answer::bytes(StatusCode::OK, target.kind.shown(&object).json()),
        Deleted::Gone(object) => {
            let kind = target.description();
            let mut details = json!({"name": target.key.name, "kind": &*kind.plural, "uid": object.metadata("uid")});
            if !kind.group.is_empty() {
                details["group"] = (&*kind.group).into();
            }
            let status =
                json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details});
            answer::json(StatusCode::OK, &status)
        }
    })
}

pub(super) fn delete_collection(
    lite: &Lite,
    kind: &KindId,
    namespace: Option<&str>,
    query: &Query,
    delete_options: &Value,
) -> Result<Response<LiteBody>, Failure> {
    let description = kind.description();
    if description.namespaced() && namespace.is_none() {
        return Err(Failure::method_not_allowed());
    }
    let options = WriteOptions { dry_run: is_dry(query, delete_options)?, ..write_options(lite, query) };
    let (selection, part) = select(kind, namespace, query)?;
    let policy = Policy::read(delete_options, &query.propagation)?;
    let (gone, version) = lite.store().commit(|state| {
        let gone = write::delete_matching(state, kind, &part, &selection, &options, policy)?;
        Ok((gone, state.version()))
    })?;
    let gone: Vec<_> = gone.iter().map(|object| kind.shown(object)).collect();
    let items: Vec<&Value> = gone.iter().map(|object| object.value()).collect();
    Ok(answer::json(
        StatusCode::OK,
        &json!({
            "kind": &description.list_kind, "apiVersion": description.api_version(),
            "metadata": {"resourceVersion": version.to_string()}, "items": items,
        }),
    ))
}
