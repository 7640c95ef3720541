//! The files of the served API: its token, and its certificates.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tidegate_control::{Followed, Following, Reads};

use crate::settings::TlsFiles;

/// The minimum length of a token in characters: shorter ones could be guessed.
const TOKEN_MIN: usize = 16;

/// The token of a file, followed.
pub(super) fn token(following: &Following, path: PathBuf) -> anyhow::Result<Followed<String>> {
    let open = Followed::open(following, "serve-token-file", move |reads| read_token(&path, reads));
    open.map_err(|why| anyhow::anyhow!("--serve-token-file {why}"))
}

fn read_token(path: &Path, reads: &mut Reads) -> Result<String, String> {
    let token = reads.value(path)?;
    if token.len() < TOKEN_MIN || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(format!("{}: holds no token: {TOKEN_MIN} visible characters at least", path.display()));
    }
    Ok(token)
}

/// The certificates of the server and of its clients, followed together: a certificate and a key that do not belong
/// together are never used.
pub(super) fn certificates(following: &Following, files: TlsFiles) -> anyhow::Result<Followed<ServerConfig>> {
    let load = move |reads: &mut Reads| read_certificates(&files, reads).map_err(|why| format!("{why:#}"));
    Followed::open(following, "serve-cert", load).map_err(anyhow::Error::msg)
}

fn read_certificates(files: &TlsFiles, reads: &mut Reads) -> anyhow::Result<ServerConfig> {
    let mut read = |flag: &str, path: &Path| reads.bytes(path).map_err(|why| anyhow::anyhow!("{flag} {why}"));
    let chain = parsed("--serve-cert", &files.cert, &read("--serve-cert", &files.cert)?)?;
    // The parser's message could quote the key.
    let key = PrivateKeyDer::from_pem_slice(&read("--serve-key", &files.key)?)
        .map_err(|_| anyhow::anyhow!("--serve-key {}: holds no private key in PEM", files.key.display()))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions()?;
    let builder = match &files.client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for authority in parsed("--serve-client-ca", path, &read("--serve-client-ca", path)?)? {
                roots.add(authority).with_context(|| format!("--serve-client-ca {}", path.display()))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
            builder.with_client_cert_verifier(verifier.context("--serve-client-ca")?)
        }
    };
    let mut config = builder.with_single_cert(chain, key).context("--serve-cert and --serve-key")?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// The certificates in a file, of which there is at least one.
fn parsed(flag: &str, path: &Path, pem: &[u8]) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    certificates
        .ok()
        .filter(|certificates| !certificates.is_empty())
        .with_context(|| format!("{flag} {}: holds no certificate in PEM", path.display()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[tokio::test]
    async fn a_new_token_is_used_and_a_broken_file_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let following = Following::new().unwrap();
        let (one, two) = ("a-token-of-the-test", "another-of-the-test");
        for broken in ["", "short\n", "two words are not a token"] {
            fs::write(&path, broken).unwrap();
            let why = token(&following, path.clone()).unwrap_err().to_string();
            assert!(why.starts_with("--serve-token-file ") && !why.contains("words"), "{why}");
        }
        fs::write(&path, format!("\u{feff}{one}\r\n")).unwrap();
        let followed = token(&following, path.clone()).unwrap();
        assert_eq!(*followed.current(), one);
        for (text, want) in [("", one), ("short", one), (two, two), ("two words are not a token", two)] {
            fs::write(&path, text).unwrap();
            followed.check().await;
            assert_eq!(*followed.current(), want, "{text:?}");
        }
        fs::remove_file(&path).unwrap();
        followed.check().await;
        assert_eq!(*followed.current(), two, "it is away");
    }

    /// A certificate and its key, in PEM.
    fn made() -> [String; 2] {
        let made = rcgen::generate_simple_self_signed(vec!["api.test".to_owned()]).unwrap();
        [made.cert.pem(), made.signing_key.serialize_pem()]
    }

    #[tokio::test]
    async fn certificates_are_replaced_together_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let put = |name: &str, text: &str| fs::write(at(name), text).unwrap();
        let [one, two] = [made(), made()];
        for (name, text) in [("cert", &one[0]), ("key", &one[1]), ("ca", &one[0])] {
            put(name, text);
        }
        let files = TlsFiles { cert: at("cert"), key: at("key"), client_ca: Some(at("ca")) };
        let followed = certificates(&Following::new().unwrap(), files).unwrap();
        let mut now = followed.subscribe();
        // Each step replaces one file; `usable` says whether the files can then be used together.
        for (name, text, usable) in [
            ("cert", &*two[0], false),
            ("key", &two[1], true),
            ("key", "", false),
            ("key", &two[1], false),
            ("ca", "", false),
            ("ca", "-----BEGIN CERTIFICATE-----\n", false),
            ("ca", &two[0], true),
        ] {
            put(name, text);
            followed.check().await;
            assert_eq!(now.has_changed().unwrap(), usable, "{name}");
            now.borrow_and_update();
        }
    }
}
