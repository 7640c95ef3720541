//! The functions of the libraries, by expressions that hold and such that cannot be evaluated.

use cel::{Context, Value};

use crate::custom::cel::env;

/// Evaluates an expression to `true`, to another value, or to words on why it cannot be.
#[track_caller]
fn outcome(text: &str) -> Result<Value, String> {
    let program = env::program(text).unwrap_or_else(|why| panic!("{text}: {why}"));
    program.execute(&Context::with_env(env::env())).map_err(|why| why.to_string())
}

/// Expressions that are true, whose negations are false, and expressions that fail with these words.
#[track_caller]
fn check(holds: &[&str], fails: &[(&str, &str)]) {
    for text in holds {
        assert_eq!(outcome(text), Ok(Value::Bool(true)), "{text}");
        assert_eq!(outcome(&format!("!({text})")), Ok(Value::Bool(false)), "!({text})");
    }
    for (text, words) in fails {
        match outcome(text) {
            Err(why) => assert!(why.contains(words), "{text}: {why}"),
            Ok(value) => panic!("{text} gives {value:?}"),
        }
    }
}

#[test]
fn quantities_are_compared_and_added() {
    check(
        &[
            "isQuantity('1.3G') && isQuantity('1.3Gi') && isQuantity('-5m') && isQuantity('1e3') && isQuantity('0')",
            "!isQuantity('1,3G') && !isQuantity('10K') && !isQuantity('1000001KiB') && !isQuantity('') && !isQuantity('1e')",
            "quantity('1Ki') == quantity('1024') && quantity('100m') == quantity('0.1') && quantity('1e3') == quantity('1k')",
            "quantity('1.5Gi') == quantity('1536Mi') && quantity('1') != quantity('2')",
            "quantity('50Mi').isGreaterThan(quantity('50M')) && quantity('1').isLessThan(quantity('1001m'))",
            "quantity('200M').compareTo(quantity('0.2G')) == 0 && quantity('-1').compareTo(quantity('1')) == -1",
            "sign(quantity('-3n')) == -1 && sign(quantity('0k')) == 0 && sign(quantity('1')) == 1",
            "quantity('50k').isInteger() && quantity('50k').asInteger() == 50000 && !quantity('50.5').isInteger()",
            // As in the real server, which takes no number with a power below zero for an integer.
            "!quantity('1000m').isInteger() && !quantity('1.0').isInteger() && quantity('0E').isInteger()",
            "!quantity('9999999999999999999').isInteger() && quantity('9Ei').isGreaterThan(quantity('7Ei'))",
            "quantity('50.703k').asApproximateFloat() > 50702.9 && quantity('1.5Ki').asApproximateFloat() == 1536.0",
            "quantity('50k').add(quantity('20k')) == quantity('70k') && quantity('50k').add(20) == quantity('50020')",
            "quantity('50k').sub(quantity('20k')).asInteger() == 30000 && quantity('50').sub(51) == quantity('-1')",
            "quantity('0.1n') == quantity('1n') && quantity('1e-40') == quantity('1n') && quantity('1.2345678901n') == quantity('2n')",
            "quantity('9Ei') == quantity('8Ei') && quantity('1e300') == quantity('1e301') && quantity('0e300') == quantity('0')",
        ],
        &[
            ("quantity('ten')", "quantities must match the regular expression"),
            ("quantity('1KB')", "quantities must match the regular expression"),
            ("quantity('1kk')", "unable to parse quantity's suffix"),
            ("quantity('50.5').asInteger()", "cannot convert value to integer"),
            ("quantity('9E').add(quantity('9E')).asInteger()", "cannot convert value to integer"),
        ],
    );
}

