//! The forms of names, addresses and ports, with the real server's complaints about each.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde_json::Value;

use crate::causes::Causes;

pub(crate) const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
pub(crate) const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
pub(crate) const QUALIFIED: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
pub(crate) const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const ADDRESS: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
const NETWORK: &str = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
const KEY: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";
const QUALIFIED_WHOLE: &str = "a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";

/// The fault of a text; none if it is valid.
pub(crate) type Complaints = Vec<String>;

fn unless(fits: bool, why: &str) -> Option<String> {
    (!fits).then(|| why.to_owned())
}

fn too_long(text: &str, max: usize) -> Option<String> {
    (text.len() > max).then(|| format!("must be no more than {max} characters"))
}

fn too_many_bytes(text: &str, max: usize) -> Option<String> {
    (text.len() > max).then(|| format!("must be no more than {max} bytes"))
}

/// One label of a DNS name.
pub(crate) fn label(name: &str) -> Complaints {
    let fits = is_edged(name, |one| one.is_ascii_lowercase() || one.is_ascii_digit(), |one| one == b'-');
    let why = if is_subdomain(name) { "must not contain dots" } else { LABEL };
    too_long(name, 63).into_iter().chain(unless(fits, why)).collect()
}

/// Returns `true` if a text is not empty, has letters at both ends, and letters and others between.
fn is_edged(text: &str, is_letter: impl Fn(u8) -> bool, is_other: impl Fn(u8) -> bool) -> bool {
    let ends = |one: Option<u8>| one.is_some_and(&is_letter);
    ends(text.bytes().next()) && ends(text.bytes().last()) && text.bytes().all(|one| is_letter(one) || is_other(one))
}

/// A DNS name.
pub(crate) fn subdomain(name: &str) -> Complaints {
    let is_letter = |one: u8| one.is_ascii_lowercase() || one.is_ascii_digit();
    let fits = name.split('.').all(|label| is_edged(label, is_letter, |one| one == b'-'));
    too_long(name, 253).into_iter().chain(unless(fits, SUBDOMAIN)).collect()
}

/// A name with an optional DNS name before it, as keys of labels are.
pub(crate) fn qualified(name: &str) -> Complaints {
    let parts: Vec<&str> = name.split('/').collect();
    let (mut complaints, name) = match parts.as_slice() {
        [name] => (Complaints::new(), *name),
        ["", name] => (vec!["prefix part must be non-empty".to_owned()], *name),
        [prefix, name] => (subdomain(prefix).iter().map(|why| format!("prefix part {why}")).collect(), *name),
        _ => return vec![QUALIFIED_WHOLE.to_owned()],
    };
    if name.is_empty() {
        complaints.push("name part must be non-empty".to_owned());
    }
    complaints.extend(too_many_bytes(name, 63).map(|why| format!("name part {why}")));
    complaints.extend(unless(is_word(name), QUALIFIED));
    complaints
}

fn is_word(text: &str) -> bool {
    is_edged(text, |one| one.is_ascii_alphanumeric(), |one| matches!(one, b'-' | b'_' | b'.'))
}

/// The value of a label.
pub(crate) fn label_value(value: &str) -> Complaints {
    too_many_bytes(value, 63).into_iter().chain(unless(value.is_empty() || is_word(value), LABEL_VALUE)).collect()
}

/// A key of a ConfigMap or Secret.
pub(crate) fn key(key: &str) -> Complaints {
    let form =
        !key.is_empty() && key.bytes().all(|one| one.is_ascii_alphanumeric() || matches!(one, b'-' | b'_' | b'.'));
    let dots = match key {
        "." => Some("must not be '.'".to_owned()),
        ".." => Some("must not be '..'".to_owned()),
        key if key.starts_with("..") => Some("must not start with '..'".to_owned()),
        _ => None,
    };
    too_long(key, 253).into_iter().chain(unless(form, KEY)).chain(dots).collect()
}

