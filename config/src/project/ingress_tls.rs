//! `spec.tls` of an Ingress: which Secret is for which of its hosts.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::field::Found;
use crate::model::{HostMap, HostPattern};
use crate::object::ObjectName;

/// Entries of `spec.tls` that are read of one Ingress, and hosts that are read of one entry.
const TLS_MAX: usize = 4096;

/// One of `spec.tls`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TlsEntry {
    /// The field, such as `spec.tls[0]`.
    pub field: Arc<str>,
    /// Its hosts, each with names that a rule of the object takes; none means the hosts of the rules.
    pub hosts: Box<[HostPattern]>,
    /// The Secret, in the Ingress's namespace; `None` asks for the default certificate.
    pub secret: Option<ObjectName>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", expecting = "an object")]
struct TlsJson<'a> {
    #[serde(borrow)]
    hosts: Option<Vec<&'a RawValue>>,
    secret_name: Option<Arc<str>>,
}

/// The entries of an object that takes the requests of these hosts. A certificate is shown for requests that its
/// object takes and for no others, so what an entry says of other hosts is dropped and told.
pub(super) fn read<'i>(
    ingress: &ObjectName,
    list: Option<Vec<&RawValue>>,
    rules: impl Iterator<Item = &'i HostPattern>,
    found: &mut Found,
) -> Box<[TlsEntry]> {
    let entries = found.entries(list, TLS_MAX, "spec.tls");
    let mut taken = Taken::default();
    rules.for_each(|host| taken.add(host));
    entries.filter_map(|(field, raw)| entry(ingress, raw, field, &taken, found)).collect()
}

/// An entry that has hosts of which none can be used is dropped: without hosts it would stand for those of the rules.
fn entry(ingress: &ObjectName, raw: &RawValue, field: String, taken: &Taken, found: &mut Found) -> Option<TlsEntry> {
    let json: TlsJson<'_> = found.entry(raw, &field)?;
    let named = json.hosts.as_ref().is_some_and(|hosts| !hosts.is_empty());
    if !named && !taken.named {
        let why = "stands for the hosts of the rules, and these name none \
                   (--default-certificate says what is shown for all other hosts)";
        found.unused(&field, "an entry without hosts", why);
    }
    let entries = found.entries(json.hosts, TLS_MAX, &format!("{field}.hosts"));
    let hosts: Box<[HostPattern]> = entries.filter_map(|(field, raw)| host(raw, &field, taken, found)).collect();
    let secret = json.secret_name.filter(|name| !name.is_empty()).map(|name| ingress.beside(name));
    let used = if named { !hosts.is_empty() } else { taken.named };
    used.then(|| TlsEntry { field: field.into(), hosts, secret })
}

fn host(raw: &RawValue, field: &str, taken: &Taken, found: &mut Found) -> Option<HostPattern> {
    let text: String = found.entry(raw, field)?;
    let host = HostPattern::parse(&text).map_err(|why| found.dropped(field, &text, why)).ok()?;
    if !taken.meets(&host) {
        found.unused(field, &text, "is taken by no rule of this object");
        return None;
    }
    Some(host)
}

/// The hosts of the rules, so that asking about each of many TLS hosts takes no walk over all of them.
#[derive(Default)]
struct Taken {
    rules: HostMap<()>,
    /// The suffixes of wildcards that an exact host of a rule falls under.
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

    /// Whether the rules take any of the names that a TLS host stands for.
    fn meets(&self, host: &HostPattern) -> bool {
        match host {
            HostPattern::Exact(name) => self.rules.matching(name).next().is_some(),
            HostPattern::Wildcard(suffix, _) => {
                let whole = self.rules.get(host).or_else(|| self.rules.get(&HostPattern::Any));
                whole.is_some() || self.parents.contains(&**suffix)
            }
            HostPattern::Any => true,
        }
    }
}
