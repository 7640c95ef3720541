//! A connection to the store: to one server, or to a cluster.

use std::time::Duration;

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::cluster::{ClusterClient, ClusterClientBuilder};
use redis::cluster_async::ClusterConnection;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ConnectionInfo, IntoConnectionInfo as _, Pipeline,
    RedisConnectionInfo, RedisFuture, RedisResult, TlsCertificates, TlsMode, Value,
};

use crate::options::{LimitStore, StoreSecrets};

/// The timeout of a new connection, with its TLS handshake and the password.
const CONNECT_MAX: Duration = Duration::from_secs(1);

/// The timeout of an answer. A store that is slower counts as away.
pub(super) const ANSWER_MAX: Duration = Duration::from_millis(250);

/// A connection, which several calls may use at once.
#[derive(Clone)]
pub(super) enum Connection {
    Single(MultiplexedConnection),
    Cluster(ClusterConnection),
}

impl Connection {
    /// Opens a connection.
    ///
    /// # Errors
    /// Why there is none, in one line without secrets.
    pub(super) async fn open(store: &LimitStore) -> Result<Self, String> {
        let read = store.secrets.clone();
        let secrets = tokio::task::spawn_blocking(move || read()).await.map_err(|error| error.to_string())??;
        let opened = if store.cluster { cluster(store, secrets).await } else { single(store, secrets).await };
        opened.map_err(|error| error.to_string())
    }
}

async fn single(store: &LimitStore, secrets: StoreSecrets) -> RedisResult<Connection> {
    let Some(info) = infos(store, &secrets)?.pop() else {
        return Err((redis::ErrorKind::InvalidClientConfig, "no address").into());
    };
    let client = if store.tls { Client::build_with_tls(info, certificates(secrets))? } else { Client::open(info)? };
    let config =
        AsyncConnectionConfig::new().set_connection_timeout(Some(CONNECT_MAX)).set_response_timeout(Some(ANSWER_MAX));
    client.get_multiplexed_async_connection_with_config(&config).await.map(Connection::Single)
}

async fn cluster(store: &LimitStore, secrets: StoreSecrets) -> RedisResult<Connection> {
    let mut builder: ClusterClientBuilder = ClusterClient::builder(infos(store, &secrets)?)
        .connection_timeout(CONNECT_MAX)
        .response_timeout(ANSWER_MAX)
        // For a slot that has moved. A script whose answer was lost may run twice: then fewer requests are granted, and
        // what is given back counts once.
        .retries(1);
    if store.tls {
        builder = builder.tls(TlsMode::Secure).certs(certificates(secrets));
    }
    builder.build()?.get_async_connection().await.map(Connection::Cluster)
}

fn infos(store: &LimitStore, secrets: &StoreSecrets) -> RedisResult<Vec<ConnectionInfo>> {
    let mut login = RedisConnectionInfo::default().set_db(i64::from(store.database));
    if let Some(user) = &store.user {
        login = login.set_username(user);
    }
    if let Some(password) = &secrets.password {
        let Ok(password) = std::str::from_utf8(&password.0) else {
            return Err((redis::ErrorKind::InvalidClientConfig, "the password is not UTF-8").into());
        };
        login = login.set_password(password);
    }
    let info = |host: &str, port| {
        let host = host.to_owned();
        let address = if store.tls {
            ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None }
        } else {
            ConnectionAddr::Tcp(host, port)
        };
        Ok(address.into_connection_info()?.set_redis_settings(login.clone()))
    };
    store.nodes.iter().map(|node| info(&node.host, node.port)).collect()
}

fn certificates(secrets: StoreSecrets) -> TlsCertificates {
    TlsCertificates { client_tls: None, root_cert: secrets.authorities }
}

impl ConnectionLike for Connection {
    fn req_packed_command<'a>(&'a mut self, cmd: &'a Cmd) -> RedisFuture<'a, Value> {
        match self {
            Self::Single(one) => one.req_packed_command(cmd),
            Self::Cluster(all) => all.req_packed_command(cmd),
        }
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        match self {
            Self::Single(one) => one.req_packed_commands(pipeline, offset, count),
            Self::Cluster(all) => all.req_packed_commands(pipeline, offset, count),
        }
    }

    fn get_db(&self) -> i64 {
        match self {
            Self::Single(one) => one.get_db(),
            Self::Cluster(all) => all.get_db(),
        }
    }
}