/// The name of a port of a container.
pub(crate) fn port(name: &str) -> Complaints {
    let letters =
        name.bytes().all(|one| one.is_ascii_lowercase() || one.is_ascii_digit() || one == b'-') && !name.is_empty();
    too_long(name, 15)
        .into_iter()
        .chain(unless(letters, "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)"))
        .chain(unless(name.bytes().any(|one| one.is_ascii_lowercase()), "must contain at least one letter (a-z)"))
        .chain(unless(!name.contains("--"), "must not contain consecutive hyphens"))
        .chain(unless(!name.starts_with('-') && !name.ends_with('-'), "must not begin or end with a hyphen"))
        .collect()
}

/// The name of a variable of an environment.
pub(crate) fn variable(name: &str) -> Complaints {
    const WHY: &str =
        "a valid environment variable name must consist only of printable ASCII characters other than '='";
    unless(name.bytes().all(|one| matches!(one, b' '..=b'~') && one != b'='), WHY).into_iter().collect()
}

/// The name of a header.
pub(crate) fn header(name: &str) -> Complaints {
    const WHY: &str = "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', regex used for validation is '[-A-Za-z0-9]+')";
    let fits = !name.is_empty() && name.bytes().all(|one| one.is_ascii_alphanumeric() || one == b'-');
    unless(fits, WHY).into_iter().collect()
}

/// A path that stays below the place from which it is read.
pub(crate) fn path_below(path: &str) -> Complaints {
    unless(!path.starts_with('/'), "must be a relative path")
        .into_iter()
        .chain(unless(!path.split('/').any(|part| part == ".."), "must not contain '..'"))
        .collect()
}

/// One segment of a path.
pub(crate) fn path_segment(name: &str) -> Complaints {
    if matches!(name, "." | "..") {
        return vec![format!("may not be '{name}'")];
    }
    let found = ['/', '%'].into_iter().filter(|one| name.contains(*one));
    found.map(|one| format!("may not contain '{one}'")).collect()
}

/// An IP address.
pub(crate) fn address(text: &str) -> Complaints {
    if text.parse::<IpAddr>().is_ok() {
        return Complaints::new();
    }
    let is_octet =
        |part: &str| part.bytes().all(|one| one.is_ascii_digit()) && part.parse::<u16>().is_ok_and(|it| it < 256);
    let octets: Vec<&str> = text.split('.').collect();
    let zeros = octets.len() == 4 && octets.iter().all(|part| !part.is_empty() && is_octet(part));
    vec![if zeros { "must not have leading 0s" } else { ADDRESS }.to_owned()]
}

/// An address and the length of a prefix.
pub(crate) fn network(text: &str) -> Complaints {
    unless(text.parse::<ipnet::IpNet>().is_ok(), NETWORK).into_iter().collect()
}

/// An address to which endpoints can be reached.
pub(crate) fn endpoint_address(address: IpAddr, text: &str) -> Complaints {
    let (unicast, multicast) = match address {
        IpAddr::V4(four) => (four.is_link_local(), is_local_multicast(four)),
        IpAddr::V6(six) => (six.is_unicast_link_local(), is_local_multicast_six(six)),
    };
    unless(!address.is_unspecified(), &format!("may not be unspecified ({text})"))
        .into_iter()
        .chain(unless(!address.is_loopback(), "may not be in the loopback range (127.0.0.0/8, ::1/128)"))
        .chain(unless(!unicast, "may not be in the link-local range (169.254.0.0/16, fe80::/10)"))
        .chain(unless(!multicast, "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"))
        .collect()
}

fn is_local_multicast(address: Ipv4Addr) -> bool {
    matches!(address.octets(), [224, 0, 0, _])
}

fn is_local_multicast_six(address: Ipv6Addr) -> bool {
    address.segments()[0] & 0xff0f == 0xff02
}

