//! A paged list, from its first page to its last. What cannot be had whole is not had at all.

use std::sync::Arc;

use kube::client::Body;
use tidegate_config::object::Kind;
use tidegate_config::project::{Projected, project};

use super::api::{Api, chunk};
use super::failure::Failure;
use super::wire::Page;

/// Every object of a collection, as of one resourceVersion.
pub(super) struct List {
    pub(super) objects: Vec<Projected>,
    pub(super) resource_version: Arc<str>,
    /// Items that do not say which object they are, and are left out: one of them must not blind the whole kind, but
    /// with one the list is not complete.
    pub(super) unidentified: u64,
}

/// Fetches a collection page by page. The first page fixes the resourceVersion; a token that the server has forgotten
/// (410) fails the list, because the pages would no longer be of one moment.
pub(super) async fn list(api: &Api, page_objects: u32) -> Result<List, Failure> {
    let mut list = List { objects: Vec::new(), resource_version: Arc::default(), unidentified: 0 };
    let mut token = None;
    for page in 0..api.limits.pages_max {
        let body = api.page(page_objects, token).await?;
        let bytes = read_page(body, api).await?;
        let (version, next) = list.take_page(api.kind(), &bytes)?;
        if page == 0 {
            if version.is_empty() {
                return Err(Failure::Unreadable { why: "the list has no resourceVersion".to_owned() });
            }
            list.resource_version = version.into();
        }
        match next {
            Some(next) => token = Some(next),
            None => return Ok(list),
        }
    }
    Err(Failure::Endless)
}

async fn read_page(mut body: Body, api: &Api) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    while let Some(chunk) = chunk(&mut body, api.limits.list_stall).await? {
        if bytes.len() + chunk.len() > api.limits.page_bytes_max {
            return Err(Failure::PageTooLong);
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}

impl List {
    /// Projects the items of a page; gives its resourceVersion and the token of the next one.
    fn take_page(&mut self, kind: Kind, bytes: &[u8]) -> Result<(String, Option<String>), Failure> {
        let page: Page<'_> = serde_json::from_slice(bytes).map_err(|why| Failure::Unreadable {
            why: format!("no list at line {}, column {}", why.line(), why.column()),
        })?;
        self.objects.reserve(page.items.len());
        for item in page.items {
            match project(kind, item.get().as_bytes()) {
                Ok(projected) => self.objects.push(projected),
                Err(why) => {
                    self.unidentified += 1;
                    tracing::warn!(%kind, %why, "an item of a list is left out");
                }
            }
        }
        Ok((page.metadata.resource_version, page.metadata.token.filter(|token| !token.is_empty())))
    }
}
