//! kubectl as a reader of a served API, compared with the answers of the cluster itself.

use serde_json::Value;
use tempfile::TempDir;

use crate::kubectl::Kubectl;
use crate::wait::eventually;

/// kubectl for a given server, with no credentials of its own.
#[derive(Debug)]
pub struct Reader {
    /// kubectl, with a home of its own.
    pub kubectl: Kubectl,
    /// The arguments that name the server, before all others.
    pub arguments: Vec<String>,
    _folder: TempDir,
}

impl Reader {
    /// Returns `None` if the machine has no kubectl.
    #[must_use]
    pub fn of(server: &str, more: &[&str]) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let kubectl = Kubectl::for_config(&folder.path().join("none"))?;
        let arguments = ["--server", server].iter().chain(more).map(|text| (*text).to_owned()).collect();
        Some(Self { kubectl, arguments, _folder: folder })
    }

    /// Runs it and returns its exit code, output and errors.
    pub async fn tried(&self, arguments: &[&str]) -> (Option<i32>, String, String) {
        let own = self.arguments.iter().map(String::as_str);
        self.kubectl.tried(&own.chain(arguments.iter().copied()).collect::<Vec<_>>(), "").await
    }

    /// Runs it and returns what it printed.
    pub async fn run(&self, arguments: &[&str]) -> String {
        let (code, out, err) = self.tried(arguments).await;
        assert_eq!(code, Some(0), "kubectl {arguments:?}: {out}{err}");
        out
    }
}

/// Every object of a list, as kubectl prints it.
#[must_use]
pub fn items(text: &str) -> Vec<Value> {
    let list: Value = serde_json::from_str(text).unwrap();
    list["items"].as_array().unwrap().clone()
}

/// Waits until both hold the same objects of every kind, and some of each.
pub async fn same(cluster: &Kubectl, served: &Reader, kinds: &[&str]) {
    compared(cluster, served, kinds, &["--show-managed-fields"]).await;
}

/// The same except for managed fields, which are not kept over a restart.
pub async fn same_but_for_managers(cluster: &Kubectl, served: &Reader, kinds: &[&str]) {
    compared(cluster, served, kinds, &[]).await;
}

async fn compared(cluster: &Kubectl, served: &Reader, kinds: &[&str], more: &[&str]) {
    for kind in kinds {
        let arguments: Vec<&str> = ["get", kind, "-A", "-o", "json"].iter().chain(more).copied().collect();
        eventually(&format!("the same {kind}"), || async {
            let want = items(&cluster.run(&arguments).await);
            let (code, out, err) = served.tried(&arguments).await;
            if code != Some(0) {
                return Err(err);
            }
            let got = items(&out);
            if want == got && !want.is_empty() { Ok(()) } else { Err(format!("{want:#?}\n{got:#?}")) }
        })
        .await;
    }
}
