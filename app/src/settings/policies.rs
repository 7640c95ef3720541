//! The settings of policies.

use std::path::Path;

use tidegate_config::model::CaBundle;
use tidegate_control::options::UrlHosts;
use tidegate_control::regular_file;

use super::InvalidValue;
use crate::args::PolicyArgs;

/// The limit of a file of certificate authorities, in bytes.
const AUTHORITIES_BYTES_MAX: u64 = 1 << 20;

pub(super) fn authorities(args: &PolicyArgs) -> Result<Option<CaBundle>, InvalidValue> {
    let read = |path: &Path| {
        let pem = regular_file::read(path, AUTHORITIES_BYTES_MAX)?;
        CaBundle::from_pem(&[&pem]).map_err(|fault| fault.to_string())
    };
    let bundle = |path| read(path).map_err(|why| InvalidValue::new("--policy-ca", path.display().to_string(), why));
    args.policy_ca.as_deref().map(bundle).transpose()
}

pub(super) fn url_hosts(args: &PolicyArgs) -> Result<UrlHosts, InvalidValue> {
    UrlHosts::read(&args.policy_url_hosts).map_err(|text| {
        InvalidValue::new(
            "--policy-url-hosts",
            text,
            "is neither a name, *. and a name, nor a network such as 10.0.0.0/8",
        )
    })
}
