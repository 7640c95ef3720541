//! Which names of a definition are accepted: within a group each belongs to one definition, the first that asked.

use std::collections::BTreeSet;

use serde_json::{Value, json};

/// The names of a kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Names {
    pub(crate) plural: String,
    pub(crate) singular: String,
    pub(crate) short: Vec<String>,
    pub(crate) kind: String,
    pub(crate) list_kind: String,
    pub(crate) categories: Vec<String>,
}

/// The names that the other definitions of a group have.
#[derive(Debug, Default)]
pub(crate) struct Used {
    resources: BTreeSet<String>,
    kinds: BTreeSet<String>,
}

impl Names {
    /// Reads `spec.names` or `status.acceptedNames`.
    pub(crate) fn read(names: &Value) -> Self {
        let text = |key: &str| names[key].as_str().unwrap_or_default().to_owned();
        let texts = |key: &str| {
            let list = names[key].as_array().into_iter().flatten();
            list.filter_map(Value::as_str).map(str::to_owned).collect()
        };
        Self {
            plural: text("plural"),
            singular: text("singular"),
            short: texts("shortNames"),
            kind: text("kind"),
            list_kind: text("listKind"),
            categories: texts("categories"),
        }
    }

    /// As `status.acceptedNames`.
    pub(crate) fn write(&self) -> Value {
        let mut names = json!({"plural": self.plural, "kind": self.kind});
        for (key, text) in [("singular", &self.singular), ("listKind", &self.list_kind)] {
            if !text.is_empty() {
                names[key] = text.clone().into();
            }
        }
        for (key, texts) in [("shortNames", &self.short), ("categories", &self.categories)] {
            if !texts.is_empty() {
                names[key] = json!(texts);
            }
        }
        names
    }
}

impl Used {
    /// Adds the names that a definition has been given.
    pub(crate) fn add(&mut self, names: &Names) {
        self.resources.extend([names.plural.clone(), names.singular.clone()]);
        self.resources.extend(names.short.iter().cloned());
        self.kinds.extend([names.kind.clone(), names.list_kind.clone()]);
    }
}

/// The names that a definition may have now, and the condition that says so: those it had, and of those it asks for the
/// ones that nobody else has.
pub(crate) fn judge(wanted: &Names, had: &Names, used: &Used) -> (Names, Value) {
    let mut names = had.clone();
    let mut conflict = None;
    let taken = |set: &BTreeSet<String>, wanted: &String, had: &String| wanted != had && set.contains(wanted);
    let in_use = |name: &String| format!("{name:?} is already in use");
    for (wanted, had, reason) in [
        (&wanted.plural, &mut names.plural, "PluralConflict"),
        (&wanted.singular, &mut names.singular, "SingularConflict"),
    ] {
        if taken(&used.resources, wanted, had) {
            conflict = Some((reason, in_use(wanted)));
        } else {
            had.clone_from(wanted);
        }
    }
    let had_short: BTreeSet<&String> = had.short.iter().collect();
    let clashes: Vec<String> = wanted
        .short
        .iter()
        .filter(|short| !had_short.contains(short) && used.resources.contains(*short))
        .map(in_use)
        .collect();
    if clashes.is_empty() {
        names.short.clone_from(&wanted.short);
    } else {
        conflict = Some(("ShortNamesConflict", one_or_list(&clashes)));
    }
    for (wanted, had, reason) in
        [(&wanted.kind, &mut names.kind, "KindConflict"), (&wanted.list_kind, &mut names.list_kind, "ListKindConflict")]
    {
        if taken(&used.kinds, wanted, had) {
            conflict = Some((reason, in_use(wanted)));
        } else {
            had.clone_from(wanted);
        }
    }
    names.categories.clone_from(&wanted.categories);
    let condition = match conflict {
        Some((reason, message)) => condition("NamesAccepted", false, reason, &message),
        None => condition("NamesAccepted", true, "NoConflicts", "no conflicts found"),
    };
    (names, condition)
}

fn one_or_list(texts: &[String]) -> String {
    if texts.len() == 1 { texts.concat() } else { format!("[{}]", texts.join(", ")) }
}

/// A condition without its time.
pub(crate) fn condition(of: &str, holds: bool, reason: &str, message: &str) -> Value {
    let status = if holds { "True" } else { "False" };
    json!({"type": of, "status": status, "reason": reason, "message": message})
}

/// Puts a condition among those of an object. Its time is that of its status; one that says the same stays.
pub(crate) fn set_condition(status: &mut Value, mut condition: Value, now: &str) {
    if !status["conditions"].is_array() {
        status["conditions"] = json!([]);
    }
    let Some(conditions) = status["conditions"].as_array_mut() else { return };
    condition["lastTransitionTime"] = now.into();
    match conditions.iter_mut().find(|one| one["type"] == condition["type"]) {
        Some(known) => {
            if known["status"] == condition["status"] {
                condition["lastTransitionTime"] = known["lastTransitionTime"].clone();
            }
            *known = condition;
        }
        None => conditions.push(condition),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(plural: &str, short: &[&str], kind: &str) -> Names {
        Names {
            plural: plural.into(),
            singular: plural.trim_end_matches('s').into(),
            short: short.iter().map(|&short| short.into()).collect(),
            kind: kind.into(),
            list_kind: format!("{kind}List"),
            categories: Vec::new(),
        }
    }

    #[track_caller]
    fn check(wanted: &Names, had: &Names, others: &[&Names], reason: &str, accepted: &Names) {
        let mut used = Used::default();
        others.iter().for_each(|names| used.add(names));
        let (names, condition) = judge(wanted, had, &used);
        assert_eq!((condition["reason"].as_str(), &names), (Some(reason), accepted));
    }

    #[test]
    fn the_first_definition_gets_a_name() {
        let none = Names::default();
        let foos = names("foos", &["fo"], "Foo");
        check(&foos, &none, &[], "NoConflicts", &foos);
        check(&foos, &foos, &[&foos], "NoConflicts", &foos);
        check(&foos, &none, &[&names("bars", &["fo"], "Bar")], "ShortNamesConflict", &names("foos", &[], "Foo"));
        let kept = Names { kind: String::new(), list_kind: String::new(), ..foos.clone() };
        check(&foos, &none, &[&names("bars", &[], "Foo")], "ListKindConflict", &kept);
        let kept = Names { plural: String::new(), ..foos.clone() };
        let other = Names { singular: "foos".into(), ..names("bars", &[], "Bar") };
        check(&foos, &none, &[&other], "PluralConflict", &kept);
    }

    #[test]
    fn the_time_of_a_condition_is_that_of_its_status() {
        let mut status = json!({});
        set_condition(&mut status, condition("A", true, "x", ""), "1");
        set_condition(&mut status, condition("A", true, "y", ""), "2");
        assert_eq!(
            (&status["conditions"][0]["reason"], &status["conditions"][0]["lastTransitionTime"]),
            (&json!("y"), &json!("1"))
        );
        set_condition(&mut status, condition("A", false, "y", ""), "3");
        assert_eq!(
            status["conditions"].as_array().map(|all| (all.len(), &all[0]["lastTransitionTime"])),
            Some((1, &json!("3")))
        );
    }
}
