//! Candidate routes of a request: those that precede the serving one, and those that follow it.

use std::sync::Arc;

use serde::Serialize;
use tidegate_config::model::{HostRoutes, Route, Steps};

use super::ExplainRequest;

/// The maximum number of listed routes before the serving one, and after it.
const LISTED_MAX: usize = 100;

/// One route whose host and path match.
#[derive(Debug, Serialize)]
pub struct Candidate {
    /// Its object.
    pub object: String,
    /// The field of its rule.
    pub field: String,
    /// The name of its rule, if the object names it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<Arc<str>>,
    /// Its path match.
    pub path: String,
    /// The reason why it does not serve the request; `None` for the serving one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// The routes before and after the serving one.
#[derive(Default)]
pub(super) struct Rank {
    pub(super) passed_over: Vec<Candidate>,
    pub(super) next: Vec<Candidate>,
    /// Routes of the host with other paths, if none serves the request.
    pub(super) others: Vec<Candidate>,
    /// The number of routes that are not listed.
    pub(super) omitted: usize,
}

impl Candidate {
    pub(super) fn of(route: &Route, why: Option<String>) -> Self {
        Self {
            object: route.origin.object.to_string(),
            field: route.origin.field.to_string(),
            rule: route.rule.clone(),
            path: route.path.to_string(),
            why,
        }
    }
}

/// Lists the candidates except the serving one, with the reason for each; if none serves, also the other routes of the
/// host.
pub(super) fn rank(
    in_turn: Vec<(&Arc<HostRoutes>, &Arc<Route>)>,
    (host, taken): (Option<&Arc<HostRoutes>>, Option<&Arc<Route>>),
    asked: &ExplainRequest,
) -> Rank {
    let mut rank = Rank::default();
    let mut winner = None;
    for (host, route) in in_turn {
        if winner.is_none() && taken.is_some_and(|taken| Arc::ptr_eq(taken, route)) {
            winner = Some((host, route));
            continue;
        }
        let unmet = || route.unmet(asked, &Steps::of_request()).map(|unmet| unmet.to_string());
        let (list, why) = match winner {
            None => (&mut rank.passed_over, unmet()),
            Some(winner) => (&mut rank.next, Some(unmet().unwrap_or_else(|| later((host, route), winner)))),
        };
        if list.len() < LISTED_MAX {
            list.push(Candidate::of(route, why));
        } else {
            rank.omitted += 1;
        }
    }
    if taken.is_none() {
        let routes = host.into_iter().flat_map(|host| host.routes());
        let mut others = routes.filter(|route| !route.path.matches(&asked.path, &Steps::of_request()));
        rank.others = others.by_ref().take(LISTED_MAX).map(|route| Candidate::of(route, None)).collect();
        rank.omitted += others.count();
    }
    rank
}

/// The reason why a matching route follows the serving one.
fn later((host, route): (&Arc<HostRoutes>, &Arc<Route>), (first, taken): (&Arc<HostRoutes>, &Arc<Route>)) -> String {
    let is_last = |route: &Arc<Route>, of: Option<&Arc<Route>>| of.is_some_and(|of| Arc::ptr_eq(of, route));
    if is_last(route, host.fallback()) || is_last(route, host.last_resort.as_ref()) {
        return "it takes only requests that match no other rule".to_owned();
    }
    if host.host != first.host {
        return format!("its host {} is less specific", host.host.pattern);
    }
    route.precedence().later_than(&taken.precedence()).to_string()
}
