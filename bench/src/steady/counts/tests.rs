//! Which counts pass the check, and which do not.

use super::*;

fn row(subject: &str, case: &'static str, allocations: f64, syscalls: Option<f64>) -> Row {
    let (subject, calls, instructions) = (subject.to_owned(), BTreeMap::new(), Some(50_000.0));
    let limits = Limits::default();
    Row { subject, limits, case, allocations: Some(allocations), bytes: None, syscalls, calls, instructions }
}

#[track_caller]
fn check_one(subject: &str, case: &'static str, allocations: f64, syscalls: Option<f64>, want: bool) {
    let rows = [row(BARE, case, 70.0, None), row(subject, case, allocations, syscalls)];
    assert_eq!(check(&rows).is_ok(), want, "{subject} {case}: {allocations} {syscalls:?}");
}

#[track_caller]
fn check_instructions(subject: &str, instructions: Option<f64>, want: bool) {
    let counted = Row { instructions, ..row(subject, CASES[0], 0.1, Some(6.0)) };
    assert_eq!(check(&[row(BARE, CASES[0], 70.0, None), counted]).is_ok(), want, "{subject} {instructions:?}");
}

#[test]
fn a_missing_count_fails_the_check() {
    check_instructions("nginx", None, false);
    check_instructions("nginx", Some(0.0), false);
    check_instructions("tidegate, Pingora driver", None, false);
    check_instructions("tidegate", None, false);
    check_instructions("tidegate, no log", None, true);
    check_one("nginx", "h1-small", 0.0, Some(0.0), false);
}

#[test]
fn more_instructions_than_nginx_fail_the_check() {
    let counted =
        |subject, instructions| Row { instructions: Some(instructions), ..row(subject, CASES[0], 0.0, Some(6.0)) };
    for (own, fine) in [(38_000.0, true), (40_000.0, false)] {
        let rows = [row(BARE, CASES[0], 70.0, None), counted("nginx", 39_000.0), counted("tidegate", own)];
        assert_eq!(check(&rows).is_ok(), fine, "{own}");
    }
}

#[test]
fn many_more_instructions_over_http2_fail_the_check() {
    for (http2, fine) in [(Some(110_000.0), true), (Some(150_000.0), false), (None, false)] {
        let of = |case, instructions| Row { instructions, ..row(NATIVE_SUBJECT, case, 0.0, Some(6.0)) };
        let rows = [
            row(BARE, CASES[0], 70.0, None),
            row(BARE, HTTP2_CASE, 70.0, None),
            of(CASES[0], Some(30_000.0)),
            of(HTTP2_CASE, http2),
        ];
        assert_eq!(check(&rows).is_ok(), fine, "{http2:?}");
    }
}

#[test]
fn counts_beyond_the_limit_fail_the_check() {
    check_one("tidegate", "h1-small", 0.1, Some(6.0), true);
    check_one("tidegate", "h1-small", 1.1, Some(6.0), false);
    check_one("tidegate", "h1-small", 0.1, Some(20.0), false);
    check_one("tidegate", "h1-close-small", 9.0, Some(14.1), true);
    check_one("tidegate", "h1-close-small", 10.0, Some(14.1), false);
    check_one("tidegate", "h1-close-small", 9.0, Some(18.0), false);
    check_one("tidegate, Pingora driver", "h1-close-small", 75.0, Some(16.0), true);
    check_one("tidegate, Pingora driver", "h1-close-small", 75.0, Some(19.0), false);
    check_one("tidegate", "tls-small", 2.1, Some(6.0), true);
    check_one("tidegate", "tls-small", 3.1, Some(6.0), false);
    check_one("tidegate", "h2-small", 16.0, Some(6.5), true);
    check_one("tidegate", "h2-small", 20.0, None, false);
    check_one("tidegate", "h2-small", 16.0, Some(9.0), false);
    check_one("tidegate, Pingora driver", "tls-small", 75.0, Some(8.0), true);
    check_one("tidegate, Pingora driver", "tls-small", 170.0, Some(8.0), false);
    check_one("tidegate, Pingora driver", "tls-small", 75.0, Some(20.0), false);
    check_one("nginx", "h1-small", 1000.0, Some(1000.0), true);
}

#[test]
fn every_counted_case_exists() {
    assert!(CASES.iter().all(|name| Case::named(name).is_some()));
}
