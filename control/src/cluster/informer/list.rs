//! A paged list. It is complete or fails.

use std::sync::Arc;

use kube::client::Body;
use tidegate_config::project::{Projected, project};

use super::api::{Api, chunk};
use super::failure::Failure;
use super::frames::TooLong;
use super::items::Items;
use super::tee::Tee;
use super::wire::Page;

/// All objects of a collection, at one resourceVersion.
pub(super) struct List {
    pub(super) objects: Vec<Projected>,
    pub(super) resource_version: Arc<str>,
    /// The number of items without an identity, which are left out: one of them must not hide the whole kind, but the
    /// list is incomplete then.
    pub(super) unidentified: u64,
}

/// Fetches a collection and projects its objects. Their bytes are passed to the cache and the server of copies.
pub(super) async fn list(api: &Api, page_objects: u32, tee: &Tee) -> Result<List, Failure> {
    let (mut objects, mut unidentified) = (Vec::new(), 0);
    let kind = api.kind();
    let resource_version = pages(api, page_objects, |item| match project(kind, item) {
        Ok(projected) => {
            tee.listed(&projected.meta.object.name, item);
            objects.push(projected);
        }
        Err(why) => {
            unidentified += 1;
            tracing::warn!(%kind, error = %why, "an item of a list is skipped");
        }
    });
    let resource_version = resource_version.await?;
    Ok(List { objects, resource_version, unidentified })
}

/// Fetches a collection page by page and passes on its items as they arrive; returns its resourceVersion, which the
/// first page determines. An expired continue token (410) fails the list, because the pages would no longer be
/// consistent.
pub(super) async fn pages(api: &Api, page_objects: u32, mut take: impl FnMut(&[u8])) -> Result<Arc<str>, Failure> {
    let mut resource_version = Arc::default();
    let mut token = None;
    for page in 0..api.limits.pages_max {
        let body = api.page(page_objects, token).await?;
        let (version, next) = take_page(body, api, &mut take).await?;
        if page == 0 {
            if version.is_empty() {
                return Err(Failure::Unreadable { why: "the list has no resourceVersion".to_owned() });
            }
            resource_version = version.into();
        }
        match next {
            Some(next) => token = Some(next),
            None => return Ok(resource_version),
        }
    }
    Err(Failure::Endless)
}

/// The current resourceVersion of a collection, from a list with a limit of one object: without a version in the
/// request, it is not older than the request.
pub(super) async fn newest(api: &Api) -> Result<String, Failure> {
    let (version, _) = take_page(api.page(1, None).await?, api, |_| {}).await?;
    Ok(version)
}

/// Passes on the items of a page as they arrive; returns its resourceVersion and the continue token.
async fn take_page(
    mut body: Body,
    api: &Api,
    mut take: impl FnMut(&[u8]),
) -> Result<(String, Option<String>), Failure> {
    let mut items = Items::new(api.limits.frame_bytes_max);
    let mut left = api.limits.page_bytes_max;
    while let Some(chunk) = chunk(&mut body, api.limits.list_stall).await? {
        left = left.checked_sub(chunk.len()).ok_or(Failure::PageTooLong)?;
        items.push(&chunk, &mut take).map_err(|TooLong| Failure::PageTooLong)?;
    }
    let page: Result<Page, _> = serde_json::from_slice(&items.into_envelope());
    let Page { metadata, .. } = page.map_err(|why| Failure::Unreadable {
        why: format!("not a list at line {}, column {}", why.line(), why.column()),
    })?;
    Ok((metadata.resource_version, metadata.token.filter(|token| !token.is_empty())))
}
