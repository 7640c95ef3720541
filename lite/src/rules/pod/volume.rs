//! Volumes. Of their kinds, those that clusters of every provider have are checked.

use std::collections::BTreeSet;

use serde_json::Value;

use super::super::metadata::check_label;
use super::super::{list, text};
use crate::causes::Causes;
use crate::names;

const MODE: &str = "must be a number between 0 and 0777 (octal), both inclusive";
const MODE_MAX: i64 = 0o777;
/// The kinds of volumes in the order in which the real server looks for a second one.
const KINDS: &[&str] =
    &["emptyDir", "hostPath", "secret", "persistentVolumeClaim", "downwardAPI", "configMap", "projected"];

/// Reports the errors of volumes, and gives the names of those that have none.
pub(super) fn check_all<'a>(path: &str, volumes: &'a [Value], causes: &mut Causes) -> BTreeSet<&'a str> {
    let mut good = BTreeSet::new();
    for (nth, volume) in volumes.iter().enumerate() {
        let (at, name, before) = (format!("{path}[{nth}]"), text(volume, "name"), causes.0.len());
        check_source(&at, volume, causes);
        if name.is_empty() {
            causes.required(format!("{at}.name"), "");
        } else {
            check_label(&format!("{at}.name"), name, causes);
        }
        if good.contains(name) {
            causes.duplicate(format!("{at}.name"), &volume["name"]);
        }
        if causes.0.len() == before {
            good.insert(name);
        }
    }
    good
}

fn check_source(path: &str, volume: &Value, causes: &mut Causes) {
    let kinds: Vec<&str> = KINDS.iter().copied().filter(|kind| volume[*kind].is_object()).collect();
    for (nth, kind) in kinds.into_iter().enumerate() {
        let (source, path) = (&volume[kind], format!("{path}.{kind}"));
        if nth > 0 {
            causes.forbidden(path, "may not specify more than 1 volume type");
            continue;
        }
        let name = match kind {
            "configMap" => Some("name"),
            "secret" => Some("secretName"),
            "persistentVolumeClaim" => Some("claimName"),
            "hostPath" => Some("path"),
            _ => None,
        };
        if let Some(name) = name.filter(|name| text(source, name).is_empty()) {
            causes.required(format!("{path}.{name}"), "");
        }
        check_mode(&format!("{path}.defaultMode"), &source["defaultMode"], causes);
        if matches!(kind, "configMap" | "secret") {
            check_items(&format!("{path}.items"), list(source, "items"), causes);
        }
    }
}

fn check_mode(field: &str, mode: &Value, causes: &mut Causes) {
    if mode.as_i64().is_some_and(|mode| !(0..=MODE_MAX).contains(&mode)) {
        causes.invalid(field, mode, MODE);
    }
}

fn check_items(path: &str, items: &[Value], causes: &mut Causes) {
    for (nth, item) in items.iter().enumerate() {
        let field = |name: &str| format!("{path}[{nth}].{name}");
        for name in ["key", "path"].into_iter().filter(|name| text(item, name).is_empty()) {
            causes.required(field(name), "");
        }
        causes.all(&field("path"), &item["path"], names::path_below(text(item, "path")));
        check_mode(&field("mode"), &item["mode"], causes);
    }
}
