//! The conditions of a route on a request, besides host and path.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use serde::Serialize;

use super::expression::{Expression, Steps};

/// A read-only view of a request's head. Every step of a request reads this and nothing else, so that several callers
/// can use the same steps.
pub trait Head {
    /// The method, in the case it was sent.
    fn method(&self) -> &str;
    /// The path of the target as sent, without the query.
    fn path(&self) -> &str;
    /// The query without its question mark, if there is one.
    fn query(&self) -> Option<&str>;
    /// The `Host` header or `:authority`, as sent.
    fn authority(&self) -> Option<&str>;
    /// The first value of a header; the name is given in lower case.
    fn header(&self, name: &str) -> Option<&[u8]>;
    /// Calls `see` with every value of a header, in order; the name is given in lower case.
    fn each_value(&self, name: &str, see: &mut dyn FnMut(&[u8]));
}

/// How a value is compared.
#[derive(Clone, Debug)]
pub enum TextMatch {
    /// Byte for byte.
    Exact(Arc<str>),
    /// By a regular expression.
    Regex(Expression),
    /// Any value matches.
    Present,
}

impl TextMatch {
    /// The expression, if it is one.
    #[must_use]
    pub const fn expression(&self) -> Option<&Expression> {
        match self {
            Self::Regex(expression) => Some(expression),
            Self::Exact(_) | Self::Present => None,
        }
    }

    /// Like [`TextMatch::expression`], to replace it by an equal one.
    pub const fn expression_mut(&mut self) -> Option<&mut Expression> {
        match self {
            Self::Regex(expression) => Some(expression),
            Self::Exact(_) | Self::Present => None,
        }
    }

    fn accepts(&self, value: &[u8], steps: &Steps) -> bool {
        match self {
            Self::Exact(exact) => exact.as_bytes() == value,
            Self::Regex(regex) => regex.is_match(value, steps),
            Self::Present => true,
        }
    }
}

impl PartialEq for TextMatch {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Exact(a), Self::Exact(b)) => a == b,
            (Self::Regex(a), Self::Regex(b)) => a == b,
            (Self::Present, Self::Present) => true,
            (Self::Exact(_) | Self::Regex(_) | Self::Present, _) => false,
        }
    }
}

impl Eq for TextMatch {}

/// Any order that agrees with equality.
impl Ord for TextMatch {
    fn cmp(&self, other: &Self) -> Ordering {
        let rank = |it: &Self| match it {
            Self::Exact(_) => 0_u8,
            Self::Regex(_) => 1,
            Self::Present => 2,
        };
        match (self, other) {
            (Self::Exact(a), Self::Exact(b)) => a.cmp(b),
            (Self::Regex(a), Self::Regex(b)) => a.cmp(b),
            (Self::Exact(_) | Self::Regex(_) | Self::Present, _) => rank(self).cmp(&rank(other)),
        }
    }
}

impl PartialOrd for TextMatch {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Serialize for TextMatch {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Exact(text) => serializer.collect_str(text),
            Self::Regex(regex) => serializer.collect_str(&format_args!("~{}", regex.as_str())),
            Self::Present => serializer.serialize_str("*"),
        }
    }
}

/// A header or query parameter by name, and the match for its value.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
pub struct ValueMatch {
    /// The header's name in lower case, or the parameter's name as it is.
    pub name: Arc<str>,
    /// The match for its first value.
    pub value: TextMatch,
}

/// Conditions that must all hold; empty lists always hold.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize)]
pub struct Conditions {
    /// One of these methods; empty for every method.
    pub methods: Box<[Arc<str>]>,
    /// All of these headers.
    pub headers: Box<[ValueMatch]>,
    /// All of these query parameters.
    pub queries: Box<[ValueMatch]>,
}

