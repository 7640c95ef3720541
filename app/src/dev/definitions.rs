//! The CustomResourceDefinitions of the Gateway API and of Kuadrant's policies for it. In a cluster somebody installs
//! them; `dev` installs them at start.

use super::apply::Applier;
use super::documents::{self, Document, Identity, Unreadable};

/// The groups whose kinds are defined.
const GROUPS: [&str; 2] = ["gateway.networking.k8s.io", "kuadrant.io"];

/// Returns `true` if an object is of a kind that these definitions add.
pub(super) fn are_for(identity: &Identity) -> bool {
    identity.api_version.split_once('/').is_some_and(|(group, _)| GROUPS.contains(&group))
}

fn read() -> Vec<Result<Document, Unreadable>> {
    let texts = [tidegate_lite::GATEWAY_API, tidegate_lite::KUADRANT].concat();
    texts.into_iter().flat_map(documents::read).collect()
}

/// Creates the definitions. An existing one, from a file or by hand, stays as it is.
pub(super) async fn make(applier: &mut Applier) {
    // They are a megabyte of text, so another thread parses it.
    let Ok(documents) = tokio::task::spawn_blocking(read).await else { return };
    for document in documents.into_iter().flatten() {
        if let Err(why) = applier.make(&document.identity, &document.object).await {
            tracing::warn!(error = why, "{} could not be created", document.identity);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_definition_can_be_read() {
        let read = read();
        let kinds: Vec<_> = read.iter().filter_map(|one| one.as_ref().ok()).map(|one| &*one.identity.kind).collect();
        assert_eq!(kinds, ["CustomResourceDefinition"; 13]);
    }
}
