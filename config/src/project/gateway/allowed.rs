//! The objects that may attach to a listener or a Gateway: by namespace, and by kind.

use std::fmt;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::label_selector::LabelSelector;
use super::reference::{GroupKind, Unreadable, group_kind};
use crate::object::Kind;
use crate::project::field::{FindingList, read};

/// The maximum number of kinds read of one listener.
const KINDS_MAX: usize = 8;

/// The namespaces whose objects may attach.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AllowedNamespaces {
    /// None. Also the value for a field that cannot be read.
    None,
    /// The namespace of the listener's or Gateway's own object.
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

/// The routes that may attach to a listener.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AllowedRoutes {
    /// Their namespaces.
    pub namespaces: AllowedNamespaces,
    /// Their kinds; `None` for those of the listener's protocol. A kind that cannot be read matches no route.
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
    /// Reads `namespaces`; if it is absent or has no `from`, the default applies.
    pub(super) fn read(raw: Option<&RawValue>, field: &str, default: Self, findings: &mut FindingList) -> Self {
        let Some(raw) = raw else { return default };
        let json: NamespacesJson<'_> = match read(raw, field) {
            Ok(json) => json,
            Err(invalid) => {
                findings.attachment_refused(&invalid.field, &invalid.value, &invalid.why);
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
                Err(invalid) => {
                    findings.attachment_refused(&invalid.field, &invalid.value, &invalid.why);
                    Self::None
                }
            },
            (Some("Selector"), None) => {
                findings.attachment_refused(
                    &format!("{field}.selector"),
                    "",
                    "is missing, so no namespace is selected",
                );
                Self::None
            }
            (Some(text), _) => {
                findings.attachment_refused(&format!("{field}.from"), text, "is not All, Same, Selector or None");
                Self::None
            }
        }
    }
}

impl AllowedRoutes {
    /// Reads `allowedRoutes`; the default is routes of the same namespace.
    pub(super) fn read(raw: Option<&RawValue>, field: &str, findings: &mut FindingList) -> Self {
        let json: AllowedJson<'_> = match raw.map(|raw| read(raw, field)).transpose() {
            Ok(json) => json.unwrap_or_default(),
            Err(invalid) => {
                findings.attachment_refused(&invalid.field, &invalid.value, &invalid.why);
                return Self { namespaces: AllowedNamespaces::None, kinds: None };
            }
        };
        let namespaces = format!("{field}.namespaces");
        Self {
            namespaces: AllowedNamespaces::read(json.namespaces, &namespaces, AllowedNamespaces::Same, findings),
            kinds: json.kinds.and_then(|raw| kinds(raw, &format!("{field}.kinds"), findings)),
        }
    }
}

/// An empty list counts as absent, as the API defines.
fn kinds(raw: &RawValue, field: &str, findings: &mut FindingList) -> Option<Box<[Result<GroupKind, Unreadable>]>> {
    let list: Vec<&RawValue> = match read(raw, field) {
        Ok(list) => list,
        Err(invalid) => {
            findings.attachment_refused(&invalid.field, &invalid.value, &invalid.why);
            return Some([Err(Unreadable)].into());
        }
    };
    if list.is_empty() {
        return None;
    }
    let entries = findings.entries(Some(list), KINDS_MAX, field);
    let kinds = entries.map(|(field, raw)| {
        group_kind(raw, &field, Some(Kind::GatewayClass)).map_err(|invalid| findings.invalid(&invalid))
    });
    Some(kinds.collect())
}
