//! The files that a configuration names, read into it.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use kube::Config;
use kube::config::AuthInfo;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use secrecy::ExposeSecret as _;

use super::{ConnectError, path};
use crate::followed::{Reads, single_value};

/// The configuration with the contents of all files that it names.
pub(super) fn in_one(mut config: Config, reads: &mut Reads) -> Result<Config, ConnectError> {
    if let Some(file) = config.root_cert_file.take() {
        let certificates = CertificateDer::pem_slice_iter(&reads.bytes(&file).map_err(ConnectError::File)?)
            .map(|certificate| certificate.map(|certificate| certificate.to_vec()))
            .collect::<Result<_, _>>();
        let unreadable = |_| ConnectError::File(format!("{}: holds no certificate in PEM", file.display()));
        config.root_cert = Some(certificates.map_err(unreadable)?);
    }
    identity(&mut config.auth_info, reads, false)?;
    Ok(config)
}

/// The credentials with the contents of all files that they name, by the rules of client-go: data goes before a file,
/// except that a token in a file goes before one beside it; what is empty is absent. `fall_back` allows the token
/// beside a file that cannot be read.
pub(super) fn identity(user: &mut AuthInfo, reads: &mut Reads, fall_back: bool) -> Result<(), ConnectError> {
    user.client_certificate_data = data(user.client_certificate_data.take(), user.client_certificate.take(), reads)?;
    let key = user.client_key_data.take().map(|key| key.expose_secret().to_owned());
    user.client_key_data = data(key, user.client_key.take(), reads)?.map(Into::into);
    let given = user.token.take().map(|token| token.expose_secret().to_owned());
    let given = given.and_then(|token| single_value(token.as_bytes()).map(str::to_owned));
    let token = match path(user.token_file.take()) {
        Some(file) => match (reads.value(&file), given) {
            (Ok(token), _) => Some(valid(token, &file)?),
            (Err(_), Some(given)) if fall_back => Some(given),
            (Err(why), _) => return Err(ConnectError::File(why)),
        },
        None => given,
    };
    if token.as_ref().is_some_and(|token| HeaderValue::from_str(token).is_err()) {
        return Err(ConnectError::File("the token has bytes that no header may have".to_owned()));
    }
    user.token = token.map(Into::into);
    let password = user
        .password
        .take()
        .map(|password| password.expose_secret().to_owned())
        .filter(|password| !password.is_empty());
    user.username = user.username.take().filter(|name| !name.is_empty());
    if user.username.is_some() || password.is_some() {
        user.username.get_or_insert_default();
        user.password = Some(password.unwrap_or_default().into());
    }
    Ok(())
}

/// Data in base64: what is given, or else the content of a file.
pub(super) fn data(
    given: Option<String>,
    file: Option<String>,
    reads: &mut Reads,
) -> Result<Option<String>, ConnectError> {
    if let Some(given) = given.filter(|given| !given.trim().is_empty()) {
        return Ok(Some(given.trim().to_owned()));
    }
    let Some(file) = path(file) else { return Ok(None) };
    Ok(Some(STANDARD.encode(reads.bytes(&file).map_err(ConnectError::File)?)))
}

/// Refuses a file of several words: a token has none.
fn valid(token: String, file: &Path) -> Result<String, ConnectError> {
    if token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Ok(token);
    }
    Err(ConnectError::File(format!("{}: holds no token: only visible ASCII characters without spaces", file.display())))
}
