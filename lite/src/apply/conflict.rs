//! Fields with another owner: the refusal of an apply, in the words of the real server.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::fields::{Fields, Path};
use super::managers::{Manager, Operation};
use super::step::Step;
use crate::failure::Failure;

/// The fields of an applied object that others own, by owner.
#[derive(Clone, Debug, Default)]
pub(crate) struct Conflicts(pub(crate) BTreeMap<Manager, Fields>);

impl Conflicts {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The remaining conflicts when these fields are allowed.
    pub(crate) fn without(&self, allowed: &Fields) -> Self {
        let left = self.0.iter().map(|(manager, fields)| (manager.clone(), fields.without(allowed)));
        Self(left.filter(|(_, fields)| !fields.is_empty()).collect())
    }

    /// 409, with a cause for each field.
    pub(crate) fn failure(&self) -> Failure {
        let all: Vec<(String, Vec<Path>)> =
            self.0.iter().map(|(manager, fields)| (describe(manager), fields.paths())).collect();
        let causes = all.iter().flat_map(|(manager, paths)| {
            paths.iter().map(move |path| {
                let message = format!("conflict with {manager}");
                json!({"reason": "FieldManagerConflict", "message": message, "field": shown(path)})
            })
        });
        let causes: Vec<Value> = causes.collect();
        let message = match (causes.len(), all.first()) {
            (1, Some((manager, paths))) => {
                let path = paths.first().map(|path| shown(path)).unwrap_or_default();
                format!("Apply failed with 1 conflict: conflict with {manager}: {path}")
            }
            (count, _) => {
                let lines = all.iter().flat_map(|(manager, paths)| {
                    let head = format!("conflicts with {manager}:");
                    std::iter::once(head).chain(paths.iter().map(|path| format!("- {}", shown(path))))
                });
                format!("Apply failed with {count} conflicts: {}", lines.collect::<Vec<_>>().join("\n"))
            }
        };
        Failure::apply_conflict(message, causes)
    }
}

fn shown(path: &[Step]) -> String {
    path.iter().map(Step::to_string).collect()
}

/// An owner's name, without times: the identity of a manager in the real server has none.
fn describe(manager: &Manager) -> String {
    let mut text = format!("{:?}", manager.name);
    if !manager.subresource.is_empty() {
        text.push_str(&format!(" with subresource {:?}", manager.subresource));
    }
    if manager.operation == Operation::Update {
        text.push_str(&format!(" using {}", manager.api_version));
    }
    text
}
