//! Who may attach to a listener or to a Gateway: by namespace, and by kind.

use std::fmt;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::label_selector::LabelSelector;
use super::reference::{GroupKind, Unreadable, group_kind};
use crate::object::Kind;
use crate::project::field::{Found, read};

/// Kinds that are read of one listener.
const KINDS_MAX: usize = 8;

/// The namespaces whose objects may attach.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AllowedNamespaces {
    /// None. Also what stands for a field that cannot be read.
    None,
    /// That of the object that says so.
    Same,
    /// All.
    All,
    /// Those whose labels are selected.
    Selected(LabelSelector),
}

impl fmt::Display for AllowedNamespaces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Same => f.write_str("same"),
            Self::All => f.write_str("all"),
            Self::Selected(selector) => write!(f, "selected by {:?}", selector.to_string()),
        }
    }
}

/// Which routes may attach to a listener.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AllowedRoutes {
    /// From which namespaces.
    pub namespaces: AllowedNamespaces,
    /// Of which kinds; `None` for those that the listener's protocol is for. One that cannot be read is none that exists.
    pub kinds: Option<Box<[Result<GroupKind, Unreadable>]>>,
}

#[derive(Deserialize, Default)]
#[serde(expecting = "an object")]
struct NamespacesJson<'a> {
    from: Option<String>,
    #[serde(borrow)]
    selector: Option<&'a RawValue>,
}

#[derive(Deserialize, Default)]
#[serde(expecting = "an object")]
struct AllowedJson<'a> {
    #[serde(borrow)]
    namespaces: Option<&'a RawValue>,
    #[serde(borrow)]
    kinds: Option<&'a RawValue>,
}

impl AllowedNamespaces {
    /// Reads `namespaces`; absent, or without `from`, it is the default.
    pub(super) fn read(raw: Option<&RawValue>, field: &str, default: Self, found: &mut Found) -> Self {
        let Some(raw) = raw else { return default };
        let json: NamespacesJson<'_> = match read(raw, field) {
            Ok(json) => json,
            Err(misread) => {
                found.attachment_refused(&misread.field, &misread.value, &misread.why);
                return Self::None;
            }
        };
        match (json.from.as_deref(), json.selector) {
            (None, _) => default,
            (Some("All"), _) => Self::All,
            (Some("Same"), _) => Self::Same,
            (Some("None"), _) => Self::None,
            (Some("Selector"), Some(raw)) => match LabelSelector::read(raw, &format!("{field}.selector")) {
                Ok(selector) => Self::Selected(selector),
                Err(misread) => {
                    found.attachment_refused(&misread.field, &misread.value, &misread.why);
                    Self::None
                }
            },
            (Some("Selector"), None) => {
                found.attachment_refused(&format!("{field}.selector"), "", "is missing, and selects nothing");
                Self::None
            }
            (Some(text), _) => {
                found.attachment_refused(&format!("{field}.from"), text, "is not All, Same, Selector or None");
                Self::None
            }
        }
    }
}

impl AllowedRoutes {
    /// Reads `allowedRoutes`: routes of the same namespace unless it says something else.
    pub(super) fn read(raw: Option<&RawValue>, field: &str, found: &mut Found) -> Self {
        let json: AllowedJson<'_> = match raw.map(|raw| read(raw, field)).transpose() {
            Ok(json) => json.unwrap_or_default(),
            Err(misread) => {
                found.attachment_refused(&misread.field, &misread.value, &misread.why);
                return Self { namespaces: AllowedNamespaces::None, kinds: None };
            }
        };
        let namespaces = format!("{field}.namespaces");
        Self {
            namespaces: AllowedNamespaces::read(json.namespaces, &namespaces, AllowedNamespaces::Same, found),
            kinds: json.kinds.and_then(|raw| kinds(raw, &format!("{field}.kinds"), found)),
        }
    }
}

/// An empty list is none, as the API has it.
fn kinds(raw: &RawValue, field: &str, found: &mut Found) -> Option<Box<[Result<GroupKind, Unreadable>]>> {
    let list: Vec<&RawValue> = match read(raw, field) {
        Ok(list) => list,
        Err(misread) => {
            found.attachment_refused(&misread.field, &misread.value, &misread.why);
            return Some([Err(Unreadable)].into());
        }
    };
    if list.is_empty() {
        return None;
    }
    let entries = found.entries(Some(list), KINDS_MAX, field);
    let kinds = entries.map(|(field, raw)| {
        group_kind(raw, &field, Some(Kind::GatewayClass)).map_err(|misread| found.misread(&misread))
    });
    Some(kinds.collect())
}
