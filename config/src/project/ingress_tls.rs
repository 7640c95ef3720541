//! `spec.tls` of an Ingress: the Secrets of its hosts.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::field::FindingList;
use crate::model::{HostMap, HostPattern, WildcardDepth};
use crate::object::ObjectName;

/// The maximum number of entries of `spec.tls` of one Ingress, and of hosts of one entry.
const TLS_MAX: usize = 4096;
/// The maximum number of hosts of all entries of one Ingress, counted once per Secret.
const HOSTS_MAX: usize = 16_384;
/// The maximum number of Secrets for one host of one Ingress, and for the hosts of its rules. Each host of the rules
/// may match all of them: with more, the cost would be a product of two numbers that tenants choose.
const SECRETS_MAX: usize = 16;

/// `spec.tls` of an Ingress: each pair of host and Secret once, ordered so that the hosts that overlap another one are
/// adjacent.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Tls(Box<[TlsSecret]>);

/// A Secret for a host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TlsSecret {
    /// The host, with names that a rule of the object serves; `None` for the hosts of the rules.
    pub host: Option<HostPattern>,
    /// The index in `spec.tls` of the first entry with this pair.
    pub entry: u32,
    /// The Secret, in the Ingress's namespace.
    pub secret: ObjectName,
}

/// The sort key of a host: its name without the first label, then that label. No host sorts first.
type HostSortKey<'a> = Option<(&'a str, &'a str)>;

/// The description of an entry without hosts.
const HOSTLESS: &str = "an entry without hosts";

impl Tls {
    /// The entries that overlap a host, in their order. Looks at no others, so that the cost for all hosts of an
    /// Ingress is not quadratic. Entries without hosts apply to the hosts of the rules, except rules without a host.
    #[must_use]
    pub fn of(&self, host: &HostPattern) -> Vec<&TlsSecret> {
        let whole = self.range(|key| key.cmp(&None));
        let (of_rules, [broad, narrow]) = match host {
            HostPattern::Exact(name) => {
                let (label, parent) = name.split_once('.').unwrap_or((name, ""));
                (whole, ["*", label].map(|label| self.range(|key| key.cmp(&Some((parent, label))))))
            }
            HostPattern::Wildcard(suffix, WildcardDepth::One) => {
                (whole, [self.range(|key| key.map(|(parent, _)| parent).cmp(&Some(suffix))), &[]])
            }
            // A wildcard of any depth matches no single range, and Ingress has no such wildcard.
            HostPattern::Wildcard(_, WildcardDepth::Any) => (whole, [self.named(), &[]]),
            HostPattern::FirstLabel(_) | HostPattern::Expression(_) | HostPattern::Any => {
                (&[][..], [self.named(), &[]])
            }
        };
        let mut of: Vec<&TlsSecret> = of_rules.iter().chain(broad).chain(narrow).collect();
        of.sort_by_key(|it| it.entry);
        of
    }

    fn named(&self) -> &[TlsSecret] {
        self.range(|key| if key.is_none() { Ordering::Less } else { Ordering::Equal })
    }

    fn range(&self, compare: impl Fn(HostSortKey<'_>) -> Ordering) -> &[TlsSecret] {
        let first = self.0.partition_point(|it| compare(it.sort_key()) == Ordering::Less);
        let rest = self.0.get(first..).unwrap_or_default();
        rest.get(..rest.partition_point(|it| compare(it.sort_key()) == Ordering::Equal)).unwrap_or_default()
    }
}

impl TlsSecret {
    /// The field of the entry, such as `spec.tls[0]`.
    #[must_use]
    pub fn field(&self) -> String {
        format!("spec.tls[{}]", self.entry)
    }

    fn sort_key(&self) -> HostSortKey<'_> {
        match self.host.as_ref()? {
            HostPattern::Exact(name) => {
                let (label, parent) = name.split_once('.').unwrap_or((name, ""));
                Some((parent, label))
            }
            HostPattern::Wildcard(suffix, _) => Some((suffix, "*")),
            HostPattern::FirstLabel(_) | HostPattern::Expression(_) | HostPattern::Any => Some(("", "*")),
        }
    }
}

impl FromIterator<TlsSecret> for Tls {
    fn from_iter<I: IntoIterator<Item = TlsSecret>>(all: I) -> Self {
        let mut all: Vec<TlsSecret> = all.into_iter().collect();
        all.sort_by(|a, b| (a.sort_key(), a.entry).cmp(&(b.sort_key(), b.entry)));
        Self(all.into())
    }
}

impl Deref for Tls {
    type Target = [TlsSecret];

    fn deref(&self) -> &[TlsSecret] {
        &self.0
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", expecting = "an object")]
struct TlsJson<'a> {
    #[serde(borrow)]
    hosts: Option<Vec<&'a RawValue>>,
    secret_name: Option<Arc<str>>,
}

/// The entries of an object with rules for these hosts. A certificate is used only for hosts that its object serves, so
/// entries for other hosts are dropped, with a finding.
pub(super) fn read<'i>(
    ingress: &ObjectName,
    list: Option<Vec<&RawValue>>,
    rules: impl Iterator<Item = &'i HostPattern>,
    findings: &mut FindingList,
) -> Tls {
    let entries = findings.entries(list, TLS_MAX, "spec.tls");
    let mut reader = Reader { ingress, taken: Taken::default(), of_host: BTreeMap::new(), all: Vec::new(), findings };
    rules.for_each(|host| reader.taken.add(host));
    for (entry, (field, raw)) in (0..).zip(entries) {
        reader.entry(entry, &field, raw);
    }
    reader.all.into_iter().collect()
}

