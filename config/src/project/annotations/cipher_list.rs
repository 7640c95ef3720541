//! Cipher lists of OpenSSL (its manual, `openssl-ciphers(1)`), mapped to the cipher suites of rustls. The others have
//! no forward secrecy or no authenticated encryption and are not supported.

use rustls::CipherSuite;

use super::deis_edge::Named;

/// A cipher suite, its name in OpenSSL, and the group keywords that include it.
struct Suite {
    suite: CipherSuite,
    name: &'static str,
    groups: &'static [&'static str],
}

macro_rules! suite {
    ($suite:ident, $name:literal, $($group:literal)*) => {
        Suite { suite: CipherSuite::$suite, name: $name, groups: &[$($group),*] }
    };
}

/// The suites of TLS 1.3 (RFC 8446). Group keywords are older and do not include them.
const TLS13: [Suite; 3] = [
    suite!(TLS13_AES_256_GCM_SHA384, "TLS_AES_256_GCM_SHA384",),
    suite!(TLS13_AES_128_GCM_SHA256, "TLS_AES_128_GCM_SHA256",),
    suite!(TLS13_CHACHA20_POLY1305_SHA256, "TLS_CHACHA20_POLY1305_SHA256",),
];

/// The suites of TLS 1.2 that rustls has, in its order.
const TLS12: [Suite; 6] = [
    suite!(TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, "ECDHE-ECDSA-AES256-GCM-SHA384", "ECDSA" "aECDSA" "AES" "AES256" "AESGCM" "SHA384"),
    suite!(TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, "ECDHE-ECDSA-AES128-GCM-SHA256", "ECDSA" "aECDSA" "AES" "AES128" "AESGCM" "SHA256"),
    suite!(TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, "ECDHE-ECDSA-CHACHA20-POLY1305", "ECDSA" "aECDSA" "CHACHA20"),
    suite!(TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384, "ECDHE-RSA-AES256-GCM-SHA384", "RSA" "aRSA" "AES" "AES256" "AESGCM" "SHA384"),
    suite!(TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, "ECDHE-RSA-AES128-GCM-SHA256", "RSA" "aRSA" "AES" "AES128" "AESGCM" "SHA256"),
    suite!(TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256, "ECDHE-RSA-CHACHA20-POLY1305", "RSA" "aRSA" "CHACHA20"),
];

/// Group keywords that include every suite of TLS 1.2 in rustls.
const EVERY: [&str; 13] = [
    "ALL",
    "DEFAULT",
    "COMPLEMENTOFDEFAULT",
    "HIGH",
    "ECDHE",
    "EECDH",
    "kECDHE",
    "kEECDH",
    "ECDH",
    "kECDH",
    "AEAD",
    "FIPS",
    "TLSv1.2",
];

/// Parses a cipher list into its cipher suites, the preferred ones first, at least one. A list without suites of TLS
/// 1.3 does not restrict TLS 1.3, as in OpenSSL, which has a separate list for those.
///
/// # Errors
/// If it has no supported suite.
pub(super) fn cipher_list(text: &str) -> Result<Named<Box<[CipherSuite]>>, String> {
    let mut chosen: Vec<&Suite> = Vec::new();
    let mut killed: Vec<CipherSuite> = Vec::new();
    let mut gone: Vec<String> = Vec::new();
    let marks = |c: char| matches!(c, ':' | ',' | ' ' | '|' | '[' | ']' | ';');
    for word in text.split(marks).filter(|word| !word.is_empty() && !word.starts_with('@')) {
        let (how, name) = match word.split_at(1) {
            (how @ ("!" | "-" | "+"), name) => (how, name),
            _ => ("", word),
        };
        let named: Vec<&Suite> = TLS13.iter().chain(&TLS12).filter(|suite| suite.is(name)).collect();
        match how {
            "!" => {
                killed.extend(named.iter().map(|suite| suite.suite));
                chosen.retain(|suite| !named.iter().any(|named| named.suite == suite.suite));
            }
            "-" => chosen.retain(|suite| !named.iter().any(|named| named.suite == suite.suite)),
            // Moves suites to the end of the list without adding any.
            "+" => {
                let is_named = |suite: &&Suite| named.iter().any(|named| named.suite == suite.suite);
                let (moved, kept): (Vec<&Suite>, Vec<&Suite>) = chosen.into_iter().partition(is_named);
                chosen = kept.into_iter().chain(moved).collect();
            }
            _ if named.is_empty() => {
                if !gone.iter().any(|other| other == name) {
                    gone.push(name.to_owned());
                }
            }
            _ => {
                let is_there = |suite: &Suite| chosen.iter().any(|other| other.suite == suite.suite);
                let added: Vec<&Suite> =
                    named.into_iter().filter(|suite| !killed.contains(&suite.suite) && !is_there(suite)).collect();
                chosen.extend(added);
            }
        }
    }
    let has13 = chosen.iter().any(|suite| is_tls13(suite.suite));
    let others = TLS13.iter().filter(|suite| !has13 && !killed.contains(&suite.suite));
    if chosen.is_empty() {
        return Err("names no cipher suite with forward secrecy and authenticated encryption".to_owned());
    }
    Ok(Named { value: others.chain(chosen).map(|suite| suite.suite).collect(), gone })
}