/// A condition that a request does not meet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unmet<'a> {
    /// Its method is none of these.
    Method(&'a [Arc<str>]),
    /// It has no header, or query parameter, of this name.
    Absent(ValueSource, &'a str),
    /// The first header, or query parameter, of this name has another value.
    Differs(ValueSource, &'a str),
}

/// The place of a compared value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ValueSource {
    /// In a header.
    Header,
    /// In a parameter of the query.
    Query,
}

impl Conditions {
    /// The expressions of headers and query parameters.
    pub fn expressions(&self) -> impl Iterator<Item = &Expression> {
        self.headers.iter().chain(&self.queries).filter_map(|it| it.value.expression())
    }

    /// Like [`Conditions::expressions`], to replace them by equal ones.
    pub fn expressions_mut(&mut self) -> impl Iterator<Item = &mut Expression> {
        self.headers.iter_mut().chain(&mut self.queries).filter_map(|it| it.value.expression_mut())
    }

    /// Returns `true` if a request meets them all. Expressions take some of its steps.
    #[must_use]
    pub fn hold<H: Head + ?Sized>(&self, head: &H, steps: &Steps) -> bool {
        self.unmet(head, steps).is_none()
    }

    /// The first condition that a request does not meet: the method, then headers, then query parameters. Expressions
    /// take some of its steps.
    #[must_use]
    pub fn unmet<'a, H: Head + ?Sized>(&'a self, head: &H, steps: &Steps) -> Option<Unmet<'a>> {
        self.unmet_by_method(head.method()).or_else(|| self.unmet_by_values(head, steps, |_| false))
    }

    /// The condition on the method, if it does not hold for this one.
    pub(super) fn unmet_by_method(&self, method: &str) -> Option<Unmet<'_>> {
        let is_met = self.methods.is_empty() || self.methods.iter().any(|own| **own == *method);
        (!is_met).then_some(Unmet::Method(&self.methods))
    }

    /// The first condition on a header or query parameter that a request does not meet, unless `is_excused`.
    /// Expressions take some of its steps.
    pub(super) fn unmet_by_values<'a, H: Head + ?Sized>(
        &'a self,
        head: &H,
        steps: &Steps,
        mut is_excused: impl FnMut(Unmet<'a>) -> bool,
    ) -> Option<Unmet<'a>> {
        let header = |m: &'a ValueMatch| m.unmet(ValueSource::Header, head.header(&m.name), steps);
        let query = |m: &'a ValueMatch| {
            let value = head.query().and_then(|query| parameter(query, &m.name));
            m.unmet(ValueSource::Query, value.map(str::as_bytes), steps)
        };
        let unmet = self.headers.iter().filter_map(header).chain(self.queries.iter().filter_map(query));
        unmet.into_iter().find(|unmet| !is_excused(*unmet))
    }
}

impl ValueMatch {
    /// The reason why a value does not match, or `None`.
    fn unmet(&self, source: ValueSource, value: Option<&[u8]>, steps: &Steps) -> Option<Unmet<'_>> {
        match value {
            None => Some(Unmet::Absent(source, &self.name)),
            Some(value) => (!self.value.accepts(value, steps)).then_some(Unmet::Differs(source, &self.name)),
        }
    }
}

/// Shows the name and not the value: the value that a header must have may be a secret.
impl fmt::Display for Unmet<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let noun = |source: &ValueSource| match source {
            ValueSource::Header => "header",
            ValueSource::Query => "query parameter",
        };
        match self {
            Self::Method(methods) => write!(f, "the method is not {}", methods.join(" or ")),
            Self::Absent(source, name) => write!(f, "the request has no {} {name}", noun(source)),
            Self::Differs(source, name) => write!(f, "{} {name} does not have the value that is matched", noun(source)),
        }
    }
}

/// The first value of a parameter in an `application/x-www-form-urlencoded` query. Values are compared undecoded; the
/// Gateway API leaves that to implementations.
fn parameter<'a>(query: &'a str, name: &str) -> Option<&'a str> {
    query
        .split('&')
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .find_map(|(key, value)| (key == name).then_some(value))
}

#[cfg(test)]
mod tests {
    use super::super::sample::SampleHead;
    use super::*;

    #[test]
    fn the_first_unmet_condition_is_named_without_its_value() {
        let value = |name: &str, value| ValueMatch { name: name.into(), value };
        let exact = |text: &str| TextMatch::Exact(text.into());
        let conditions = Conditions {
            methods: ["PUT".into(), "POST".into()].into(),
            headers: [value("x-tenant", exact("secret")), value("x-trace", TextMatch::Present)].into(),
            queries: [value("v", exact("2"))].into(),
        };
        let check = |request: SampleHead, want: Option<&str>| {
            let got = conditions.unmet(&request, &Steps::of_request()).map(|unmet| unmet.to_string());
            assert_eq!((got.as_deref(), conditions.hold(&request, &Steps::of_request())), (want, want.is_none()));
        };
        let put = |lines: &[(&'static str, &str)], query| SampleHead::new("PUT").query(query).with(lines);
        check(SampleHead::new("GET"), Some("the method is not PUT or POST"));
        check(SampleHead::new("PUT"), Some("the request has no header x-tenant"));
        check(put(&[("x-tenant", "a")], ""), Some("header x-tenant does not have the value that is matched"));
        check(put(&[("x-tenant", "secret")], "v=2"), Some("the request has no header x-trace"));
        let both = &[("x-tenant", "secret"), ("x-trace", "")];
        check(put(both, "w=2"), Some("the request has no query parameter v"));
        check(put(both, "v=1&v=2"), Some("query parameter v does not have the value that is matched"));
        check(put(both, "v=2"), None);
    }
}
