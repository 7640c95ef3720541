//! The store that shares the counts of rate limits: its address, its secrets, and what happens without it.

use std::net::Ipv6Addr;
use std::path::Path;
use std::sync::Arc;

use tidegate_control::regular_file;
use tidegate_proxy::{LimitStore, Secret, StoreAway, StoreNode, StoreSecrets};

use super::InvalidValue;
use crate::args::LimitsStoreArgs;

const FLAG: &str = "--limits-store";

/// The port of a store without one in its URL.
const PORT: u16 = 6379;

/// The longest password and key, and the longest file of certificates, in bytes.
const SECRET_BYTES_MAX: u64 = 4096;
const AUTHORITIES_BYTES_MAX: u64 = 1 << 20;

/// The longest beginning of keys.
const PREFIX_BYTES_MAX: usize = 64;

/// The parts of a URL.
#[derive(PartialEq, Eq, Debug)]
struct StoreUrl {
    cluster: bool,
    tls: bool,
    user: Option<String>,
    nodes: Vec<StoreNode>,
    database: u32,
}

/// Reads the settings of the store, if there is to be one, and its files once, so that a missing one is noticed at the
/// start.
pub(super) fn read(args: &LimitsStoreArgs) -> Result<Option<LimitStore>, InvalidValue> {
    let Some(text) = &args.limits_store else { return Ok(None) };
    let refuse = |why: &str| InvalidValue::new(FLAG, without_user(text), why);
    let StoreUrl { cluster, tls, user, nodes, database } = url(text).map_err(|why| refuse(&why))?;
    if args.limits_store_ca.is_some() && !tls {
        return Err(refuse("has no certificate for --limits-store-ca; begin it with rediss:// or rediss-cluster://"));
    }
    if user.is_some() && args.limits_store_password_file.is_none() {
        return Err(refuse("names a user, and needs --limits-store-password-file"));
    }
    let away = match &*args.limits_store_away {
        "divide" => StoreAway::Divide,
        "refuse" => StoreAway::Refuse,
        other => return Err(InvalidValue::new("--limits-store-away", other, "is neither divide nor refuse")),
    };
    let key = args.limits_store_key_file.as_deref().map(secret).transpose();
    let hash_key = key.map_err(|why| of_file("--limits-store-key-file", args.limits_store_key_file.as_deref(), why))?;
    let (password_file, ca) = (args.limits_store_password_file.clone(), args.limits_store_ca.clone());
    let password = password_file.as_deref().map(secret).transpose();
    password.map_err(|why| of_file("--limits-store-password-file", password_file.as_deref(), why))?;
    let authorities = ca.as_deref().map(|path| regular_file::read(path, AUTHORITIES_BYTES_MAX)).transpose();
    authorities.map_err(|why| of_file("--limits-store-ca", ca.as_deref(), why))?;
    let secrets = move || {
        let named = |path: &Path, why: String| format!("{}: {why}", path.display());
        let password = password_file.as_deref().map(|path| secret(path).map_err(|why| named(path, why))).transpose()?;
        let read = |path: &Path| regular_file::read(path, AUTHORITIES_BYTES_MAX).map_err(|why| named(path, why));
        Ok(StoreSecrets { password, authorities: ca.as_deref().map(read).transpose()? })
    };
    Ok(Some(LimitStore {
        nodes,
        cluster,
        tls,
        user,
        database,
        prefix: prefix(&args.limits_store_prefix)?,
        hash_key: hash_key.unwrap_or_default(),
        secrets: Arc::new(secrets),
        away,
    }))
}

fn of_file(flag: &'static str, path: Option<&Path>, why: String) -> InvalidValue {
    InvalidValue::new(flag, path.map(|path| path.display().to_string()).unwrap_or_default(), why)
}

/// A secret in a file, without the line break at its end.
fn secret(path: &Path) -> Result<Secret, String> {
    let mut bytes = regular_file::read(path, SECRET_BYTES_MAX)?;
    while bytes.last().is_some_and(|byte| matches!(byte, b'\n' | b'\r')) {
        bytes.pop();
    }
    if bytes.is_empty() { Err("is empty".to_owned()) } else { Ok(Secret(bytes)) }
}

