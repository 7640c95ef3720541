//! The annotations of an Ingress, and their effects together with those of ingress-nginx.

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use super::policy::{NAME_OF_POLICY, POLICY_EFFECT, POLICY_NAME};
use super::session::SessionDraft;
use super::{Annotation, Fallbacks, OnInvalid, TIDEGATE, nginx, read, set};
use crate::model::{AppProtocol, Balance, Filter, Guard, Settings};
use crate::object::Uid;
use crate::project::annotation_value::{
    Zero, balance, boolean, bytes, cookie_age, cookie_name, cookie_path, count, duration, object_name, same_site,
    sources,
};
use crate::project::field::FindingList;
use crate::project::raw_object::Annotations;

/// The maximum number of attempts of one request.
pub(super) const TRIES_MAX: u8 = 10;

/// The status of the redirect to https: it preserves method and body (RFC 9110 section 15.4.9).
const TLS_REDIRECT_STATUS: u16 = 308;

/// The effects of an object's annotations. Objects without annotations share one value.
#[derive(Clone)]
pub(in crate::project) struct Effects {
    /// The access checks: the allowed sources first, so that other clients are refused and not redirected.
    pub(in crate::project) guards: Arc<[Guard]>,
    /// The filters.
    pub(in crate::project) filters: Arc<[Filter]>,
    /// Settings.
    pub(in crate::project) settings: Arc<Settings>,
    /// Whether the rules only add to those of another Ingress, which is not implemented.
    pub(in crate::project) is_canary: bool,
    /// The protocol of its endpoints, in place of that of their Service port.
    pub(in crate::project) protocol: Option<AppProtocol>,
    /// The name of the policies of its routes.
    pub(in crate::project) policy: Option<Arc<str>>,
}

static NOTHING: LazyLock<Effects> = LazyLock::new(|| Effects {
    guards: Arc::default(),
    filters: Arc::default(),
    settings: Arc::default(),
    is_canary: false,
    protocol: None,
    policy: None,
});

/// The effects under construction.
#[derive(Default)]
pub(super) struct Draft {
    pub(super) settings: Settings,
    pub(super) session: SessionDraft,
    /// The sessions of ingress-nginx, if it has the affinity.
    pub(super) nginx_session: SessionDraft,
    pub(super) has_affinity: bool,
    /// A client must be in each of these.
    pub(super) sources: Vec<Guard>,
    pub(super) require_tls: bool,
    /// The annotations of ingress-nginx that have no effect, and whose owner knows it.
    pub(super) ignored: BTreeSet<Arc<str>>,
    pub(super) is_canary: bool,
    pub(super) protocol: Option<AppProtocol>,
    pub(super) policy: Option<Arc<str>>,
    /// Whether the Ingress has TLS entries.
    pub(super) has_tls: bool,
}

