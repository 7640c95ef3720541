//! Formats by name: `format.NAME()` and `format.named('NAME')`, whose `validate` reports the faults of a text.

use cel::common::types::{CelList, CelOptional, CelString};
use cel::common::value::Val;
use cel::{DeclarationError, Env};

use super::{pattern, url, value_type};
use crate::custom::format::fits;
use crate::names::{LABEL, LABEL_VALUE, QUALIFIED, SUBDOMAIN};

pub(super) const FUNCTIONS: &[&str] = &[
    "byte",
    "date",
    "datetime",
    "dns1035Label",
    "dns1035LabelPrefix",
    "dns1123Label",
    "dns1123LabelPrefix",
    "dns1123Subdomain",
    "dns1123SubdomainPrefix",
    "format.byte",
    "format.date",
    "format.datetime",
    "format.dns1035Label",
    "format.dns1035LabelPrefix",
    "format.dns1123Label",
    "format.dns1123LabelPrefix",
    "format.dns1123Subdomain",
    "format.dns1123SubdomainPrefix",
    "format.labelValue",
    "format.named",
    "format.qualifiedName",
    "format.uri",
    "format.uuid",
    "labelValue",
    "named",
    "qualifiedName",
    "uri",
    "uuid",
    "validate",
];

const DNS_1035: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
const UUID: &str = "^(?i)[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$";

#[derive(Clone, Copy, Debug, PartialEq)]
enum Format {
    Byte,
    Date,
    DateTime,
    Dns1035Label { prefix: bool },
    Dns1123Label { prefix: bool },
    Dns1123Subdomain { prefix: bool },
    LabelValue,
    QualifiedName,
    Uri,
    Uuid,
}

value_type!(Format, "kubernetes.NamedFormat");

/// Adds one function without arguments for each format.
macro_rules! add_formats {
    ($env:ident, $($name:literal => $function:ident),* $(,)?) => {{
        $(
            fn $function() -> Format {
                named($name).unwrap_or(Format::Byte)
            }
            cel::add_overload!($env, fn $function: () -> Format, name = concat!("format.", $name))?;
        )*
    }};
}