/// The text of a URL without what stands before the host, which may be a password.
fn without_user(text: &str) -> &str {
    text.rsplit_once('@').map_or(text, |(_, behind)| behind)
}

fn prefix(text: &str) -> Result<String, InvalidValue> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:/".contains(&byte);
    if text.is_empty() || text.len() > PREFIX_BYTES_MAX || !text.bytes().all(is_plain) {
        let why = "is not 1 to 64 letters, digits and -._:/";
        return Err(InvalidValue::new("--limits-store-prefix", text, why));
    }
    Ok(text.to_owned())
}

fn url(text: &str) -> Result<StoreUrl, String> {
    let (scheme, behind) = text.split_once("://").unwrap_or_default();
    let (cluster, tls) = match scheme {
        "redis" => (false, false),
        "rediss" => (false, true),
        "redis-cluster" => (true, false),
        "rediss-cluster" => (true, true),
        _ => return Err("is not a URL such as redis://HOST:6379, rediss:// or redis-cluster://".to_owned()),
    };
    let (user, behind) = match behind.rsplit_once('@') {
        Some((user, _)) if user.contains(':') => {
            let why =
                "has a password, which others on this machine could read; name a file by --limits-store-password-file";
            return Err(why.to_owned());
        }
        Some((user, behind)) => (Some(user), behind),
        None => (None, behind),
    };
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    if user.is_some_and(|user| user.is_empty() || !user.bytes().all(is_plain)) {
        return Err("has a user whose name has other characters than letters, digits and -._".to_owned());
    }
    let (hosts, database) = match behind.split_once('/') {
        Some((hosts, "")) => (hosts, 0),
        Some((hosts, database)) => (hosts, database.parse().map_err(|_| "has no number of a database behind the /")?),
        None => (behind, 0),
    };
    let nodes = hosts.split(',').map(node).collect::<Result<Vec<_>, _>>()?;
    if nodes.len() > 1 && !cluster {
        return Err("names several hosts; begin it with redis-cluster:// if they are a cluster".to_owned());
    }
    if cluster && database > 0 {
        return Err("names a database, and a cluster has only 0".to_owned());
    }
    Ok(StoreUrl { cluster, tls, user: user.map(ToOwned::to_owned), nodes, database })
}

