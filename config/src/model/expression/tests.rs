//! Tests of expressions: what they match, and what they cost.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

fn comparison(subject: Subject, extent: Extent) -> Comparison {
    Comparison { subject, case: RegexCase::Sensitive, extent }
}

fn expression(pattern: &str, extent: Extent) -> Expression {
    Expression::new(pattern, comparison(Subject::Value, extent)).unwrap()
}

/// Whether an expression that must match a whole text matches one.
#[track_caller]
fn check(pattern: &str, text: &str, want: bool) {
    let got = expression(pattern, Extent::Whole).is_match(text.as_bytes(), &Steps::of_request());
    assert_eq!(got, want, "{pattern} on {text:?}");
}

#[test]
fn an_expression_matches_the_whole_text() {
    check("a|ab", "ab", true);
    check("a|ab", "xab", false);
    check("a|ab", "abx", false);
    check("a|ab", "a\n", false);
    check("(?i)beta", "BETA", true);
    check("(?m)^a$", "a\nb", false);
    check("", "", true);
    check("", "a", false);
    check("(?x)a #", "a", true);
    check(r"\w+", "größe_Ⅷ", true);
    check(r"\w+", "a-b", false);
    check(".{2}", "日本", true);
    check(".{2}", "日", false);
    check(r"[^\d]\b.*", "é ", true);
    check("(?-u:[^/])+", "é", true);
}

#[test]
fn what_is_no_expression_is_told_in_one_line() {
    for (pattern, want) in [
        ("(", "unclosed group"),
        ("a)|(?:b", "unopened group"),
        ("(?=x)", "look-around, including look-ahead and look-behind, is not supported"),
        ("(a{1000}){1000}", "its states take more than 131072 bytes"),
        ("(?i)[\\x{80}-\\x{10FFFF}]", "has too many or too large character classes"),
        ("/.*[ab][a-z]{3000}[q-z]", "its states take more than 131072 bytes"),
        ("/.*[ab][a-z]{500}[q-z]", "may take 16713720 steps for 8192 bytes; the limit is 1048576"),
    ] {
        let fault = Expression::new(pattern, comparison(Subject::Value, Extent::Whole)).unwrap_err();
        assert_eq!(fault.to_string(), format!("is not a usable expression ({want})"), "{pattern}");
    }
}

/// Expressions as users write them.
const USUAL: [&str; 20] = [
    r"/users/[^/]+/items",
    r"/users/\w+/items/\d+",
    r"/.*/v[0-9]+/.*",
    r"/api/v[0-9]+/(users|items|orders)/[0-9a-f-]{36}",
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
    r"(?i).*(mobile|android|iphone|ipad).*",
    r"/.*\.(jpe?g|png|gif|css|js|woff2?)",
    r".*\bfoo\b.*",
    r"^(?:.*;\s*)?session=canary(?:;.*)?$",
    r"(.*;\s*)?(canary=always)(;.*)?",
    r"[a-zA-Z0-9_-]{1,64}",
    r"\w{1,64}",
    r"[^/]{1,255}",
    r"/a/[^/]{1,64}/b/[^/]{1,64}",
    r"/[\w.-]+@[\w.-]+",
    r"(?i)\p{L}+",
    r"/(\w+/)*\w+\.html",
    r"Bearer [A-Za-z0-9._~+/-]+=*",
    r"(?:en|de|fr)(?:-[A-Z]{2})?(?:,.*)?",
    r"/(?:[^/]+/)?(?:admin|metrics)(?:/.*)?",
];

#[test]
fn usual_expressions_take_one_step_a_letter_and_a_few_kilobytes() {
    for pattern in USUAL {
        for extent in [Extent::Whole, Extent::Anywhere] {
            let expression = expression(pattern, extent);
            assert_eq!(expression.0.automaton.steps_a_letter(), 1, "{pattern} {extent:?}");
            assert!(expression.bytes() < 24 << 10, "{pattern} {extent:?}: {} bytes", expression.bytes());
        }
    }
}

#[test]
fn many_whole_words_cost_no_more_than_the_longest() {
    let words: Vec<String> = (0..200).map(|number| format!("tenant-{number}-{:08x}", number * 7919)).collect();
    let expression = expression(&words.join("|"), Extent::Whole);
    let steps = Steps::of_request();
    assert!(expression.is_match(b"tenant-7-0000d889", &steps) && !expression.is_match(b"tenant-7", &steps));
    assert!(!expression.is_match(&[b't'; 10_000], &steps), "longer than all words");
    assert_eq!(steps.untried(), None);
    assert!(expression.price() < 200_000, "{}", expression.price());
}

