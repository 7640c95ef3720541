//! One request for one Secret, and its result.

use std::sync::Arc;

use tidegate_config::object::{Kind, ObjectName};
use tidegate_config::project::project;

use super::super::api::Api;
use super::super::failure::Failure;
use super::super::{Interest, Limits};
use super::GetResult;
use crate::cluster::cache::Sink;
use crate::event::Collection;

/// Requests one Secret.
pub(super) async fn ask(
    client: kube::Client,
    limits: Limits,
    name: ObjectName,
    sink: Option<Sink>,
) -> (ObjectName, GetResult) {
    // An invalid name is not requested: it would be another path.
    if !is_name(&name.name) {
        return (name, GetResult::Gone);
    }
    let collection = Collection { kind: Kind::Secret, namespace: Some(Arc::clone(&name.namespace)) };
    let answer = match Api::new(client, Interest::in_all_of(collection), limits).object(&name.name).await {
        Ok(None) => GetResult::Gone,
        Ok(Some(bytes)) => match project(Kind::Secret, &bytes) {
            Ok(projected) if projected.meta.object.name == name => {
                if let Some(sink) = sink {
                    sink.event(&name, Some(&bytes), None);
                }
                GetResult::Found(Box::new(projected))
            }
            Ok(_) => GetResult::Failed(Failure::Unreadable { why: "another object than the requested one".to_owned() }),
            Err(why) => GetResult::Failed(Failure::Unreadable { why: why.to_string() }),
        },
        Err(failure) => GetResult::Failed(failure),
    };
    (name, answer)
}

/// Whether the text is a valid object name (a DNS subdomain by RFC 1123).
pub(super) fn is_name(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let ends = text.bytes().next().is_some_and(plain) && text.bytes().last().is_some_and(plain);
    ends && text.len() <= 253 && text.bytes().all(|byte| plain(byte) || matches!(byte, b'-' | b'.'))
}