/// A host with or without a port: a name, an IPv4 address, or an IPv6 address in brackets.
fn node(text: &str) -> Result<StoreNode, String> {
    let (host, port) = match text.strip_prefix('[').and_then(|inner| inner.split_once(']')) {
        Some((host, port)) => {
            host.parse::<Ipv6Addr>().map_err(|_| format!("{host:?} is not an IPv6 address"))?;
            (host, port)
        }
        None => {
            let (host, port) = text.split_at(text.find(':').unwrap_or(text.len()));
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
            if host.is_empty() || !host.bytes().all(is_plain) {
                return Err(format!("{host:?} is not a host"));
            }
            (host, port)
        }
    };
    let number = || port.strip_prefix(':')?.parse().ok().filter(|port| *port > 0);
    let port = if port.is_empty() { PORT } else { number().ok_or_else(|| format!("{text:?} has no valid port"))? };
    Ok(StoreNode { host: host.to_owned(), port })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(host: &str, port: u16) -> StoreNode {
        StoreNode { host: host.to_owned(), port }
    }

    #[test]
    fn urls_name_servers_and_clusters() {
        let check = |text: &str, cluster, tls, user: Option<&str>, nodes: &[StoreNode], database| {
            let want = StoreUrl { cluster, tls, user: user.map(Into::into), nodes: nodes.to_vec(), database };
            assert_eq!(url(text), Ok(want), "{text}");
        };
        check("redis://127.0.0.1:7000", false, false, None, &[node("127.0.0.1", 7000)], 0);
        check("redis://counts.edge.svc", false, false, None, &[node("counts.edge.svc", 6379)], 0);
        check("rediss://edge@[2001:db8::1]:7000/3", false, true, Some("edge"), &[node("2001:db8::1", 7000)], 3);
        check("redis://[::1]/", false, false, None, &[node("::1", 6379)], 0);
        let both = [node("a", 7000), node("b", 6379)];
        check("redis-cluster://a:7000,b", true, false, None, &both, 0);
        check("rediss-cluster://edge@a:7000,b", true, true, Some("edge"), &both, 0);
    }

    #[test]
    fn a_malformed_url_is_refused_and_a_password_in_it_is_not_shown() {
        let check = |text: &str, want: &str| {
            let args = LimitsStoreArgs {
                limits_store: Some(text.to_owned()),
                limits_store_prefix: "t".to_owned(),
                limits_store_away: "divide".to_owned(),
                ..LimitsStoreArgs::default()
            };
            let got = read(&args).map(drop).map_err(|why| why.to_string());
            assert!(got.as_ref().is_err_and(|got| got.contains(want)), "{text}: {got:?}");
            assert!(!got.is_err_and(|got| got.contains("hunter2")), "{text}");
        };
        check("127.0.0.1:6379", "is not a URL such as");
        check("http://a", "is not a URL such as");
        check("", "is not a URL such as");
        check("redis://", "\"\" is not a host");
        check("redis://:6379", "\"\" is not a host");
        check("redis://a:0", "has no valid port");
        check("redis://a:70000", "has no valid port");
        check("redis://a b", "is not a host");
        check("redis://a?x=1", "is not a host");
        check("redis://[::1", "is not a host");
        check("redis://[1]:1", "is not an IPv6 address");
        check("redis://a/x", "has no number of a database");
        check("redis://a,b", "begin it with redis-cluster://");
        check("redis-cluster://a/1", "a cluster has only 0");
        check("redis://edge@a", "needs --limits-store-password-file");
        check("redis://:hunter2@a", "name a file by --limits-store-password-file");
        check("redis://edge:hunter2@a", "name a file by --limits-store-password-file");
        check("http://edge:hunter2@a", "is not a URL such as");
        check("redis://hunter2/x@a:b@c", "has a password");
        check("redis://hunter2/x@c", "other characters than");
    }

    #[test]
    fn files_are_read_at_the_start_and_for_each_connection() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| Some(folder.path().join(name));
        std::fs::write(at("password").unwrap(), "hunter2\n").unwrap();
        std::fs::write(at("key").unwrap(), "key").unwrap();
        std::fs::write(at("empty").unwrap(), "\n").unwrap();
        let args = |password, key, ca, away: &str, prefix: &str| LimitsStoreArgs {
            limits_store: Some("rediss://a".to_owned()),
            limits_store_password_file: password,
            limits_store_ca: ca,
            limits_store_prefix: prefix.to_owned(),
            limits_store_key_file: key,
            limits_store_away: away.to_owned(),
        };
        let store = read(&args(at("password"), at("key"), None, "refuse", "edge/1")).unwrap().unwrap();
        assert_eq!((store.away, &*store.prefix), (StoreAway::Refuse, "edge/1"));
        assert_eq!(store.hash_key, Secret(b"key".to_vec()));
        assert_eq!((store.secrets)().unwrap().password, Some(Secret(b"hunter2".to_vec())));
        std::fs::write(at("password").unwrap(), "hunter3").unwrap();
        assert_eq!((store.secrets)().unwrap().password, Some(Secret(b"hunter3".to_vec())));
        assert!(!format!("{store:?} {:?}", (store.secrets)()).contains("hunter"));
        std::fs::remove_file(at("password").unwrap()).unwrap();
        assert!((store.secrets)().unwrap_err().contains("password"));
        let check = |args: LimitsStoreArgs, want: &str| {
            let got = read(&args).map(drop).map_err(|why| why.to_string());
            assert!(got.as_ref().is_err_and(|got| got.contains(want)), "{got:?}");
        };
        check(args(at("none"), None, None, "divide", "t"), "--limits-store-password-file");
        check(args(at("empty"), None, None, "divide", "t"), "is empty");
        check(args(None, at("none"), None, "divide", "t"), "--limits-store-key-file");
        check(args(None, None, at("none"), "divide", "t"), "--limits-store-ca");
        check(args(None, None, None, "closed", "t"), "is neither divide nor refuse");
        check(args(None, None, None, "divide", "a b"), "--limits-store-prefix");
        check(args(None, None, None, "divide", "{a}"), "--limits-store-prefix");
        let plain = LimitsStoreArgs {
            limits_store: Some("redis://a".to_owned()),
            ..args(None, None, at("key"), "divide", "t")
        };
        check(plain, "begin it with rediss://");
    }
}
