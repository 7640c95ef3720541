//! The block of a policy that has its entries: the specification itself, its defaults, or its overrides.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::policy::{MergeStrategy, PolicyScope, fault};
use crate::finding::is_terminal_control;
use crate::project::field::{FindingList, InvalidValue, read, read_or_default, written};

/// The maximum number of entries of one policy.
const ENTRIES_MAX: usize = 100;
/// The maximum length of the name of an entry in bytes.
const NAME_BYTES_MAX: usize = 253;

/// The fields of a specification beside those of a block. A block may be there without entries, which is a
/// contradiction.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", expecting = "an object")]
pub(super) struct SpecJson<'a> {
    #[serde(borrow)]
    pub(super) target_ref: Option<&'a RawValue>,
    #[serde(borrow)]
    defaults: Option<&'a RawValue>,
    #[serde(borrow)]
    overrides: Option<&'a RawValue>,
    #[serde(borrow)]
    limits: Option<&'a RawValue>,
    #[serde(borrow)]
    rules: Option<&'a RawValue>,
    #[serde(borrow)]
    patterns: Option<&'a RawValue>,
    #[serde(borrow)]
    when: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct BlockJson<'a> {
    strategy: Option<String>,
    #[serde(borrow)]
    limits: Option<&'a RawValue>,
    #[serde(borrow)]
    rules: Option<&'a RawValue>,
    #[serde(borrow)]
    patterns: Option<&'a RawValue>,
    #[serde(borrow)]
    when: Option<&'a RawValue>,
}

/// The field that has the entries of a policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum EntriesField {
    /// `limits` of a RateLimitPolicy.
    Limits,
    /// `rules` of an AuthPolicy.
    Rules,
}

/// The block with the entries, which are still raw.
pub(super) struct RawBlock<'a> {
    /// The field of the block.
    pub(super) field: &'static str,
    pub(super) scope: PolicyScope,
    pub(super) strategy: MergeStrategy,
    /// The entries, and their field.
    pub(super) entries: (&'a RawValue, String),
    /// `patterns` of an AuthPolicy.
    pub(super) patterns: Option<&'a RawValue>,
    /// The conditions of the policy.
    pub(super) when: Option<&'a RawValue>,
}

impl EntriesField {
    const fn name(self) -> &'static str {
        match self {
            Self::Limits => "limits",
            Self::Rules => "rules",
        }
    }

    fn of_spec<'a>(self, spec: &SpecJson<'a>) -> Option<&'a RawValue> {
        match self {
            Self::Limits => spec.limits,
            Self::Rules => spec.rules,
        }
    }

    fn of_block<'a>(self, block: &BlockJson<'a>) -> Option<&'a RawValue> {
        match self {
            Self::Limits => block.limits,
            Self::Rules => block.rules,
        }
    }
}

impl<'a> SpecJson<'a> {
    pub(super) fn read(raw: Option<&'a RawValue>) -> Result<Self, InvalidValue> {
        read_or_default(raw, "spec")
    }

    /// The one block of the specification. Its other conditions and patterns have no effect.
    ///
    /// # Errors
    /// If the blocks contradict each other, or the one cannot be read.
    pub(super) fn block(
        &self,
        entries: EntriesField,
        findings: &mut FindingList,
    ) -> Result<RawBlock<'a>, InvalidValue> {
        let (field, scope, json) = self.chosen(entries)?;
        let beside = [("when", self.when, "conditions"), ("patterns", self.patterns, "patterns")];
        for (name, raw, what) in beside.into_iter().filter(|_| field != "spec") {
            if let Some(raw) = raw {
                let why = format!("only the {what} in {field}.{name} are for its {}", entries.name());
                findings.without_effect(&format!("spec.{name}"), &written(raw), why);
            }
        }
        let strategy = match json.strategy.as_deref() {
            None | Some("atomic") => MergeStrategy::Atomic,
            Some("merge") => MergeStrategy::Merge,
            Some(text) => return Err(fault(&format!("{field}.strategy"), text, "is neither atomic nor merge")),
        };
        let entries_field = format!("{field}.{}", entries.name());
        let raw = entries.of_block(&json).ok_or_else(|| fault(&entries_field, "", "is required but missing"))?;
        let entries = (raw, entries_field);
        Ok(RawBlock { field, scope, strategy, entries, patterns: json.patterns, when: json.when })
    }

    fn chosen(&self, entries: EntriesField) -> Result<(&'static str, PolicyScope, BlockJson<'a>), InvalidValue> {
        let contradiction = |field: &str, raw: &RawValue, other: &str| {
            fault(field, &written(raw), &format!("cannot be combined with {other}"))
        };
        let own = format!("spec.{}", entries.name());
        let (field, scope, raw) = match (self.defaults, self.overrides, entries.of_spec(self)) {
            (None, None, _) => {
                let Self { limits, rules, patterns, when, .. } = *self;
                let json = BlockJson { strategy: None, limits, rules, patterns, when };
                return Ok(("spec", PolicyScope::Defaults, json));
            }
            (Some(_), Some(raw), _) => return Err(contradiction("spec.overrides", raw, "spec.defaults")),
            (Some(raw), None, Some(_)) => return Err(contradiction("spec.defaults", raw, &own)),
            (None, Some(raw), Some(_)) => return Err(contradiction("spec.overrides", raw, &own)),
            (Some(raw), None, None) => ("spec.defaults", PolicyScope::Defaults, raw),
            (None, Some(raw), None) => ("spec.overrides", PolicyScope::Overrides, raw),
        };
        Ok((field, scope, read(raw, field)?))
    }
}

/// Checks the number of the entries of a policy.
pub(super) fn check_count(count: usize, what: &str, field: &str) -> Result<(), InvalidValue> {
    if count <= ENTRIES_MAX {
        return Ok(());
    }
    Err(fault(field, &format!("{count} {what}"), &format!("exceed the limit of {ENTRIES_MAX}")))
}

/// Checks that the names of entries can take part in merges and be labels of metrics.
pub(super) fn check_names<V>(entries: &BTreeMap<String, V>, field: &str) -> Result<(), InvalidValue> {
    let fits = |name: &&String| (1..=NAME_BYTES_MAX).contains(&name.len()) && !name.contains(is_terminal_control);
    match entries.keys().find(|name| !fits(name)) {
        None => Ok(()),
        Some(name) => {
            let why = format!("is not a name of 1 to {NAME_BYTES_MAX} bytes without control characters");
            Err(fault(field, name, &why))
        }
    }
}
