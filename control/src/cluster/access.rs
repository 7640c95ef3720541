//! The address of the API server and the credentials for it, as their files have them now.
//!
//! kube reads some files again and others once, depending on which parts of a kubeconfig are in files. Here every file
//! is read into the configuration before kube sees it, and all of them are followed together.

mod kubeconfig;
mod plugin;
mod server_files;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kube::Config;
use kube::client::ConfigExt as _;
use kube::config::{InClusterError, KubeconfigError};
use tidegate_config::finding::printable;

use self::plugin::{Plugin, Run};
use self::server_files::in_one;
use crate::followed::{Followed, Following, Reads};

/// The only `auth-provider` that is supported: kube takes its `id-token` and runs nothing.
const STATIC_PROVIDER: &str = "oidc";

/// The reason why there is no client. The messages contain no credentials.
#[derive(Debug)]
pub enum ConnectError {
    /// The process does not run in a pod with a service account.
    InCluster(InClusterError),
    /// The kubeconfig cannot be read, or has no such context.
    Kubeconfig(Box<KubeconfigError>),
    /// A file of credentials or certificates cannot be used.
    File(String),
    /// The kubeconfig has a proxy, which is not supported; ignoring it would be wrong.
    Proxy,
    /// The user of the kubeconfig has an `auth-provider` of this name, which would run a program without a time limit.
    /// kubectl and client-go refuse it since 1.26.
    AuthProvider(String),
    /// The credentials or certificates cannot be used.
    Credentials(Box<kube::Error>),
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InCluster(why) => write!(f, "the service account of the pod cannot be used: {why}"),
            Self::Kubeconfig(why) => write!(f, "kubeconfig: {why}"),
            Self::File(why) => f.write_str(why),
            Self::Proxy => f.write_str("kubeconfig: proxy-url is not supported"),
            Self::AuthProvider(name) => write!(
                f,
                "kubeconfig: auth-provider {:?} is not supported: name a credential plugin (exec), such as \
                 gke-gcloud-auth-plugin or kubelogin, in its place",
                printable(name)
            ),
            Self::Credentials(why) => write!(f, "credentials for the API server: {why}"),
        }
    }
}

impl std::error::Error for ConnectError {}

impl From<kube::Error> for ConnectError {
    fn from(why: kube::Error) -> Self {
        Self::Credentials(Box::new(why))
    }
}

impl From<KubeconfigError> for ConnectError {
    fn from(why: KubeconfigError) -> Self {
        Self::Kubeconfig(Box::new(why))
    }
}

/// The way to the API server: its address and the credentials, followed. Clones share them.
#[derive(Clone)]
pub struct Access {
    files: Followed<Config>,
    plugin: Arc<Plugin>,
    anonymous: bool,
}

/// Shows the address, never the credentials.
impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access").field("server", &self.config().cluster_url).finish_non_exhaustive()
    }
}

/// The state of files and of a credential plugin that a client was built with.
#[derive(Clone)]
pub(super) struct Version {
    files: Arc<Config>,
    run: Option<Arc<Run>>,
}

/// The state of the credentials of a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Freshness {
    Fresh,
    /// They end soon, and are valid until then.
    EndsSoon,
    /// There are newer ones, or the files have changed. They still serve the server for which they were made.
    Outdated,
    /// The credentials have ended.
    Ended,
}

impl PartialEq for Version {
    fn eq(&self, other: &Self) -> bool {
        let runs = match (&self.run, &other.run) {
            (Some(one), Some(two)) => Arc::ptr_eq(one, two),
            (None, None) => true,
            _ => false,
        };
        runs && Arc::ptr_eq(&self.files, &other.files)
    }
}

impl Access {
    /// The API server of the cluster that this pod runs in, with the pod's service account. A kubeconfig in the image
    /// is ignored.
    ///
    /// # Errors
    /// If the pod's environment or its service account files are missing, or cannot be used.
    pub fn in_cluster(following: &Following) -> Result<Self, ConnectError> {
        let mut config = Config::incluster().map_err(ConnectError::InCluster)?;
        config.default_namespace = config.default_namespace.trim().to_owned();
        Self::of(following, "service-account", config)
    }

    /// The API server and user of a kubeconfig file; of its current context by default. The environment (`KUBECONFIG`,
    /// `HTTPS_PROXY` or the debugging variables of kube) is ignored.
    ///
    /// The file is read again like those that it names. Without a given context, the first one stays in use for as long
    /// as the file has it, so that nobody moves this process to another cluster by choosing a context for themselves.
    ///
    /// # Errors
    /// If a file cannot be used, or the kubeconfig lacks an entry that the context refers to.
    pub fn kubeconfig(following: &Following, path: &Path, context: Option<&str>) -> Result<Self, ConnectError> {
        let kubeconfig = kubeconfig::Source::new(path, context);
        Self::follow(following, "kubeconfig", move |reads| kubeconfig.load(reads))
    }