/// Every annotation of an Ingress, in the order of the manual.
pub(super) const INGRESS: [Annotation<Draft>; 18] = [
    Annotation {
        key: "connect-timeout",
        form: "time",
        default: |it| printed(it.connect_timeout),
        effect: "Time to open a connection to an endpoint, TLS included.",
        otherwise: OnInvalid::Default,
        inert: None,
        read: |draft, text| set(&mut draft.settings.connect_timeout, duration(text, Zero::Refused)),
    },
    Annotation {
        key: "read-timeout",
        form: "time",
        default: |it| printed(it.read_timeout),
        effect: "Time between two reads from an endpoint.",
        otherwise: OnInvalid::Default,
        inert: None,
        read: |draft, text| set(&mut draft.settings.read_timeout, duration(text, Zero::Refused)),
    },
    Annotation {
        key: "write-timeout",
        form: "time",
        default: |it| printed(it.write_timeout),
        effect: "Time between two writes to an endpoint.",
        otherwise: OnInvalid::Default,
        inert: None,
        read: |draft, text| set(&mut draft.settings.write_timeout, duration(text, Zero::Refused)),
    },
    Annotation {
        key: "request-timeout",
        form: "time, or 0 for no limit",
        default: |it| it.request_timeout.map_or_else(|| "no limit".to_owned(), printed),
        effect: "Time for the whole request until the head of its response.",
        otherwise: OnInvalid::Default,
        inert: None,
        read: |draft, text| set(&mut draft.settings.request_timeout, duration(text, Zero::Unlimited)),
    },
    Annotation {
        key: "tunnel-idle-timeout",
        form: "time",
        default: |it| printed(it.tunnel_idle_timeout),
        effect: "Time without a byte either way after which an upgraded connection, such as a WebSocket, is closed.",
        otherwise: OnInvalid::Default,
        inert: None,
        read: |draft, text| set(&mut draft.settings.tunnel_idle_timeout, duration(text, Zero::Refused)),
    },
    Annotation {
        key: "body-size-max",
        form: "bytes, or 0 for no limit",
        default: |it| it.body_bytes_max.map_or_else(|| "no limit".to_owned(), |bytes| bytes.to_string()),
        effect: "Size of a request's body; a larger one is answered 413.",
        otherwise: OnInvalid::Default,
        inert: None,
        read: |draft, text| set(&mut draft.settings.body_bytes_max, bytes(text)),
    },
    Annotation {
        key: "tries-max",
        form: "whole number from 1 to 10",
        default: |it| it.tries_max.to_string(),
        effect: "Attempts of one request while no endpoint has begun to answer. An endpoint that refuses the connection within 100 ms is not counted.",
        otherwise: OnInvalid::Default,
        inert: None,
        read: |draft, text| set(&mut draft.settings.tries_max, count(text, TRIES_MAX)),
    },
    Annotation {
        key: "balance",
        form: "`power-of-two` or `round-robin`",
        default: |it| match it.balance {
            Balance::PowerOfTwo => "`power-of-two`".to_owned(),
            Balance::RoundRobin => "`round-robin`".to_owned(),
        },
        effect: "How an endpoint is chosen: the less loaded of two drawn at random, or one after the other.",
        otherwise: OnInvalid::Default,
        inert: None,
        read: |draft, text| set(&mut draft.settings.balance, balance(text)),
    },
    Annotation {
        key: "session-cookie",
        form: "name of a cookie",
        default: |_| "no sessions".to_owned(),
        effect: "Enables [sessions](sessions.md): a client without this cookie gets it, and with it returns to its endpoint while that serves.",
        otherwise: OnInvalid::Default,
        inert: None,
        read: |draft, text| set(&mut draft.session.name, cookie_name(text)),
    },
    Annotation {
        key: "session-cookie-change-on-failure",
        form: "`true` or `false`",
        default: |_| "`true`".to_owned(),
        effect: "Whether a session moves to the endpoint that answers where its own one fails. With `false` the cookie stays while that endpoint is there.",
        otherwise: OnInvalid::Default,
        inert: None,
        read: |draft, text| set(&mut draft.session.change_on_failure, boolean(text)),
    },
    Annotation {
        key: "session-cookie-max-age",
        form: "time from `1s` to `9600h`",
        default: |_| "until the browser is closed".to_owned(),
        effect: "Time after which the session ends, however often the client returns: `Max-Age` of the cookie; an older cookie is ignored.",
        otherwise: OnInvalid::Default,
        inert: None,
        read: |draft, text| set(&mut draft.session.max_age, cookie_age(text)),
    },
    Annotation {
        key: "session-cookie-path",
        form: "path",
        default: |_| "the path of the rule".to_owned(),
        effect: "`Path` of the cookie. With the same path, the cookies of rules to different Services replace each other.",
        otherwise: OnInvalid::Default,
        inert: None,
        read: |draft, text| set(&mut draft.session.path, cookie_path(text)),
    },
    Annotation {
        key: "session-cookie-samesite",
        form: "`Strict`, `Lax` or `None`",
        default: |_| "`Lax`".to_owned(),
        effect: "`SameSite` of the cookie. With `None` it is always `Secure`.",
        otherwise: OnInvalid::Default,
        inert: None,
        read: |draft, text| set(&mut draft.session.same_site, same_site(text)),
    },
    Annotation {
        key: "session-cookie-secure",
        form: "`true` or `false`",
        default: |_| "where the request came over TLS".to_owned(),
        effect: "Whether the cookie is `Secure`, so that browsers send it over TLS alone.",
        otherwise: OnInvalid::Default,
        inert: None,
        read: |draft, text| set(&mut draft.session.secure, boolean(text)),
    },
    Annotation {
        key: "ssl-redirect",
        form: "`true` or `false`",
        default: |_| "`false`".to_owned(),
        effect: "Sends plain-text requests to https with status 308.",
        otherwise: OnInvalid::Redirected,
        inert: None,
        read: require_tls,
    },
    Annotation {
        key: "allow-source-range",
        form: "comma-separated addresses and networks",
        default: |_| "all clients".to_owned(),
        effect: "Answers 403 to clients from elsewhere. Checked before the redirect to https.",
        otherwise: OnInvalid::Closed,
        inert: None,
        read: allow_sources,
    },
    Annotation {
        key: POLICY_NAME,
        form: NAME_OF_POLICY,
        default: |_| "none".to_owned(),
        effect: POLICY_EFFECT,
        otherwise: OnInvalid::Closed,
        inert: None,
        read: |draft, text| set(&mut draft.policy, object_name(text)),
    },
    Annotation {
        key: nginx::IGNORE,
        form: "comma-separated keys of ingress-nginx, such as `auth-url`",
        default: |_| "none".to_owned(),
        effect: "Accepts that these [annotations of ingress-nginx](#annotations-of-ingress-nginx) have no effect: they close no route, and make no finding.",
        otherwise: OnInvalid::Default,
        inert: None,
        read: |draft, text| nginx::ignored(text).map(|keys| draft.ignored = keys),
    },
];

