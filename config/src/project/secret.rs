//! Secret (`v1`): certificates, hashes of API keys, and the texts that rules of policies may need. Nothing else of a
//! Secret is kept, and none of its contents gets into a message: parsers quote their input, so their messages are not
//! passed on from here.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::value::RawValue;
use zeroize::Zeroizing;

use super::field::{FindingList, InvalidValue};
use super::raw_object::RawObject;
use super::{ApiKeySecret, Projection, SecretTexts, Sharing};
use crate::model::{Certificate, CertificateFault};
use crate::object::ObjectName;

/// The parts of a Secret that routing reads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Secret {
    /// Its name.
    pub name: ObjectName,
    /// The certificate in `tls.crt` and `tls.key`, whatever the Secret's type, or the reason why there is none.
    pub certificate: Result<Arc<Certificate>, CertificateFault>,
    /// The API key in `api_key`, if it has one.
    pub api_key: Option<Box<ApiKeySecret>>,
    /// The texts for rules of policies.
    pub texts: SecretTexts,
}

#[derive(Deserialize, Default)]
struct DataJson<'a> {
    #[serde(borrow, rename = "tls.crt")]
    chain: Option<&'a RawValue>,
    #[serde(borrow, rename = "tls.key")]
    key: Option<&'a RawValue>,
}

impl Sharing for Secret {}

impl Projection for Secret {
    /// A Secret without a certificate makes no finding here, because most have other purposes. The object that refers
    /// to it gets one.
    fn project(source: &RawObject<'_>, _findings: &mut FindingList) -> Result<Self, InvalidValue> {
        let name = source.name().clone();
        let certificate = certificate(source).map(Arc::new);
        let api_key = ApiKeySecret::of(source).map(Box::new);
        Ok(Self { name, certificate, api_key, texts: SecretTexts::of(source) })
    }
}

fn certificate(source: &RawObject<'_>) -> Result<Certificate, CertificateFault> {
    let fault = |why: &str| CertificateFault(why.to_owned());
    let data: DataJson<'_> = match source.data {
        Some(raw) => serde_json::from_str(raw.get()).map_err(|_| fault("data cannot be read"))?,
        None => DataJson::default(),
    };
    let chain = data.chain.ok_or_else(|| fault("has no tls.crt"))?;
    let key = data.key.ok_or_else(|| fault("has no tls.key"))?;
    let chain = decode(chain).ok_or_else(|| fault("tls.crt is not base64"))?;
    let key = decode(key).ok_or_else(|| fault("tls.key is not base64"))?;
    Certificate::from_pem(source.name().clone(), &chain, &key)
}

/// The base64-decoded value of a field (RFC 4648 section 4), wiped from memory on drop.
pub(super) fn decode(raw: &RawValue) -> Option<Zeroizing<Vec<u8>>> {
    let text: Zeroizing<String> = serde_json::from_str(raw.get()).map(Zeroizing::new).ok()?;
    STANDARD.decode(text.as_bytes()).map(Zeroizing::new).ok()
}
