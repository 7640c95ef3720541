//! A request head for the tests of the model.

use super::condition::Head;

/// The head of a request for `/`, without an authority.
#[derive(Clone, Debug)]
pub(super) struct SampleHead {
    method: &'static str,
    query: Option<&'static str>,
    headers: Vec<(&'static str, Vec<u8>)>,
}

impl SampleHead {
    /// A head with this method, and no headers.
    pub(super) const fn new(method: &'static str) -> Self {
        Self { method, query: None, headers: Vec::new() }
    }

    /// Sets the query.
    pub(super) const fn query(mut self, query: &'static str) -> Self {
        self.query = Some(query);
        self
    }

    /// Adds header lines; their names in lower case.
    pub(super) fn with<V: AsRef<[u8]>>(mut self, lines: &[(&'static str, V)]) -> Self {
        self.headers.extend(lines.iter().map(|(name, value)| (*name, value.as_ref().to_owned())));
        self
    }

    fn values(&self, name: &str) -> impl Iterator<Item = &[u8]> {
        self.headers.iter().filter(move |(own, _)| *own == name).map(|(_, value)| &**value)
    }
}

impl Head for SampleHead {
    fn method(&self) -> &str {
        self.method
    }

    fn path(&self) -> &'static str {
        "/"
    }

    fn query(&self) -> Option<&str> {
        self.query
    }

    fn authority(&self) -> Option<&str> {
        None
    }

    fn header(&self, name: &str) -> Option<&[u8]> {
        self.values(name).next()
    }

    fn each_value(&self, name: &str, see: &mut dyn FnMut(&[u8])) {
        self.values(name).for_each(see);
    }
}
