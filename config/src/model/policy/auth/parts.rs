//! The parts of rules that are evaluated for a request.

use super::super::super::expression::Expression;
use super::super::cel::pattern_steps;
use super::super::{Predicate, Selector, ValueExpression};
use super::{
    AccessAttributes, AccessReviewRule, AuthCondition, AuthEntry, AuthRule, AuthValue, Authentication,
    AuthenticationMethod, Authorization, CallBody, CallPath, Credentials, Denial, HttpRule, Metadata, Operator,
    PathAuth, PathPiece, Success, SuccessForm,
};

/// A part of a rule that is evaluated for a request.
enum Part<'r> {
    Predicate(&'r Predicate),
    Value(&'r ValueExpression),
    Selector(&'r Selector),
    Pattern(&'r Expression),
    /// A header by its name.
    Header(&'r str),
}

/// Called with each part.
type Each<'e, 'r> = &'e mut dyn FnMut(Part<'r>);

impl AuthEntry {
    /// An upper limit of the steps of an evaluation, each of about 0.1 µs, with those of the conditions of its policy.
    #[must_use]
    pub fn steps(&self) -> u32 {
        let mut steps = 0_u32;
        self.each_part(&mut |part| {
            let more = match part {
                Part::Predicate(predicate) => predicate.steps(),
                Part::Value(value) => value.steps(),
                Part::Selector(selector) => selector.steps(),
                Part::Pattern(pattern) => pattern_steps(pattern),
                Part::Header(_) => 0,
            };
            steps = steps.saturating_add(more);
        });
        steps
    }

    /// The regular expressions in it, with those in the conditions of its policy.
    #[must_use]
    pub fn patterns(&self) -> Vec<&Expression> {
        let mut patterns = Vec::new();
        self.each_part(&mut |part| match part {
            Part::Predicate(predicate) => patterns.extend(predicate.patterns()),
            Part::Value(value) => patterns.extend(value.patterns()),
            Part::Pattern(pattern) => patterns.push(pattern),
            Part::Selector(_) | Part::Header(_) => {}
        });
        patterns
    }

    fn each_part<'r>(&'r self, each: Each<'_, 'r>) {
        match self {
            Self::Authentication(rule) => rule.each_part(each, authentication),
            Self::Metadata(rule) => rule.each_part(each, metadata),
            Self::Authorization(rule) => rule.each_part(each, authorization),
            Self::Callback(rule) => rule.each_part(each, http_rule),
            Self::Success(rule) => rule.each_part(each, success),
            Self::Unauthenticated(rule) | Self::Unauthorized(rule) => rule.each_part(each, denial),
            Self::Unusable(_) => {}
        }
    }
}

impl PathAuth {
    /// Called with the name of each header by which the rules decide, in lower case, with duplicates.
    pub(in super::super) fn each_header(&self, each: &mut dyn FnMut(&str)) {
        let mut read = |part: Part<'_>| match part {
            Part::Header(name) => each(name),
            Part::Predicate(predicate) => predicate.headers().iter().for_each(|name| each(name)),
            Part::Value(value) => value.headers().iter().for_each(|name| each(name)),
            Part::Selector(selector) => selector.header().into_iter().for_each(&mut *each),
            Part::Pattern(_) => {}
        };
        self.authentication.iter().for_each(|rule| rule.each_part(&mut read, authentication));
        self.metadata.iter().for_each(|rule| rule.each_part(&mut read, metadata));
        self.authorization.iter().for_each(|rule| rule.each_part(&mut read, authorization));
        self.success.iter().for_each(|rule| rule.each_part(&mut read, success));
        let denials = self.unauthenticated.iter().chain(&self.unauthorized);
        denials.for_each(|rule| rule.each_part(&mut read, denial));
    }
}

impl<R> AuthRule<R> {
    fn each_part<'r>(&'r self, each: Each<'_, 'r>, of_rule: fn(&'r R, Each<'_, 'r>)) {
        conditions(&self.policy_when, each);
        conditions(&self.when, each);
        self.cache.iter().for_each(|cache| value(&cache.key, each));
        of_rule(&self.rule, each);
    }
}

fn authentication<'r>(rule: &'r Authentication, each: Each<'_, 'r>) {
    let Authentication { credentials, method, defaults, overrides } = rule;
    match credentials {
        Credentials::Header(name) => each(Part::Header(name.as_str())),
        Credentials::Authorization(_) => each(Part::Header("authorization")),
        Credentials::Cookie(_) => each(Part::Header("cookie")),
        Credentials::Query(_) => {}
    }
    match method {
        AuthenticationMethod::Plain(of) => value(of, each),
        AuthenticationMethod::Anonymous
        | AuthenticationMethod::ApiKey(_)
        | AuthenticationMethod::Jwt(_)
        | AuthenticationMethod::Introspection(_)
        | AuthenticationMethod::TokenReview { .. } => {}
    }
    defaults.iter().chain(overrides).for_each(|(_, of)| value(of, each));
}

