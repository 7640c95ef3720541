//! Tokens and passwords.

use serde_json::json;

use super::server::Server;
use super::{Asking, kubeconfig, replace};

/// The token that a client sends for these bytes of a token file.
async fn check(bytes: &str, token: &str) {
    let (folder, server) = (tempfile::tempdir().unwrap(), Server::start().await);
    let (config, file) = (folder.path().join("config"), folder.path().join("token"));
    std::fs::write(&file, bytes).unwrap();
    let cluster = json!({"server": format!("http://{}", server.address)});
    // Relative to the kubeconfig.
    std::fs::write(&config, kubeconfig(&cluster, &json!({"tokenFile": "token"}))).unwrap();
    assert_eq!(Asking::by(&config).ask().await.unwrap(), format!("Bearer {token}"), "{bytes:?}");
}

#[tokio::test]
async fn a_token_is_sent_without_the_white_space_of_its_file() {
    for bytes in ["t", "t\n", "t\r\n", " t \n\n", "\u{feff}t\n", "\tt"] {
        check(bytes, "t").await;
    }
}

/// Where the token of a user is.
#[derive(Clone, Copy, Debug)]
enum Place {
    Inside,
    File,
    /// A file, with another token inside, which is older.
    Both,
    /// A name and a password, inside.
    Password,
    /// A file behind the links of a mounted volume.
    Volume,
}

async fn follows(place: Place) {
    let (folder, server) = (tempfile::tempdir().unwrap(), Server::start().await);
    let config = folder.path().join("config");
    let at = |name: &str| folder.path().join(name);
    let cluster = json!({"server": format!("http://{}", server.address)});
    let write = |token: &str| {
        let user = match place {
            Place::Inside => json!({"token": token, "tokenFile": ""}),
            Place::File => json!({"tokenFile": at("token")}),
            Place::Both => json!({"token": "old", "tokenFile": at("token")}),
            Place::Password => json!({"username": "me", "password": token}),
            Place::Volume => json!({"tokenFile": at("volume/token")}),
        };
        if matches!(place, Place::Volume) {
            let version = at(&format!("volume/..{token}"));
            std::fs::create_dir_all(&version).unwrap();
            std::fs::write(version.join("token"), token).unwrap();
            std::os::unix::fs::symlink(&version, at("volume/..data_tmp")).unwrap();
            std::fs::rename(at("volume/..data_tmp"), at("volume/..data")).unwrap();
            drop(std::os::unix::fs::symlink("..data/token", at("volume/token")));
        }
        replace(&at("token"), &format!("{token}\n"));
        replace(&config, &kubeconfig(&cluster, &user));
    };
    let header = |token: &str| match (place, token) {
        (Place::Password, "one") => "Basic bWU6b25l".to_owned(),
        (Place::Password, _) => "Basic bWU6dHdv".to_owned(),
        _ => format!("Bearer {token}"),
    };
    server.accept(&header("one"));
    write("one");
    let asking = Asking::by(&config);
    assert_eq!(asking.ask().await.unwrap(), header("one"), "{place:?}");
    write("two");
    server.accept(&header("two"));
    asking.ask().await.unwrap_err();
    assert_eq!(asking.ask().await, Ok(header("two")), "{place:?}: after one refusal");
}

#[tokio::test]
async fn a_refusal_reads_the_token_again_wherever_it_is() {
    for place in [Place::Inside, Place::File, Place::Both, Place::Password, Place::Volume] {
        follows(place).await;
    }
}

#[tokio::test]
async fn a_broken_file_leaves_the_last_good_token_in_use() {
    let (folder, server) = (tempfile::tempdir().unwrap(), Server::start().await);
    let (config, file) = (folder.path().join("config"), folder.path().join("token"));
    let cluster = json!({"server": format!("http://{}", server.address)});
    let whole = kubeconfig(&cluster, &json!({"tokenFile": file}));
    let current = r#"tidegate_followed_files_current{source="kubeconfig"}"#;
    let failed = r#"tidegate_followed_files_reads_total{outcome="failed",source="kubeconfig"}"#;
    std::fs::write(&file, "one").unwrap();
    std::fs::write(&config, &whole).unwrap();
    let asking = Asking::by(&config);
    let breaks: [(&str, Option<&str>, Option<&str>); 6] = [
        ("an empty token", Some(""), Some(&whole)),
        ("a token of two words", Some("one two"), Some(&whole)),
        ("a token with a control byte", Some("one\u{1}"), Some(&whole)),
        ("no token", None, Some(&whole)),
        ("an empty kubeconfig", Some("one"), Some("")),
        ("half a kubeconfig", Some("one"), Some(&whole[..whole.len() / 2])),
    ];
    for (name, token, text) in breaks {
        let put = |path, text: Option<&str>| {
            text.map_or_else(|| std::fs::remove_file(path).unwrap(), |text| replace(path, text))
        };
        put(&file, token);
        put(&config, text);
        server.accept("Bearer none");
        let before = asking.metric(failed);
        asking.ask().await.unwrap_err();
        server.accept("Bearer one");
        assert_eq!(asking.ask().await.as_deref(), Ok("Bearer one"), "{name}");
        assert_eq!(asking.metric(current), 0, "{name}");
        assert_eq!(asking.metric(failed) - before, 1, "{name}");
        replace(&file, "one");
        replace(&config, &whole);
        server.accept("Bearer none");
        asking.ask().await.unwrap_err();
        server.accept("Bearer one");
        assert_eq!(asking.ask().await.as_deref(), Ok("Bearer one"), "{name}: mended");
        assert_eq!(asking.metric(current), 1, "{name}: mended");
    }
}

#[tokio::test]
async fn another_current_context_moves_no_running_process() {
    let (folder, first, second) = (tempfile::tempdir().unwrap(), Server::start().await, Server::start().await);
    let config = folder.path().join("config");
    let of = |contexts: &[&str], current: &str| {
        let contexts: Vec<_> =
            contexts.iter().map(|name| json!({"name": name, "context": {"cluster": name, "user": name}})).collect();
        let clusters = [("a", first.address), ("b", second.address)]
            .map(|(name, at)| json!({"name": name, "cluster": {"server": format!("http://{at}")}}));
        let users = ["a", "b"].map(|name| json!({"name": name, "user": {"token": name}}));
        json!({"clusters": clusters, "users": users, "contexts": contexts, "current-context": current}).to_string()
    };
    first.accept("Bearer a");
    replace(&config, &of(&["a", "b"], "a"));
    let asking = Asking::by(&config);
    assert_eq!(asking.ask().await.unwrap(), "Bearer a");
    for (contexts, current, answer) in [(["a", "b"].as_slice(), "b", "Bearer a"), (&["b"], "b", "Bearer b")] {
        replace(&config, &of(contexts, current));
        first.accept("Bearer none");
        asking.ask().await.unwrap_err();
        first.accept("Bearer a");
        assert_eq!(asking.ask().await.unwrap(), answer, "{contexts:?}");
    }
}
