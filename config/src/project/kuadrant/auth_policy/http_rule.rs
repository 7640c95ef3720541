//! Requests that rules make of other services (`http`).

use std::sync::Arc;

use http::Method;
use serde_json::value::RawValue;

use super::authentication::credentials_of;
use super::call::{secret_entry, server_of, texts, texts_by_name, timeout};
use super::reader::{Place, RuleReader};
use super::value::check_length;
use crate::model::auth::{
    CallBody, CallCredential, CallCredentialSource, CallPath, CallServer, ClientCredentials, Credentials, HttpRule,
};
use crate::project::field::{InvalidValue, read, written};
use crate::project::kuadrant::fields::Fields;
use crate::project::kuadrant::policy::fault;

/// Reads the request of a rule.
pub(super) struct HttpReader<'r, 'p> {
    pub(super) rules: &'r mut RuleReader<'p>,
    /// The rule.
    pub(super) place: &'r Place,
}

impl RuleReader<'_> {
    /// A rule of `callbacks`.
    pub(super) fn callback(&mut self, fields: &mut Fields<'_>, place: &Place) -> Result<HttpRule, InvalidValue> {
        let (_, raw) = fields.one_of(&["http"])?;
        HttpReader { rules: self, place }.http(raw, &fields.at("http"))
    }
}

impl HttpReader<'_, '_> {
    pub(super) fn http(&mut self, raw: &RawValue, field: &str) -> Result<HttpRule, InvalidValue> {
        let mut fields = Fields::read(raw, field)?;
        let method = method(&mut fields)?;
        let body = self.body(&mut fields, &method)?;
        let headers = fields.take("headers");
        let headers = self.rules.headers(headers, &fields.at("headers"))?;
        let credential = self.credential(&mut fields)?;
        let timeout = timeout(&mut fields)?;
        let (server, path) = self.http_url(&mut fields)?;
        fields.end()?;
        Ok(HttpRule { server, path, method, body, headers, credential, timeout })
    }

    fn http_url(&mut self, fields: &mut Fields<'_>) -> Result<(CallServer, CallPath), InvalidValue> {
        let (form, raw) = fields.one_of(&["url", "urlExpression"])?;
        let field = fields.at(form);
        let text: String = read(raw, &field)?;
        if form == "url" { self.url_template(&text, &field) } else { self.url_expression(&text, &field) }
    }

    fn body(&mut self, fields: &mut Fields<'_>, method: &Method) -> Result<CallBody, InvalidValue> {
        let (kind, field) = (fields.value::<String>("contentType")?, fields.at("contentType"));
        let is_json = match kind.as_deref() {
            None | Some("" | "application/x-www-form-urlencoded") => false,
            Some("application/json") => true,
            Some(other) => {
                let why = "is neither application/x-www-form-urlencoded nor application/json";
                return Err(fault(&field, other, why));
            }
        };
        let (body, parameters) = (fields.take("body"), fields.take("bodyParameters"));
        let (name, raw) = match (body, parameters) {
            (None, None) => return Ok(CallBody::None),
            (Some(raw), None) => ("body", raw),
            (None, Some(raw)) => ("bodyParameters", raw),
            (Some(_), Some(raw)) => {
                return Err(fault(&fields.at("bodyParameters"), &written(raw), "cannot be combined with body"));
            }
        };
        let field = fields.at(name);
        let body = match name {
            "body" => CallBody::Value { value: self.rules.value(raw, &field)?, json: is_json },
            _ => {
                let parameters = self.rules.properties(Some(raw), &field)?;
                if is_json { CallBody::Json(parameters) } else { CallBody::Form(parameters) }
            }
        };
        if *method == Method::GET {
            self.rules.findings.without_effect(&field, &written(raw), "a request with the method GET has no body");
            return Ok(CallBody::None);
        }
        Ok(body)
    }

    /// The credential of the edge. Its Secret is noted, and read when the policy is attached.
    fn credential(&mut self, fields: &mut Fields<'_>) -> Result<Option<CallCredential>, InvalidValue> {
        let (own, field) = (fields.take("credentials"), fields.at("credentials"));
        let where_it_goes = own.map_or_else(|| Ok(Credentials::default()), |raw| credentials_of(raw, &field))?;
        let source = match (fields.take("sharedSecretRef"), fields.take("oauth2")) {
            (None, None) => {
                if let Some(raw) = own {
                    let why = "there is neither sharedSecretRef nor oauth2, whose credential has this place";
                    self.rules.findings.without_effect(&field, &written(raw), why);
                }
                return Ok(None);
            }
            (Some(_), Some(raw)) => {
                return Err(fault(&fields.at("oauth2"), &written(raw), "cannot be combined with sharedSecretRef"));
            }
            (Some(raw), None) => {
                let secret = secret_entry(raw, &fields.at("sharedSecretRef"))?;
                self.rules.secrets.insert(Arc::clone(&self.place.key), secret);
                CallCredentialSource::Secret(None)
            }
            (None, Some(raw)) => CallCredentialSource::OAuth2(Arc::new(self.oauth2(raw, &fields.at("oauth2"))?)),
        };
        Ok(Some(CallCredential { place: where_it_goes, source }))
    }

    fn oauth2(&mut self, raw: &RawValue, field: &str) -> Result<ClientCredentials, InvalidValue> {
        let mut fields = Fields::read(raw, field)?;
        let url: String = fields.required("tokenUrl")?;
        let (server, path) = server_of(&url, &fields.at("tokenUrl"))?;
        let client_id: String = fields.required("clientId")?;
        check_length(&client_id, &fields.at("clientId"))?;
        let secret = secret_entry(fields.required("clientSecretRef")?, &fields.at("clientSecretRef"))?;
        let scopes = texts(&mut fields, "scopes")?;
        let extra = texts_by_name(&mut fields, "extraParams")?;
        let reused = fields.value("cache")?.unwrap_or(true);
        let timeout = timeout(&mut fields)?;
        fields.end()?;
        self.rules.secrets.insert(Arc::clone(&self.place.key), secret);
        Ok(ClientCredentials {
            server,
            path,
            client_id: client_id.into(),
            secret: None,
            scopes,
            extra,
            reused,
            timeout,
        })
    }
}

fn method(fields: &mut Fields<'_>) -> Result<Method, InvalidValue> {
    let (method, field) = (fields.value::<String>("method")?, fields.at("method"));
    match method.as_deref() {
        None | Some("" | "GET") => Ok(Method::GET),
        Some("POST") => Ok(Method::POST),
        Some(other) => Err(fault(&field, other, "is neither GET nor POST, as in Kuadrant")),
    }
}
