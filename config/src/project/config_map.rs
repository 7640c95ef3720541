//! ConfigMap (`v1`): certificates of authorities, to which Gateways and policies of the Gateway API refer. Nothing else
//! of a ConfigMap is read or kept.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::field::{FindingList, InvalidValue};
use super::raw_object::RawObject;
use super::{Projection, Sharing};
use crate::model::{CaBundle, CertificateFault};
use crate::object::ObjectName;

/// The parts of a ConfigMap that routing reads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConfigMap {
    /// Its name.
    pub name: ObjectName,
    /// The certificates in `data["ca.crt"]`, or the reason why they cannot be used; `None` if there is no such entry.
    pub authorities: Option<Result<CaBundle, CertificateFault>>,
}

#[derive(Deserialize, Default)]
struct DataJson<'a> {
    #[serde(borrow, rename = "ca.crt")]
    authorities: Option<&'a RawValue>,
}

impl Sharing for ConfigMap {}

impl Projection for ConfigMap {
    /// A ConfigMap without usable certificates makes no finding here, because most have other purposes. The object that
    /// refers to it gets one.
    fn project(source: &RawObject<'_>, _findings: &mut FindingList) -> Result<Self, InvalidValue> {
        let data: DataJson<'_> = source.data.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default();
        let authorities = data.authorities.map(|raw| {
            let text: String =
                serde_json::from_str(raw.get()).map_err(|_| CertificateFault("ca.crt is not a text".to_owned()))?;
            CaBundle::from_pem(&[text.as_bytes()])
        });
        Ok(Self { name: source.name().clone(), authorities })
    }
}
