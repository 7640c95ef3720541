//! ConfigMap (`v1`): certificates of authorities, as the Gateway API has Gateways and policies refer to them. Nothing else of a
//! ConfigMap is read or kept.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::source::Source;
use crate::model::{Authorities, CertificateFault};
use crate::object::ObjectName;

/// What routing reads of a ConfigMap.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConfigMap {
    /// Its name.
    pub name: ObjectName,
    /// The certificates in `data["ca.crt"]`; `None` where there is no such entry, and else why they cannot be used.
    pub authorities: Option<Result<Authorities, CertificateFault>>,
}

#[derive(Deserialize, Default)]
struct DataJson<'a> {
    #[serde(borrow, rename = "ca.crt")]
    authorities: Option<&'a RawValue>,
}

/// A ConfigMap without certificates is no finding here: most are for others. Whoever refers to it is told.
pub(super) fn project(source: &Source<'_>) -> ConfigMap {
    let data: DataJson<'_> = source.data.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default();
    let authorities = data.authorities.map(|raw| {
        let text: String =
            serde_json::from_str(raw.get()).map_err(|_| CertificateFault("ca.crt is no text".to_owned()))?;
        Authorities::from_pem(&[text.as_bytes()])
    });
    ConfigMap { name: source.name().clone(), authorities }
}