    /// The server of this configuration, whose files are followed.
    ///
    /// # Errors
    /// If a file cannot be used.
    pub fn of(following: &Following, source: &'static str, config: Config) -> Result<Self, ConnectError> {
        Self::follow(following, source, move |reads| in_one(config.clone(), reads))
    }

    pub(super) fn follow(
        following: &Following,
        source: &'static str,
        load: impl Fn(&mut Reads) -> Result<Config, ConnectError> + Send + Sync + 'static,
    ) -> Result<Self, ConnectError> {
        let files = Followed::open(following, source, move |reads| load(reads).and_then(usable))?;
        Ok(Self { files, plugin: Arc::new(Plugin::new(following)), anonymous: false })
    }

    /// The current configuration. Its files are in it; a credential plugin has not been run.
    #[must_use]
    pub fn config(&self) -> Arc<Config> {
        self.files.current()
    }

    /// The same server without credentials.
    #[must_use]
    pub fn anonymous(&self) -> Self {
        Self { anonymous: true, ..self.clone() }
    }

    /// The configuration for a client, unless a credential plugin has to be run first.
    pub(super) fn at_once(&self) -> Option<(Version, Config)> {
        let files = self.files.current();
        if !self.anonymous && files.auth_info.exec.is_some() {
            return None;
        }
        let config = self.credentials(&files, None);
        Some((Version { files, run: None }, config))
    }

    /// `true` if the credentials never change: a refused or failed request says nothing about them.
    pub(super) fn is_fixed(&self) -> bool {
        self.files.is_fixed() && self.files.current().auth_info.exec.is_none()
    }

    /// `true` if requests are sent without credentials of ours, so that a refused one says nothing about them.
    pub(super) fn is_anonymous(&self) -> bool {
        self.anonymous
    }

    /// Whether a client of this version has to be built again, whatever its requests are answered.
    pub(super) fn freshness(&self, version: &Version) -> Freshness {
        let run = version.run.as_ref();
        if run.is_some_and(|run| run.has_ended()) {
            Freshness::Ended
        } else if !Arc::ptr_eq(&version.files, &self.files.current())
            || run.is_some_and(|run| !run.is_of(&version.files) || !self.plugin.is_newest(run))
        {
            Freshness::Outdated
        } else if run.is_some_and(|run| run.is_ending()) {
            Freshness::EndsSoon
        } else {
            Freshness::Fresh
        }
    }

    /// The configuration for the next client: after reading the files, if `reread`; and after running a credential
    /// plugin, if its credentials were `refused`, have ended, or belong to other files.
    ///
    /// # Errors
    /// If there are no credentials, because the plugin has not worked yet.
    pub(super) async fn renew(&self, reread: bool, refused: Option<&Version>) -> Result<(Version, Config), String> {
        if reread {
            self.files.check().await;
        }
        let files = self.files.current();
        let run = match &files.auth_info.exec {
            Some(exec) if !self.anonymous => {
                let refused = refused.and_then(|version| version.run.as_ref());
                Some(self.plugin.credentials(exec, &files, refused).await?)
            }
            _ => None,
        };
        let config = self.credentials(&files, run.as_deref());
        Ok((Version { files, run }, config))
    }

    fn credentials(&self, files: &Config, run: Option<&Run>) -> Config {
        let mut config = files.clone();
        if self.anonymous {
            (config.auth_info, config.headers) = (kube::config::AuthInfo::default(), Vec::new());
        }
        match run {
            Some(run) => run.fill(config),
            None => config,
        }
    }
}

/// Checks all of a configuration that can be checked without a connection.
fn usable(config: Config) -> Result<Config, ConnectError> {
    if config.proxy_url.is_some() {
        return Err(ConnectError::Proxy);
    }
    if let Some(provider) = config.auth_info.auth_provider.as_ref().filter(|provider| provider.name != STATIC_PROVIDER)
    {
        return Err(ConnectError::AuthProvider(provider.name.clone()));
    }
    if config.root_cert.as_ref().is_some_and(Vec::is_empty) {
        return Err(ConnectError::File("the certificate authority holds no certificate in PEM".to_owned()));
    }
    let mut without_plugin = config.clone();
    without_plugin.auth_info.exec = None;
    without_plugin.rustls_client_config()?;
    without_plugin.extra_headers_layer()?;
    Ok(config)
}

/// A path that is not empty: client-go takes an empty one for none, and kube makes the folder of the kubeconfig of it.
fn path(text: Option<String>) -> Option<PathBuf> {
    text.filter(|text| !text.is_empty() && !text.ends_with('/')).map(PathBuf::from)
}
