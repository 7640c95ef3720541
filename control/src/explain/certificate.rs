//! The certificate that a client of a TLS listener gets.

use std::fmt;
use std::time::{Duration, SystemTime};

use serde::Serialize;
use tidegate_config::model::{BindKey, Certificate, Snapshot};
use tidegate_config::object::ObjectName;

use crate::clock;
use crate::not_serving::{as_text, text};

/// The certificate that the edge presents. A client that cannot verify its kind of signature may get another one.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Presented {
    /// None: the listener has no usable certificate, and handshakes fail.
    Nothing,
    /// The edge's own one: neither an object nor the operator provides one for the server name.
    SelfSigned,
    /// That of a Secret.
    OfSecret {
        /// The Secret.
        secret: ObjectName,
        /// Whether it is valid for the server name.
        names_the_host: bool,
        /// The end of its validity.
        #[serde(serialize_with = "as_text")]
        not_after: SystemTime,
        /// Whether that is over.
        expired: bool,
    },
}

impl Presented {
    /// The certificate for a server name, if the client sends one.
    pub(super) fn of(snapshot: &Snapshot, bind: &BindKey, server_name: Option<&str>) -> Self {
        if let Some(certificate) = snapshot.handshake_certificates(bind, server_name).next() {
            return Self::of_secret(certificate, server_name);
        }
        if snapshot.own_tls(bind, server_name).is_some() { Self::Nothing } else { Self::SelfSigned }
    }

    fn of_secret(certificate: &Certificate, server_name: Option<&str>) -> Self {
        let after = Duration::from_secs(u64::try_from(certificate.not_after_s).unwrap_or_default());
        let not_after = SystemTime::UNIX_EPOCH + after;
        Self::OfSecret {
            secret: certificate.secret.clone(),
            names_the_host: server_name.is_some_and(|name| certificate.is_for(name)),
            not_after,
            expired: not_after < clock::wall(),
        }
    }
}

impl fmt::Display for Presented {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("none: the listener has no usable certificate, and handshakes fail"),
            Self::SelfSigned => f.write_str("self-signed, of the edge: no Secret has one for this name"),
            Self::OfSecret { secret, names_the_host, not_after, expired } => {
                let until = if *expired { "expired since" } else { "valid until" };
                write!(f, "Secret {secret}, {until} {}", text(*not_after))?;
                if *names_the_host { Ok(()) } else { f.write_str(", and does not name this host") }
            }
        }
    }
}
