//! Requests over HTTP that rules make.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method};
use ring::digest::Context;
use serde::{Serialize, Serializer};

use super::super::super::super::backend::Target;
use super::super::Credentials;
use super::{CallAnswer, CallFault, CallServer, ReplyForm, SecretText, put};

/// The type of forms, in requests of OAuth 2.0.
const FORM: HeaderValue = HeaderValue::from_static("application/x-www-form-urlencoded");
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// A request over HTTP, with all of its parts.
#[derive(Clone, PartialEq, Eq)]
pub struct HttpCall {
    /// The server with its addresses.
    pub target: Arc<Target>,
    /// The value of `Host`.
    pub authority: Box<str>,
    /// The method.
    pub method: Method,
    /// Path and query.
    pub path: Box<str>,
    /// The headers, without `Host` and those of the framing.
    pub headers: HeaderMap,
    /// The body.
    pub body: Box<[u8]>,
    /// The limit of the time until the whole answer is there.
    pub timeout: Duration,
    /// The form of the answer.
    pub reply: ReplyForm,
    /// The token that the request needs besides, which is obtained before it.
    pub token: Option<TokenFor>,
}

/// A token for a request, and where it goes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TokenFor {
    /// How the token is obtained.
    pub client: Arc<ClientCredentials>,
    /// Its place in the request.
    pub place: Credentials,
}

/// The client of an authorization server (`oauth2`), which gets tokens for itself (RFC 6749 section 4.4).
#[derive(Clone, PartialEq, Eq)]
pub struct ClientCredentials {
    /// The server of `tokenUrl`.
    pub server: CallServer,
    /// Path and query of `tokenUrl`.
    pub path: Arc<str>,
    /// `clientId`.
    pub client_id: Arc<str>,
    /// The secret; `None` while its Secret is not there, and no token is obtained.
    pub secret: Option<SecretText>,
    /// `scopes`.
    pub scopes: Box<[Arc<str>]>,
    /// `extraParams`, which are sent with the request for a token.
    pub extra: Box<[(Arc<str>, Arc<str>)]>,
    /// `cache`: whether a token is used until it expires.
    pub reused: bool,
    /// `timeout`.
    pub timeout: Duration,
}

/// How a token is checked by its authorization server (`oauth2Introspection`, RFC 7662).
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Introspection {
    /// The server of `endpoint`.
    pub server: CallServer,
    /// Path and query of `endpoint`.
    pub path: Arc<str>,
    /// `tokenTypeHint`.
    pub hint: Arc<str>,
    /// `clientID` and `clientSecret` of the Secret that `credentialsRef` names; `None` while it is not there, and no
    /// token is accepted.
    pub client: Option<ClientSecret>,
    /// `timeout`.
    pub timeout: Duration,
}

/// The credentials of the edge as a client of an authorization server.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct ClientSecret {
    /// The identifier.
    pub id: SecretText,
    /// The secret.
    pub secret: SecretText,
}

/// Claims about the user of a token (`userInfo`, OpenID Connect Core 1.0 section 5.3).
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct UserInfo {
    /// `identitySource`: only a client that this rule of authentication has identified has them.
    pub identity_source: Option<Arc<str>>,
    /// The server of `userInfoUrl`, or of the `userinfo_endpoint` of the issuer; `None` while that is not known.
    pub server: Option<CallServer>,
    /// Path and query.
    pub path: Arc<str>,
    /// `timeout`.
    pub timeout: Duration,
}

impl CallServer {
    /// A request to the server without headers and a body.
    ///
    /// # Errors
    /// [`CallFault::Unreachable`] while its addresses are not known.
    pub(super) fn call(
        &self,
        method: Method,
        path: &str,
        timeout: Duration,
        reply: ReplyForm,
    ) -> Result<HttpCall, CallFault> {
        let target = Arc::clone(self.target.as_ref().ok_or(CallFault::Unreachable)?);
        let headers = HeaderMap::from_iter([(ACCEPT, JSON)]);
        let (authority, body) = (self.authority().into(), Box::default());
        Ok(HttpCall { target, authority, method, path: path.into(), headers, body, timeout, reply, token: None })
    }
}

impl Introspection {
    /// The request for a token of a client.
    ///
    /// # Errors
    /// The reason why it cannot be made.
    pub fn call(&self, token: &str) -> Result<HttpCall, CallFault> {
        let client = self.client.as_ref().ok_or(CallFault::Incomplete)?;
        let mut call = self.server.call(Method::POST, &self.path, self.timeout, ReplyForm::Introspection)?;
        call.put_form(&[("token", token), ("token_type_hint", &self.hint)]);
        call.put_client(client.id.as_str(), client.secret.as_str())?;
        Ok(call)
    }
}

