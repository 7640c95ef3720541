//! Writes: each checks everything on the state as it is, and is committed afterwards.

mod admit;
mod apply;
mod class;
mod create;
mod definition;
mod delete;
mod garbage;
mod namespace;
mod owners;
mod ports;
mod restore;
mod update;

use std::sync::Arc;

use serde_json::Value;

pub(crate) use self::admit::{Validation, Warnings};
pub(crate) use self::apply::{Config, apply, read_yaml};
pub(crate) use self::create::create;
pub(crate) use self::delete::{Deleted, Preconditions, delete, delete_matching};
pub(crate) use self::garbage::Policy;
pub(crate) use self::namespace::BUILT_IN as BUILT_IN_NAMESPACES;
pub(crate) use self::restore::restore;
pub(crate) use self::update::Edit;
use crate::clock::Moment;
use crate::json::Fault;
use crate::kind::{Kind, KindId, Subresource};
use crate::store::{Key, Object, State};

/// The object of a request.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) kind: KindId,
    pub(crate) key: Key,
    pub(crate) subresource: Option<Subresource>,
}

impl Target {
    pub(crate) fn description(&self) -> &Kind {
        self.kind.description()
    }
}

/// The options of a write, from its request.
#[derive(Clone, Debug)]
pub(crate) struct WriteOptions {
    /// Check everything and change nothing.
    pub(crate) dry_run: bool,
    pub(crate) validation: Validation,
    /// The faults of the request's text, besides those of its object.
    pub(crate) faults: Vec<Fault>,
    pub(crate) moment: Moment,
    /// The field manager: the owner of the fields that this changes.
    pub(crate) manager: String,
}

/// An object after a write.
pub(crate) struct Written {
    pub(crate) object: Arc<Object>,
    pub(crate) warnings: Warnings,
}

/// A write that has been checked. The state must not change until it is committed.
pub(crate) enum Checked {
    /// There is nothing to store.
    Done(Written),
    /// A new object.
    Insert(Target, Value, Warnings),
    /// A change of an object.
    Update(Target, Value, Warnings),
}

/// Stores what a write has come to.
pub(crate) fn commit(state: &mut State, checked: Checked, moment: &Moment) -> Written {
    match checked {
        Checked::Done(written) => written,
        Checked::Insert(target, object, warnings) => {
            Written { object: create::store(state, &target, object, moment), warnings }
        }
        Checked::Update(target, object, warnings) => {
            Written { object: update::store(state, &target, object, moment), warnings }
        }
    }
}

/// The finalizers of an object.
fn finalizers(object: &Value) -> impl Iterator<Item = &Value> {
    object["metadata"]["finalizers"].as_array().into_iter().flatten()
}

/// Returns `true` if finalizers prevent the removal of an object.
fn is_held(object: &Value) -> bool {
    finalizers(object).next().is_some()
}
