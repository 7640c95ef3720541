//! The explanation of a request: the route that serves it, and why.

use axum::Json;
use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use tidegate_control::{ExplainRequest, explain};

use super::{Debug, bad_request};

/// The query of the page. A header may be given several times.
#[derive(Default)]
struct Question {
    url: Option<String>,
    method: Option<String>,
    headers: Vec<String>,
    text: bool,
}

impl Question {
    fn of(query: &str) -> Result<Self, String> {
        let mut question = Self::default();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            match &*name {
                "url" => question.url = Some(value.into_owned()),
                "method" => question.method = Some(value.into_owned()),
                "header" => question.headers.push(value.into_owned()),
                "format" => question.text = value == "text",
                name => return Err(format!("unknown parameter {name:?}: expected url, method, header or format")),
            }
        }
        Ok(question)
    }

    fn asked(&self) -> Result<ExplainRequest, String> {
        let url = self.url.as_deref().ok_or("the parameter url is missing")?;
        ExplainRequest::new(url, self.method.as_deref(), self.headers.iter().map(String::as_str))
    }
}

/// Responds with 200 if a route serves the URL and with 404 otherwise; the explanation is the body of both.
pub(super) async fn page(State(debug): State<Debug>, RawQuery(query): RawQuery) -> Response {
    let question = match Question::of(&query.unwrap_or_default()) {
        Ok(question) => question,
        Err(why) => return bad_request(&why),
    };
    let asked = match question.asked() {
        Ok(asked) => asked,
        Err(why) => return bad_request(&why),
    };
    let findings = debug.view.findings().await.unwrap_or_default();
    let not_serving = debug.view.not_serving().await.unwrap_or_default();
    // The snapshot is released before anything is awaited.
    let explained = explain(&debug.published.pin(), &findings, &not_serving, &asked);
    let mut explanation = match explained {
        Ok(explanation) => explanation,
        Err(why) => {
            let ignored = debug.view.ignored(asked.host().to_owned()).await.unwrap_or_default();
            let lines: String = ignored.iter().map(ToString::to_string).collect();
            return bad_request(format!("{why}\n{lines}").trim_end());
        }
    };
    if !explanation.is_served() {
        explanation.ignored = debug.view.ignored(asked.host().to_owned()).await.unwrap_or_default();
    }
    if let Some(gateway) = &explanation.gateway {
        let refused = debug.view.refused(gateway.gateway.clone(), asked.host().to_owned()).await;
        explanation.refused = refused.unwrap_or_default();
    }
    let status = if explanation.is_served() { StatusCode::OK } else { StatusCode::NOT_FOUND };
    if question.text {
        return (status, explanation.to_string()).into_response();
    }
    (status, Json(explanation)).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_may_be_given_several_times() {
        let query = "url=a.example%2Fb&header=x-a%3A+b&header=x-c%3Ad&method=PUT&format=text";
        let question = Question::of(query).unwrap();
        assert_eq!(question.headers, ["x-a: b", "x-c:d"]);
        assert_eq!((question.method.as_deref(), question.text), (Some("PUT"), true));
        assert!(question.asked().is_ok());
        assert_eq!(Question::of("").unwrap().asked().unwrap_err(), "the parameter url is missing");
        let unknown = "unknown parameter \"headers\": expected url, method, header or format";
        assert_eq!(Question::of("headers=a").err().as_deref(), Some(unknown));
    }
}