#[test]
fn addresses_have_kinds() {
    check(
        &[
            "isIP('127.0.0.1') && isIP('::1') && !isIP('127.0.0.01') && !isIP('10.0.0.0/8') && !isIP('')",
            "!isIP('fe80::1%eth0') && !isIP('::ffff:1.2.3.4')",
            "ip('127.0.0.1').family() == 4 && ip('::1').family() == 6",
            "ip.isCanonical('2001:db8::abcd') && !ip.isCanonical('2001:DB8::abcd') && !ip.isCanonical('0:0::1')",
            "string(ip('2001:DB8:0::1')) == '2001:db8::1' && ip('::1') == ip('0::1') && ip('::1') != ip('::2')",
            "ip('0.0.0.0').isUnspecified() && ip('::').isUnspecified() && !ip('::1').isUnspecified()",
            "ip('127.9.0.1').isLoopback() && ip('::1').isLoopback() && !ip('10.0.0.1').isLoopback()",
            "ip('224.0.0.9').isLinkLocalMulticast() && ip('ff02::1').isLinkLocalMulticast() && ip('ff12::1').isLinkLocalMulticast()",
            "!ip('224.0.1.9').isLinkLocalMulticast() && !ip('ff05::1').isLinkLocalMulticast()",
            "ip('169.254.9.9').isLinkLocalUnicast() && ip('fe80::1').isLinkLocalUnicast() && !ip('fd80::1').isLinkLocalUnicast()",
            "ip('10.0.0.1').isGlobalUnicast() && ip('2001:db8::1').isGlobalUnicast() && !ip('255.255.255.255').isGlobalUnicast()",
            "!ip('ff05::1').isGlobalUnicast() && !ip('fe80::1').isGlobalUnicast() && !ip('0.0.0.0').isGlobalUnicast()",
            "['10.0.0.1', '::1'].all(ip, isIP(ip))",
        ],
        &[
            ("ip('1.2.3')", "IP Address \"1.2.3\" parse error during conversion from string"),
            ("ip('fe80::1%eth0')", "IP address \"fe80::1%eth0\" with zone value is not allowed"),
            ("ip('::ffff:1.2.3.4')", "IPv4-mapped IPv6 address \"::ffff:1.2.3.4\" is not allowed"),
            ("ip.isCanonical('x')", "parse error"),
        ],
    );
}

#[test]
fn networks_contain_addresses_and_networks() {
    check(
        &[
            "isCIDR('10.0.0.0/8') && isCIDR('::/0') && isCIDR('10.0.0.1/8') && !isCIDR('10.0.0.0/33') && !isCIDR('10.0.0.0')",
            "!isCIDR('10.0.0.0/08') && !isCIDR('10.0.0.0/+8') && !isCIDR('::ffff:1.2.3.4/24') && !isCIDR('/8')",
            "cidr('10.0.0.0/8').containsIP('10.9.9.9') && !cidr('10.0.0.0/8').containsIP('11.0.0.0')",
            "cidr('10.0.0.0/8').containsIP(ip('10.9.9.9')) && !cidr('10.0.0.0/8').containsIP('::1')",
            "cidr('10.0.0.0/8').containsCIDR('10.1.0.0/16') && cidr('10.0.0.0/8').containsCIDR(cidr('10.0.0.0/8'))",
            "!cidr('10.1.0.0/16').containsCIDR('10.0.0.0/8') && !cidr('10.0.0.0/8').containsCIDR('::/64')",
            "cidr('10.0.0.1/24').ip() == ip('10.0.0.1') && cidr('10.0.0.1/24').prefixLength() == 24",
            "cidr('10.0.0.1/24').masked() == cidr('10.0.0.0/24') && cidr('10.0.0.1/24') != cidr('10.0.0.0/24')",
            "string(cidr('10.0.0.1/24')) == '10.0.0.1/24' && string(cidr('::1/64').masked()) == '::/64'",
        ],
        &[
            ("cidr('10.0.0.0')", "network address parse error during conversion from string"),
            ("cidr('::ffff:1.2.3.4/24')", "IPv4-mapped IPv6 address \"::ffff:1.2.3.4/24\" is not allowed"),
            ("cidr('10.0.0.0/8').containsIP('x')", "no such overload"),
            ("cidr('10.0.0.0/8').containsCIDR('x')", "network address parse error during conversion from string"),
        ],
    );
}

#[test]
fn urls_have_parts_as_written() {
    check(
        &[
            "isURL('https://a.b:443/c?d=e#f') && isURL('/a') && isURL('mailto:a@b') && isURL('*') && isURL('http://')",
            "!isURL('a.b') && !isURL('') && !isURL(':a') && !isURL('../a') && !isURL('http://a b/') && !isURL('/%zz')",
            "!isURL('http://a:b/') && !isURL('http://[::1/') && !isURL('http://[1.2.3.4]/') && !isURL('http://a:1:2/')",
            "url('HTTPS://Example.com:80/').getScheme() == 'https' && url('/a').getScheme() == ''",
            "url('https://u:p@Example.com:80/').getHost() == 'Example.com:80' && url('/a').getHost() == ''",
            "url('https://[::1]:80/').getHost() == '[::1]:80' && url('https://[::1]:80/').getHostname() == '::1'",
            "url('https://example.com:80/').getHostname() == 'example.com' && url('http://a:/').getHost() == 'a:'",
            "url('https://example.com:443/').getPort() == '443' && url('https://example.com/').getPort() == ''",
            "url('https://a/b c/%20').getEscapedPath() == '/b%20c/%20' && url('https://a').getEscapedPath() == ''",
            "url(\"https://a/b!'(c)%2F\").getEscapedPath() == \"/b!'(c)%2F\" && url('/ä').getEscapedPath() == '/%C3%A4'",
            "url('/a?b=c&d=e&b=f%20g+h').getQuery() == {'b': ['c', 'f g h'], 'd': ['e']}",
            "url('/a?b;c=d&e=%zz&f&=g').getQuery() == {'f': [''], '': ['g']} && url('/a').getQuery() == {}",
            "url('/a?b#c').getQuery() == {'b': ['']} && url('/a#b').getEscapedPath() == '/a'",
            "url('/a') == url('/a') && url('/a') != url('/b') && url('/a#b') != url('/a')",
        ],
        &[
            ("url('a.b')", "URL parse error during conversion from string: parse \"a.b\": invalid URI for request"),
            ("url('')", "empty url"),
            ("url('http://a:b')", "invalid port \":b\" after host"),
        ],
    );
}

