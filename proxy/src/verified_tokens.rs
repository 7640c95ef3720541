//! Tokens that were accepted, so that the next request with one needs no check of its signature.
//!
//! A token is accepted again only with the very keys that it was accepted with, so changed keys act at once, and until
//! it expires. Tokens that are refused are not kept: clients make up any number of them.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use moka::sync::Cache;
use prometheus::{IntCounter, IntCounterVec, Opts, Registry};
use tidegate_config::model::auth::{Jwt, KeySet, TokenFault, VerifiedToken};

/// The limit of the memory for tokens, in bytes.
const BYTES_MAX: u64 = 16 << 20;
/// How long a token is kept.
const KEPT_FOR: Duration = Duration::from_secs(300);
/// The part of an entry that does not depend on the length of the token, in bytes.
const ENTRY_BYTES: usize = 512;

/// The tokens that were accepted. Neither they nor their claims are in any output.
pub(crate) struct VerifiedTokens {
    accepted: Cache<TokenDigest, Accepted, RandomState>,
    /// The secrets of the process that digests are made with.
    digests: [RandomState; 2],
    cached: IntCounter,
    verified: IntCounter,
    refused: IntCounter,
}

/// 128 bits of a keyed hash of a token, the keys and the issuer. Two of them are equal by a chance that nobody can
/// influence without the secrets of the process.
type TokenDigest = [u64; 2];

#[derive(Clone)]
struct Accepted {
    /// The keys that it was accepted with. Their address is in the digest, and belongs to them while they are here.
    keys: Arc<KeySet>,
    token: Arc<VerifiedToken>,
    bytes: usize,
}

impl VerifiedTokens {
    /// Registers the metrics.
    ///
    /// # Errors
    /// If one of their names is already registered.
    pub(crate) fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let opts = Opts::new("tidegate_token_checks_total", "Checks of JSON Web Tokens, by outcome.");
        let checks = IntCounterVec::new(opts, &["outcome"])?;
        registry.register(Box::new(checks.clone()))?;
        let of = |outcome: &str| checks.with_label_values(&[outcome]);
        let weigh = |_: &TokenDigest, accepted: &Accepted| u32::try_from(accepted.bytes).unwrap_or(u32::MAX);
        let builder = Cache::builder().max_capacity(BYTES_MAX).weigher(weigh).time_to_live(KEPT_FOR);
        Ok(Self {
            accepted: builder.build_with_hasher(RandomState::new()),
            digests: [RandomState::new(), RandomState::new()],
            cached: of("cached"),
            verified: of("verified"),
            refused: of("refused"),
        })
    }

    /// Checks a token, or finds it among those that were accepted.
    ///
    /// # Errors
    /// Why it is not accepted.
    pub(crate) fn verify(&self, jwt: &Jwt, token: &str, now: SystemTime) -> Result<Arc<VerifiedToken>, TokenFault> {
        let Some(keys) = &jwt.keys else { return Err(TokenFault::NoKeys) };
        let digest = self.digest(keys, jwt.issuer.as_deref(), token);
        let is_valid = |accepted: &Accepted| {
            Arc::ptr_eq(&accepted.keys, keys) && accepted.token.expires.is_none_or(|expires| now < expires)
        };
        if let Some(accepted) = self.accepted.get(&digest).filter(is_valid) {
            self.cached.inc();
            return Ok(accepted.token);
        }
        match jwt.verify(token, now) {
            Ok(verified) => {
                self.verified.inc();
                let verified = Arc::new(verified);
                // The claims as values take a few times the space of their text.
                let bytes = ENTRY_BYTES + 4 * token.len();
                let accepted = Accepted { keys: Arc::clone(keys), token: Arc::clone(&verified), bytes };
                self.accepted.insert(digest, accepted);
                Ok(verified)
            }
            Err(fault) => {
                self.refused.inc();
                if fault == TokenFault::UnknownKey {
                    keys.note_unknown_key();
                }
                Err(fault)
            }
        }
    }

    fn digest(&self, keys: &Arc<KeySet>, issuer: Option<&str>, token: &str) -> TokenDigest {
        let of = (Arc::as_ptr(keys).addr(), issuer, token);
        self.digests.each_ref().map(|secret| secret.hash_one(of))
    }
}

