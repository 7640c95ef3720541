//! A certificate authority that lives as long as the process, and the one certificate it signs.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use rustls::ServerConfig;
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

/// The authority for clients, and the certificate and key of the server.
pub(super) struct Identity {
    /// The authority's certificate, PEM.
    pub(super) authority_pem: String,
    pub(super) tls: Arc<ServerConfig>,
}

/// Generates an authority and a server certificate for the loopback names and `address`. The authority's key is
/// dropped.
pub(super) fn make(address: IpAddr) -> io::Result<Identity> {
    let authority_key = KeyPair::generate().map_err(io::Error::other)?;
    let mut authority = CertificateParams::new(Vec::new()).map_err(io::Error::other)?;
    authority.distinguished_name.push(DnType::CommonName, "tidegate-lite");
    authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let authority_certificate = authority.self_signed(&authority_key).map_err(io::Error::other)?;

    let mut names = vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
    if !address.is_loopback() && !address.is_unspecified() {
        names.push(address.to_string());
    }
    let server_key = KeyPair::generate().map_err(io::Error::other)?;
    let mut server = CertificateParams::new(names).map_err(io::Error::other)?;
    server.distinguished_name.push(DnType::CommonName, "tidegate-lite server");
    server.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let issuer = Issuer::new(authority, authority_key);
    let certificate = server.signed_by(&server_key, &issuer).map_err(io::Error::other)?;

    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(server_key.serialize_der()));
    let mut tls = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .map_err(io::Error::other)?;
    tls.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Identity { authority_pem: authority_certificate.pem(), tls: Arc::new(tls) })
}
