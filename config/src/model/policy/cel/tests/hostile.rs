//! Expressions that would take long, or much memory, are refused; what is not refused is bounded.

use super::*;

#[track_caller]
fn refused(source: &str, want: &str) {
    let why = Predicate::new(source).map(|_| ()).unwrap_err();
    assert!(why.contains(want), "{why}\nof {}", source.get(..80).unwrap_or(source));
}

#[test]
fn large_and_deep_expressions_are_refused() {
    refused(&"a".repeat(5 << 10), "is longer than 4096 bytes");
    for open in ["(", "[", "!", "-", "{1:", "a(", "a[", "a.b(", "a?b:", "[1].map(x,"] {
        let deep = open.repeat((4 << 10) / open.len());
        let why = Predicate::new(&deep).map(|_| ()).unwrap_err();
        assert!(!why.is_empty() && why.len() < 1 << 10, "{open}: {why}");
    }
    let nested = |open: &str, close: &str, count: usize| format!("{}1{}", open.repeat(count), close.repeat(count));
    refused(&nested("[", "]", 200), "recursion limit");
    refused(&nested("size([", "])", 40), "recursion limit");
    refused(&format!("1{}", " + 1".repeat(1_000)), "it is nested deeper than 32 levels");
    refused(&format!("{}1", "1?1:".repeat(1_000)), "it is nested deeper than 32 levels");
    refused(&format!("{}[0]", "request".to_owned() + &".a".repeat(100)), "is nested deeper than 32 levels");
    refused(&format!("[{}] == []", vec!["1"; 600].join(",")), "has more than 512 operations");
    // Chains of logical operators are as deep as a balanced tree.
    let terms = vec!["request.method == 'GET'"; 60].join(" || ");
    assert!(Predicate::new(&terms).is_ok());
}

#[test]
fn macros_within_each_other_are_refused() {
    let list = "[1, 2, 3]";
    let nested = format!("{list}.all(a, {list}.all(b, {list}.all(c, a + b + c > 0)))");
    refused(&nested, "has more than 2 macros such as map within each other");
    assert!(Predicate::new(&format!("{list}.all(a, {list}.all(b, a + b > 0))")).is_ok());
}

#[test]
fn chains_of_macros_are_priced_by_the_lists_that_they_make() {
    let chain = |count: usize| format!("[1, 2, 3]{} == []", ".map(x, [x, x, x])".repeat(count));
    assert!(Predicate::new(&chain(3)).is_ok());
    refused(&chain(20), "");
    let doubled = |count: usize| format!("['aaaaaaaaaaaaaaaa']{} == []", ".map(x, x + x)".repeat(count));
    assert!(Predicate::new(&doubled(4)).is_ok());
    refused(&doubled(25), "");
    let list = format!("[{}]", vec!["1"; 100].join(","));
    refused(&format!("{list}.all(a, {list}.all(b, a + b > 0))"), "steps for the largest request");
}

#[test]
fn long_texts_are_priced_by_the_largest_head() {
    let header = "request.headers['a']";
    refused(&format!("{header}.replace('', {header}) == ''"), "may ");
    refused(&format!("{header}.replace('a', 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa') == ''"), "may ");
    refused(&format!("{header}.split(',').join({header}) == ''"), "may ");
    refused(&format!("{header}.split(',').exists(a, {header}.contains(a))"), "steps for the largest request");
    refused(&format!("{}.size() > 1", vec![header; 20].join(" + ")), "may ");
    refused(&vec![format!("{header}.lowerAscii() == 'a'"); 20].join(" || "), "steps for the largest request");
    for usual in [
        format!("{header}.split(',').exists(one, one.trim() == '192.0.2.1')"),
        format!("{header}.lowerAscii().contains('bot')"),
        format!("{header}.replace('-', '_') == 'a_b'"),
        vec![format!("{header}.contains('bot')"); 10].join(" || "),
    ] {
        assert_eq!(Predicate::new(&usual).map(|_| ()), Ok(()), "{usual}");
    }
}

#[test]
fn patterns_are_priced() {
    refused(&format!("request.host.matches('{}')", "(a|b|ab){50}".repeat(9)), "");
    refused("request.host.matches('\\\\w{1000}\\\\d{1000}')", "is not a usable expression");
    assert!(Predicate::new("request.host.matches('^(a+)+$')").is_ok());
    let several = |pattern: &str, count: usize| vec![format!("request.host.matches('{pattern}')"); count].join(" || ");
    assert!(Predicate::new(&several("^a", 16)).is_ok());
    refused(&several("^a", 17), "it has more than 16 patterns");
    refused(&several(&format!("[ab]{{30}}c{{{}}}|(a|b)*a(a|b){{8}}", 9), 16), "");
}

/// A text with many parts has no parts, however small each is.
#[test]
fn a_text_has_a_bounded_number_of_parts() {
    let parts = |count: usize| {
        let head = SampleHead::new("GET").with(&[("a", ",".repeat(count - 1))]);
        let expression = ValueExpression::new("request.headers.a.split(',').size()").unwrap();
        with(&head, |attributes| expression.value(attributes).map(Cow::into_owned).ok())
    };
    assert_eq!((parts(256).as_deref(), parts(257)), (Some("256"), None));
}