/// Reads the entries of one Ingress.
struct Reader<'f> {
    ingress: &'f ObjectName,
    taken: Taken,
    /// The Secrets of each host, and of the hosts of the rules.
    of_host: BTreeMap<Option<HostPattern>, BTreeSet<ObjectName>>,
    all: Vec<TlsSecret>,
    findings: &'f mut FindingList,
}

impl Reader<'_> {
    /// Only an entry that was written without hosts stands for those of the rules: one with only invalid hosts does
    /// not. An entry without a Secret asks for the default certificate, which is used in any case.
    fn entry(&mut self, entry: u32, field: &str, raw: &RawValue) {
        let Some(json) = self.findings.entry::<TlsJson<'_>>(raw, field) else { return };
        let secret = json.secret_name.filter(|name| !name.is_empty()).map(|name| self.ingress.beside(name));
        if json.hosts.as_ref().is_some_and(|hosts| !hosts.is_empty()) {
            for (field, raw) in self.findings.entries(json.hosts, TLS_MAX, &format!("{field}.hosts")) {
                if let Some(host) = self.host(raw, &field) {
                    self.add(entry, &field, Some(host), secret.as_ref());
                }
            }
        } else if self.taken.named {
            self.add(entry, field, None, secret.as_ref());
        } else {
            let why = "stands for the hosts of the rules, and these name none \
                       (--default-certificate says what is shown for all other hosts)";
            self.findings.unused(field, HOSTLESS, why);
        }
    }

    fn host(&mut self, raw: &RawValue, field: &str) -> Option<HostPattern> {
        let text: String = self.findings.entry(raw, field)?;
        let host = HostPattern::parse(&text).map_err(|why| self.findings.dropped(field, &text, why)).ok()?;
        if !self.taken.meets(&host) {
            self.findings.unused(field, &text, "is not served by a rule of this object");
            return None;
        }
        Some(host)
    }

    /// Adds a Secret for a host, once and within the limits.
    fn add(&mut self, entry: u32, field: &str, host: Option<HostPattern>, secret: Option<&ObjectName>) {
        let Some(secret) = secret else { return };
        let secrets = self.of_host.entry(host.clone()).or_default();
        if secrets.contains(secret) {
            return;
        }
        let full = if secrets.len() >= SECRETS_MAX {
            format!("has {SECRETS_MAX} Secrets already, which is the limit")
        } else if self.all.len() >= HOSTS_MAX {
            format!("exceeds the limit of {HOSTS_MAX} hosts of all entries")
        } else {
            secrets.insert(secret.clone());
            self.all.push(TlsSecret { host, entry, secret: secret.clone() });
            return;
        };
        let value = host.map_or(HOSTLESS.to_owned(), |host| host.to_string());
        self.findings.dropped(field, &value, full);
    }
}

/// The hosts of the rules, indexed, so that a check of a TLS host does not walk over all of them.
#[derive(Default)]
struct Taken {
    rules: HostMap<()>,
    /// The suffixes of wildcards that match an exact host of a rule.
    parents: BTreeSet<String>,
    /// Whether any rule names a host.
    named: bool,
}

impl Taken {
    fn add(&mut self, host: &HostPattern) {
        self.rules.insert(host, ());
        self.named |= *host != HostPattern::Any;
        if let HostPattern::Exact(name) = host {
            self.parents.extend(name.split_once('.').map(|(_, parent)| parent.to_owned()));
        }
    }

    /// Returns `true` if the rules serve any of the names of a TLS host.
    fn meets(&self, host: &HostPattern) -> bool {
        match host {
            HostPattern::Exact(name) => self.rules.matching(name).next().is_some(),
            HostPattern::Wildcard(suffix, _) => {
                let whole = self.rules.get(host).or_else(|| self.rules.get(&HostPattern::Any));
                whole.is_some() || self.parents.contains(&**suffix)
            }
            HostPattern::FirstLabel(_) | HostPattern::Expression(_) | HostPattern::Any => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A host looks at the entries that overlap it, at all of them and at no others, in their order.
    #[track_caller]
    fn check(tls: &Tls, host: &str) {
        let host = if host == "*" { HostPattern::Any } else { HostPattern::parse(host).unwrap() };
        let mut want: Vec<&TlsSecret> = tls.iter().collect();
        want.retain(|it| it.host.as_ref().map_or(host != HostPattern::Any, |asked| asked.meet(&host).is_some()));
        want.sort_by_key(|it| it.entry);
        assert_eq!(tls.of(&host), want, "{host}");
    }

    #[test]
    fn a_host_uses_the_matching_tls_entries() {
        let hosts =
            ["a", "b", "*.a", "*.b.a", "x.a", "y.a", "b.a", "x.b.a", "x.y.b.a", "x-a", "*.x-a", "x.b", "0.a", "-"];
        let all = (0..).zip(hosts.iter().cycle().take(3 * hosts.len())).map(|(entry, host)| TlsSecret {
            host: HostPattern::parse(host).ok(),
            entry: (entry * 17) % 42,
            secret: ObjectName::new("shop", format!("s{entry}")),
        });
        let tls: Tls = all.collect();
        hosts[..13].iter().chain(&["*", "z.a", "*.z", "z", "*.y.b.a"]).for_each(|host| check(&tls, host));
        check(&Tls::default(), "x.a");
    }
}