#[test]
fn versions_are_ordered_by_precedence() {
    check(
        &[
            "isSemver('1.2.3-rc.1+build') && !isSemver('v1.2.3') && !isSemver('1.2') && !isSemver('01.2.3') && !isSemver('')",
            "isSemver('v1.0', true) && isSemver('01.02', true) && isSemver('1', true) && !isSemver('1-rc', true) && !isSemver('v1.0', false)",
            "semver('v01.2', true) == semver('1.2.0') && semver('1.00.0-a', true) == semver('1.0.0-a')",
            "semver('1.2.3').major() == 1 && semver('1.2.3').minor() == 2 && semver('1.2.3').patch() == 3",
            "semver('1.2.3').isLessThan(semver('1.10.0')) && !semver('1.2.3').isLessThan(semver('1.2.3'))",
            "semver('1.0.0').isGreaterThan(semver('1.0.0-rc.1')) && !semver('1.0.0-a').isGreaterThan(semver('1.0.0-b'))",
            "semver('1.0.0+a') == semver('1.0.0+b') && semver('1.0.0+a').compareTo(semver('1.0.0')) == 0",
            "semver('2.0.0').compareTo(semver('1.0.0')) == 1 && semver('1.0.0-2').compareTo(semver('1.0.0-10')) == -1",
        ],
        &[
            ("semver('v1.2.3')", "semver"),
            ("semver('1-rc', true)", "short version cannot contain PreRelease/Build meta data"),
        ],
    );
}

#[test]
fn lists_are_summed_and_sorted() {
    check(
        &[
            "[1, 2, 2].isSorted() && ![2, 1].isSorted() && ['a', 'b'].isSorted() && [].isSorted() && [false, true].isSorted()",
            "[1, 2, 3].sum() == 6 && [1.5, 2.5].sum() == 4.0 && [duration('1m'), duration('1s')].sum() == duration('61s')",
            "[].sum() == 0 && [1u, 2u].sum() == 3u",
            "[3, 1, 2].min() == 1 && [3, 1, 2].max() == 3 && ['b', 'a'].min() == 'a'",
            "[1, 2, 2].indexOf(2) == 1 && [1, 2, 2].lastIndexOf(2) == 2 && [1].indexOf(5) == -1 && [].lastIndexOf(1) == -1",
            "'abcb'.indexOf('b') == 1 && 'abcb'.lastIndexOf('b') == 3",
            "[1, 2, 3, 4].slice(1, 3) == [2, 3] && [[1], [2, [3]]].flatten() == [1, 2, [3]] && [2, 2, 1].distinct() == [2, 1]",
            "[3, 1].first().value() == 3 && [3, 1].last().value() == 1 && ![].first().hasValue() && ![].last().hasValue()",
            "[3, 1].sort() == [1, 3] && [1, 2].reverse() == [2, 1] && lists.range(3) == [0, 1, 2]",
            "[{'a': 2}, {'a': 1}].sortBy(one, one.a) == [{'a': 1}, {'a': 2}]",
            "sets.contains([1, 2, 3], [2, 2]) && !sets.contains([1], [1, 2]) && sets.contains([], [])",
            "sets.equivalent([1, 2, 2], [2, 1]) && !sets.equivalent([1, 2], [1]) && sets.equivalent([1], [1u, 1.0])",
            "sets.intersects([1, 2], [2, 3]) && !sets.intersects([1], [2]) && !sets.intersects([], [])",
            "'a1b22'.findAll('[0-9]+') == ['1', '22'] && 'a1b22'.findAll('[0-9]+', 1) == ['1'] && 'ab'.findAll('c') == []",
            "'a1b22'.findAll('[0-9]+', -1) == ['1', '22'] && 'a1'.find('[0-9]') == '1'",
        ],
        &[
            ("[].min()", "min called on empty list"),
            ("[].max()", "max called on empty list"),
            ("[[1], [2]].isSorted()", "no such overload"),
            ("[{}, {}].sum()", "no such overload"),
            ("'a'.findAll('(')", "unclosed group"),
        ],
    );
}

