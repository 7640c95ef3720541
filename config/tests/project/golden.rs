//! Every manifest under `tests/golden` with its projection. `UPDATE_GOLDEN=1` rewrites the outcomes.

use std::path::Path;

use tidegate_config::project::annotations;

use crate::manifest::{self, FOLDERS, Manifest, projected};
use crate::render::render;

#[track_caller]
fn check(file: &Path, got: &str) {
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(file, got).unwrap();
    }
    let want = std::fs::read_to_string(file).unwrap_or_default();
    assert!(want == got, "{} differs\n--- want\n{want}\n--- got\n{got}", file.display());
}

#[test]
fn manifests_project_to_their_goldens() {
    for Manifest { kind, file, json } in manifest::all() {
        check(&file.with_extension("out"), &render(&projected(kind, &json)));
    }
}

#[test]
fn every_file_is_read_by_a_test() {
    for folder in std::fs::read_dir(manifest::root()).unwrap() {
        let folder = folder.unwrap().path();
        let name = folder.file_name().unwrap().to_str().unwrap();
        assert!(FOLDERS.iter().any(|(known, _)| *known == name), "{name} is the folder of no kind");
        for file in std::fs::read_dir(&folder).unwrap() {
            let file = file.unwrap().path();
            let known = match file.extension().and_then(|extension| extension.to_str()) {
                Some("yaml") => true,
                Some("out") => file.with_extension("yaml").exists(),
                _ => false,
            };
            assert!(known, "{} is neither a manifest nor the outcome of one", file.display());
        }
    }
}

#[test]
fn the_annotation_manual_matches_the_table() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
    check(&docs.join("annotations.md"), &annotations::manual());
    check(&docs.join("annotations-deis.md"), &annotations::deis_manual());
}
