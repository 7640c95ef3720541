//! Rules of schemas (`x-kubernetes-validations`), in CEL.
//!
//! The `cel` crate parses and evaluates. It has neither a check of types nor a bound of cost, so both are here: `names`
//! refuses references of a rule that cannot exist when its definition arrives, and `cost` refuses evaluations that
//! could take too long.

mod cost;
mod env;
mod keyed;
mod library;
mod names;
mod run;
mod value;

use std::sync::Arc;

use cel::Program;
use serde_json::Value;

pub(super) use self::library::pattern;
pub(super) use self::run::run;
use super::model::{Reason, Rule, Schema, Type};
use crate::causes::Causes;

/// The text of a rule or of the expression of its message.
const EXPRESSION_MAX_BYTES: usize = 16 << 10;
/// Rules of one schema.
const RULES_MAX: usize = 256;

/// Reads the rules of a schema, and complains of those that cannot be evaluated.
pub(super) fn read(schema: &Value, read: &Schema, root: bool, field: &str, causes: &mut Causes) -> Vec<Rule> {
    let rules = schema["x-kubernetes-validations"].as_array().map(Vec::as_slice).unwrap_or_default();
    let field = format!("{field}.x-kubernetes-validations");
    if rules.len() > RULES_MAX {
        causes.forbidden(&field, &format!("must not have more than {RULES_MAX} rules"));
        return Vec::new();
    }
    let rules = rules.iter().enumerate();
    rules.filter_map(|(nth, rule)| Rule::read(rule, read, root, &format!("{field}[{nth}]"), causes)).collect()
}

impl Rule {
    fn read(rule: &Value, schema: &Schema, root: bool, field: &str, causes: &mut Causes) -> Option<Self> {
        let before = causes.0.len();
        let text = |key: &str| rule[key].as_str().unwrap_or_default();
        let source = text("rule");
        if source.trim().is_empty() {
            causes.required(format!("{field}.rule"), "rule is not specified");
            return None;
        }
        check_texts(rule, field, causes);
        let optional_old = rule["optionalOldSelf"] == true;
        let program = compile(source, schema, root, optional_old).and_then(|program| {
            let other = names::is_other(&program, schema, root, Type::Boolean);
            if other { Err("cel expression must evaluate to a bool".to_owned()) } else { Ok(program) }
        });
        let program = program.map_err(|why| refuse(format!("{field}.rule"), rule, &why, causes)).ok();
        let expression = text("messageExpression");
        let expression = (!expression.is_empty()).then(|| compile(expression, schema, root, optional_old));
        let message_expression = expression.and_then(|compiled| {
            let why = |why| format!("messageExpression {why}");
            let field = format!("{field}.messageExpression");
            compiled.map_err(|error| refuse(field, rule, &why(error), causes)).ok()
        });
        let program = program.filter(|_| causes.0.len() == before)?;
        let uses_old = program.references().has_variable("oldSelf");
        if !uses_old && rule["optionalOldSelf"].is_boolean() {
            let why = "may not be set if oldSelf is not used in rule";
            causes.invalid(format!("{field}.optionalOldSelf"), &rule["optionalOldSelf"], why);
        }
        let reason = match text("reason") {
            "FieldValueRequired" => Some(Reason::Required),
            "FieldValueForbidden" => Some(Reason::Forbidden),
            "FieldValueDuplicate" => Some(Reason::Duplicate),
            _ => None,
        };
        let path = field_path(text("fieldPath"));
        let (source, message) = (source.trim().to_owned(), text("message").trim().to_owned());
        Some(Self { source, program, message, message_expression, reason, path, uses_old, optional_old })
    }

    /// The message about a value that the rule refuses, if its expression gives none.
    fn default_message(&self) -> String {
        if self.message.is_empty() { format!("failed rule: {}", self.source) } else { self.message.clone() }
    }
}

/// Refuses a rule, or an expression of it, that cannot be evaluated. The rule is shown as the real server does.
fn refuse(field: String, rule: &Value, why: &str, causes: &mut Causes) {
    let text = |key: &str| Value::from(rule[key].as_str().unwrap_or_default());
    let message = || {
        format!(
            "Invalid value: {{\"Rule\":{},\"Message\":{},\"MessageExpression\":{},\"Reason\":{},\"FieldPath\":{},\"OptionalOldSelf\":{}}}: {why}",
            text("rule"),
            text("message"),
            text("messageExpression"),
            rule["reason"],
            text("fieldPath"),
            rule["optionalOldSelf"]
        )
    };
    causes.push("FieldValueInvalid", field, message);
}

fn check_texts(rule: &Value, field: &str, causes: &mut Causes) {
    const REASONS: &[&str] = &["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];
    let text = |key: &str| rule[key].as_str();
    match text("message") {
        Some(message) if !message.is_empty() && message.trim().is_empty() => {
            causes.invalid(format!("{field}.message"), &rule["message"], "must be non-empty if specified");
        }
        Some(message) if message.trim().contains('\n') => {
            causes.invalid(format!("{field}.message"), &rule["message"], "must not contain line breaks");
        }
        None | Some("") if text("rule").is_some_and(|rule| rule.trim().contains('\n')) => {
            let why = "message must be specified if rule contains line breaks";
            causes.required(format!("{field}.message"), why);
        }
        Some(_) | None => {}
    }
    if let Some(reason) = text("reason").filter(|reason| !REASONS.contains(reason)) {
        causes.unsupported(format!("{field}.reason"), &reason.into(), REASONS);
    }
    if let Some(path) = text("fieldPath") {
        let why = if path.trim().is_empty() {
            "must be non-empty if specified"
        } else if path.contains('\n') {
            "must not contain line breaks"
        } else if !path.starts_with(['.', '[']) {
            "must be a valid path"
        } else {
            return;
        };
        causes.invalid(format!("{field}.fieldPath"), &rule["fieldPath"], why);
    }
}

/// A path as field errors show it: names behind dots, and keys of maps in brackets without quotes.
fn field_path(path: &str) -> String {
    path.replace("['", ".").replace("']", "").replace("[\"", ".").replace("\"]", "")
}

fn compile(source: &str, schema: &Schema, root: bool, optional_old: bool) -> Result<Arc<Program>, String> {
    if source.len() > EXPRESSION_MAX_BYTES {
        return Err(format!("compilation failed: an expression may have at most {EXPRESSION_MAX_BYTES} bytes"));
    }
    let program = env::program(source).map_err(|why| format!("compilation failed: {why}"))?;
    names::check(&program, schema, root, optional_old)?;
    Ok(program)
}
