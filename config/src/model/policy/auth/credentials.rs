//! The credentials of a request.

use std::borrow::Cow;

use super::super::super::condition::Head;
use super::Credentials;

/// The credential of a request; `None` if it has none, or several, of which endpoints could take another one.
pub(super) fn of<'a, H: Head + ?Sized>(place: &Credentials, head: &'a H) -> Option<Cow<'a, str>> {
    match place {
        Credentials::Authorization(scheme) => after_scheme(only(head, "authorization")?, scheme).map(Cow::Borrowed),
        Credentials::Header(name) => only(head, name.as_str()).map(Cow::Borrowed),
        Credentials::Query(name) => single(
            form_urlencoded::parse(head.query()?.as_bytes()).filter(|(own, _)| **own == **name).map(|(_, value)| value),
        ),
        Credentials::Cookie(name) => {
            let mut found: Vec<String> = Vec::new();
            head.each_value("cookie", &mut |line| {
                let line = String::from_utf8_lossy(line);
                let pairs = line.split(';').filter_map(|pair| pair.trim().split_once('='));
                found.extend(pairs.filter(|(own, _)| *own == &**name).map(|(_, value)| value.to_owned()));
            });
            single(found.into_iter().map(Cow::Owned))
        }
    }
    .filter(|credential| !credential.is_empty())
}

/// The only value of a header.
fn only<'a, H: Head + ?Sized>(head: &'a H, name: &str) -> Option<&'a str> {
    let mut lines = 0_usize;
    head.each_value(name, &mut |_| lines += 1);
    let value = head.header(name).filter(|_| lines == 1)?;
    std::str::from_utf8(value).ok().map(str::trim)
}

fn single<'a>(mut values: impl Iterator<Item = Cow<'a, str>>) -> Option<Cow<'a, str>> {
    let first = values.next()?;
    values.next().is_none().then_some(first)
}

/// The rest of a value after its authentication scheme, whose case does not matter (RFC 9110 section 11.1).
fn after_scheme<'a>(value: &'a str, scheme: &str) -> Option<&'a str> {
    if scheme.is_empty() {
        return Some(value);
    }
    let (own, rest) = value.split_at_checked(scheme.len())?;
    (own.eq_ignore_ascii_case(scheme) && rest.starts_with(' ')).then(|| rest.trim_start())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::sample::SampleHead;

    #[test]
    fn a_credential_is_taken_from_its_place_if_there_is_one() {
        let check = |place: &Credentials, lines: &[(&'static str, &'static str)], want: Option<&str>| {
            let head = SampleHead::new("GET").with(lines);
            assert_eq!(of(place, &head).as_deref(), want, "{place} of {lines:?}");
        };
        let bearer = Credentials::default();
        check(&bearer, &[("authorization", "Bearer abc")], Some("abc"));
        check(&bearer, &[("authorization", "bearer   abc ")], Some("abc"));
        check(&bearer, &[("authorization", "Bearerabc")], None);
        check(&bearer, &[("authorization", "Basic abc")], None);
        check(&bearer, &[("authorization", "Bearer ")], None);
        check(&bearer, &[("authorization", "Bearer a"), ("authorization", "Bearer b")], None);
        check(&bearer, &[], None);
        check(&Credentials::Authorization("".into()), &[("authorization", "abc def")], Some("abc def"));
        let header = Credentials::Header(http::HeaderName::from_static("x-key"));
        check(&header, &[("x-key", "abc")], Some("abc"));
        check(&header, &[("x-key", "abc"), ("x-key", "abc")], None);
        let cookie = Credentials::Cookie("key".into());
        check(&cookie, &[("cookie", "a=1; key=abc; keys=2")], Some("abc"));
        check(&cookie, &[("cookie", "a=1"), ("cookie", "key=abc=")], Some("abc="));
        check(&cookie, &[("cookie", "key=1; key=2")], None);
        check(&cookie, &[("cookie", "Key=1")], None);
    }

    #[test]
    fn a_credential_in_the_query_is_decoded() {
        let check = |query: &'static str, want: Option<&str>| {
            let head = SampleHead::new("GET").query(query);
            assert_eq!(of(&Credentials::Query("api_key".into()), &head).as_deref(), want, "{query}");
        };
        check("api_key=abc&x=1", Some("abc"));
        check("x=1&api_key=a%20b%2B", Some("a b+"));
        check("api%5Fkey=abc", Some("abc"));
        check("api_key=a&api_key=b", None);
        check("api_key=", None);
        check("API_KEY=a", None);
    }
}
