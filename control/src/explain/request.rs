//! The request in a question, with the head that the proxy would see.

use http::header::{CONTENT_LENGTH, HOST};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use tidegate_config::model::{BindProtocol, Head, normalize, request_host};

/// The maximum number of headers: as many lines as the edge allows in a head.
const HEADERS_MAX: usize = 128;

/// A request, or a connection that is passed on as bytes.
#[derive(Clone, Debug)]
pub struct ExplainRequest {
    pub(super) url: String,
    uri: Uri,
    method: Method,
    headers: HeaderMap,
    /// The routing host.
    pub(super) host: String,
    /// The host of the URL, which is also the server name of a handshake.
    pub(super) server_name: String,
    /// The routing path.
    pub(super) path: String,
    pub(super) protocol: BindProtocol,
    /// Whether it is a connection whose bytes are passed on.
    pub(super) of_bytes: bool,
}

impl ExplainRequest {
    /// A request for a URL such as `https://shop.example/cart`; the default scheme is `http`. `tcp://192.0.2.1:5432`
    /// and `tls://db.example:5432` are connections that are passed on as bytes. The default method is GET; headers are
    /// written `Name: value`, and `Host` among them replaces the host of the URL. `udp://192.0.2.1:53` is a flow of
    /// datagrams.
    ///
    /// # Errors
    /// The reason why the edge would not route it.
    pub fn new<'h>(
        url: &str,
        method: Option<&str>,
        headers: impl IntoIterator<Item = &'h str>,
    ) -> Result<Self, String> {
        let absolute = if url.contains("://") { url.to_owned() } else { format!("http://{url}") };
        let uri: Uri = absolute.parse().map_err(|error| format!("{url:?} is not a URL: {error}"))?;
        let server_name = uri.authority().and_then(|authority| Some(request_host(authority.as_str())?.into_owned()));
        let server_name = server_name.ok_or_else(|| format!("{url:?} has no valid host"))?;
        let path = normalize(uri.path()).ok_or_else(|| format!("{:?} is not a valid request path", uri.path()))?;
        let path = path.path.into_owned();
        let (protocol, of_bytes) = match uri.scheme_str() {
            Some("https") => (BindProtocol::Https, false),
            Some("tls") => (BindProtocol::Https, true),
            Some("tcp") => (BindProtocol::Tcp, true),
            Some("udp") => (BindProtocol::Udp, true),
            Some("http") | None => (BindProtocol::Http, false),
            Some(scheme) => return Err(format!("{scheme:?} is not http, https, tls, tcp or udp")),
        };
        let (method, headers) = (self::method(method)?, self::headers(headers)?);
        let host = match headers.get(HOST) {
            None => server_name.clone(),
            Some(host) => {
                let name = host.to_str().ok().and_then(|host| Some(request_host(host)?.into_owned()));
                name.ok_or_else(|| "the Host header has no valid host".to_owned())?
            }
        };
        Ok(Self { url: url.to_owned(), uri, method, headers, host, server_name, path, protocol, of_bytes })
    }

    /// The routing host, in lower case.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port of the URL, if it has one.
    pub(super) fn port(&self) -> Option<u16> {
        self.uri.port_u16()
    }

    /// The port of the URL, or that of its scheme.
    pub(super) fn port_or_default(&self) -> Option<u16> {
        let default = match self.protocol {
            BindProtocol::Http => Some(80),
            BindProtocol::Https => Some(443),
            BindProtocol::Tcp | BindProtocol::Udp => None,
        };
        self.port().or(default)
    }

    /// The length of the body, if a header announces it.
    pub(super) fn body_bytes(&self) -> Option<u64> {
        self.headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
    }
}

impl Head for ExplainRequest {
    fn method(&self) -> &str {
        self.method.as_str()
    }

    fn path(&self) -> &str {
        self.uri.path()
    }

    fn query(&self) -> Option<&str> {
        self.uri.query()
    }

    fn authority(&self) -> Option<&str> {
        let host = self.headers.get(HOST).and_then(|host| host.to_str().ok());
        host.or_else(|| self.uri.authority().map(http::uri::Authority::as_str))
    }

