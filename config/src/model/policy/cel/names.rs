//! The names in an expression. Each attribute that it refers to becomes a variable of its own, so that an evaluation
//! reads these of a request and no others; whatever else it names must exist.

use cel::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedEntryExpr, IdedExpr, LiteralValue};

use super::super::super::expression::{Comparison, Expression, Extent, Subject};
use super::super::super::path::RegexCase;
use super::attribute::{Attribute, IDENTITY, Named, ROOTS};
use super::library::{FUNCTIONS, MATCHES, OF_OPTIONAL, Pattern};

/// The maximum number of patterns of an expression: each is compiled.
const PATTERNS_MAX: usize = 16;
/// The maximum memory of the patterns of an expression in bytes.
const PATTERN_BYTES_MAX: usize = 256 << 10;

/// The names of types, which an expression may use as values.
const TYPES: &[&str] =
    &["bool", "bytes", "double", "int", "list", "map", "null_type", "optional_type", "string", "type", "uint"];

/// The functions that the parser makes of operators and macros.
const OPERATORS: &[&str] = &[
    "_?_:_",
    "_&&_",
    "_||_",
    "!_",
    "_-_",
    "_+_",
    "_*_",
    "_/_",
    "_%_",
    "_==_",
    "_!=_",
    "_>=_",
    "_<=_",
    "_>_",
    "_<_",
    "-_",
    "_[_]",
    "_[?_]",
    "_?._",
    "@in",
    "@not_strictly_false",
];

/// The reasons for attributes that Envoy or Kuadrant have and that do not exist here.
const ABSENT: &[(&str, &str)] = &[
    ("request.body", "bodies are not read"),
    ("request.raw_body", "bodies are not read"),
    ("request.headers", "headers are read one by one: write request.headers['name']"),
    ("filter_state", "there is no such state here"),
    ("metadata", "there is no such state here"),
    ("ratelimit", "limits do not see the results of others"),
    ("source.principal", "clients have no certificates here"),
];

/// How an expression refers to an attribute.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Use {
    /// By its value; it is an error if the request has none.
    Value,
    /// By whether the request has it.
    Presence,
    /// By an optional value.
    Optional,
}

/// A variable of an expression.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Variable {
    pub(super) attribute: Attribute,
    pub(super) how: Use,
}

/// What an expression refers to.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// Variable *n* is called `@n` in the expression.
    pub(super) variables: Vec<Variable>,
    /// Pattern *n* is called `@pn` in the expression.
    pub(super) patterns: Vec<Pattern>,
    pub(super) reads_identity: bool,
    /// The memory of the patterns.
    pattern_bytes: usize,
}

impl Names {
    /// Replaces the attributes in an expression by variables.
    ///
    /// # Errors
    /// If it refers to something that does not exist.
    pub(super) fn of(expression: &mut IdedExpr) -> Result<Self, String> {
        let mut names = Self::default();
        names.expression(expression, &mut Vec::new())?;
        Ok(names)
    }

    /// The variable of an identifier.
    pub(super) fn variable(&self, expression: &IdedExpr) -> Option<&Variable> {
        let Expr::Ident(name) = &expression.expr else { return None };
        self.variables.get(name.strip_prefix('@')?.parse::<usize>().ok()?)
    }

    /// The pattern of an identifier.
    pub(super) fn pattern(&self, expression: &IdedExpr) -> Option<&Pattern> {
        let Expr::Ident(name) = &expression.expr else { return None };
        self.patterns.get(name.strip_prefix("@p")?.parse::<usize>().ok()?)
    }

