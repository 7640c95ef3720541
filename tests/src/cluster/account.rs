//! The service account of a pod, as the kubelet projects it: two variables, and three files of which the token is
//! replaced in time.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use serde_json::json;

use super::{API_SERVER, Api, Cluster};

/// The path at which a pod finds it. Programs outside do not see its files, see [`enter`](super::enter).
const FOLDER: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// A service account of the namespace `tidegate`, for programs that look for that of their pod.
///
/// Each of its tokens is bound to a Secret of its own, and is invalid once that is deleted: the API server issues no
/// token that expires within ten minutes.
#[derive(Debug)]
pub(super) struct Account {
    name: String,
    token: String,
    /// The number of tokens issued.
    count: u32,
}

impl Account {
    /// Writes its files.
    pub(super) async fn project(cluster: &Cluster, name: &str) -> Self {
        let mut account = Self { name: name.to_owned(), token: String::new(), count: 0 };
        fs::create_dir_all(FOLDER).expect("a folder of our own");
        account.renew(cluster).await;
        for file in ["token", "ca.crt", "namespace"] {
            symlink(Path::new("..data").join(file), Path::new(FOLDER).join(file)).expect("there is none yet");
        }
        account
    }

    /// The variables by which a pod finds the API server.
    pub(super) fn environment() -> [(&'static str, String); 2] {
        let (host, port) = (API_SERVER.ip().to_string(), API_SERVER.port().to_string());
        [("KUBERNETES_SERVICE_HOST", host), ("KUBERNETES_SERVICE_PORT", port)]
    }

    /// Replaces the token, revokes the previous one, and returns a user that still has the latter.
    pub(super) async fn rotate(&mut self, cluster: &Cluster) -> Api {
        let (former, secret) = (Api { address: API_SERVER, token: self.token.clone() }, self.secret());
        self.renew(cluster).await;
        cluster.api.delete(&format!("/api/v1/namespaces/tidegate/secrets/{secret}")).await;
        former
    }

    fn secret(&self) -> String {
        format!("{}-{}", self.name, self.count)
    }

    /// All files change at once, by the one link through which they are reached.
    async fn renew(&mut self, cluster: &Cluster) {
        self.count += 1;
        let secret = json!({"metadata": {"name": self.secret()}});
        let secret = cluster.api.create("/api/v1/namespaces/tidegate/secrets", &secret).await;
        let (name, uid) = (&secret["metadata"]["name"], &secret["metadata"]["uid"]);
        let bound = json!({"apiVersion": "v1", "kind": "Secret", "name": name, "uid": uid});
        self.token = cluster.token(&self.name, &bound).await;

        let folder = Path::new(FOLDER);
        let fresh = format!("..{}", self.count);
        fs::create_dir(folder.join(&fresh)).expect("a folder");
        let authority = fs::read_to_string(cluster.folder().join("authority.crt")).expect("an authority");
        for (file, text) in [("token", &*self.token), ("ca.crt", &authority), ("namespace", "tidegate")] {
            fs::write(folder.join(&fresh).join(file), text).expect("a file");
        }
        symlink(&fresh, folder.join("..data_tmp")).expect("a link");
        fs::rename(folder.join("..data_tmp"), folder.join("..data")).expect("a link");
        if self.count > 1 {
            fs::remove_dir_all(folder.join(format!("..{}", self.count - 1))).expect("it is there");
        }
    }
}