/// Returns `true` for a suite of TLS 1.3.
pub(super) fn is_tls13(suite: CipherSuite) -> bool {
    TLS13.iter().any(|of13| of13.suite == suite)
}

impl Suite {
    /// Returns `true` if a name is its own, or that of a group with it. Keywords joined by a plus select the
    /// intersection of their groups.
    fn is(&self, name: &str) -> bool {
        let is_tls12 = !self.groups.is_empty();
        let in_group = |word: &str| is_tls12 && (EVERY.contains(&word) || self.groups.contains(&word));
        name == self.name || self.suite.as_str() == Some(name) || name.split('+').all(in_group)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, want: Result<(&str, &str), &str>) {
        let name = |suite: &CipherSuite| {
            let all = TLS13.iter().chain(&TLS12);
            all.clone().find(|own| own.suite == *suite).unwrap().name
        };
        let names = |list: &Named<Box<[CipherSuite]>>| list.value.iter().map(name).collect::<Vec<_>>().join(" ");
        let got = cipher_list(text).map(|list| (names(&list), list.gone.join(" ")));
        let got = got.as_ref().map(|(suites, gone)| (suites.as_str(), gone.as_str())).map_err(String::as_str);
        assert_eq!(got, want, "{text:?}");
    }

    const OF13: &str = "TLS_AES_256_GCM_SHA384 TLS_AES_128_GCM_SHA256 TLS_CHACHA20_POLY1305_SHA256";

    fn with13(suites: &str) -> String {
        format!("{OF13} {suites}")
    }

    #[test]
    fn names_of_openssl_and_of_the_rfcs_are_accepted() {
        let one = with13("ECDHE-RSA-AES128-GCM-SHA256");
        check("ECDHE-RSA-AES128-GCM-SHA256", Ok((&one, "")));
        check("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", Ok((&one, "")));
        check(
            "TLS_AES_128_GCM_SHA256:ECDHE-RSA-AES128-GCM-SHA256",
            Ok(("TLS_AES_128_GCM_SHA256 ECDHE-RSA-AES128-GCM-SHA256", "")),
        );
        check("TLS_CHACHA20_POLY1305_SHA256", Ok(("TLS_CHACHA20_POLY1305_SHA256", "")));
    }

    #[test]
    fn removed_ciphers_are_reported_and_skipped() {
        let one = with13("ECDHE-RSA-CHACHA20-POLY1305");
        check(
            "[ECDHE-RSA-CHACHA20-POLY1305-OLD|ECDHE-RSA-CHACHA20-POLY1305]:DES-CBC3-SHA:AES128-SHA:DES-CBC3-SHA:!DSS:@STRENGTH",
            Ok((&one, "ECDHE-RSA-CHACHA20-POLY1305-OLD DES-CBC3-SHA AES128-SHA")),
        );
        check("DES-CBC3-SHA", Err("names no cipher suite with forward secrecy and authenticated encryption"));
        check("", Err("names no cipher suite with forward secrecy and authenticated encryption"));
    }

    #[test]
    fn groups_and_modifiers_work_as_in_openssl() {
        let ecdsa = with13("ECDHE-ECDSA-AES256-GCM-SHA384 ECDHE-ECDSA-AES128-GCM-SHA256");
        check("ECDHE+ECDSA+AESGCM", Ok((&ecdsa, "")));
        check("HIGH:!CHACHA20:!aRSA:!MD5", Ok((&ecdsa, "")));
        check("ECDSA:-CHACHA20", Ok((&ecdsa, "")));
        let moved = with13("ECDHE-ECDSA-AES128-GCM-SHA256 ECDHE-ECDSA-AES256-GCM-SHA384");
        check("ECDHE+ECDSA+AESGCM:+AES256", Ok((&moved, "")));
        // A suite removed with `!` does not come back; one removed with `-` does.
        check("!AES256:ECDHE+ECDSA+AESGCM", Ok((&with13("ECDHE-ECDSA-AES128-GCM-SHA256"), "")));
        check("ECDSA:-AESGCM:-CHACHA20:ECDSA+AES128", Ok((&with13("ECDHE-ECDSA-AES128-GCM-SHA256"), "")));
        let without = "TLS_AES_256_GCM_SHA384 TLS_AES_128_GCM_SHA256 ECDHE-RSA-AES128-GCM-SHA256";
        check("!TLS_CHACHA20_POLY1305_SHA256:ECDHE-RSA-AES128-GCM-SHA256", Ok((without, "")));
    }
}
