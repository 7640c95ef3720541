//! Requests over HTTP whose parts a policy writes (`http`).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::header::CONTENT_TYPE;
use http::{HeaderName, HeaderValue, Method, Uri};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use super::super::super::super::condition::Head;
use super::super::super::{Attributes, Selector, ValueExpression};
use super::super::evaluate::text_of;
use super::super::{AuthValue, Credentials};
use super::{CallFault, CallServer, ClientCredentials, HttpCall, ReplyForm, SecretText, TokenFor};

/// The limit of path and query in bytes.
const PATH_BYTES_MAX: usize = 8 << 10;

/// The characters of values that are encoded: all but unreserved ones (RFC 3986 section 2.3) and slashes.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');

/// A request of metadata or a callback.
#[derive(Clone, PartialEq, Eq)]
pub struct HttpRule {
    /// The server of `url`, or of the text that `urlExpression` begins with.
    pub server: CallServer,
    /// Path and query.
    pub path: CallPath,
    /// `method`.
    pub method: Method,
    /// The body.
    pub body: CallBody,
    /// `headers`.
    pub headers: Box<[(HeaderName, AuthValue)]>,
    /// The credential of the edge.
    pub credential: Option<CallCredential>,
    /// `timeout`.
    pub timeout: Duration,
}

/// Path and query of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CallPath {
    /// `url` with these pieces after its host.
    Pieces(Box<[PathPiece]>),
    /// `urlExpression`: the whole URL, whose server is the one of the rule.
    Expression(ValueExpression),
}

/// A piece of path and query.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PathPiece {
    /// As it is written.
    Text(Arc<str>),
    /// `{selector}`: a value, of which all but unreserved characters and slashes are percent-encoded, so that a client
    /// cannot add parameters.
    Value(Selector),
}

/// The body of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CallBody {
    /// None.
    None,
    /// `body`: this value, with the media type of `contentType`.
    Value {
        /// The value.
        value: AuthValue,
        /// Whether the type is JSON, and not that of a form.
        json: bool,
    },
    /// `bodyParameters` as a form.
    Form(Box<[(Arc<str>, AuthValue)]>),
    /// `bodyParameters` as a JSON object.
    Json(Box<[(Arc<str>, AuthValue)]>),
}

/// The credential of the edge for a server.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct CallCredential {
    /// `credentials`: its place in the request.
    pub place: Credentials,
    /// The credential.
    pub source: CallCredentialSource,
}

/// Where a credential of the edge comes from.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub enum CallCredentialSource {
    /// `sharedSecretRef`; `None` while its Secret is not there, and no request is made.
    Secret(Option<SecretText>),
    /// `oauth2`.
    OAuth2(Arc<ClientCredentials>),
}

impl HttpRule {
    /// The request for a request.
    ///
    /// # Errors
    /// The reason why it cannot be made.
    pub fn call<H: Head + ?Sized>(
        &self,
        attributes: &Attributes<'_, H>,
        reply: ReplyForm,
    ) -> Result<HttpCall, CallFault> {
        let path = self.path.of(&self.server, attributes)?;
        let mut call = self.server.call(self.method.clone(), &path, self.timeout, reply)?;
        match &self.body {
            CallBody::None => {}
            CallBody::Value { value, json } => {
                let text = text_of(&value.json(attributes).ok_or(CallFault::Incomplete)?);
                let kind = if *json { "application/json" } else { "application/x-www-form-urlencoded" };
                call.headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
                call.body = text.into_bytes().into();
            }
            CallBody::Form(parameters) => {
                let texts = named(parameters, attributes)?.map(|(name, value)| (name, text_of(&value)));
                let texts: Vec<_> = texts.collect();
                call.put_form(&texts.iter().map(|(name, value)| (*name, &**value)).collect::<Vec<_>>());
            }
            CallBody::Json(parameters) => {
                let object = named(parameters, attributes)?.map(|(name, value)| (name.to_owned(), value));
                call.put_json(&Value::Object(Map::from_iter(object)));
            }
        }
        for (name, value) in &self.headers {
            let value = value.json(attributes).ok_or(CallFault::Incomplete)?;
            call.put_header(name.clone(), &text_of(&value))?;
        }
        if let Some(CallCredential { place, source }) = &self.credential {
            match source {
                CallCredentialSource::Secret(None) => return Err(CallFault::Incomplete),
                CallCredentialSource::Secret(Some(secret)) => call.put_credential(place, secret.as_str())?,
                CallCredentialSource::OAuth2(client) => {
                    call.token = Some(TokenFor { client: Arc::clone(client), place: place.clone() });
                }
            }
        }
        Ok(call)
    }
}

/// Values by their names.
fn named<'r, H: Head + ?Sized>(
    parameters: &'r [(Arc<str>, AuthValue)],
    attributes: &Attributes<'_, H>,
) -> Result<impl Iterator<Item = (&'r str, Value)>, CallFault> {
    let each = |(name, value): &'r (Arc<str>, AuthValue)| Some((&**name, value.json(attributes)?));
    let all: Option<Vec<_>> = parameters.iter().map(each).collect();
    Ok(all.ok_or(CallFault::Incomplete)?.into_iter())
}

impl CallPath {
    fn of<H: Head + ?Sized>(&self, server: &CallServer, attributes: &Attributes<'_, H>) -> Result<String, CallFault> {
        let path = match self {
            Self::Pieces(pieces) => {
                let mut path = String::new();
                for piece in pieces {
                    match piece {
                        PathPiece::Text(text) => path.push_str(text),
                        PathPiece::Value(selector) => {
                            let text = selector.text(attributes).ok_or(CallFault::Incomplete)?;
                            path.extend(utf8_percent_encode(&text, ENCODED));
                        }
                    }
                }
                path
            }
            Self::Expression(expression) => {
                let url = expression.value(attributes).map_err(|_none| CallFault::Incomplete)?;
                let url: Uri = url.parse().map_err(|_invalid| CallFault::Incomplete)?;
                if !server.is_of(&url) {
                    return Err(CallFault::Incomplete);
                }
                url.path_and_query().map_or_else(|| "/".to_owned(), ToString::to_string)
            }
        };
        let is_valid = path.len() <= PATH_BYTES_MAX
            && path.starts_with('/')
            && !has_dot_segment(&path)
            && path.parse::<http::uri::PathAndQuery>().is_ok_and(|parsed| parsed.as_str() == path);
        if is_valid { Ok(path) } else { Err(CallFault::Incomplete) }
    }
}

/// Whether a path has a segment that servers take away with the one before it (RFC 3986 section 5.2.4): a value must
/// not lead to another place.
fn has_dot_segment(path: &str) -> bool {
    let path = path.split('?').next().unwrap_or_default();
    path.split('/').any(|segment| matches!(segment, "." | ".."))
}

impl CallServer {
    /// Whether a URL leads to this server.
    fn is_of(&self, url: &Uri) -> bool {
        let default = if self.tls { 443 } else { 80 };
        let host = url.host().unwrap_or_default().trim_matches(['[', ']']).trim_end_matches('.');
        let has_user = url.authority().is_some_and(|authority| authority.as_str().contains('@'));
        let same = url.scheme_str() == Some(self.scheme()) && host.eq_ignore_ascii_case(&self.host);
        same && !has_user && url.port_u16().unwrap_or(default) == self.port
    }
}

/// For example `GET https://plans.test`. The other parts may be secrets.
impl fmt::Debug for HttpRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method, self.server)
    }
}

impl Serialize for HttpRule {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{self:?}"))
    }
}