/// The worst text of each kind and length takes no more steps than its expression says.
#[test]
fn no_text_takes_more_steps_than_the_price() {
    let hostile = ["/.*[ab][a-z]{10}[q-z]", "(?:.*a){3}.{8}b", r"(?:\w|é|\d)*x", ".*(?:a.){6}", r"(\b|.)*z"];
    for pattern in hostile.into_iter().chain(USUAL) {
        for subject in [Subject::HostName, Subject::Path, Subject::Value] {
            for extent in [Extent::Whole, Extent::Anywhere] {
                let Ok(expression) = Expression::new(pattern, comparison(subject, extent)) else { continue };
                for piece in ["aq", "é", "\u{1f600}"] {
                    let steps = Steps::of_request();
                    let text = format!("/{}", piece.repeat(subject.bytes_max() / piece.len() - 1));
                    let _matches = expression.is_match(text.as_bytes(), &steps);
                    let look_up = if text.is_ascii() { 0 } else { LOOK_UP_STEPS * (text.len() as u64 + 1) };
                    assert!(steps.taken() <= expression.price() + look_up, "{pattern} on {piece}");
                    assert_eq!(steps.untried(), None);
                }
            }
        }
    }
}

#[test]
fn a_text_that_cannot_be_tried_is_told() {
    let word = expression("[a-z]+", Extent::Whole);
    let steps = Steps::of_request();
    assert!(word.is_match(&[b'a'; 8 << 10], &steps));
    assert_eq!(steps.untried(), None);
    assert!(!word.is_match(&[b'a'; (8 << 10) + 1], &steps));
    assert_eq!(steps.untried(), Some(Subject::Value));
    assert!(!word.is_match(b"a", &steps), "what was refused stays refused");
    assert_eq!((word.test(b"a"), word.test(&[b'a'; 9 << 10])), (Some(true), None));
}

#[test]
fn the_steps_of_a_request_are_used_up_once() {
    let word = expression("[a-z]+", Extent::Whole);
    let (steps, text) = (Steps::of_request(), [b'a'; 8 << 10]);
    let tried = (0..1000).filter(|_| word.is_match(&text, &steps)).count() as u64;
    assert_eq!(tried, REQUEST_STEPS_MAX / word.price());
    assert_eq!(steps.untried(), Some(Subject::Value));
    assert!(steps.taken() <= REQUEST_STEPS_MAX);
}

#[test]
fn a_letter_that_ends_all_hope_ends_the_steps() {
    let steps = Steps::of_request();
    assert!(!expression("/api/.*", Extent::Whole).is_match(&[b'/'; 8 << 10], &steps));
    assert!(steps.taken() < 10, "{}", steps.taken());
}

/// Expressions of every kind of class, boundary and repetition.
fn pattern() -> impl Strategy<Value = String> {
    const ATOMS: [&str; 22] = [
        "a",
        "é",
        "/",
        ".",
        r"\w",
        r"\W",
        r"\d",
        r"\s",
        r"\b",
        r"\B",
        "^",
        "$",
        "[a-é]",
        "[^a]",
        r"\p{L}",
        "(?i:A)",
        "(?m:^)",
        "(?-u:[^a])",
        r"(?-u:\b)",
        "(?s:.)",
        r"[^\w/]",
        "(?mR:$)",
    ];
    let leaf = proptest::sample::select(&ATOMS[..]).prop_map(str::to_owned);
    leaf.prop_recursive(4, 12, 3, |inner| {
        prop_oneof![
            vec(inner.clone(), 1..4).prop_map(|parts| parts.concat()),
            vec(inner.clone(), 2..4).prop_map(|parts| format!("(?:{})", parts.join("|"))),
            (inner, proptest::sample::select(&["*", "+", "?", "{2}", "{1,3}"][..]))
                .prop_map(|(part, times)| format!("(?:{part}){times}")),
        ]
    })
}

fn text() -> impl Strategy<Value = Vec<u8>> {
    let pieces: [&[u8]; 12] =
        [b"a", b"b", b"/", "é".as_bytes(), "日".as_bytes(), b"1", b" ", b"\n", b"\r", b"A", b"\xff", b"\xe6\x97"];
    vec(proptest::sample::select(pieces.to_vec()), 0..8).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn an_expression_matches_what_the_crate_regex_matches(pattern in pattern(), text in text()) {
        for (extent, anchored) in [(Extent::Whole, format!(r"\A(?:{pattern})\z")), (Extent::Anywhere, pattern.clone())] {
            let want = regex::bytes::Regex::new(&anchored).unwrap().is_match(&text);
            // Next to bytes that are no text, both kinds of boundaries are decided by their letter, which is no word.
            let odd = std::str::from_utf8(&text).is_err() && pattern.to_lowercase().contains(r"\b");
            let Ok(expression) = Expression::new(&pattern, comparison(Subject::HostName, extent)) else { continue };
            prop_assume!(!odd);
            prop_assert_eq!(expression.is_match(&text, &Steps::of_request()), want, "{} on {:?}", anchored, text);
        }
    }
}
