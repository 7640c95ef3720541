//! The credentials of a client and a server, in files like those of a service account; and served certificates.

use std::io::Write as _;
use std::path::Path;
use std::sync::{Arc, LazyLock};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tokio_rustls::rustls::ServerConfig;

use super::cluster::CERTIFIED;

/// Files of a service account are replaced as a whole.
pub(super) fn write(path: &Path, text: &str) {
    let mut file = tempfile::NamedTempFile::new_in(path.parent().unwrap()).unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file.persist(path).unwrap();
}

/// A new authority, written to `ca.crt` in a folder, and the server's configuration with a certificate of that
/// authority.
pub(super) fn authority(name: &str, folder: &Path) -> Arc<ServerConfig> {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    std::fs::create_dir_all(folder).unwrap();
    write(&folder.join("ca.crt"), &issuer.pem());
    let key = KeyPair::generate().unwrap();
    let leaf = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
    let key = key.serialize_der().try_into().unwrap();
    let config = ServerConfig::builder().with_no_client_auth().with_single_cert(vec![leaf.der().clone()], key).unwrap();
    Arc::new(config)
}

/// A certificate for the shops with TLS, with its key, in PEM; and the certificate itself.
pub(super) struct Shown {
    pub(super) chain: String,
    pub(super) key: String,
    pub(super) der: Vec<u8>,
}

/// The certificates of shops: the first one, and its replacement.
pub(super) static SHOWN: LazyLock<[Shown; 2]> = LazyLock::new(|| {
    [0, 1].map(|_| {
        let key = KeyPair::generate().unwrap();
        let names = CERTIFIED.map(|shop| format!("{shop}.example"));
        let certificate = CertificateParams::new(names).unwrap().self_signed(&key).unwrap();
        Shown { chain: certificate.pem(), key: key.serialize_pem(), der: certificate.der().to_vec() }
    })
});
