//! The manuals of annotations, printed from their tables.

use std::fmt::Write;

use super::deis::{OF_APP, OF_BUILDER, OF_DEPLOYMENT, OF_ROUTER};
use super::deis_app::{APP, BUILDER};
use super::ingress::INGRESS;
use super::nginx::{self, Handling, NGINX};
use super::policy::POLICY;
use super::service::{APPLICATION, SERVICE};
use super::{Annotation, Dialect, OnInvalid, TIDEGATE};
use crate::model::Effective;

/// The manual of all annotations in Markdown: the content of `docs/annotations.md`.
#[must_use]
pub fn manual() -> String {
    let mut text = MANUAL_HEAD.to_owned();
    rows(TIDEGATE, &INGRESS, &mut text);
    text.push_str(MANUAL_SERVICE);
    rows(TIDEGATE, &SERVICE, &mut text);
    text.push_str(MANUAL_APPLICATION);
    rows(TIDEGATE, &APPLICATION, &mut text);
    text.push_str(MANUAL_POLICY);
    rows(TIDEGATE, &POLICY, &mut text);
    text.push_str(MANUAL_TAIL);
    text.push_str(MANUAL_NGINX);
    for (key, handling) in NGINX {
        let effect = match handling {
            Handling::As { ours, .. } => {
                let ours: Vec<_> = ours.iter().map(|ours| format!("`{}{ours}`", TIDEGATE.prefix)).collect();
                format!("that of {}", ours.join(" and "))
            }
            Handling::Protocol => {
                "the protocol of the endpoints, in place of the Service port's `appProtocol`".to_owned()
            }
            Handling::Closes("") => REFUSED.to_owned(),
            Handling::Closes(instead) => format!("{REFUSED}; {instead}"),
            Handling::Snippet => format!("{REFUSED}, unless all directives in it are harmless"),
            Handling::Rewrite => format!("none: {}; for an absolute URL {REFUSED}", nginx::REWRITE),
            Handling::SslRedirect => {
                format!("that of `{}ssl-redirect`, in an Ingress with TLS entries", TIDEGATE.prefix)
            }
            Handling::Canary => format!("**its rules and TLS entries are dropped**; {}", nginx::WEIGHTS),
            Handling::WithoutEffect(why) | Handling::Switch(why) => format!("none: {why}"),
        };
        // Writing to a String cannot fail.
        let _ = writeln!(text, "| `{}{key}` | {effect} |", nginx::PREFIX);
    }
    text.push_str(MANUAL_NGINX_TAIL);
    text
}

/// The rows of a table.
fn rows<D>(Dialect { prefix, .. }: Dialect, table: &[Annotation<D>], text: &mut String) {
    for annotation in table {
        let default = (annotation.default)(&Effective::DEFAULT);
        let otherwise = match annotation.otherwise {
            OnInvalid::Default => "the default applies",
            OnInvalid::Redirected => "plain-text requests are redirected",
            OnInvalid::Closed => "**every request is refused**",
            OnInvalid::Dropped => "it is ignored and allows nothing",
            OnInvalid::Enforced => "**as if it were `true`**",
        };
        let Annotation { key, form, effect, inert, .. } = annotation;
        let effect = inert.map_or_else(|| (*effect).to_owned(), |why| format!("**No effect**: {why}."));
        // Writing to a String cannot fail.
        let _ = writeln!(text, "| `{prefix}{key}` | {form} | {default} | {effect} | {otherwise} |");
    }
}

const MANUAL_HEAD: &str = "\
# Annotations

<!-- Printed from the tables in config/src/project/annotations/; their test rewrites this file with UPDATE_GOLDEN=1. -->

These annotations on an Ingress apply to all of its routes.

| annotation | value | default | effect | when it cannot be read |
|---|---|---|---|---|
";

const MANUAL_SERVICE: &str = "
These annotations on a Service apply to every route that leads to it.

| annotation | value | default | effect | when it cannot be read |
|---|---|---|---|---|
";

const MANUAL_APPLICATION: &str = "
This annotation on a Service that is an application of a Deis router, with the label `router.deis.io/routable=true`, applies to the
routes of the application.

| annotation | value | default | effect | when it cannot be read |
|---|---|---|---|---|
";

const MANUAL_POLICY: &str = "
These annotations on a RateLimitPolicy or an AuthPolicy apply to all of its limits or rules.

| annotation | value | default | effect | when it cannot be read |
|---|---|---|---|---|
";

const MANUAL_TAIL: &str = "
A *time* is a sum of whole numbers with the units `ms`, `s`, `m` and `h`, such as `500ms`, `30s` or `1m30s`, more than zero and at
most `24h`; a number without a unit is refused. *Bytes* are a whole number, with `k`, `m` or `g` for powers of 1024.
*Addresses and networks* are of IPv4 or IPv6, such as `192.0.2.7, 10.0.0.0/8, 2001:db8::/32`; a comma at the end does no harm,
and a list that names nothing is refused, since it would let all clients in. One of more than 4096 cannot be read.

`true` may also be written `1`, `t`, `T`, `TRUE` or `True`, and `false` likewise.

