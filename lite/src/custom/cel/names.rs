//! The names that a rule may refer to: `self` and `oldSelf`, fields that the schema has, functions that there are.
//! Whether types fit beyond that shows when the rule is evaluated.

use cel::Program;
use cel::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, LiteralValue, SelectExpr};

use super::env::has_function;
use super::library::pattern;
use super::value::{META, escape};
use crate::custom::model::{Additional, Schema, Type};

/// Names of types, which an expression may use as values, and the words that such names begin with.
const NAMES: &[&str] = &[
    "bool",
    "bytes",
    "double",
    "dyn",
    "google",
    "int",
    "list",
    "map",
    "net",
    "null_type",
    "optional_type",
    "string",
    "type",
    "uint",
];

/// Groups of functions, which are nothing by themselves.
const GROUPS: &[&str] = &["format", "ip", "lists", "optional", "sets", "strings"];

/// The known facts about the value of an expression.
#[derive(Clone, Copy)]
enum Known<'a> {
    /// It is as a schema says; the flag is set for a whole object with its metadata.
    Schema(&'a Schema, bool),
    Nothing,
}

/// Refuses a program that refers to unknown names.
pub(super) fn check(program: &Program, schema: &Schema, root: bool, optional_old: bool) -> Result<(), String> {
    let expression = program.expression();
    let object = Known::Schema(schema, root);
    let old = if optional_old { Known::Nothing } else { object };
    let scope = vec![("self".to_owned(), object), ("oldSelf".to_owned(), old)];
    Walk { program, scope }.expression(expression).map(|_| ())
}

/// Whether the value of a program is surely none of these types.
pub(super) fn is_other(program: &Program, schema: &Schema, root: bool, wanted: Type) -> bool {
    let scope = vec![("self".to_owned(), Known::Schema(schema, root))];
    match (Walk { program, scope }).expression(program.expression()) {
        Ok(Known::Schema(schema, _)) => schema.kind.is_some_and(|kind| kind != wanted),
        Ok(Known::Nothing) | Err(_) => false,
    }
}

/// How deep an expression is, without going down into it by calls.
pub(super) fn depth(expression: &IdedExpr) -> usize {
    let mut deepest = 0;
    let mut waiting = vec![(expression, 1)];
    while let Some((expression, depth)) = waiting.pop() {
        deepest = deepest.max(depth);
        let mut add = |below| waiting.push((below, depth + 1));
        match &expression.expr {
            Expr::Call(call) => call.target.as_deref().into_iter().chain(&call.args).for_each(add),
            Expr::Comprehension(one) => {
                [&one.iter_range, &one.accu_init, &one.loop_cond, &one.loop_step, &one.result]
                    .into_iter()
                    .for_each(add);
            }
            Expr::List(list) => list.elements.iter().for_each(add),
            Expr::Select(select) => add(&select.operand),
            Expr::Map(map) => map.entries.iter().flat_map(|entry| entries(&entry.expr)).for_each(add),
            Expr::Struct(one) => one.entries.iter().flat_map(|entry| entries(&entry.expr)).for_each(add),
            Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) => {}
        }
    }
    deepest
}

/// The expressions of an entry of a map.
pub(super) fn entries(entry: &EntryExpr) -> Vec<&IdedExpr> {
    match entry {
        EntryExpr::StructField(field) => vec![&field.value],
        EntryExpr::MapEntry(entry) => vec![&entry.key, &entry.value],
    }
}

struct Walk<'a> {
    program: &'a Program,
    /// Names in scope, the innermost last.
    scope: Vec<(String, Known<'a>)>,
}

type Found<'a> = Result<Known<'a>, String>;

