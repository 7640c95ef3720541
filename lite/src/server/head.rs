//! The length of a request's head. hyper limits what it has read of a head that is not complete; one whose end arrives
//! with the same read could be twice as long.

use http::HeaderMap;
use http::request::Parts;

/// The version, the spaces before and after the target, and the ends of the request line and of the head.
const LINE_MARKS: usize = "  HTTP/1.1\r\n\r\n".len();
/// Between the name and the value of a header, and after the value.
const HEADER_MARKS: usize = ": \r\n".len();

/// The length of the head of an HTTP/1 request in bytes, with one space before each value as clients send it.
#[must_use]
pub fn head_bytes(parts: &Parts) -> usize {
    let uri = &parts.uri;
    let scheme = uri.scheme_str().map_or(0, |scheme| scheme.len() + "://".len());
    let authority = uri.authority().map_or(0, |authority| authority.as_str().len());
    let path = uri.path_and_query().map_or(0, |path| path.as_str().len());
    parts.method.as_str().len() + scheme + authority + path + LINE_MARKS + header_bytes(&parts.headers)
}

fn header_bytes(headers: &HeaderMap) -> usize {
    headers.iter().map(|(name, value)| name.as_str().len() + value.len() + HEADER_MARKS).sum()
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    /// Compares the length of a head with its text.
    #[track_caller]
    fn check(target: &str, headers: &[(&str, &str)]) {
        let mut text = format!("PATCH {target} HTTP/1.1\r\n");
        let mut request = Request::builder().method("PATCH").uri(target);
        for (name, value) in headers {
            text += &format!("{name}: {value}\r\n");
            request = request.header(*name, *value);
        }
        assert_eq!(head_bytes(&request.body(()).unwrap().into_parts().0), text.len() + 2, "{text}");
    }

    #[test]
    fn every_byte_of_a_head_counts() {
        check("/", &[]);
        check("/api/v1/services?watch=1", &[("host", "a.test"), ("x", ""), ("x", "y")]);
        check("http://a.test:80/api?x", &[("host", "a.test")]);
        check("*", &[("host", "a.test")]);
        check("a.test:443", &[("host", "a.test")]);
    }
}
