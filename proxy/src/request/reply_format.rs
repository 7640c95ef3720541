//! The form of local replies: a text for people, JSON for programs that ask for it, and gRPC.

use http::header::ACCEPT;
use tidegate_config::model::Head;

use super::grpc;
use crate::http::weight::each_weighted;

/// The form of an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum ReplyFormat {
    /// Lines of text.
    #[default]
    Text,
    /// A JSON object of this media type.
    Json(&'static str),
    /// A failure as gRPC clients read it.
    Grpc,
}

/// The media types of JSON answers: that of problem details (RFC 9457), and that of JSON.
const JSON: [&str; 2] = ["application/problem+json", "application/json"];

/// The media types of text. HTML is for people, too.
const TEXT: [&str; 3] = ["text/plain", "text/html", "text/*"];

impl ReplyFormat {
    /// The form for the client of a request: gRPC for gRPC requests, JSON if `Accept` names a media type of it and
    /// prefers none of text (RFC 9110 section 12.5.1). Ranges such as `*/*` name neither.
    pub(crate) fn asked_by<H: Head + ?Sized>(head: &H) -> Self {
        if grpc::is_asked_by(head) {
            return Self::Grpc;
        }
        let (mut json, mut text) = ([0; JSON.len()], 0);
        each_weighted(head, ACCEPT.as_str(), &mut |name, weight| {
            let is = |media_type: &&str| name.eq_ignore_ascii_case(media_type.as_bytes());
            if let Some(place) = JSON.iter().position(is) {
                json[place] = weight.max(json[place]);
            } else if TEXT.iter().any(is) {
                text = text.max(weight);
            }
        });
        let [problem, plain] = json;
        match problem.max(plain) {
            0 => Self::Text,
            most if most < text => Self::Text,
            most => Self::Json(if problem == most { JSON[0] } else { JSON[1] }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Sample;

    #[track_caller]
    fn check(accept: &[&str], want: ReplyFormat) {
        let head = accept.iter().fold(Sample::get("a.test", "/"), |head, value| head.with("accept", value));
        assert_eq!(ReplyFormat::asked_by(&head), want, "{accept:?}");
    }

    #[test]
    fn json_is_for_clients_that_name_it_and_do_not_prefer_text() {
        let (problem, plain) = (ReplyFormat::Json("application/problem+json"), ReplyFormat::Json("application/json"));
        check(&["application/json"], plain);
        check(&["Application/JSON; charset=utf-8"], plain);
        check(&["application/json, text/plain, */*"], plain);
        check(&["text/html;q=0.9", "application/json;q=0.9"], plain);
        check(&["application/json, application/problem+json"], problem);
        check(&["application/json, application/problem+json;q=0.5"], plain);
        check(&["text/plain;q=0.5, application/json;q=0.5"], plain);
        check(&["application/json, application/json;profile=x;q=0.1, text/plain;q=0.5"], plain);
        for accept in [
            "",
            "*/*",
            "application/*",
            "application/json;q=0",
            "application/json;q=2",
            "application/json5",
            "text/plain, application/json;q=0.9",
            "text/html, application/json;q=0.1",
            "text/*, application/json;q=0.9",
            "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
        ] {
            check(&[accept], ReplyFormat::Text);
        }
        check(&[], ReplyFormat::Text);
    }

    #[test]
    fn grpc_comes_first() {
        let head =
            Sample::get("a.test", "/").with("accept", "application/json").with("content-type", "application/grpc");
        assert_eq!(ReplyFormat::asked_by(&head), ReplyFormat::Grpc);
    }
}