pub(super) fn require_tls(draft: &mut Draft, text: &str) -> Result<(), String> {
    draft.require_tls |= boolean(text)?;
    Ok(())
}

pub(super) fn allow_sources(draft: &mut Draft, text: &str) -> Result<(), String> {
    draft.sources.push(Guard::AllowSources(sources(text)?.into_iter().collect()));
    Ok(())
}

/// Reads the annotations of an Ingress with this uid, with or without TLS entries.
pub(in crate::project) fn of_ingress(
    annotations: &Annotations<'_>,
    uid: Option<Uid>,
    has_tls: bool,
    findings: &mut FindingList,
) -> Effects {
    let mut draft = Draft { has_tls, ..Draft::default() };
    let mut fallbacks = read(TIDEGATE, &INGRESS, &mut draft, annotations, findings);
    nginx::read(&mut draft, annotations, &mut fallbacks, findings);
    draft.settings.session = std::mem::take(&mut draft.session).persistence(uid, findings);
    draft.into_effects(&fallbacks)
}

impl Draft {
    fn into_effects(self, fallbacks: &Fallbacks) -> Effects {
        let mut effects =
            Effects { is_canary: self.is_canary, protocol: self.protocol, policy: self.policy, ..NOTHING.clone() };
        if self.settings != *effects.settings {
            effects.settings = Arc::new(self.settings);
        }
        let sources = if fallbacks.closed { vec![Guard::DenyAll] } else { self.sources };
        let redirect =
            (self.require_tls || fallbacks.redirected).then_some(Guard::RequireTls { status: TLS_REDIRECT_STATUS });
        if !sources.is_empty() || redirect.is_some() {
            effects.guards = sources.into_iter().chain(redirect).collect();
        }
        effects
    }
}

fn printed(time: Duration) -> String {
    match (time.as_secs(), time.subsec_millis()) {
        (0, ms) => format!("{ms}ms"),
        (s, 0) if s % 3600 == 0 => format!("{}h", s / 3600),
        (s, 0) if s % 60 == 0 => format!("{}m", s / 60),
        (s, 0) => format!("{s}s"),
        (s, ms) => format!("{s}s{ms}ms"),
    }
}
