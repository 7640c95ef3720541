//! TLS with endpoints: the server name, the verification of their certificates, and the edge's own certificate.

use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use serde::Serialize;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use super::authority::CaBundle;
use super::certificate::Certificate;
use super::host::parent;

/// TLS with endpoints. Connections are pooled by it: one with other settings is not reused.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize)]
pub struct UpstreamTls {
    /// The server name to send; `None` for the request's host.
    pub server_name: Option<Arc<str>>,
    /// The verification of an endpoint's certificate; `None` accepts any.
    pub verification: Option<Arc<UpstreamVerification>>,
    /// The edge's own certificate, for endpoints that request one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<Arc<Certificate>>,
}

/// The verification of endpoint certificates.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
pub struct UpstreamVerification {
    /// The trusted authorities; `None` for those of the system.
    pub authorities: Option<CaBundle>,
    /// The names of which a certificate must have one; if empty, it must have the server name.
    pub names: Box<[SubjectName]>,
}

/// A subject alternative name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SubjectName {
    /// A DNS name in lower case, or `*.` and one, which a certificate must have in exactly this form.
    Dns(Box<str>),
    /// A URI, such as a SPIFFE ID.
    Uri(Box<str>),
}

impl UpstreamVerification {
    /// Returns `true` if a certificate has one of the names. One that cannot be read has none, and the common name is
    /// not considered.
    #[must_use]
    pub fn has_name(&self, leaf: &CertificateDer<'_>) -> bool {
        let Ok((_, certificate)) = X509Certificate::from_der(leaf) else { return false };
        let Ok(Some(alternatives)) = certificate.subject_alternative_name() else { return false };
        let mut shown = alternatives.value.general_names.iter();
        shown.any(|shown| self.names.iter().any(|name| name.is(shown)))
    }
}

impl SubjectName {
    fn is(&self, shown: &GeneralName<'_>) -> bool {
        // The library has many kinds of names; only these two can be required.
        if let (Self::Dns(name), GeneralName::DNSName(shown)) = (self, shown) {
            // A star in a certificate stands for one label (RFC 9525, section 6.3).
            let stands_for = |suffix: &str| parent(name).is_some_and(|own| own.eq_ignore_ascii_case(suffix));
            shown.eq_ignore_ascii_case(name)
                || (!name.starts_with("*.") && shown.strip_prefix("*.").is_some_and(stands_for))
        } else if let (Self::Uri(uri), GeneralName::URI(shown)) = (self, shown) {
            **uri == **shown
        } else {
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, SanType};

    use super::*;

    #[track_caller]
    fn check(names: &[SubjectName], shown: &[SanType], want: bool) {
        let mut params = CertificateParams::default();
        params.subject_alt_names = shown.to_vec();
        params.distinguished_name.push(rcgen::DnType::CommonName, "common.test");
        let leaf = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        let verification = UpstreamVerification { authorities: None, names: names.into() };
        assert_eq!(verification.has_name(leaf.der()), want, "{names:?} in {shown:?}");
    }

    #[test]
    fn a_certificate_must_have_one_of_the_required_names() {
        let dns = |name: &str| SubjectName::Dns(name.into());
        let uri = |name: &str| SubjectName::Uri(name.into());
        let has_dns = |name: &str| SanType::DnsName(name.try_into().unwrap());
        let has_uri = |name: &str| SanType::URI(name.try_into().unwrap());
        check(&[dns("a.test")], &[has_dns("b.test"), has_dns("A.test")], true);
        check(&[dns("x.test"), dns("b.test")], &[has_dns("b.test")], true);
        check(&[dns("a.test")], &[has_dns("b.test")], false);
        check(&[dns("a.b.test")], &[has_dns("*.b.test")], true);
        check(&[dns("b.test")], &[has_dns("*.b.test")], false);
        check(&[dns("x.a.b.test")], &[has_dns("*.b.test")], false);
        check(&[dns("*.b.test")], &[has_dns("*.b.test")], true);
        check(&[dns("*.a.b.test")], &[has_dns("*.b.test")], false);
        check(&[uri("spiffe://a/b")], &[has_uri("spiffe://a/b")], true);
        check(&[uri("spiffe://a/b")], &[has_uri("spiffe://a/B")], false);
        check(&[uri("a.test")], &[has_dns("a.test")], false);
        check(&[dns("a.test")], &[has_uri("a.test")], false);
        check(&[dns("common.test")], &[], false);
        check(&[], &[has_dns("a.test")], false);
        let verification = UpstreamVerification { authorities: None, names: [dns("a.test")].into() };
        assert!(!verification.has_name(&CertificateDer::from(vec![0x30, 0])));
    }
}
