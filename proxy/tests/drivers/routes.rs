//! Routes with the features of the Gateway API that both drivers support.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, HeaderValue};
use tidegate_config::model::{
    Action, AnyOr, AppProtocol, Cors, Filter, HeaderEdits, OriginPattern, PathMatch, PathRewrite, ResponseEdits,
    RetryPolicy, Route, Settings,
};

use crate::bed::route;

pub fn edits(
    set: &[(&'static str, &'static str)],
    add: &[(&'static str, &'static str)],
    remove: &[&'static str],
) -> HeaderEdits {
    let pairs = |pairs: &[(&'static str, &'static str)]| {
        pairs.iter().map(|(n, v)| (HeaderName::from_static(n), HeaderValue::from_static(v))).collect()
    };
    HeaderEdits {
        remove: remove.iter().map(|n| HeaderName::from_static(n)).collect(),
        set: pairs(set),
        add: pairs(add),
    }
}

/// A share with filters of its own, after those of its route.
pub fn filtered_share(protocol: AppProtocol) -> Route {
    let mut route = route("web", protocol);
    route.path = PathMatch::prefix("/x").unwrap();
    route.filters = [
        Filter::RequestHeaders(edits(&[("x-set", "route")], &[("x-more", "route")], &["x-gone"])),
        Filter::ResponseHeaders(ResponseEdits::proxied(edits(&[("x-set", "route")], &[("x-more", "route")], &[]))),
        Filter::Host("route.internal".into()),
        Filter::Path(PathRewrite::Full("/route".into())),
    ]
    .into();
    let own = [
        Filter::RequestHeaders(edits(&[("x-set", "share")], &[("x-more", "share")], &["x-other"])),
        Filter::ResponseHeaders(ResponseEdits::proxied(edits(&[("x-set", "share")], &[("x-more", "share")], &[]))),
        Filter::Host("share.internal".into()),
        Filter::Path(PathRewrite::Prefix("/share".into())),
    ];
    if let Action::Forward(shares) = &mut route.action {
        shares[0].filters = own.into();
    }
    route
}

/// A route with a limit on bodies.
pub fn limited(protocol: AppProtocol) -> Route {
    let mut route = route("web", protocol);
    route.settings = Arc::new(Settings { body_bytes_max: Some(1000), ..Settings::default() });
    route
}

/// A route that retries some statuses.
pub fn retried(protocol: AppProtocol) -> Route {
    let mut route = route("web", protocol);
    let retry = RetryPolicy { statuses: [500, 503].into(), attempts: 1, backoff: Duration::from_millis(1) };
    route.settings = Arc::new(Settings { retry: Some(Arc::new(retry)), ..Settings::default() });
    route
}

/// A CORS filter with one allowed origin.
pub fn cross_origin(protocol: AppProtocol) -> Route {
    let mut route = route("web", protocol);
    let (methods, headers, exposed) = (AnyOr::Any, AnyOr::Any, AnyOr::Any);
    let origins =
        AnyOr::These(["https://o.test", "https://*.w.test"].map(|one| OriginPattern::parse(one).unwrap()).into());
    let cors = Cors { origins, credentials: true, methods, headers, exposed, max_age_s: 5 };
    route.filters = [Filter::Cors(Arc::new(cors))].into();
    route
}

/// The same for a rule of one method.
pub fn cross_origin_puts(protocol: AppProtocol) -> Route {
    let mut route = cross_origin(protocol);
    route.conditions.methods = ["PUT".into()].into();
    route
}
