//! The tests that the pages about limits and threats name.

use std::collections::BTreeSet;

use super::{read, root, sources};

/// The functions and the modules of the workspace that a page may name.
fn names() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for (path, text) in sources() {
        let stem = path.rsplit('/').next().and_then(|file| file.strip_suffix(".rs"));
        names.extend(stem.map(str::to_owned));
        names.extend(path.rsplit('/').nth(1).map(str::to_owned));
        let tests = text.split("fn ").skip(1).filter_map(|rest| rest.split(['(', '<']).next());
        names.extend(tests.map(str::to_owned));
    }
    let cases = root().join("control/tests/golden");
    let folders = std::fs::read_dir(cases).expect("golden cases").map(|entry| entry.expect("an entry").path());
    for file in folders.filter(|path| path.is_dir()).flat_map(|folder| std::fs::read_dir(folder).expect("a folder")) {
        let file = file.expect("an entry").file_name().to_string_lossy().into_owned();
        names.extend(file.split('.').next().map(str::to_owned));
    }
    names
}

/// The rows of the tables of a page whose last column is `tests`, each with its number and its cells.
fn rows(page: &str) -> Vec<(usize, Vec<String>)> {
    let mut rows = Vec::new();
    let mut has_tests = false;
    let text = read(page);
    let lines: Vec<&str> = text.lines().collect();
    for (number, line) in lines.iter().enumerate() {
        let Some(row) = line.strip_prefix('|').and_then(|row| row.trim_end().strip_suffix('|')) else { continue };
        // Cells have no escaped bars.
        let cells: Vec<String> = row.split('|').map(|cell| cell.trim().to_owned()).collect();
        let begins = number == 0 || !lines[number - 1].starts_with('|');
        if begins {
            has_tests = cells.last().is_some_and(|cell| cell == "tests");
        } else if has_tests && !cells.iter().all(|cell| cell.starts_with("--")) {
            rows.push((number + 1, cells));
        }
    }
    rows
}

/// What stands between backquotes in a cell.
fn quoted(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

#[test]
fn limits_and_threats_name_tests_that_exist() {
    let names = names();
    let mut complaints = Vec::new();
    for (page, least) in [("docs/limits.md", 110), ("docs/threat-model.md", 35)] {
        let rows = rows(page);
        assert!(rows.len() >= least, "{page}: {} rows with tests", rows.len());
        for (number, cells) in rows {
            let cell = cells.last().map(String::as_str).unwrap_or_default();
            // A limit of a library or of the kernel has no test here.
            if !cell.contains('`') && !cell.starts_with("of ") {
                complaints.push(format!("{page}:{number}: {} names no test", cells[0]));
            }
            let exists = |name: &&str| {
                let known = root().join(name).exists() || root().join("proxy/tests/request").join(name).exists();
                known || names.contains(*name)
            };
            let unknown = quoted(cell).filter(|name| !exists(name));
            complaints.extend(unknown.map(|name| format!("{page}:{number}: there is no test {name}")));
        }
    }
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}
