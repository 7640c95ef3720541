//! Secrets with certificates.

use rustls_pki_types::CertificateDer;

/// A Secret with a new certificate for a host, and the certificate.
#[must_use]
pub fn secret(namespace: &str, name: &str, host: &str) -> (String, CertificateDer<'static>) {
    let made = rcgen::generate_simple_self_signed([host.to_owned()]).unwrap();
    let indent = |pem: String| pem.lines().map(|line| format!("    {line}\n")).collect::<String>();
    let (chain, key) = (indent(made.cert.pem()), indent(made.signing_key.serialize_pem()));
    let head = format!(
        "apiVersion: v1\nkind: Secret\ntype: kubernetes.io/tls\nmetadata: {{namespace: {namespace}, name: {name}}}\n"
    );
    (format!("{head}stringData:\n  tls.crt: |\n{chain}  tls.key: |\n{key}"), made.cert.der().clone())
}
