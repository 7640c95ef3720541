//! Semantic versions (<https://semver.org>), compared by precedence: metadata of the build means nothing.

use std::cmp::Ordering;

use cel::common::types::{CelBool, CelInt, CelString};
use cel::{DeclarationError, Env, ExecutionError};

use super::{failed, value_type};

pub(super) const FUNCTIONS: &[&str] =
    &["compareTo", "isGreaterThan", "isLessThan", "isSemver", "major", "minor", "patch", "semver"];

#[derive(Clone, Debug)]
struct Version(semver::Version);

impl PartialEq for Version {
    fn eq(&self, other: &Self) -> bool {
        self.0.cmp_precedence(&other.0) == Ordering::Equal
    }
}

value_type!(Version, "kubernetes.Semver");

pub(super) fn extend(env: &mut Env) -> Result<(), DeclarationError> {
    cel::add_overload!(env, fn read: (CelString<'_>) -> Result<Version>, name = "semver")?;
    cel::add_overload!(env, fn normalized: (CelString<'_>, CelBool) -> Result<Version>, name = "semver")?;
    cel::add_overload!(env, fn is_semver: (CelString<'_>) -> CelBool)?;
    cel::add_overload!(env, fn is_normalized: (CelString<'_>, CelBool) -> CelBool, name = "isSemver")?;
    cel::add_member_overload!(env, fn major: (Version) -> CelInt)?;
    cel::add_member_overload!(env, fn minor: (Version) -> CelInt)?;
    cel::add_member_overload!(env, fn patch: (Version) -> CelInt)?;
    cel::add_member_overload!(env, fn is_greater_than: (Version, Version) -> CelBool)?;
    cel::add_member_overload!(env, fn is_less_than: (Version, Version) -> CelBool)?;
    cel::add_member_overload!(env, fn compare_to: (Version, Version) -> CelInt)
}

/// Reads a version. `normalize` takes a `v` in front, fewer than three numbers, and zeros in front of a number.
fn parse(text: &str, normalize: bool) -> Result<Version, String> {
    let normal = if normalize { normal_form(text)? } else { text.to_owned() };
    semver::Version::parse(&normal).map(Version).map_err(|why| why.to_string())
}

fn normal_form(text: &str) -> Result<String, String> {
    let parts = text.strip_prefix('v').unwrap_or(text).splitn(3, '.');
    let mut parts: Vec<String> = parts.map(without_zeros).collect();
    if parts.len() < 3 {
        if parts.last().is_some_and(|last| last.contains(['+', '-'])) {
            return Err("short version cannot contain PreRelease/Build meta data".to_owned());
        }
        parts.resize(3, "0".to_owned());
    }
    Ok(parts.join("."))
}

/// A part of a version without zeros in front of its number.
fn without_zeros(part: &str) -> String {
    let rest = part.trim_start_matches('0');
    if part.len() > 1 && rest.len() < part.len() && !rest.starts_with(|first: char| first.is_ascii_digit()) {
        return format!("0{rest}");
    }
    if part.len() > 1 { rest.to_owned() } else { part.to_owned() }
}

fn read(text: &CelString<'_>) -> Result<Version, ExecutionError> {
    parse(text.inner(), false).map_err(|why| failed("semver", why))
}

fn normalized(text: &CelString<'_>, normalize: &CelBool) -> Result<Version, ExecutionError> {
    parse(text.inner(), *normalize.inner()).map_err(|why| failed("semver", why))
}

fn is_semver(text: &CelString<'_>) -> CelBool {
    parse(text.inner(), false).is_ok().into()
}

fn is_normalized(text: &CelString<'_>, normalize: &CelBool) -> CelBool {
    parse(text.inner(), *normalize.inner()).is_ok().into()
}

fn whole(number: u64) -> CelInt {
    CelInt::from(i64::try_from(number).unwrap_or(i64::MAX))
}

fn major(this: &Version) -> CelInt {
    whole(this.0.major)
}

fn minor(this: &Version) -> CelInt {
    whole(this.0.minor)
}

fn patch(this: &Version) -> CelInt {
    whole(this.0.patch)
}

fn is_greater_than(this: &Version, other: &Version) -> CelBool {
    this.0.cmp_precedence(&other.0).is_gt().into()
}

fn is_less_than(this: &Version, other: &Version) -> CelBool {
    this.0.cmp_precedence(&other.0).is_lt().into()
}

fn compare_to(this: &Version, other: &Version) -> CelInt {
    CelInt::from(this.0.cmp_precedence(&other.0) as i64)
}
