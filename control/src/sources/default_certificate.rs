//! The Secret that the operator's options name as the certificate for server names without another one.

use std::sync::Arc;

use tidegate_config::finding::Finding;
use tidegate_config::object::ObjectRef;

use super::reader::Reader;
use crate::attachment::{Attachment, GlobalClaim};

/// Attaches the Secret, whether it exists or not.
pub(super) fn attach(reader: &mut Reader<'_>, object: &ObjectRef) -> Attachment {
    let mut attachment = Attachment::reporting(object, reader.world());
    let found = reader.any_certificate(&object.name, "every other host").cloned();
    let certificate =
        found.map_err(|problem| attachment.add_findings([Finding::new(object.clone(), "data", problem)])).ok();
    attachment.other_claims_mut().globals = Some(Arc::new(GlobalClaim { certificate, ..GlobalClaim::default() }));
    attachment
}
