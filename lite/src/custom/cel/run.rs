//! The rules of a schema, evaluated on an object.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use cel::common::types::CelOptional;
use cel::{Context, ExecutionError, Program};
use serde_json::Value;

use super::library::NO_OVERLOAD;
use super::value::convert;
use super::{cost, env};
use crate::causes::Causes;
use crate::custom::model::{Additional, List, Reason, Rule, Schema, Type};

/// The budget of all rules of one object, in the steps of `cost`: a fraction of a second.
const STEPS_MAX: f64 = 2_000_000.0;
/// The message of an expression.
const MESSAGE_MAX_BYTES: usize = 5 << 10;

/// Reports the faults of an object by the rules of its schema. `old` is the previous object.
pub(in crate::custom) fn run(schema: &Schema, object: &Value, old: Option<&Value>, causes: &mut Causes) {
    let mut run = Run { left: STEPS_MAX, causes };
    run.visit(schema, object, old, "");
}

/// Why a rule could not be evaluated.
enum Trouble {
    /// No function is for values like these.
    NoOverload,
    Failed(String),
}

struct Run<'a> {
    left: f64,
    causes: &'a mut Causes,
}

impl Run<'_> {
    fn visit(&mut self, schema: &Schema, value: &Value, old: Option<&Value>, path: &str) {
        if value.is_null() || self.left < 0.0 || !schema.has_rules {
            return;
        }
        for rule in &schema.rules {
            self.rule(rule, schema, value, old.filter(|old| !old.is_null()), path);
            if self.left < 0.0 {
                return;
            }
        }
        match value {
            Value::Object(fields) => {
                for (key, below) in fields {
                    let old = old.and_then(|old| old.get(key));
                    if let Some(schema) = schema.properties.get(key) {
                        let dot = if path.is_empty() { "" } else { "." };
                        self.visit(schema, below, old, &format!("{path}{dot}{key}"));
                    } else if let Some(Additional::Schema(schema)) = &schema.additional {
                        self.visit(schema, below, old, &format!("{path}[{key}]"));
                    }
                }
            }
            Value::Array(list) => {
                if let Some(items) = schema.items.as_ref().filter(|items| items.has_rules) {
                    let olds = counterparts(&schema.list, old);
                    for (nth, below) in list.iter().enumerate() {
                        let old = olds.get(&identity(&schema.list, below)).copied();
                        self.visit(items, below, old, &format!("{path}[{nth}]"));
                    }
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    fn rule(&mut self, rule: &Rule, schema: &Schema, value: &Value, old: Option<&Value>, path: &str) {
        if rule.uses_old && old.is_none() && !rule.optional_old {
            return;
        }
        // An unchanged value passes, unless the rule is about changes.
        if !rule.uses_old && old == Some(value) {
            return;
        }
        let Some(outcome) = self.evaluate(&rule.program, rule, schema, value, old) else {
            let why = "validation failed due to running out of cost budget, no further validation rules will be run";
            self.invalid(path, schema, why);
            return;
        };
        match outcome {
            Ok(cel::Value::Bool(true)) => {}
            Ok(_) => {
                let evaluated = rule.message_expression.as_ref();
                let evaluated = evaluated.and_then(|program| self.evaluate(program, rule, schema, value, old));
                let message =
                    evaluated.and_then(|evaluated| message(&evaluated.ok()?)).unwrap_or_else(|| rule.default_message());
                self.refuse(rule, schema, value, path, &message);
            }
            Err(why) => {
                let rule = if rule.message.is_empty() { &rule.source } else { &rule.message };
                let why = match why {
                    Trouble::Failed(why) => format!("{why} evaluating rule: {rule}"),
                    Trouble::NoOverload => format!(
                        "'{NO_OVERLOAD}': call arguments did not match a supported operator, function or macro signature for rule: {rule}"
                    ),
                };
                self.invalid(path, schema, &why);
            }
        }
    }

    /// `None`: it could take too long.
    fn evaluate(
        &mut self,
        program: &Program,
        rule: &Rule,
        schema: &Schema,
        value: &Value,
        old: Option<&Value>,
    ) -> Option<Result<cel::Value, Trouble>> {
        // Before the rule sees them, the values are converted as a whole.
        self.left -= cost::conversion(value) + old.map_or(0.0, cost::conversion);
        if self.left < 0.0 {
            return None;
        }
        self.left -= cost::bound(program.expression(), value, old, self.left).unwrap_or(f64::INFINITY);
        if self.left < 0.0 {
            return None;
        }
        let evaluate = || {
            let mut context = Context::with_env(env::env());
            context.add_variable_as_val("self", convert(Some(schema), value));
            let old = old.map(|old| convert(Some(schema), old));
            match (old, rule.optional_old) {
                (Some(old), false) => context.add_variable_as_val("oldSelf", old),
                (None, false) => {}
                (old, true) => context.add_variable_as_val("oldSelf", Box::new(CelOptional::from(old))),
            }
            program.execute(&context).map_err(words)
        };
        // A fault of the library is a rule that cannot be evaluated, and not the end of the server.
        Some(
            catch_unwind(AssertUnwindSafe(evaluate))
                .unwrap_or_else(|_| Err(Trouble::Failed("internal error".to_owned()))),
        )
    }

    /// A rule that could not be evaluated.
    fn invalid(&mut self, path: &str, schema: &Schema, why: &str) {
        let kind = schema.kind.map_or("", Type::name);
        self.causes.push("FieldValueInvalid", place(path, ""), || format!("Invalid value: {kind:?}: {why}"));
    }

    fn refuse(&mut self, rule: &Rule, schema: &Schema, value: &Value, path: &str, message: &str) {
        let field = place(path, &rule.path);
        let shown = match schema.kind {
            Some(Type::Object | Type::Array) => String::new(),
            Some(Type::String | Type::Integer | Type::Number | Type::Boolean) | None => format!("{value}: "),
        };
        match rule.reason {
            Some(Reason::Required) => self.causes.required(field, message),
            Some(Reason::Forbidden) => self.causes.forbidden(field, message),
            Some(Reason::Duplicate) => self.causes.duplicate(field, value),
            None => {
                self.causes.push("FieldValueInvalid", field, || format!("Invalid value: {shown}{message}"));
            }
        }
    }
}

fn place(path: &str, below: &str) -> String {
    let place = format!("{path}{below}");
    let place = if path.is_empty() { place.trim_start_matches('.') } else { &place };
    if place.is_empty() { "<nil>".to_owned() } else { place.to_owned() }
}

/// The values of the keys of a list's element; none if the list is no map.
fn identity<'a>(list: &List, element: &'a Value) -> Vec<Option<&'a Value>> {
    match list {
        List::Map(keys) => keys.iter().map(|key| element.get(key)).collect(),
        List::Atomic | List::Set => Vec::new(),
    }
}

/// The elements of a list as they were before, by their keys: only those of a map can be told apart. Of two with the
/// same keys, the first counts.
fn counterparts<'a>(list: &List, old: Option<&'a Value>) -> HashMap<Vec<Option<&'a Value>>, &'a Value> {
    let olds = old.and_then(Value::as_array).filter(|_| matches!(list, List::Map(_)));
    olds.into_iter().flatten().rev().map(|element| (identity(list, element), element)).collect()
}

fn message(evaluated: &cel::Value) -> Option<String> {
    let cel::Value::String(text) = evaluated else { return None };
    let text = text.trim();
    (!text.is_empty() && text.len() <= MESSAGE_MAX_BYTES && !text.contains('\n')).then(|| text.to_owned())
}

/// The error, without the values that the library adds.
fn words(why: ExecutionError) -> Trouble {
    if let ExecutionError::FunctionError { message, .. } = why {
        return if message == NO_OVERLOAD { Trouble::NoOverload } else { Trouble::Failed(message) };
    }
    if let ExecutionError::NoSuchKey(key) = &why {
        return Trouble::Failed(format!("no such key: {key}"));
    }
    if let ExecutionError::IndexOutOfBounds(cel::Value::Int(nth)) = &why {
        return Trouble::Failed(format!("index out of bounds: {nth}"));
    }
    Trouble::Failed(why.to_string())
}