A value that cannot be read, and a key under `tidegate.io/` that is not in the list of its kind, make findings: see
`tidegate explain` and `/debug/findings`. A key that is within two letters of one in the list has the effect of that
one's unreadable value: `allow-source-ranges` closes the routes.
";

/// The effect of an annotation that closes its routes.
const REFUSED: &str = "**every request is refused**";

const MANUAL_NGINX: &str = "
## Annotations of ingress-nginx

An Ingress of ours may still have the annotations that it had for ingress-nginx. Some have the effect of ours. Settings of ours replace
them where an Ingress has both, and restrictions add up. Their times are whole seconds; more than 24 hours, 400 days for a cookie, or 10
tries count as that many.

One that keeps requests from the Service in another way closes the routes of its object: they answer 403 to every request, and a finding
(`FailedClosed`) says why and what could replace it. If no replacement is needed, name the annotation in
`tidegate.io/ignore-nginx-annotations`: **then everybody gets in**.

```
kubectl annotate ingress shop tidegate.io/ignore-nginx-annotations=auth-url,auth-signin
```

Do not remove it while ingress-nginx serves the same object, which would open the routes there.

| annotation | effect here |
|---|---|
";

const MANUAL_NGINX_TAIL: &str = "
All others with this prefix have no effect. One without effect makes a finding (`WithoutEffect`), unless it is off (`false`, `0`, `off`)
and that is the default. A blank value counts as none, but for a list of sources, where it refuses everybody, as in ingress-nginx.

Differences of annotations that have their effect:

- Sessions, balancing and the protocol of endpoints are settings of the Ingress. In ingress-nginx they are those of the Service port, and
  the oldest Ingress decides for all.
- Endpoints over TLS (`backend-protocol: HTTPS`) are never verified, and their server name is the host of the request.
- Of `proxy-next-upstream` only `off` is read, as one try. Any other value makes a finding, and what is tried again is as without it.
- The redirect to https keeps a slash at the end of the path, and is for every path, `/.well-known/acme-challenge` included. `ssl-redirect`
  looks at the TLS entries of its own Ingress, and not at those of others for the host.
- Certificates with keys of RSA below 2048 bits or above 4096, or on P-521, are not served: the crypto library cannot sign with them
  (`CertificateBroken` names the kind).
- The defaults of ingress-nginx do not apply: its limit of 1 MiB for bodies, the redirect of hosts with a certificate, 60 seconds without
  a byte for a WebSocket, and endpoints in turn.

Harmless, in a snippet, are directives about headers of responses, compression, cookies, buffers, timeouts, limits of rate and size, and
logs. A block, a header for the endpoint, a backslash, or a directive that is not known may keep requests from the Service.

Tidegate does **not** restrict, and reports no finding for:

- other Ingresses of the same host. In ingress-nginx, `auth-tls-secret` and `server-snippet` are for the whole host; here they close the
  routes of their own object;
- paths of a regular expression. With `use-regex`, or with a path such as `/(admin|metrics)(/|$)(.*)`, ingress-nginx guards every path
  that it matches. Here such a path matches only itself (`PathLiteral`), and `/admin` may belong to another rule, which has no guard;
- paths that a `rewrite-target` hides: with `/status.html` nothing else of the Service is ever requested in ingress-nginx;
- restrictions of all Ingresses in the ConfigMap of ingress-nginx, such as `global-auth-url`, `whitelist-source-range` and `block-cidrs`,
  and annotations with another prefix, by its flag `--annotations-prefix`.
";

/// The manual of all annotations of the Deis router in Markdown: the content of `docs/annotations-deis.md`.
#[must_use]
pub fn deis_manual() -> String {
    let mut text = DEIS_HEAD.to_owned();
    rows(OF_ROUTER, &OF_DEPLOYMENT, &mut text);
    text.push_str(DEIS_APP);
    rows(OF_APP, APP, &mut text);
    text.push_str(DEIS_BUILDER);
    rows(OF_BUILDER, BUILDER, &mut text);
    text.push_str(DEIS_TAIL);
    text
}

const DEIS_HEAD: &str = "\
# Annotations of the Deis router

<!-- Printed from the tables in config/src/project/annotations/; their test rewrites this file with UPDATE_GOLDEN=1. -->

With `--source deis`, the annotations of the Deis router are read: those of the router's Deployment, which are for all applications,
and those of each Service with the label `router.deis.io/routable=true`.

## The router's Deployment

| annotation | value | default | effect | when it cannot be read |
|---|---|---|---|---|
";

const DEIS_APP: &str = "
## An application's Service

| annotation | value | default | effect | when it cannot be read |
|---|---|---|---|---|
";

const DEIS_BUILDER: &str = "
## The builder's Service

| annotation | value | default | effect | when it cannot be read |
|---|---|---|---|---|
";

const DEIS_TAIL: &str = "
A *time* is a whole number with at most one of the units `ms`, `s`, `m`, `h`, `d`, `w`, `M` and `y`; seconds without one. A *size* is a
whole number of bytes, with `k` or `m` for powers of 1024. A *boolean* is `true` or `false` in any case. Lists may have spaces around
their commas, and an empty entry, such as one behind a comma at the end, says nothing.

An annotation that is set and has no effect is reported as a finding with the reason `WithoutEffect`.
";
