//! The test that keeps `docs/flags.md` equal to the flags of the program. `UPDATE_GOLDEN=1` rewrites the page.

#![allow(clippy::disallowed_methods, reason = "whether to rewrite is asked of the environment")]

use std::fmt::Write as _;

use clap::{Arg, Command, CommandFactory};

use super::Args;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/flags.md");

const HEAD: &str = "# Flags\n\n\
    Written by `UPDATE_GOLDEN=1 cargo test -p tidegate-app flags`; a test keeps it current.\n\n\
    A flag wins over its variable. Times are written as `250ms`, `5s` or `1m 30s`. Lists in variables are \
    comma-separated; `true` turns a switch on, `false` turns it off.\n";

fn flags(command: &Command) -> impl Iterator<Item = &Arg> {
    command.get_arguments().filter(|arg| !matches!(arg.get_id().as_str(), "help" | "version"))
}

fn shown(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help")
}

fn row(arg: &Arg) -> String {
    let value = arg.get_value_names().filter(|_| arg.get_action().takes_values());
    let value = value.map(|names| names.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "));
    let name = match (arg.get_long(), value) {
        (Some(long), Some(value)) => format!("--{long} {value}"),
        (Some(long), None) => format!("--{long}"),
        (None, value) => value.unwrap_or_else(|| arg.get_id().to_string()),
    };
    let env = arg.get_env().map(|env| format!("`{}`", env.to_string_lossy())).unwrap_or_default();
    let default = arg.get_default_values().iter().filter(|_| arg.get_action().takes_values());
    let default = default.map(|value| format!("`{}`", value.to_string_lossy())).collect::<Vec<_>>().join(", ");
    let help = arg.get_help().map(ToString::to_string).unwrap_or_default().replace('|', "\\|");
    format!("| `{}` | {env} | {default} | {help} |", name.replace('|', "\\|"))
}

fn page() -> String {
    let mut root = Args::command();
    root.build();
    let mut page = HEAD.to_owned();
    for command in shown(&root) {
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        let _ = write!(
            page,
            "\n## tidegate {}\n\n{about}\n\n| flag | variable | default | meaning |\n|---|---|---|---|\n",
            command.get_name()
        );
        for arg in flags(command) {
            let _ = writeln!(page, "{}", row(arg));
        }
    }
    page
}

#[test]
fn every_flag_has_a_variable_of_its_name() {
    let mut root = Args::command();
    root.build();
    for command in shown(&root) {
        for arg in flags(command) {
            let Some(long) = arg.get_long() else { continue };
            let want = format!("TIDEGATE_{}", long.replace('-', "_").to_uppercase());
            assert_eq!(arg.get_env().and_then(|env| env.to_str()), Some(&*want), "--{long} of {}", command.get_name());
            assert!(arg.get_help().is_some(), "--{long} of {} has no help", command.get_name());
        }
    }
}

#[test]
fn the_page_of_flags_is_current() {
    let page = page();
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(PAGE, &page).unwrap();
    }
    let written = std::fs::read_to_string(PAGE).unwrap_or_default();
    assert!(written == page, "docs/flags.md is not current: run with UPDATE_GOLDEN=1");
}

#[test]
fn the_definition_of_the_flags_is_valid() {
    Args::command().debug_assert();
}
