//! The annotations of Tidegate, of ingress-nginx and of the Deis router: tables of keys, value forms and effects for
//! each kind with annotations. Only this module parses annotation values, and the manuals are printed from the same
//! tables.

mod cipher_list;
pub mod deis;
mod deis_app;
mod deis_edge;
mod deis_expression;
mod deis_gzip;
mod deis_nginx;
mod deis_router;
mod deis_value;
mod ingress;
mod manual;
mod nginx;
mod nginx_snippet;
mod policy;
mod service;
mod session;

pub(super) use ingress::of_ingress;
pub use manual::{deis_manual, manual};
pub(super) use policy::{PolicyEffects, of_policy};
pub(super) use service::{ServiceEffects, of_service};

use std::fmt;

use super::field::{FindingList, read as read_field};
use super::gateway::{APPLIED_ANNOTATION, CONTROLLER_ANNOTATION};
use super::raw_object::annotation_field;
use crate::model::Effective;
use serde_json::value::RawValue;

/// A family of annotations.
#[derive(Clone, Copy)]
struct Dialect {
    /// The common prefix of its keys.
    prefix: &'static str,
    /// Its name in messages.
    name: &'static str,
}

const TIDEGATE: Dialect = Dialect { prefix: "tidegate.io/", name: "Tidegate" };

/// The annotations that the edge itself writes. Their owner gets no finding about them.
const WRITTEN_BY_THE_EDGE: [&str; 2] = [CONTROLLER_ANNOTATION, APPLIED_ANNOTATION];

/// The edit distance up to which an unknown key counts as a typo of a known one.
const TYPO_EDITS_MAX: usize = 2;

/// The consequences of values that cannot be read.
#[derive(Default)]
struct Fallbacks {
    redirected: bool,
    closed: bool,
    enforced: bool,
    /// The keys of dropped annotations.
    dropped: Vec<String>,
}

/// The consequence of a value that cannot be read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OnInvalid {
    /// The default applies.
    Default,
    /// Plain-text requests are redirected, because the annotation may require it.
    Redirected,
    /// Every request is refused, because the annotation restricts access.
    Closed,
    /// The annotation is dropped: it allows nothing.
    Dropped,
    /// Applications without a list of their own are closed, because the annotation may require it.
    Enforced,
}

/// One row of a table, whose value is read into a draft of `D`.
#[derive(Clone)]
struct Annotation<D> {
    /// The key without its prefix.
    key: &'static str,
    /// The form of its value.
    form: &'static str,
    /// The default.
    default: fn(&Effective) -> String,
    /// Its effect.
    effect: &'static str,
    /// The consequence of a value that cannot be read.
    otherwise: OnInvalid,
    /// The reason why it has no effect, if it has none.
    inert: Option<&'static str>,
    /// Parses its value.
    read: fn(&mut D, &str) -> Result<(), String>,
}

fn set<T>(slot: &mut Option<T>, value: Result<T, String>) -> Result<(), String> {
    *slot = Some(value?);
    Ok(())
}

/// Reads the annotations of a dialect into a draft, using their table.
fn read<'a, 'r: 'a, D>(
    dialect: Dialect,
    table: &[Annotation<D>],
    draft: &mut D,
    annotations: impl IntoIterator<Item = (&'a String, &'a &'r RawValue)>,
    findings: &mut FindingList,
) -> Fallbacks {
    let mut fallbacks = Fallbacks::default();
    for (name, raw) in annotations {
        let Some(key) = name.strip_prefix(dialect.prefix) else { continue };
        if WRITTEN_BY_THE_EDGE.contains(&&**name) {
            continue;
        }
        let field = annotation_field(name);
        let fault = match table.iter().find(|annotation| annotation.key == key) {
            None => match unknown(dialect, table, key) {
                (OnInvalid::Default, why) => {
                    findings.without_effect(&field, key, format_args!("it {why}"));
                    continue;
                }
                (otherwise, why) => Some((otherwise, key.to_owned(), why)),
            },
            Some(annotation) => match read_field::<String>(raw, &field) {
                Ok(text) => {
                    let read = (annotation.read)(draft, &text);
                    if let (Ok(()), Some(why)) = (&read, annotation.inert) {
                        findings.without_effect(&field, &text, why);
                    }
                    read.err().map(|why| (text, why))
                }
                Err(invalid) => Some((invalid.value, invalid.why)),
            }
            .map(|(value, why)| (annotation.otherwise, value, why)),
        };
        if let Some((otherwise, value, why)) = fault {
            fallbacks.add(otherwise, (&field, key), &value, why, findings);
        }
    }
    fallbacks
}

impl Fallbacks {
    /// Adds an annotation whose value cannot be read, and its finding.
    fn add(
        &mut self,
        otherwise: OnInvalid,
        (field, key): (&str, &str),
        value: &str,
        why: impl fmt::Display,
        findings: &mut FindingList,
    ) {
        match otherwise {
            OnInvalid::Default => findings.ignored(field, value, why),
            OnInvalid::Redirected => {
                self.redirected = true;
                findings.assumed(field, value, why);
            }
            OnInvalid::Dropped => {
                self.dropped.push(key.to_owned());
                findings.dropped(field, value, why);
            }
            OnInvalid::Enforced => {
                self.enforced = true;
                findings.closed(field, value, why);
            }
            OnInvalid::Closed => {
                self.closed = true;
                findings.closed(field, value, why);
            }
        }
    }
}

/// The consequence of a key that is not in the table. A probable typo of a known key has the effect of an unreadable
/// value of that key, so that a typo does not leave access open.
fn unknown<D>(Dialect { prefix, name }: Dialect, table: &[Annotation<D>], key: &str) -> (OnInvalid, String) {
    // A key of very different length needs no comparison, whose cost is the product of both lengths.
    let length = key.chars().count();
    let alike = |annotation: &&Annotation<D>| annotation.key.len().abs_diff(length) <= TYPO_EDITS_MAX;
    let edits = |annotation: &&Annotation<D>| strsim::osa_distance(annotation.key, key);
    let near = table.iter().filter(alike).min_by_key(edits).filter(|near| edits(near) <= TYPO_EDITS_MAX);
    match near {
        Some(near) => (near.otherwise, format!("is not a {name} annotation (did you mean {prefix}{}?)", near.key)),
        None => (OnInvalid::Default, format!("is not a {name} annotation")),
    }
}