    fn expression(&mut self, one: &mut IdedExpr, scope: &mut Vec<String>) -> Result<(), String> {
        if let Some(reference) = Reference::of(one, scope) {
            one.expr = self.reference(&reference)?;
            return Ok(());
        }
        match &mut one.expr {
            Expr::Ident(name) => self.ident(name, scope),
            Expr::Select(select) => self.expression(&mut select.operand, scope),
            Expr::Call(call) => self.call(call, scope),
            Expr::Comprehension(comprehension) => self.comprehension(comprehension, scope),
            Expr::List(list) => list.elements.iter_mut().try_for_each(|one| self.expression(one, scope)),
            Expr::Map(map) => map.entries.iter_mut().try_for_each(|entry| self.entry(entry, scope)),
            Expr::Struct(of) => Err(format!("{}: messages cannot be made here", of.type_name)),
            Expr::Unspecified => Err("the expression is not complete".to_owned()),
            Expr::Literal(_) => Ok(()),
        }
    }

    fn entry(&mut self, entry: &mut IdedEntryExpr, scope: &mut Vec<String>) -> Result<(), String> {
        match &mut entry.expr {
            EntryExpr::MapEntry(entry) => {
                self.expression(&mut entry.key, scope)?;
                self.expression(&mut entry.value, scope)
            }
            EntryExpr::StructField(field) => Err(format!("{}: messages cannot be made here", field.field)),
        }
    }

    fn ident(&mut self, name: &str, scope: &[String]) -> Result<(), String> {
        // The accumulators of comprehensions are in scope, too.
        if scope.iter().any(|known| known == name) || TYPES.contains(&name) {
            return Ok(());
        }
        Err(unknown(name))
    }

    fn call(&mut self, call: &mut CallExpr, scope: &mut Vec<String>) -> Result<(), String> {
        let name = call.func_name.as_str();
        let is_group = |target: &IdedExpr| matches!(&target.expr, Expr::Ident(of) if of == "optional" && !scope.iter().any(|known| known == of));
        if call.target.as_deref().is_some_and(is_group) {
            if !OF_OPTIONAL.contains(&name) {
                return Err(format!("there is no function optional.{name}"));
            }
            return call.args.iter_mut().try_for_each(|one| self.expression(one, scope));
        }
        if !OPERATORS.contains(&name) && !FUNCTIONS.contains(&name) {
            return Err(format!("there is no function {name}"));
        }
        if name == "matches" {
            return self.matches(call, scope);
        }
        call.target.as_deref_mut().map_or(Ok(()), |target| self.expression(target, scope))?;
        call.args.iter_mut().try_for_each(|one| self.expression(one, scope))
    }

    /// `text.matches(pattern)` and `matches(text, pattern)`.
    fn matches(&mut self, call: &mut CallExpr, scope: &mut Vec<String>) -> Result<(), String> {
        let mut args: Vec<IdedExpr> = call.target.take().map(|target| *target).into_iter().collect();
        args.append(&mut call.args);
        let [text, pattern] = args.as_mut_slice() else { return Err("matches needs a text and a pattern".to_owned()) };
        self.expression(text, scope)?;
        let Some(source) = literal(pattern) else {
            return Err("the pattern of matches must be a constant text".to_owned());
        };
        if self.patterns.len() == PATTERNS_MAX {
            return Err(format!("it has more than {PATTERNS_MAX} patterns"));
        }
        let comparison = Comparison { subject: Subject::Value, case: RegexCase::Sensitive, extent: Extent::Anywhere };
        let compiled = Expression::new(source, comparison).map_err(|fault| format!("{source:?} {fault}"))?;
        self.pattern_bytes += compiled.bytes();
        if self.pattern_bytes > PATTERN_BYTES_MAX {
            return Err(format!("its patterns need more than {PATTERN_BYTES_MAX} bytes of memory"));
        }
        pattern.expr = Expr::Ident(format!("@p{}", self.patterns.len()));
        self.patterns.push(Pattern(compiled));
        MATCHES.clone_into(&mut call.func_name);
        call.args = args;
        Ok(())
    }

