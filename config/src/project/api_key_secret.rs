//! API keys in Secrets (`v1`), in the field `api_key`. Only a hash of the key is kept, and it gets into no message.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::gateway::Labels;
use super::raw_object::{RawObject, created_s};
use super::secret::decode;
use crate::model::auth::ApiKeyHash;
use crate::project::field::FindingList;

/// The maximum length of a key in bytes.
const KEY_BYTES_MAX: usize = 4 << 10;
/// The maximum length in bytes of the labels and annotations of a Secret with a key, as JSON.
const METADATA_BYTES_MAX: usize = 16 << 10;
/// The annotation with the last manifest, which contains the key.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// An API key, and who has it.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKeySecret {
    /// When the Secret was created, in seconds since the Unix epoch.
    pub created_s: i64,
    /// The hash of the key, or the reason why there is none.
    pub key: Result<ApiKeyHash, &'static str>,
    /// The labels of the Secret.
    pub labels: Labels,
    /// The identity of a client with the key: the `metadata` of the Secret, with its annotations.
    pub identity: Arc<Value>,
}

/// Without anything of its contents.
impl fmt::Debug for ApiKeySecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiKeySecret")
    }
}

#[derive(Deserialize)]
struct DataJson<'a> {
    #[serde(borrow)]
    api_key: Option<&'a RawValue>,
}

impl ApiKeySecret {
    /// The key in a Secret; `None` if it has none. A Secret with one that cannot be used makes no finding here: the
    /// policy that selects it gets one.
    pub(super) fn of(source: &RawObject<'_>) -> Option<Self> {
        let data: DataJson<'_> = serde_json::from_str(source.data?.get()).ok()?;
        let key = decode(data.api_key?).ok_or("its api_key is not base64");
        let key = key.and_then(|key| match key.len() {
            0 => Err("its api_key is empty"),
            1..=KEY_BYTES_MAX => Ok(ApiKeyHash::of(&key)),
            _ => Err("its api_key is longer than 4096 bytes"),
        });
        let created_s = created_s(source.created, &mut FindingList::new(source.meta.object.clone()));
        let labels: Option<Labels> = texts(source.labels);
        let annotations: Option<BTreeMap<Arc<str>, Arc<str>>> = source.annotations().ok().map(|annotations| {
            let text = |(key, raw): (String, &RawValue)| Some((key.into(), serde_json::from_str(raw.get()).ok()?));
            annotations.into_iter().filter(|(key, _)| key != LAST_APPLIED).filter_map(text).collect()
        });
        let (Some(labels), Some(annotations)) = (labels, annotations) else { return None };
        let length = |texts: &Labels| texts.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>();
        let too_long = length(&labels) + length(&annotations) > METADATA_BYTES_MAX;
        let name = source.name();
        let identity = match too_long {
            true => Value::Null,
            false => json!({"metadata": {
                "name": name.name,
                "namespace": name.namespace,
                "uid": source.meta.uid.map(|uid| uid.to_string()),
                "labels": labels,
                "annotations": annotations,
            }}),
        };
        let key = if too_long { Err("its labels and annotations are longer than 16384 bytes") } else { key };
        Some(Self { created_s, key, labels, identity: Arc::new(identity) })
    }
}

/// Labels; `None` if they cannot be read.
fn texts(raw: Option<&RawValue>) -> Option<Labels> {
    raw.map_or_else(|| Some(Labels::new()), |raw| serde_json::from_str(raw.get()).ok())
}
