//! The paths of the replicas in the objects of a custom kind.

use serde_json::Value;

/// The location of the replicas in an object of a custom kind: paths of fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReplicaPaths {
    pub(crate) spec: Vec<String>,
    pub(crate) status: Vec<String>,
    /// A selector in its text form; `None` if there is none.
    pub(crate) selector: Option<Vec<String>>,
}

impl ReplicaPaths {
    /// Reads the paths of a definition: `.spec.replicas`.
    pub(crate) fn read(scale: &Value) -> Option<Self> {
        let path = |key: &str| {
            let path = scale[key].as_str()?.strip_prefix('.')?;
            Some(path.split('.').map(str::to_owned).collect::<Vec<_>>())
        };
        Some(Self {
            spec: path("specReplicasPath")?,
            status: path("statusReplicasPath")?,
            selector: path("labelSelectorPath"),
        })
    }
}
