//! Secret (`v1`): certificates. Nothing else of a Secret is kept.

use std::sync::Arc;

use crate::model::{Certificate, CertificateFault};
use crate::object::ObjectName;

/// What routing reads of a Secret.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Secret {
    /// Its name.
    pub name: ObjectName,
    /// The certificate in `tls.crt` and `tls.key`, whatever the Secret's type, or why there is none.
    pub certificate: Result<Arc<Certificate>, CertificateFault>,
}