    fn header(&self, name: &str) -> Option<&[u8]> {
        if name == HOST {
            return self.authority().map(str::as_bytes);
        }
        self.headers.get(name).map(HeaderValue::as_bytes)
    }

    fn each_value(&self, name: &str, see: &mut dyn FnMut(&[u8])) {
        self.headers.get_all(name).iter().for_each(|value| see(value.as_bytes()));
    }
}

fn method(text: Option<&str>) -> Result<Method, String> {
    let Some(text) = text else { return Ok(Method::GET) };
    let method =
        Method::from_bytes(text.as_bytes()).map_err(|_| format!("{text:?} is not a method (RFC 9110 section 9)"))?;
    match method {
        Method::CONNECT | Method::TRACE => Err(format!("{method} is answered 405 on every route")),
        method => Ok(method),
    }
}

fn headers<'h>(lines: impl IntoIterator<Item = &'h str>) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    for line in lines {
        // The value may be a secret, and is not repeated.
        let (name, value) = line.split_once(':').ok_or("a header is written as \"Name: value\"")?;
        let name = HeaderName::from_bytes(name.trim().as_bytes())
            .map_err(|_| format!("{name:?} is not a header name (RFC 9110 section 5.1)"))?;
        let value = HeaderValue::from_str(value.trim())
            .map_err(|_| format!("the value of {name} is not a valid header value (RFC 9110 section 5.5)"))?;
        if name == HOST && headers.contains_key(HOST) {
            return Err("a request with two Host headers is answered 400".to_owned());
        }
        if headers.len() >= HEADERS_MAX {
            return Err(format!("a request has at most {HEADERS_MAX} headers here"));
        }
        headers.append(name, value);
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(url: &str, method: Option<&str>, headers: &[&str], want: Result<(&str, &str), &str>) {
        let asked = ExplainRequest::new(url, method, headers.iter().copied());
        let got = asked.as_ref().map(|asked| (&*asked.host, asked.method()));
        assert_eq!(got.map_err(|why| &**why), want);
    }

    #[test]
    fn a_request_is_a_url_with_a_method_and_headers() {
        check("A.example/b", None, &[], Ok(("a.example", "GET")));
        check("https://a.example", Some("PUT"), &["X-A:b", "x-a: c"], Ok(("a.example", "PUT")));
        check("http://192.0.2.1/", Some("purge"), &["host: B.example:80"], Ok(("b.example", "purge")));
        check("a.example", Some("G T"), &[], Err("\"G T\" is not a method (RFC 9110 section 9)"));
        check("a.example", Some("TRACE"), &[], Err("TRACE is answered 405 on every route"));
        check("ftp://a.example", None, &[], Err("\"ftp\" is not http, https, tls, tcp or udp"));
        check("a.example", None, &["x-a"], Err("a header is written as \"Name: value\""));
        check("a.example", None, &["x a: b"], Err("\"x a\" is not a header name (RFC 9110 section 5.1)"));
        let value = "the value of x-a is not a valid header value (RFC 9110 section 5.5)";
        check("a.example", None, &["x-a: secret\n"], Ok(("a.example", "GET")));
        check("a.example", None, &["x-a: sec\nret"], Err(value));
        check("a.example", None, &["host: a b"], Err("the Host header has no valid host"));
        let twice = ["host: a.example", "Host: b.example"];
        check("a.example", None, &twice, Err("a request with two Host headers is answered 400"));
        let many = ["x-a: b"; HEADERS_MAX + 1];
        check("a.example", None, &many, Err("a request has at most 128 headers here"));
    }

    #[test]
    fn header_names_ignore_case_and_the_first_value_counts() {
        let asked = ExplainRequest::new("a.example:8080", None, ["X-A: b", "x-a: c", "Content-Length: 7"]).unwrap();
        let mut all = Vec::new();
        asked.each_value("x-a", &mut |value| all.push(value.to_vec()));
        assert_eq!((asked.header("x-a"), all), (Some(&b"b"[..]), vec![b"b".to_vec(), b"c".to_vec()]));
        assert_eq!((asked.body_bytes(), asked.header("host")), (Some(7), Some(&b"a.example:8080"[..])));
    }
}
