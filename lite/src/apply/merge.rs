//! The merge of an object with a manager's configuration: applied fields win, lists are joined by keys in an order that
//! both sides can recognise.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::node::{Form, Node};
use super::step::Step;

/// Merges `applied`, which fits the schema, over `live`.
pub(crate) fn merge(node: Node<'_>, live: &Value, applied: &Value) -> Value {
    match (node.form(live), node.form(applied), live, applied) {
        (Form::Object, Form::Object, Value::Object(live), Value::Object(applied)) => {
            Value::Object(merge_objects(node, live, applied))
        }
        (Form::List, Form::List, Value::Array(live), Value::Array(applied)) => {
            Value::Array(merge_lists(node, live, applied))
        }
        _ => applied.clone(),
    }
}

fn merge_objects(node: Node<'_>, live: &Map<String, Value>, applied: &Map<String, Value>) -> Map<String, Value> {
    let mut merged = live.clone();
    for (key, applied) in applied {
        let value = live.get(key).map_or_else(|| applied.clone(), |live| merge(node.field(key).0, live, applied));
        merged.insert(key.clone(), value);
    }
    merged
}

/// Joins two lists. Elements of both are in the applied order; those of one side stay with their neighbours. An element
/// that `live` has twice becomes the applied one.
fn merge_lists(node: Node<'_>, live: &[Value], applied: &[Value]) -> Vec<Value> {
    let keyed =
        |list: &'_ [Value]| -> Vec<Option<Step>> { list.iter().map(|value| node.step_of(value).ok()).collect() };
    let (old_steps, new_steps) = (keyed(live), keyed(applied));
    let mut olds = BTreeMap::<&Step, Vec<&Value>>::new();
    for (step, value) in old_steps.iter().zip(live) {
        if let Some(step) = step {
            olds.entry(step).or_default().push(value);
        }
    }
    let news: Vec<(&Step, &Value)> =
        new_steps.iter().zip(applied).filter_map(|(step, value)| Some((step.as_ref()?, value))).collect();
    let wanted: BTreeSet<&Step> = news.iter().map(|(step, _)| *step).collect();
    let joined = |(step, value): (&Step, &Value)| match olds.get(step).map(Vec::as_slice) {
        Some([old]) => merge(node.element(), old, value),
        Some(_) | None => value.clone(),
    };
    let mut shared = news.iter().map(|(step, _)| *step).filter(|step| olds.contains_key(*step)).peekable();
    let mut placed = BTreeSet::new();
    let mut merged = Vec::with_capacity(live.len().max(applied.len()));
    let mut left = old_steps.iter().map(Option::as_ref).zip(live).peekable();
    let mut right = news.iter().copied().peekable();
    loop {
        match (left.peek(), right.peek()) {
            (None, None) => return merged,
            // Only the live object has it.
            (Some((step, value)), _) if step.is_none_or(|step| !wanted.contains(step)) => {
                merged.push((*value).clone());
                left.next();
            }
            // The applied list determines its place: that was before this, or comes later.
            (Some((Some(step), _)), next)
                if placed.contains(step)
                    || next.is_none()
                    || (next.is_some_and(|(next, _)| next != step)
                        && shared.peek().is_some_and(|next| next != step)) =>
            {
                left.next();
            }
            (_, Some((step, value))) => {
                merged.push(joined((step, value)));
                placed.insert(*step);
                if shared.peek() == Some(step) {
                    shared.next();
                }
                right.next();
            }
            (Some(_), None) => {
                left.next();
            }
        }
    }
}
