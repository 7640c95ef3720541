//! CustomResourceDefinitions: the kinds that they add, and the names of these.

mod kinds;
mod names;

use serde_json::Value;

pub(crate) use self::kinds::kinds;
pub(crate) use self::names::{Names, Used, condition, judge, set_condition};
use crate::kind::{KindId, StoreIndex, group_version};

/// The finalizer that holds a definition until its objects are gone.
pub(crate) const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// One definition as it is served.
pub(crate) struct Defined {
    pub(crate) uid: String,
    pub(crate) generation: u64,
    pub(crate) place: StoreIndex,
    /// One of each served version.
    pub(crate) kinds: Vec<KindId>,
}

impl KindId {
    /// An object of this kind as it is kept: in the version that its definition names for storage.
    pub(crate) fn stored(&self, mut object: Value) -> Value {
        if let Some(custom) = self.description().custom() {
            object["apiVersion"] = custom.storage.clone().into();
        }
        object
    }

    /// Whether stored objects are shown as they are.
    pub(crate) fn shows_stored(&self) -> bool {
        let description = self.description();
        description.custom().is_none_or(|custom| custom.storage == description.api_version())
    }

    /// An object of any version of a custom kind, read by this one. Versions differ in nothing but their schemas: the
    /// strategy of conversion is None.
    pub(crate) fn read(&self, object: &Value) -> Value {
        let description = self.description();
        let mut read = object.clone();
        read["apiVersion"] = group_version(&description.group, &description.version).into();
        if let Some(custom) = description.custom() {
            custom.convert(&mut read);
        }
        read
    }
}