/// A head that is larger than the default limit makes an error, since costs were computed for that limit.
#[test]
fn a_text_beyond_the_largest_head_is_an_error() {
    let evaluate = |length: usize| {
        let head = SampleHead::new("GET").with(&[("a", "a".repeat(length))]);
        let expression = ValueExpression::new("request.headers.a.size()").unwrap();
        with(&head, |attributes| expression.value(attributes).map(Cow::into_owned).map_err(|error| error.to_string()))
    };
    assert_eq!(evaluate(64 << 10), Ok("65536".to_owned()));
    assert_eq!(evaluate((64 << 10) + 1), Err("request.headers['a'] is too long".to_owned()));
}

#[test]
fn a_text_beyond_the_length_of_patterns_is_an_error() {
    for source in ["request.headers.a.matches('a')", "request.headers.a.matches('a') == true"] {
        let evaluate = |length: usize| {
            let head = SampleHead::new("GET").with(&[("a", "a".repeat(length))]);
            with(&head, |attributes| Predicate::new(source).unwrap().holds(attributes).ok())
        };
        assert_eq!((evaluate(8 << 10), evaluate((8 << 10) + 1)), (Some(true), None), "{source}");
    }
}

/// A client can make any request larger, so a failure by size is told from others, whichever error hides it.
#[test]
fn a_failure_tells_whether_the_request_is_too_large() {
    let head = |bytes: usize| {
        let sent = [("long", "a".repeat(bytes)), ("lossy", "a".into()), ("list", ",".repeat(bytes.min(4000)))];
        SampleHead::new("GET").with(&sent).with(&[("lossy", vec![b'\xff'; bytes / 2])])
    };
    let check = |source: &str, bytes: usize, want: Result<bool, bool>| {
        let got = with(&head(bytes), |attributes| Predicate::new(source).unwrap().holds(attributes));
        assert_eq!(got.map_err(|error| error.is_for_size()), want, "{source} with {bytes} bytes");
    };
    const LONG: &str = "request.headers.long";
    let (large, small) = (70_000, 100);
    for interpreted in ["", " == true"] {
        let matches = format!("{LONG}.matches('b'){interpreted}");
        check(&matches, small, Ok(false));
        check(&matches, large, Err(true));
        // As an operand of what decides without it.
        check(&format!("{matches} || request.method == 'GET'"), large, Ok(true));
        check(&format!("{matches} && request.method == 'PUT'"), large, Ok(false));
        for absent in ["request.headers.none == 'a'", "request.headers.none.size() > 1"] {
            for operator in ["||", "&&"] {
                check(&format!("{matches} {operator} {absent}"), large, Err(true));
                check(&format!("{absent} {operator} {matches}"), large, Err(true));
            }
            check(&format!("{absent} || {matches}"), small, Err(false));
        }
        check(&format!("request.headers.none.matches('b'){interpreted}"), large, Err(false));
    }
    check(&format!("{LONG}.size() > 1000"), large, Err(true));
    check("request.headers[?'long'].orValue('').size() > 1000", large, Err(true));
    check("request.headers.lossy.size() > 1000", large, Err(true));
    check("request.headers.list.split(',').size() > 1000", large, Err(true));
    check("request.headers.list.split(',').exists(one, one == 'a') || request.headers.none == ''", large, Err(true));
    check(&format!("['a'].exists(one, {LONG}.matches('b'))"), large, Err(true));
    check("request.size * 9000000000000000000 > 1", small, Err(true));
    // A text in a branch that is not taken is none.
    check(&format!("request.method == 'PUT' && {LONG}.size() > 1"), large, Ok(false));
    check(&format!("request.method == 'PUT' ? {LONG}.size() > 1 : true"), large, Ok(true));
    check(&format!("has({LONG}) && request.headers.none.size() > 1"), large, Err(false));
    check(&format!("int({LONG}) > 1"), small, Err(false));
    check("request.method + 1 == ''", large, Err(false));
    check("1 / (request.size - 7) > 1", large, Err(false));
}

/// The deepest expressions fit the stack of a thread.
#[test]
fn the_deepest_expressions_are_evaluated_on_a_thread() {
    let deepest = |form: &dyn Fn(usize) -> String| {
        let usable = (1..200).rev().map(form).find_map(|source| ValueExpression::new(&source).ok());
        with(&head(), |attributes| usable.expect("one is usable").value(attributes).map(Cow::into_owned))
    };
    let sum = deepest(&|count| format!("1{}", " + 1".repeat(count)));
    assert!(sum.is_ok_and(|sum| sum.parse::<usize>().unwrap() >= 25));
    let lists = deepest(&|count| format!("size({}{})", "[".repeat(count), "]".repeat(count)));
    assert_eq!(lists.as_deref(), Ok("1"));
    let choices = deepest(&|count| format!("{}'a'", "request.size == 0 ? 'b' : ".repeat(count)));
    assert_eq!(choices.as_deref(), Ok("a"));
}