impl<'a> Walk<'a> {
    fn expression(&mut self, one: &IdedExpr) -> Found<'a> {
        match &one.expr {
            Expr::Ident(name) => self.name(name, one.id),
            Expr::Select(select) => self.select(select, one.id),
            Expr::Call(call) => self.call(call, one.id),
            Expr::Comprehension(comprehension) => self.comprehension(comprehension),
            Expr::List(list) => self.all(list.elements.iter()),
            Expr::Map(map) => self.all(map.entries.iter().flat_map(|entry| entries(&entry.expr))),
            Expr::Struct(_) => Err(self.error(one.id, "messages cannot be made here")),
            Expr::Unspecified => Err(self.error(one.id, "the expression is not complete")),
            Expr::Literal(_) => Ok(Known::Nothing),
        }
    }

    fn all<'e>(&mut self, expressions: impl Iterator<Item = &'e IdedExpr>) -> Found<'a> {
        for one in expressions {
            self.expression(one)?;
        }
        Ok(Known::Nothing)
    }

    fn name(&self, name: &str, id: u64) -> Found<'a> {
        if let Some((_, known)) = self.scope.iter().rev().find(|(known, _)| known == name) {
            return Ok(*known);
        }
        if name.starts_with('@') || NAMES.contains(&name) {
            return Ok(Known::Nothing);
        }
        Err(self.error(id, &format!("undeclared reference to '{name}' (in container '')")))
    }

    /// Whether this names a group of functions, and no variable.
    fn is_group(&self, one: &IdedExpr) -> bool {
        let Expr::Ident(name) = &one.expr else { return false };
        GROUPS.contains(&name.as_str()) && !self.scope.iter().any(|(known, _)| known == name)
    }

    fn select(&mut self, select: &SelectExpr, id: u64) -> Found<'a> {
        let operand = self.expression(&select.operand)?;
        let Known::Schema(schema, root) = operand else { return Ok(Known::Nothing) };
        let field = &select.field;
        if (root || schema.embedded) && META.contains(&field.as_str()) {
            return Ok(Known::Nothing);
        }
        match schema.kind {
            Some(Type::Object) => {}
            Some(kind) => {
                let why = format!("type '{}' does not support field selection", cel_type(kind));
                return Err(self.error(id, &why));
            }
            None => return Ok(Known::Nothing),
        }
        // A reserved word is a name after a dot too, so that both spellings are there.
        if let Some((_, below)) = schema.properties.iter().find(|(name, _)| *name == field || escape(name) == *field) {
            // Whether a field is there is a flag, whatever the field is.
            return Ok(if select.test { Known::Nothing } else { Known::Schema(below, false) });
        }
        match &schema.additional {
            Some(Additional::Schema(below)) if !select.test => Ok(Known::Schema(below, false)),
            Some(Additional::Schema(_) | Additional::Allowed) => Ok(Known::Nothing),
            None => Err(self.error(id, &format!("undefined field '{field}'"))),
        }
    }

    fn call(&mut self, call: &CallExpr, id: u64) -> Found<'a> {
        let name = call.func_name.as_str();
        let is_operator = name.starts_with(['_', '!', '-', '@']);
        let known = is_operator || has_function(name);
        let target = call.target.as_deref().filter(|target| !(known && self.is_group(target)));
        if !known {
            target.map_or(Ok(Known::Nothing), |target| self.expression(target))?;
            return Err(self.error(id, &format!("undeclared reference to '{name}' (in container '')")));
        }
        let mut first = Known::Nothing;
        for (nth, one) in target.into_iter().chain(&call.args).enumerate() {
            let known = self.expression(one)?;
            if nth == 0 {
                first = known;
            }
        }
        let regex = match name {
            "matches" | "find" => call.args.last(),
            "findAll" => call.args.first(),
            _ => None,
        };
        if let Some(regex) = regex
            && let Expr::Literal(LiteralValue::String(text)) = &regex.expr
            && pattern(text.inner()).is_err()
        {
            return Err(self.error(regex.id, "invalid matches argument"));
        }
        Ok(match (name, first) {
            ("_[_]", Known::Schema(schema, _)) => element(schema, true),
            _ => Known::Nothing,
        })
    }

    fn comprehension(&mut self, one: &ComprehensionExpr) -> Found<'a> {
        let range = self.expression(&one.iter_range)?;
        let (first, second) = match range {
            Known::Schema(schema, _) => match (&one.iter_var2, schema.kind) {
                (Some(_), _) => (Known::Nothing, element(schema, true)),
                (None, _) => (element(schema, false), Known::Nothing),
            },
            Known::Nothing => (Known::Nothing, Known::Nothing),
        };
        self.expression(&one.accu_init)?;
        let before = self.scope.len();
        self.scope.push((one.iter_var.clone(), first));
        self.scope.extend(one.iter_var2.clone().map(|name| (name, second)));
        self.scope.push((one.accu_var.clone(), Known::Nothing));
        self.expression(&one.loop_cond)?;
        self.expression(&one.loop_step)?;
        self.scope.truncate(before);
        self.scope.push((one.accu_var.clone(), Known::Nothing));
        self.expression(&one.result)?;
        self.scope.truncate(before);
        Ok(Known::Nothing)
    }

    /// An error in the form of the real server: where it is, and the line with a mark below.
    fn error(&self, id: u64, what: &str) -> String {
        let info = self.program.source_info();
        let start = info.offset_for(id).map_or(0, |(start, _)| start as usize);
        let before: String = info.source.chars().take(start).collect();
        let (line, column) =
            (before.matches('\n').count(), before.rsplit('\n').next().unwrap_or_default().chars().count());
        let text = info.source.lines().nth(line).unwrap_or_default();
        let dots = ".".repeat(column);
        format!("compilation failed: ERROR: <input>:{}:{}: {what}\n | {text}\n | {dots}^", line + 1, column + 1)
    }
}

/// The elements of a list, or of a map the values (of which an iteration without an index sees the keys).
fn element(schema: &Schema, values: bool) -> Known<'_> {
    match (&schema.items, &schema.additional) {
        (Some(items), _) => Known::Schema(items, false),
        (None, Some(Additional::Schema(below))) if values => Known::Schema(below, false),
        (None, _) => Known::Nothing,
    }
}

fn cel_type(kind: Type) -> &'static str {
    match kind {
        Type::Object => "map",
        Type::Array => "list",
        Type::String => "string",
        Type::Integer => "int",
        Type::Number => "double",
        Type::Boolean => "bool",
    }
}