#[test]
fn formats_report_errors() {
    check(
        &[
            "format.dns1123Label().validate('my-name') == optional.none()",
            "format.dns1123Label().validate('a.b').value() == ['must not contain dots']",
            "format.dns1123Label().validate('A').value()[0].startsWith('a lowercase RFC 1123 label must consist of')",
            "format.dns1123Label().validate('-').hasValue() && !format.dns1123LabelPrefix().validate('name-').hasValue()",
            "format.dns1123Subdomain().validate('a.b') == optional.none() && format.dns1123Subdomain().validate('a..b').hasValue()",
            "!format.dns1123SubdomainPrefix().validate('a.bc-').hasValue() && format.dns1123SubdomainPrefix().validate('_').hasValue()",
            "format.dns1035Label().validate('1a').value()[0].startsWith('a DNS-1035 label must consist of')",
            "!format.dns1035LabelPrefix().validate('ab-').hasValue()",
            "format.qualifiedName().validate('a.b/C') == optional.none()",
            "format.qualifiedName().validate('/c').value() == ['prefix part must be non-empty']",
            "format.qualifiedName().validate('a/').value()[0] == 'name part must be non-empty'",
            "format.qualifiedName().validate('a/b/c').value()[0].startsWith('a valid label key must consist of')",
            "format.labelValue().validate('') == optional.none() && format.labelValue().validate('a b').hasValue()",
            "format.uri().validate('http://a/') == optional.none()",
            "format.uri().validate('a').value() == ['parse \"a\": invalid URI for request']",
            "!format.uuid().validate('6F1C2C9E-8d1c-4b8e-9a52-6f3e1d2c3b4a').hasValue()",
            "format.uuid().validate('6f1c').value() == ['does not match the UUID format']",
            "!format.byte().validate('aGVsbG8=').hasValue() && format.byte().validate('a').value() == ['invalid base64']",
            "!format.date().validate('2024-02-29').hasValue() && format.date().validate('2023-02-29').value() == ['invalid date']",
            "!format.datetime().validate('2024-02-29T00:00:00Z').hasValue()",
            "format.datetime().validate('2024-02-29').value() == ['invalid datetime']",
            "format.named('uuid').value() == format.uuid() && format.uri() != format.uuid()",
            "!format.named('unheard').hasValue() && format.named('dns1123Label').value().validate('A').hasValue()",
            "format.dns1123Label().validate(['a', 'b'].map(one, one + one + one + one).join('').replace('a', 'aaaaaaaaaaaaaaaaaaaa')).value() == ['must be no more than 63 characters']",
        ],
        &[],
    );
}

#[test]
fn macros_can_have_two_variables() {
    check(
        &[
            "[1, 2].all(i, v, i < v) && ![0].all(i, v, i < v) && [].all(i, v, false)",
            "['a', 'b'].exists(i, v, i == 1 && v == 'b') && ![].exists(i, v, true)",
            "[5, 5, 6].existsOne(i, v, v == 6) && ![5, 5].exists_one(i, v, v == 5)",
            "['a', 'b'].transformList(i, v, v + string(i)) == ['a0', 'b1'] && [3, 4].transformList(i, v, i > 0, v) == [4]",
            "{'a': 1}.transformMap(k, v, k + string(v)) == {'a': 'a1'} && [3, 4].transformMap(i, v, v > 3, v) == {1: 4}",
            "['a', 'b'].transformMapEntry(i, v, {v: i}) == {'a': 0, 'b': 1} && {'a': 1}.transformMapEntry(k, v, v > 1, {v: k}) == {}",
            "{'a': 1, 'b': 2}.all(k, v, {'a': 1, 'b': 2}.exists(other, w, other != k && w != v))",
            "[1, 2].all(i, v, [v].all(one, one == i + 1))",
            // What one round decides, no failure of another undoes.
            "[0, 1].exists(i, v, 1 / v == 1)",
        ],
        &[("['a', 'a'].transformMapEntry(i, v, {v: i})", "already exists"), ("[0].all(i, v, 1 / v == 1)", "zero")],
    );
    assert!(env::program("[1].all(1, v, true)").is_err());
    assert!(env::program("[1].all(i, v.w, true)").is_err());
}