    fn comprehension(&mut self, one: &mut ComprehensionExpr, scope: &mut Vec<String>) -> Result<(), String> {
        self.expression(&mut one.iter_range, scope)?;
        self.expression(&mut one.accu_init, scope)?;
        let before = scope.len();
        scope.push(one.accu_var.clone());
        scope.push(one.iter_var.clone());
        scope.extend(one.iter_var2.clone());
        self.expression(&mut one.loop_cond, scope)?;
        self.expression(&mut one.loop_step, scope)?;
        scope.truncate(before + 1);
        self.expression(&mut one.result, scope)?;
        scope.truncate(before);
        Ok(())
    }

    /// The variable of a reference to an attribute.
    fn reference(&mut self, reference: &Reference) -> Result<Expr, String> {
        let segments: Vec<&str> = reference.segments.iter().map(String::as_str).collect();
        if let [_, "headers", header, ..] = segments.as_slice()
            && header.bytes().any(|byte| byte.is_ascii_uppercase())
        {
            return Err(format!("request.headers['{header}']: the names of headers are in lower case"));
        }
        let Named::Attribute(attribute) = Attribute::named(&segments) else {
            return Err(unknown(&segments.join(".")));
        };
        self.reads_identity |= segments.first() == Some(&IDENTITY);
        let variable = Variable { attribute, how: reference.how };
        let known = self.variables.iter().position(|known| *known == variable);
        let place = known.unwrap_or(self.variables.len());
        if known.is_none() {
            self.variables.push(variable);
        }
        Ok(Expr::Ident(format!("@{place}")))
    }
}

fn unknown(name: &str) -> String {
    let named = |(absent, _): &&(&str, &str)| {
        name.strip_prefix(*absent).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    match ABSENT.iter().find(named) {
        Some((_, why)) => format!("there is no attribute {name}: {why}"),
        None if ROOTS.contains(&name) => format!("{name} can only be used by one of its fields"),
        None => format!("there is no attribute {name}"),
    }
}

/// A literal text.
pub(super) fn literal(expression: &IdedExpr) -> Option<&str> {
    let Expr::Literal(LiteralValue::String(text)) = &expression.expr else { return None };
    Some(text.inner())
}

/// A name below one of the roots.
struct Reference {
    segments: Vec<String>,
    how: Use,
}

impl Reference {
    fn of(one: &IdedExpr, scope: &[String]) -> Option<Self> {
        if let Expr::Call(call) = &one.expr
            && call.func_name == "@in"
            && let [key, map] = call.args.as_slice()
        {
            let mut within = Self::path(map, scope)?;
            // Only the headers are a map.
            if within.how != Use::Value || within.segments.iter().map(String::as_str).ne(["request", "headers"]) {
                return None;
            }
            within.segments.push(literal(key)?.to_owned());
            return Some(Self { how: Use::Presence, ..within });
        }
        Self::path(one, scope)
    }

    /// A chain of fields and constant keys.
    fn path(one: &IdedExpr, scope: &[String]) -> Option<Self> {
        let below = |operand: &IdedExpr, field: &str, how: Option<Use>| {
            let mut path = Self::path(operand, scope)?;
            path.segments.push(field.to_owned());
            path.how = how.unwrap_or(path.how);
            Some(path)
        };
        match &one.expr {
            Expr::Ident(name) if ROOTS.contains(&name.as_str()) && !scope.iter().any(|known| known == name) => {
                Some(Self { segments: vec![name.clone()], how: Use::Value })
            }
            Expr::Select(select) => below(&select.operand, &select.field, select.test.then_some(Use::Presence)),
            Expr::Call(call) => match (call.func_name.as_str(), call.args.as_slice()) {
                ("_[_]", [operand, key]) => below(operand, literal(key)?, None),
                ("_[?_]" | "_?._", [operand, key]) => below(operand, literal(key)?, Some(Use::Optional)),
                _ => None,
            },
            Expr::Ident(_)
            | Expr::Literal(_)
            | Expr::Comprehension(_)
            | Expr::List(_)
            | Expr::Map(_)
            | Expr::Struct(_)
            | Expr::Unspecified => None,
        }
    }
}
