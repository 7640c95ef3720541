//! The fields of an object in a policy that restricts access. Each must be known: one of a later version may restrict
//! further, so that a policy without it would let more requests pass than its author wants.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::policy::fault;
use crate::project::field::{InvalidValue, read, written};

/// The fields that are not read yet. Those with null are absent.
pub(super) struct Fields<'a> {
    field: String,
    raw: &'a RawValue,
    left: BTreeMap<String, &'a RawValue>,
}

impl<'a> Fields<'a> {
    pub(super) fn read(raw: &'a RawValue, field: &str) -> Result<Self, InvalidValue> {
        let mut left: BTreeMap<String, &RawValue> = read(raw, field)?;
        left.retain(|_, raw| raw.get() != "null");
        Ok(Self { field: field.to_owned(), raw, left })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.left.is_empty()
    }

    /// The full name of a field.
    pub(super) fn at(&self, name: &str) -> String {
        format!("{}.{name}", self.field)
    }

    /// A field, still raw.
    pub(super) fn take(&mut self, name: &str) -> Option<&'a RawValue> {
        self.left.remove(name)
    }

    /// The value of a field.
    pub(super) fn value<T: Deserialize<'a>>(&mut self, name: &str) -> Result<Option<T>, InvalidValue> {
        self.take(name).map(|raw| read(raw, &self.at(name))).transpose()
    }

    /// The value of a field that must be there.
    pub(super) fn required<T: Deserialize<'a>>(&mut self, name: &str) -> Result<T, InvalidValue> {
        self.value(name)?.ok_or_else(|| fault(&self.at(name), "", "is required but missing"))
    }

    /// The one of these fields that is there, and its value.
    ///
    /// # Errors
    /// If there is none, or several.
    pub(super) fn one_of(&mut self, names: &[&'static str]) -> Result<(&'static str, &'a RawValue), InvalidValue> {
        let mut there = names.iter().filter(|name| self.left.contains_key(**name)).copied();
        match (there.next(), there.next()) {
            (Some(name), None) => self.take(name).map(|raw| (name, raw)).ok_or_else(|| self.none_of(names)),
            (Some(one), Some(other)) => {
                let why = format!("cannot be combined with {one}");
                let value = self.left.get(other).map(|raw| written(raw)).unwrap_or_default();
                Err(fault(&self.at(other), &value, &why))
            }
            (None, _) => Err(self.none_of(names)),
        }
    }

    fn none_of(&self, names: &[&str]) -> InvalidValue {
        // An unknown field says more than the lack of the others.
        self.check_rest()
            .err()
            .unwrap_or_else(|| fault(&self.field, &written(self.raw), &format!("has none of {}", names.join(", "))))
    }

    /// Checks that nothing is left.
    pub(super) fn end(self) -> Result<(), InvalidValue> {
        self.check_rest()
    }

    fn check_rest(&self) -> Result<(), InvalidValue> {
        match self.left.first_key_value() {
            None => Ok(()),
            Some((name, raw)) => Err(fault(&self.at(name), &written(raw), "is a field that is not known here")),
        }
    }
}
