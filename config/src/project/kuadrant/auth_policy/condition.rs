//! Conditions of AuthPolicies and of their rules, and patterns of authorisation rules.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::value::RawValue;

use super::reader::RuleReader;
use super::value::too_long;
use crate::finding::printable;
use crate::model::auth::{AuthCondition, Operator, Pattern};
use crate::project::field::{InvalidValue, read, written};
use crate::project::kuadrant::block::{check_count, check_names};
use crate::project::kuadrant::fields::Fields;
use crate::project::kuadrant::policy::{fault, reason};

/// The maximum number of conditions of one list, those within `all` and `any` included.
const CONDITIONS_MAX: usize = 64;
/// The maximum depth of `all` and `any` within each other.
const DEPTH_MAX: usize = 8;
/// The maximum length in bytes of a text that values are compared with.
const COMPARED_BYTES_MAX: usize = 4 << 10;

/// The lists of `patterns` by name, or the reasons why they cannot be used.
pub(super) type NamedPatterns = BTreeMap<String, Result<Arc<[AuthCondition]>, String>>;

/// A list of conditions that is being read.
struct List {
    /// How many more conditions it may have.
    left: usize,
    /// Whether it may refer to named patterns.
    references: bool,
}

impl RuleReader<'_> {
    /// Reads `patterns`. A list that cannot be used makes those rules unusable that refer to it.
    pub(super) fn read_patterns(&mut self, raw: Option<&RawValue>, field: &str) -> Result<(), InvalidValue> {
        let Some(raw) = raw else { return Ok(()) };
        let lists: BTreeMap<String, &RawValue> = read(raw, field)?;
        check_count(lists.len(), "lists", field)?;
        check_names(&lists, field)?;
        for (name, raw) in lists {
            let field = format!("{field}[{}]", printable(&name));
            let list = self.named_patterns(raw, &field).map_err(|invalid| {
                self.findings.invalid(&invalid);
                reason(&invalid)
            });
            self.patterns.insert(name, list.map(Into::into));
        }
        Ok(())
    }

    fn named_patterns(&mut self, raw: &RawValue, field: &str) -> Result<Vec<AuthCondition>, InvalidValue> {
        let mut fields = Fields::read(raw, field)?;
        let (field, list) = (fields.at("allOf"), fields.required::<&RawValue>("allOf")?);
        fields.end()?;
        let mut counted = List { left: CONDITIONS_MAX, references: false };
        self.list(list, &field, &mut counted, 0)
    }

    /// Reads the conditions of a policy or a rule.
    pub(super) fn conditions(
        &mut self,
        raw: Option<&RawValue>,
        field: &str,
    ) -> Result<Vec<AuthCondition>, InvalidValue> {
        let mut counted = List { left: CONDITIONS_MAX, references: true };
        raw.map_or_else(|| Ok(Vec::new()), |raw| self.list(raw, field, &mut counted, 0))
    }

    fn list(
        &mut self,
        raw: &RawValue,
        field: &str,
        counted: &mut List,
        depth: usize,
    ) -> Result<Vec<AuthCondition>, InvalidValue> {
        let list: Vec<&RawValue> = read(raw, field)?;
        counted.left = counted.left.checked_sub(list.len()).ok_or_else(|| {
            let value = format!("{} entries", list.len());
            fault(field, &value, &format!("exceed the limit of {CONDITIONS_MAX} of one list"))
        })?;
        let list = list.into_iter().enumerate();
        list.map(|(number, raw)| self.condition(raw, &format!("{field}[{number}]"), counted, depth)).collect()
    }

    fn condition(
        &mut self,
        raw: &RawValue,
        field: &str,
        counted: &mut List,
        depth: usize,
    ) -> Result<AuthCondition, InvalidValue> {
        let mut fields = Fields::read(raw, field)?;
        let (form, value) = fields.one_of(&["predicate", "selector", "patternRef", "all", "any"])?;
        let field = fields.at(form);
        let condition = match form {
            "predicate" => {
                AuthCondition::Predicate(self.expressions.predicate(&read::<String>(value, &field)?, &field)?)
            }
            "selector" => {
                let selector = self.selector(&read::<String>(value, &field)?, &field)?;
                AuthCondition::Pattern(Pattern { selector, operator: self.operator(&mut fields)? })
            }
            "patternRef" => {
                AuthCondition::All(self.patterns_named(&read::<String>(value, &field)?, &field, counted)?)
            }
            _ if depth == DEPTH_MAX => {
                let why = format!("is nested deeper than {DEPTH_MAX} levels");
                return Err(fault(&field, &written(value), &why));
            }
            "all" => AuthCondition::All(self.list(value, &field, counted, depth + 1)?.into()),
            _ => AuthCondition::Any(self.list(value, &field, counted, depth + 1)?.into()),
        };
        fields.end()?;
        Ok(condition)
    }

    fn operator(&mut self, fields: &mut Fields<'_>) -> Result<Operator, InvalidValue> {
        let operator: String = fields.required("operator")?;
        let text: String = fields.value("value")?.unwrap_or_default();
        let field = fields.at("value");
        if text.len() > COMPARED_BYTES_MAX {
            return Err(too_long(&field, text.len(), COMPARED_BYTES_MAX));
        }
        Ok(match operator.as_str() {
            "eq" => Operator::Equals(text.into()),
            "neq" => Operator::Differs(text.into()),
            "incl" => Operator::Includes(text.into()),
            "excl" => Operator::Excludes(text.into()),
            "matches" => Operator::Matches(self.expressions.pattern(&text, &field)?),
            _ => return Err(fault(&fields.at("operator"), &operator, "is not eq, neq, incl, excl or matches")),
        })
    }

    /// The list of patterns of a name, which the policy itself declares.
    fn patterns_named(&self, name: &str, field: &str, counted: &List) -> Result<Arc<[AuthCondition]>, InvalidValue> {
        let why = match self.patterns.get(name) {
            _ if !counted.references => "cannot be within named patterns",
            Some(Ok(list)) => return Ok(Arc::clone(list)),
            Some(Err(why)) => &format!("names patterns that cannot be used ({why})"),
            None => "does not name patterns that the policy itself declares",
        };
        Err(fault(field, name, why))
    }
}