/// Returns `true` if this is one DNS label of at most 63 bytes.
pub(crate) fn is_label(name: &str) -> bool {
    let ends = |one: Option<u8>| one.is_some_and(|one| one != b'-');
    name.len() <= 63
        && name.bytes().all(|one| one.is_ascii_lowercase() || one.is_ascii_digit() || one == b'-')
        && ends(name.bytes().next())
        && ends(name.bytes().last())
}

/// Returns `true` if this is a DNS name in lower case of at most 253 bytes.
pub(crate) fn is_subdomain(name: &str) -> bool {
    // Labels of a subdomain have no limit of their own in Kubernetes; 253 for the whole is.
    let ends = |one: Option<u8>| one.is_some_and(|one| one != b'-');
    name.len() <= 253
        && name.split('.').all(|label| {
            label.bytes().all(|one| one.is_ascii_lowercase() || one.is_ascii_digit() || one == b'-')
                && ends(label.bytes().next())
                && ends(label.bytes().last())
        })
}

/// Reports invalid label keys and values.
pub(crate) fn check_labels(field: &str, labels: &Value, causes: &mut Causes) {
    for (key, value) in labels.as_object().into_iter().flatten() {
        causes.all(field, &key.as_str().into(), qualified(key));
        causes.all(field, value, label_value(value.as_str().unwrap_or_default()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(complaints: Complaints, starts: &[&str]) {
        assert_eq!(complaints.len(), starts.len(), "{complaints:?}");
        for (why, start) in complaints.iter().zip(starts) {
            assert!(why.starts_with(start), "{why}");
        }
    }

    #[test]
    fn names_are_dns() {
        for (name, label, subdomain) in [
            ("a", true, true),
            ("a-1", true, true),
            ("a.b", false, true),
            ("A", false, false),
            ("-a", false, false),
            ("a-", false, false),
            ("a..b", false, false),
            ("", false, false),
        ] {
            assert_eq!((is_label(name), is_subdomain(name)), (label, subdomain), "{name}");
        }
        assert!(!is_label(&"a".repeat(64)));
        assert!(!is_subdomain(&"a".repeat(254)));
    }

    #[test]
    fn names_have_a_syntax() {
        check(label("a-1"), &[]);
        check(label("a.b"), &["must not contain dots"]);
        check(label(&"a".repeat(64)), &["must be no more than 63"]);
        check(label(&"A".repeat(64)), &["must be no more than 63", "a lowercase RFC 1123 label"]);
        check(label(""), &["a lowercase RFC 1123 label"]);
        check(subdomain("a.b"), &[]);
        check(subdomain("a..b"), &["a lowercase RFC 1123 subdomain"]);
        check(qualified("a.b/C_d"), &[]);
        check(qualified("a b"), &["name part must consist"]);
        check(
            qualified("/"),
            &["prefix part must be non-empty", "name part must be non-empty", "name part must consist"],
        );
        check(qualified("a/b/c"), &["a valid label key must consist"]);
        check(label_value(""), &[]);
        check(label_value("a b"), &["a valid label must"]);
        check(key("..a"), &["must not start with '..'"]);
        check(key("a b"), &["a valid config key"]);
        check(port("http-2"), &[]);
        check(port("80"), &["must contain at least one letter"]);
        check(port("-a--b_"), &["must contain only", "must not contain consecutive", "must not begin or end"]);
    }

    #[test]
    fn addresses_have_a_syntax() {
        check(address("10.0.0.1"), &[]);
        check(address("010.0.0.1"), &["must not have leading 0s"]);
        check(address("10.0.0.256"), &["must be a valid IP address"]);
        check(network("10.0.0.0/8"), &[]);
        check(network("10.0.0.0"), &["must be a valid CIDR"]);
        let local = "169.254.0.1";
        check(endpoint_address(local.parse().unwrap(), local), &["may not be in the link-local range"]);
    }
}