pub(super) fn extend(env: &mut Env) -> Result<(), DeclarationError> {
    add_formats!(
        env,
        "byte" => byte,
        "date" => date,
        "datetime" => datetime,
        "dns1035Label" => dns_1035_label,
        "dns1035LabelPrefix" => dns_1035_label_prefix,
        "dns1123Label" => dns_1123_label,
        "dns1123LabelPrefix" => dns_1123_label_prefix,
        "dns1123Subdomain" => dns_1123_subdomain,
        "dns1123SubdomainPrefix" => dns_1123_subdomain_prefix,
        "labelValue" => label_value,
        "qualifiedName" => qualified_name,
        "uri" => uri,
        "uuid" => uuid,
    );
    cel::add_overload!(env, fn by_name: (CelString<'_>) -> CelOptional<'_>, name = "format.named")?;
    cel::add_member_overload!(env, fn validate: (Format, CelString<'_>) -> CelOptional<'_>)
}

fn named(name: &str) -> Option<Format> {
    Some(match name {
        "byte" => Format::Byte,
        "date" => Format::Date,
        "datetime" => Format::DateTime,
        "dns1035Label" => Format::Dns1035Label { prefix: false },
        "dns1035LabelPrefix" => Format::Dns1035Label { prefix: true },
        "dns1123Label" => Format::Dns1123Label { prefix: false },
        "dns1123LabelPrefix" => Format::Dns1123Label { prefix: true },
        "dns1123Subdomain" => Format::Dns1123Subdomain { prefix: false },
        "dns1123SubdomainPrefix" => Format::Dns1123Subdomain { prefix: true },
        "labelValue" => Format::LabelValue,
        "qualifiedName" => Format::QualifiedName,
        "uri" => Format::Uri,
        "uuid" => Format::Uuid,
        _ => return None,
    })
}

fn by_name(name: &CelString<'_>) -> CelOptional<'static> {
    named(name.inner()).map(|format| Box::new(format) as Box<dyn Val>).into()
}

/// The faults of a text by a format; none if it fits.
fn validate(this: &Format, text: &CelString<'_>) -> CelOptional<'static> {
    let complaints = this.complaints(text.inner());
    if complaints.is_empty() {
        return CelOptional::none();
    }
    let complaints = complaints.into_iter().map(|one| Box::new(CelString::from(one)) as Box<dyn Val>);
    CelOptional::of(Box::new(CelList::from(complaints.collect::<Vec<_>>())))
}

fn too_long(text: &str, most: usize) -> Option<String> {
    (text.len() > most).then(|| format!("must be no more than {most} characters"))
}

fn unless(fits: bool, why: &str) -> Option<String> {
    (!fits).then(|| why.to_owned())
}

impl Format {
    fn complaints(self, text: &str) -> Vec<String> {
        let one = match self {
            Self::Byte => unless(fits("byte", text), "invalid base64"),
            Self::Date => unless(fits("date", text), "invalid date"),
            Self::DateTime => unless(fits("date-time", text), "invalid datetime"),
            Self::Uri => url::complaint(text),
            Self::Uuid => unless(pattern(UUID).is_ok_and(|uuid| uuid.is_match(text)), "does not match the UUID format"),
            Self::Dns1035Label { prefix } => return label(&beginning(text, prefix), true),
            Self::Dns1123Label { prefix } => return label(&beginning(text, prefix), false),
            Self::Dns1123Subdomain { prefix } => return subdomain(&beginning(text, prefix)),
            Self::LabelValue => return label_text(text, LABEL_VALUE, ""),
            Self::QualifiedName => return qualified(text),
        };
        one.into_iter().collect()
    }
}

/// A name that others begin with may end in a dash: the end is replaced as the real server does.
fn beginning(text: &str, prefix: bool) -> String {
    match text.strip_suffix('-') {
        Some(before) if prefix && !before.is_empty() => {
            let mut name = before.to_owned();
            name.pop();
            name + "a"
        }
        Some(_) | None => text.to_owned(),
    }
}

/// Whether a text of any length has the letters of a DNS name; the length is a complaint of its own.
fn letters(text: &str) -> bool {
    let fits = |one: u8| one.is_ascii_lowercase() || one.is_ascii_digit() || one == b'-';
    text.split('.')
        .all(|part| !part.is_empty() && part.bytes().all(fits) && !part.starts_with('-') && !part.ends_with('-'))
}

fn label(text: &str, rfc_1035: bool) -> Vec<String> {
    let fits = letters(text) && !text.contains('.');
    let letter_first = text.starts_with(|first: char| first.is_ascii_lowercase());
    let why = match (rfc_1035, fits) {
        (true, _) => unless(fits && letter_first, DNS_1035),
        (false, false) if letters(text) => Some("must not contain dots".to_owned()),
        (false, _) => unless(fits, LABEL),
    };
    too_long(text, 63).into_iter().chain(why).collect()
}

fn subdomain(text: &str) -> Vec<String> {
    too_long(text, 253).into_iter().chain(unless(letters(text), SUBDOMAIN)).collect()
}

/// The value of a label, or the name of its key.
fn label_text(text: &str, why: &str, prefix: &str) -> Vec<String> {
    let long = too_long(text, 63).map(|long| format!("{prefix}{long}"));
    let fits = text.bytes().all(|one| one.is_ascii_alphanumeric() || matches!(one, b'-' | b'_' | b'.'))
        && !text.starts_with(['-', '_', '.'])
        && !text.ends_with(['-', '_', '.']);
    long.into_iter().chain(unless(fits, why)).collect()
}

fn qualified(text: &str) -> Vec<String> {
    let (prefix, name) = text.split_once('/').map_or((None, text), |(prefix, name)| (Some(prefix), name));
    if name.contains('/') {
        let why = QUALIFIED.replacen("name part", "a valid label key", 1);
        return vec![format!("{why} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')")];
    }
    let mut complaints = match prefix {
        Some("") => vec!["prefix part must be non-empty".to_owned()],
        Some(prefix) => subdomain(prefix).into_iter().map(|why| format!("prefix part {why}")).collect(),
        None => Vec::new(),
    };
    if name.is_empty() {
        complaints.extend(["name part must be non-empty".to_owned(), QUALIFIED.to_owned()]);
    } else {
        complaints.extend(label_text(name, QUALIFIED, "name part "));
    }
    complaints
}
