//! A request head for the tests of the steps, written out by hand.

use tidegate_config::model::Head;

use crate::http::names::HeaderNames;

/// A head with exactly the parts that a test sets.
#[derive(Clone, Default, Debug)]
pub(crate) struct Sample {
    method: String,
    path: String,
    query: Option<String>,
    authority: Option<String>,
    headers: Vec<(String, String)>,
}

impl Sample {
    /// A GET.
    pub(crate) fn get(host: &str, path: &str) -> Self {
        Self { authority: Some(host.to_owned()), ..Self::default() }.method("GET").path(path)
    }

    /// Sets the method.
    pub(crate) fn method(mut self, method: &str) -> Self {
        method.clone_into(&mut self.method);
        self
    }

    /// Sets the target.
    pub(crate) fn path(mut self, target: &str) -> Self {
        let (path, query) = target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
        path.clone_into(&mut self.path);
        self.query = query.map(str::to_owned);
        self
    }

    /// Adds a header line; the name in lower case.
    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }
}

impl HeaderNames for Sample {
    fn each_name(&self, see: &mut dyn FnMut(&[u8])) {
        self.headers.iter().for_each(|(name, _)| see(name.as_bytes()));
    }
}

impl Head for Sample {
    fn method(&self) -> &str {
        &self.method
    }

    fn path(&self) -> &str {
        &self.path
    }

    fn query(&self) -> Option<&str> {
        self.query.as_deref()
    }

    fn authority(&self) -> Option<&str> {
        self.authority.as_deref()
    }

    fn header(&self, name: &str) -> Option<&[u8]> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_bytes())
    }

    fn each_value(&self, name: &str, see: &mut dyn FnMut(&[u8])) {
        self.headers.iter().filter(|(n, _)| n == name).for_each(|(_, value)| see(value.as_bytes()));
    }
}
