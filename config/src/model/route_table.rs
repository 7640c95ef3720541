//! Route tables: the virtual hosts of listeners. Listeners with the same table have all of its hosts; a host of one
//! table is not visible in another.

use std::cmp::Ordering;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use rpds::HashTrieMapSync;
use serde::{Serialize, Serializer};

use super::host::HostPattern;
use super::host_map::HostMap;

/// The name of a route table.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum TableName {
    /// The table of all objects whose source does not know listeners, such as Ingress.
    #[default]
    Shared,
    /// A table by its name.
    Named(Arc<str>),
}

impl TableName {
    /// Returns `true` for the shared table.
    #[must_use]
    pub const fn is_shared(&self) -> bool {
        matches!(self, Self::Shared)
    }
}

impl Serialize for TableName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Shared => serializer.serialize_none(),
            Self::Named(name) => serializer.serialize_str(name),
        }
    }
}

/// A virtual host: a host pattern in a route table. The same pattern in two tables is two virtual hosts.
///
/// The order is that of the table, then the pattern. It is the key of many maps, so it is one pointer, and its clones
/// share the contents.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct VirtualHost(Arc<VirtualHostParts>);

/// The contents of a [`VirtualHost`].
#[derive(PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct VirtualHostParts {
    /// The table.
    pub table: TableName,
    /// The hosts that it matches.
    pub pattern: HostPattern,
}

impl VirtualHost {
    /// A host of a table.
    #[must_use]
    pub fn new(table: TableName, pattern: HostPattern) -> Self {
        Self(Arc::new(VirtualHostParts { table, pattern }))
    }

    /// The least of all in their order.
    #[must_use]
    pub fn first() -> Self {
        HostPattern::Exact(Arc::default()).into()
    }
}

impl From<HostPattern> for VirtualHost {
    /// A host of the shared table.
    fn from(pattern: HostPattern) -> Self {
        Self::new(TableName::Shared, pattern)
    }
}

impl Deref for VirtualHost {
    type Target = VirtualHostParts;

    fn deref(&self) -> &VirtualHostParts {
        &self.0
    }
}

impl PartialOrd for VirtualHost {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Clones are compared by their pointers.
impl Ord for VirtualHost {
    fn cmp(&self, other: &Self) -> Ordering {
        if Arc::ptr_eq(&self.0, &other.0) { Ordering::Equal } else { self.0.cmp(&other.0) }
    }
}

impl fmt::Debug for VirtualHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for VirtualHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.table {
            TableName::Shared => self.pattern.fmt(f),
            TableName::Named(table) => write!(f, "{} of {table}", self.pattern),
        }
    }
}

impl Serialize for VirtualHost {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

type Named<T> = HashTrieMapSync<Arc<str>, HostMap<T>, foldhash::fast::RandomState>;

/// A persistent map by virtual host: a clone shares everything, an insertion copies one path of the tries.
#[derive(Clone)]
pub struct RouteTables<T> {
    /// Separate, because most edges have no other table.
    shared: HostMap<T>,
    /// None of these tables is empty.
    named: Named<T>,
}

impl<T> Default for RouteTables<T> {
    fn default() -> Self {
        let hasher = foldhash::fast::RandomState::default();
        Self { shared: HostMap::default(), named: Named::new_with_hasher_and_ptr_kind(hasher) }
    }
}

impl<T> fmt::Debug for RouteTables<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RouteTables({} hosts in {} tables)", self.len(), self.named.size() + 1)
    }
}

impl<T: Clone> RouteTables<T> {
    /// Sets the value of a virtual host.
    pub fn insert(&mut self, host: &VirtualHost, value: T) {
        self.change(&host.table, |table| table.insert(&host.pattern, value));
    }

    /// Removes a virtual host. Returns `true` if it was there.
    pub fn remove(&mut self, host: &VirtualHost) -> bool {
        self.change(&host.table, |table| table.remove(&host.pattern))
    }

    fn change<R>(&mut self, name: &TableName, change: impl FnOnce(&mut HostMap<T>) -> R) -> R {
        let TableName::Named(name) = name else { return change(&mut self.shared) };
        // Changed in place, so that a table that no snapshot shares is not copied.
        let Some(table) = self.named.get_mut(name) else {
            let mut table = HostMap::default();
            let result = change(&mut table);
            if !table.is_empty() {
                self.named.insert_mut(Arc::clone(name), table);
            }
            return result;
        };
        let result = change(table);
        if table.is_empty() {
            self.named.remove_mut(name);
        }
        result
    }
}

impl<T> RouteTables<T> {
    /// The virtual hosts of a table; `None` if the table is empty or does not exist.
    #[must_use]
    pub fn table(&self, name: &TableName) -> Option<&HostMap<T>> {
        match name {
            TableName::Shared => Some(&self.shared),
            TableName::Named(name) => self.named.get(name),
        }
    }

    /// The virtual hosts of the shared table.
    #[must_use]
    pub const fn shared(&self) -> &HostMap<T> {
        &self.shared
    }

    /// The value of exactly this virtual host.
    #[must_use]
    pub fn get(&self, host: &VirtualHost) -> Option<&T> {
        self.table(&host.table)?.get(&host.pattern)
    }

    /// Every value with its virtual host, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (VirtualHost, &T)> {
        let named = self.named.iter().flat_map(|(name, table)| {
            let of_table = |pattern| VirtualHost::new(TableName::Named(Arc::clone(name)), pattern);
            table.iter().map(move |(pattern, value)| (of_table(pattern), value))
        });
        self.shared.iter().map(|(pattern, value)| (pattern.into(), value)).chain(named)
    }

    /// The number of virtual hosts. The cost is linear in the number of tables.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shared.len() + self.named.values().map(HostMap::len).sum::<usize>()
    }

    /// Returns `true` if there are no virtual hosts.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.shared.is_empty() && self.named.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(table: &str, pattern: &str) -> VirtualHost {
        let table = if table.is_empty() { TableName::Shared } else { TableName::Named(table.into()) };
        VirtualHost::new(table, HostPattern::parse(pattern).unwrap())
    }

    #[test]
    fn a_host_is_visible_only_in_its_table() {
        let hosts = [host("", "a.test"), host("one", "a.test"), host("one", "*.b.test"), host("two", "a.test")];
        let mut tables = RouteTables::default();
        hosts.iter().for_each(|host| tables.insert(host, host.to_string()));
        let check = |tables: &RouteTables<String>, table: &str, name: &str, want: &[&str]| {
            let table = tables.table(&host(table, "a.test").table);
            let got: Vec<&String> = table.into_iter().flat_map(|table| table.matching(name)).collect();
            assert_eq!(got, want, "{name}");
        };
        check(&tables, "", "a.test", &["a.test"]);
        check(&tables, "one", "a.test", &["a.test of one"]);
        check(&tables, "one", "x.b.test", &["*.b.test of one"]);
        check(&tables, "", "x.b.test", &[]);
        check(&tables, "three", "a.test", &[]);
        assert_eq!((tables.len(), tables.iter().count()), (4, 4));

        let before = tables.clone();
        assert!(tables.remove(&hosts[3]) && !tables.remove(&hosts[3]) && !tables.remove(&host("three", "a.test")));
        check(&tables, "two", "a.test", &[]);
        check(&before, "two", "a.test", &["a.test of two"]);
        assert_eq!((tables.len(), tables.named.size()), (3, 1), "an empty table is none");
    }
}
