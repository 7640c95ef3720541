//! Names of fields that nearly every object has.

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

/// The number of rules, and of entries per list of a rule, whose field names are kept.
const COMMON: usize = 8;

/// The name of a field as shared text. Nearly every object has the first rules and their first entries, so these names
/// are allocated once for all objects.
pub fn field_name(name: &str) -> Arc<str> {
    static KNOWN: LazyLock<BTreeSet<Arc<str>>> = LazyLock::new(|| {
        let lists = ["matches", "backendRefs", "http.paths"];
        let places = (0..COMMON).flat_map(|rule| (0..COMMON).map(move |entry| (rule, entry)));
        let names = places.flat_map(|(rule, entry)| lists.map(|list| format!("spec.rules[{rule}].{list}[{entry}]")));
        names.map(Arc::from).collect()
    });
    KNOWN.get(name).map_or_else(|| name.into(), Arc::clone)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_field_names_are_shared() {
        for (name, shared) in [("spec.rules[0].backendRefs[7]", true), ("spec.rules[8].matches[0]", false), ("", false)]
        {
            let [one, other] = [field_name(name), field_name(name)];
            assert_eq!((&*one, Arc::ptr_eq(&one, &other)), (name, shared), "{name}");
        }
    }
}
