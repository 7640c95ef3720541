//! A paged list. It is complete or fails.

use std::sync::Arc;

use kube::client::Body;
use tidegate_config::object::Kind;
use tidegate_config::project::{ExpressionPool, Projected, Unidentified, expressions_in, project};

use super::api::{Api, chunk};
use super::aside::project_listed_aside;
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
    let mut read = Projecting {
        kind: api.kind(),
        tee,
        objects: Vec::new(),
        unidentified: 0,
        aside: Vec::new(),
        pool: ExpressionPool::default(),
    };
    let resource_version = pages(api, page_objects, &mut read).await?;
    let Projecting { objects, unidentified, .. } = read;
    Ok(List { objects, resource_version, unidentified })
}

/// The receiver of the items of a list as they arrive.
pub(super) trait Receiver {
    /// The next item.
    fn take(&mut self, item: &[u8]);

    /// Called now and then between items: does what takes long.
    fn catch_up(&mut self) -> impl Future<Output = ()> + Send {
        async {}
    }
}

impl<F: FnMut(&[u8])> Receiver for F {
    fn take(&mut self, item: &[u8]) {
        self(item);
    }
}

/// Projects items, those with expressions on another thread.
struct Projecting<'l> {
    kind: Kind,
    tee: &'l Tee,
    objects: Vec<Projected>,
    unidentified: u64,
    aside: Vec<Box<[u8]>>,
    pool: ExpressionPool,
}

impl Projecting<'_> {
    fn add(&mut self, item: &[u8], projected: Result<Projected, Unidentified>) {
        match projected {
            Ok(projected) => {
                self.tee.listed(&projected.meta.object.name, item);
                self.objects.push(projected);
            }
            Err(why) => {
                self.unidentified += 1;
                tracing::warn!(kind = %self.kind, error = %why, "an item of a list is skipped");
            }
        }
    }
}

impl Receiver for Projecting<'_> {
    fn take(&mut self, item: &[u8]) {
        if expressions_in(self.kind, item) > 0 {
            self.aside.push(item.into());
        } else {
            self.add(item, project(self.kind, item));
        }
    }

    async fn catch_up(&mut self) {
        for item in std::mem::take(&mut self.aside) {
            let (projected, pool) = project_listed_aside(self.kind, item.clone(), std::mem::take(&mut self.pool)).await;
            self.pool = pool;
            self.add(&item, projected);
        }
    }
}

/// Fetches a collection page by page and passes on its items as they arrive; returns its resourceVersion, which the
/// first page determines. An expired continue token (410) fails the list, because the pages would no longer be
/// consistent.
pub(super) async fn pages(api: &Api, page_objects: u32, receiver: &mut impl Receiver) -> Result<Arc<str>, Failure> {
    let mut resource_version = Arc::default();
    let mut token = None;
    for page in 0..api.limits.pages_max {
        let body = api.page(page_objects, token).await?;
        let (version, next) = take_page(body, api, receiver).await?;
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
    let (version, _) = take_page(api.page(1, None).await?, api, &mut |_: &[u8]| {}).await?;
    Ok(version)
}

/// Passes on the items of a page as they arrive; returns its resourceVersion and the continue token.
async fn take_page(
    mut body: Body,
    api: &Api,
    receiver: &mut impl Receiver,
) -> Result<(String, Option<String>), Failure> {
    let mut items = Items::new(api.limits.frame_bytes_max);
    let mut left = api.limits.page_bytes_max;
    while let Some(chunk) = chunk(&mut body, api.limits.list_stall).await? {
        left = left.checked_sub(chunk.len()).ok_or(Failure::PageTooLong)?;
        items.push(&chunk, |item| receiver.take(item)).map_err(|TooLong| Failure::PageTooLong)?;
        receiver.catch_up().await;
    }
    let page: Result<Page, _> = serde_json::from_slice(&items.into_envelope());
    let Page { metadata, .. } = page.map_err(|why| Failure::Unreadable {
        why: format!("not a list at line {}, column {}", why.line(), why.column()),
    })?;
    Ok((metadata.resource_version, metadata.token.filter(|token| !token.is_empty())))
}
