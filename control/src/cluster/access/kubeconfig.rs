//! A kubeconfig file, and the files that it names.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use futures::FutureExt as _;
use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};

use super::ConnectError;
use super::server_files::{data, identity};
use crate::followed::Reads;

/// A placeholder for no proxy, so that kube does not read one from the environment.
const NO_PROXY: &str = "http://proxy.invalid";

/// A kubeconfig file.
pub(super) struct Source {
    path: PathBuf,
    context: Option<String>,
    /// The context at the first reading.
    first: OnceLock<String>,
}

impl Source {
    pub(super) fn new(path: &Path, context: Option<&str>) -> Self {
        Self { path: path.to_owned(), context: context.map(str::to_owned), first: OnceLock::new() }
    }

    /// The configuration, with the contents of all files.
    pub(super) fn load(&self, reads: &mut Reads) -> Result<Config, ConnectError> {
        // For its limits; kube reads the file again.
        reads.bytes(&self.path).map_err(|why| ConnectError::File(format!("kubeconfig: {why}")))?;
        let mut kubeconfig = Kubeconfig::read_from(&self.path)?;
        let context = self.context(&kubeconfig).ok_or(KubeconfigError::CurrentContextNotSet)?;
        let proxied = in_one(&mut kubeconfig, &context, reads, self.first.get().is_none())?;
        let options = KubeConfigOptions { context: Some(context.clone()), ..KubeConfigOptions::default() };
        // It waits for nothing.
        let made = Config::from_custom_kubeconfig(kubeconfig, &options).now_or_never();
        let mut config = made.ok_or_else(|| ConnectError::File("kubeconfig: not read".to_owned()))??;
        let user = &mut config.auth_info;
        if user.token.is_some() || user.username.is_some() {
            // As in client-go: a plugin is for a user without other credentials.
            user.exec = None;
        }
        if !proxied {
            config.proxy_url = None;
            // A credential plugin may get the cluster.
            if let Some(cluster) = user.exec.as_mut().and_then(|exec| exec.cluster.as_mut()) {
                cluster.proxy_url = None;
            }
        }
        self.first.get_or_init(|| context);
        Ok(config)
    }

    fn context(&self, kubeconfig: &Kubeconfig) -> Option<String> {
        let exists = |name: &&String| kubeconfig.contexts.iter().any(|context| context.name == **name);
        self.context
            .as_ref()
            .or_else(|| self.first.get().filter(exists))
            .or(kubeconfig.current_context.as_ref())
            .cloned()
    }
}

/// Reads the files of a context's cluster and user into the kubeconfig, and returns whether the cluster has a proxy.
fn in_one(kubeconfig: &mut Kubeconfig, context: &str, reads: &mut Reads, is_first: bool) -> Result<bool, ConnectError> {
    let context = kubeconfig.contexts.iter().find(|named| named.name == context);
    let Some(context) = context.and_then(|named| named.context.clone()) else { return Ok(true) };
    let user = kubeconfig.auth_infos.iter_mut().find(|named| Some(&named.name) == context.user.as_ref());
    if let Some(user) = user.and_then(|named| named.auth_info.as_mut()) {
        identity(user, reads, is_first)?;
    }
    let cluster = kubeconfig.clusters.iter_mut().find(|named| named.name == context.cluster);
    let Some(cluster) = cluster.and_then(|named| named.cluster.as_mut()) else { return Ok(true) };
    cluster.certificate_authority_data =
        data(cluster.certificate_authority_data.take(), cluster.certificate_authority.take(), reads)?;
    let proxied = cluster.proxy_url.as_ref().is_some_and(|url| !url.is_empty());
    if !proxied {
        // Without a proxy URL, kube reads the environment, whatever `NO_PROXY` is there.
        cluster.proxy_url = Some(NO_PROXY.to_owned());
    }
    Ok(proxied)
}