impl ClientCredentials {
    /// The request for a token.
    ///
    /// # Errors
    /// The reason why it cannot be made.
    pub fn call(&self) -> Result<HttpCall, CallFault> {
        let secret = self.secret.as_ref().ok_or(CallFault::Incomplete)?;
        let mut call = self.server.call(Method::POST, &self.path, self.timeout, ReplyForm::AccessToken)?;
        let scopes = self.scopes.join(" ");
        let scope = (!scopes.is_empty()).then_some(("scope", &*scopes));
        let extra = self.extra.iter().map(|(name, value)| (&**name, &**value));
        call.put_form(
            &[("grant_type", "client_credentials")].into_iter().chain(scope).chain(extra).collect::<Vec<_>>(),
        );
        call.put_client(&self.client_id, secret.as_str())?;
        Ok(call)
    }
}

impl UserInfo {
    /// The request with the token of a client. `subject` is that of the token, if it is known: claims about another one
    /// must not be used (OpenID Connect Core 1.0 section 5.3.2).
    ///
    /// # Errors
    /// The reason why it cannot be made.
    pub fn call(&self, token: &str, subject: Option<&str>) -> Result<HttpCall, CallFault> {
        let server = self.server.as_ref().ok_or(CallFault::Unreachable)?;
        let reply = ReplyForm::UserInfo { subject: subject.map(Into::into) };
        let mut call = server.call(Method::GET, &self.path, self.timeout, reply)?;
        call.put_header(AUTHORIZATION, &format!("Bearer {token}"))?;
        Ok(call)
    }
}

impl HttpCall {
    /// Adds all of its parts to a digest.
    pub(super) fn put_into(&self, digest: &mut Context) {
        let Self { target, authority, method, path, headers, body, timeout: _, reply: _, token } = self;
        put(digest, &[u8::from(target.protocol.is_tls())]);
        for part in [authority, method.as_str(), path] {
            put(digest, part.as_bytes());
        }
        for (name, value) in headers {
            put(digest, name.as_str().as_bytes());
            put(digest, value.as_bytes());
        }
        put(digest, body);
        put(digest, &[u8::from(token.is_some())]);
    }

    /// Reads the answer.
    ///
    /// # Errors
    /// [`CallFault::InvalidAnswer`] if it does not have the form of the protocol.
    pub fn read(&self, status: u16, headers: &HeaderMap, body: &[u8], now: SystemTime) -> CallAnswer {
        self.reply.read(status, headers, body, now)
    }

    /// Puts a credential into its place.
    ///
    /// # Errors
    /// [`CallFault::Incomplete`] if it cannot be there.
    pub fn put_credential(&mut self, place: &Credentials, credential: &str) -> Result<(), CallFault> {
        match place {
            Credentials::Authorization(scheme) if scheme.is_empty() => self.put_header(AUTHORIZATION, credential),
            Credentials::Authorization(scheme) => self.put_header(AUTHORIZATION, &format!("{scheme} {credential}")),
            Credentials::Header(name) => self.put_header(name.clone(), credential),
            Credentials::Query(name) => {
                let mark = if self.path.contains('?') { '&' } else { '?' };
                let pair = form(&[(name, credential)]);
                self.path = format!("{}{mark}{pair}", self.path).into();
                Ok(())
            }
            Credentials::Cookie(name) => self.put_header(http::header::COOKIE, &format!("{name}={credential}")),
        }
    }

    pub(super) fn put_header(&mut self, name: http::HeaderName, value: &str) -> Result<(), CallFault> {
        let mut value = HeaderValue::try_from(value).map_err(|_invalid| CallFault::Incomplete)?;
        value.set_sensitive(true);
        self.headers.insert(name, value);
        Ok(())
    }

    pub(super) fn put_form(&mut self, pairs: &[(&str, &str)]) {
        self.headers.insert(CONTENT_TYPE, FORM);
        self.body = form(pairs).into_bytes().into();
    }

    pub(super) fn put_json(&mut self, body: &serde_json::Value) {
        self.headers.insert(CONTENT_TYPE, JSON);
        self.body = body.to_string().into_bytes().into();
    }

    /// Authenticates the edge as a client (RFC 6749 section 2.3.1, whose parts are encoded like those of forms).
    fn put_client(&mut self, id: &str, secret: &str) -> Result<(), CallFault> {
        let encoded = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
        let both = STANDARD.encode(format!("{}:{}", encoded(id), encoded(secret)));
        self.put_header(AUTHORIZATION, &format!("Basic {both}"))
    }
}

fn form(pairs: &[(&str, &str)]) -> String {
    form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish()
}

/// For example `edge at https://idp.test`. Its parameters may be secrets.
impl fmt::Debug for ClientCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.client_id, self.server)
    }
}

impl Serialize for ClientCredentials {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{self:?}"))
    }
}

/// Without what may be secret.
impl fmt::Debug for HttpCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpCall")
            .field("method", &self.method)
            .field("authority", &self.authority)
            .finish_non_exhaustive()
    }
}