fn authorization<'r>(rule: &'r Authorization, each: Each<'_, 'r>) {
    match rule {
        Authorization::Patterns(patterns) => conditions(patterns, each),
        Authorization::AccessReview(review) => {
            let AccessReviewRule { user, groups: _, authorization_groups, resource } = &**review;
            let of_resource = resource.iter().flat_map(|of| {
                let AccessAttributes { group, resource, subresource, name, namespace, verb } = of;
                [group, resource, subresource, name, namespace, verb]
            });
            let all = [user, authorization_groups].into_iter().chain(of_resource).flatten();
            all.for_each(|of| value(of, each));
        }
    }
}

fn metadata<'r>(rule: &'r Metadata, each: Each<'_, 'r>) {
    match rule {
        Metadata::Http(rule) => http_rule(rule, each),
        Metadata::UserInfo(_) => {}
    }
}

fn http_rule<'r>(rule: &'r HttpRule, each: Each<'_, 'r>) {
    let HttpRule { server: _, path, method: _, body, headers, credential: _, timeout: _ } = rule;
    match path {
        CallPath::Expression(expression) => each(Part::Value(expression)),
        CallPath::Pieces(pieces) => {
            for piece in pieces {
                match piece {
                    PathPiece::Text(_) => {}
                    PathPiece::Value(selector) => each(Part::Selector(selector)),
                }
            }
        }
    }
    match body {
        CallBody::None => {}
        CallBody::Value { value: of, json: _ } => value(of, each),
        CallBody::Form(parameters) | CallBody::Json(parameters) => {
            parameters.iter().for_each(|(_, of)| value(of, each))
        }
    }
    headers.iter().for_each(|(_, of)| value(of, each));
}

fn success<'r>(rule: &'r Success, each: Each<'_, 'r>) {
    match &rule.form {
        SuccessForm::Plain(of) => value(of, each),
        SuccessForm::Json(properties) => properties.iter().for_each(|(_, of)| value(of, each)),
    }
}

fn denial<'r>(rule: &'r Denial, each: Each<'_, 'r>) {
    let Denial { status: _, message, headers, body } = rule;
    message.iter().chain(body).for_each(|of| value(of, each));
    headers.iter().for_each(|(_, of)| value(of, each));
}

fn conditions<'r>(list: &'r [AuthCondition], each: Each<'_, 'r>) {
    for condition in list {
        match condition {
            AuthCondition::Predicate(predicate) => each(Part::Predicate(predicate)),
            AuthCondition::Pattern(pattern) => {
                each(Part::Selector(&pattern.selector));
                if let Operator::Matches(expression) = &pattern.operator {
                    each(Part::Pattern(expression));
                }
            }
            AuthCondition::All(list) | AuthCondition::Any(list) => conditions(list, each),
        }
    }
}

fn value<'r>(value: &'r AuthValue, each: Each<'_, 'r>) {
    match value {
        AuthValue::Constant(_) => {}
        AuthValue::Selector(selector) => each(Part::Selector(selector)),
        AuthValue::Expression(expression) => each(Part::Value(expression)),
    }
}