impl fmt::Debug for VerifiedTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("VerifiedTokens")
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use tidegate_config::model::auth::KeySource;

    use super::*;

    /// RFC 7515 appendix A.3: issued by joe, and valid until 1300819380.
    const TOKEN: &str = "eyJhbGciOiJFUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvb\
        S9pc19yb290Ijp0cnVlfQ.DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q";
    const EXPIRES_S: u64 = 1_300_819_380;

    fn keys(id: &str) -> Arc<KeySet> {
        let json = format!(
            r#"{{"keys":[{{"kty":"EC","crv":"P-256","kid":"{id}","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}}]}}"#
        );
        Arc::new(KeySet::read(json.as_bytes()).unwrap())
    }

    struct Bed {
        registry: Registry,
        tokens: VerifiedTokens,
        jwt: Jwt,
    }

    impl Bed {
        fn new() -> Self {
            let registry = Registry::new();
            let tokens = VerifiedTokens::register(&registry).unwrap();
            let source = KeySource::Jwks("http://a/".into());
            Self { registry, tokens, jwt: Jwt { source, issuer: None, keys: Some(keys("a")) } }
        }

        /// Compares the result for a token at this time, in seconds from its end, and the numbers of checks so far:
        /// cached, verified, refused.
        #[track_caller]
        fn check(&self, token: &str, at_s: i64, want: Result<(), TokenFault>, counts: [u32; 3]) {
            let at_s = EXPIRES_S.checked_add_signed(at_s).unwrap();
            let got = self.tokens.verify(&self.jwt, token, UNIX_EPOCH + Duration::from_secs(at_s));
            assert_eq!(got.map(drop), want);
            let families = self.registry.gather();
            let checks = families.iter().filter(|family| family.name() == "tidegate_token_checks_total");
            let got: Vec<_> =
                checks.flat_map(|family| family.get_metric()).map(|it| it.get_counter().get_value()).collect();
            // Series are in the order of their labels.
            let [cached, verified, refused] = counts.map(f64::from);
            let want = [cached, refused, verified];
            assert!(got.iter().zip(want).all(|(got, want)| (got - want).abs() < 0.5) && got.len() == 3, "{got:?}");
        }
    }

    #[test]
    fn a_token_is_checked_once_until_it_expires() {
        let bed = Bed::new();
        bed.check(TOKEN, -60, Ok(()), [0, 1, 0]);
        bed.check(TOKEN, -60, Ok(()), [1, 1, 0]);
        bed.check(TOKEN, -1, Ok(()), [2, 1, 0]);
        // Within the leeway it is accepted, and checked each time.
        bed.check(TOKEN, 0, Ok(()), [2, 2, 0]);
        bed.check(TOKEN, 29, Ok(()), [2, 3, 0]);
        bed.check(TOKEN, 30, Err(TokenFault::Expired), [2, 3, 1]);
        let other = TOKEN.replace("NU1Q", "NU1g");
        bed.check(&other, -60, Err(TokenFault::UnknownKey), [2, 3, 2]);
        bed.check(&other, -60, Err(TokenFault::UnknownKey), [2, 3, 3]);
        assert!(!format!("{:?}", bed.tokens).contains("joe"));
    }

    #[test]
    fn other_keys_and_other_issuers_check_a_token_again() {
        let mut bed = Bed::new();
        let first = bed.jwt.keys.clone();
        bed.check(TOKEN, -60, Ok(()), [0, 1, 0]);
        bed.jwt.keys = Some(keys("a"));
        bed.check(TOKEN, -60, Ok(()), [0, 2, 0]);
        bed.jwt.issuer = Some("joe".into());
        bed.check(TOKEN, -60, Ok(()), [0, 3, 0]);
        bed.jwt.issuer = Some("jane".into());
        bed.check(TOKEN, -60, Err(TokenFault::Issuer), [0, 3, 1]);
        (bed.jwt.issuer, bed.jwt.keys) = (None, first);
        bed.check(TOKEN, -60, Ok(()), [1, 3, 1]);
        bed.jwt.keys = None;
        bed.check(TOKEN, -60, Err(TokenFault::NoKeys), [1, 3, 1]);
    }

    #[test]
    fn unknown_keys_are_noted_in_the_keys() {
        let bed = Bed::new();
        let keys = bed.jwt.keys.clone().unwrap();
        bed.check(TOKEN, -60, Ok(()), [0, 1, 0]);
        assert!(!keys.take_unknown_key());
        // The header {"alg":"ES256","kid":"b"}.
        bed.check("eyJhbGciOiJFUzI1NiIsImtpZCI6ImIifQ.e30.e30", -60, Err(TokenFault::UnknownKey), [0, 1, 1]);
        assert!(keys.take_unknown_key());
    }

    #[test]
    fn accepted_tokens_have_a_limit_in_memory() {
        let bed = Bed::new();
        let verified = Arc::new(VerifiedToken { claims: Arc::default(), expires: None });
        let keys = bed.jwt.keys.clone().unwrap();
        for number in 0..5_000 {
            let accepted = Accepted { keys: Arc::clone(&keys), token: Arc::clone(&verified), bytes: 64 << 10 };
            bed.tokens.accepted.insert([number, number], accepted);
        }
        bed.tokens.accepted.run_pending_tasks();
        assert!(bed.tokens.accepted.weighted_size() <= BYTES_MAX);
        assert!(bed.tokens.accepted.entry_count() > 0);
    }
}
