//! Tokens with random faults: none is accepted, and checking them never panics.

use super::*;

/// A generator that is the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, count: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 16).unwrap() % count.max(1)
    }

    fn one_of<T: Clone>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())].clone()
    }
}

/// A part of a token that is no text of JSON any more, or another one.
fn mutate_decoded(part: &str, random: &mut Random) -> String {
    const PIECES: &[&str] =
        &["{", "}", "\"", ":", ",", "[", "null", "1e999", "\\u0000", "\"alg\":\"none\",", "\u{e9}", "-"];
    let mut bytes = URL_SAFE_NO_PAD.decode(part).unwrap_or_default();
    let at = random.below(bytes.len() + 1);
    match random.below(3) {
        0 => drop(bytes.splice(at..at, random.one_of(PIECES).bytes())),
        1 => bytes.truncate(at),
        _ => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << random.below(8)),
    }
    encode(bytes)
}

fn mutate(token: &str, others: &[String], random: &mut Random) -> String {
    const CHARACTERS: &[u8] = b"AZaz09-_.=+/ \n\0\xc3";
    let mut bytes = token.as_bytes().to_vec();
    let at = random.below(bytes.len());
    match random.below(8) {
        0 => bytes[at] = random.one_of(CHARACTERS),
        1 => bytes.insert(at, random.one_of(CHARACTERS)),
        2 => drop(bytes.remove(at)),
        3 => bytes.truncate(at),
        4 => bytes[at] ^= 1 << random.below(8),
        5 => bytes = [&bytes, &bytes[at..]].concat(),
        kind => {
            let mut parts: Vec<String> = token.split('.').map(ToOwned::to_owned).collect();
            let index = random.below(parts.len());
            parts[index] = if kind == 6 {
                mutate_decoded(&parts[index], random)
            } else {
                let other = random.one_of(others);
                other.split('.').nth(index).unwrap_or_default().to_owned()
            };
            bytes = parts.join(".").into_bytes();
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[test]
fn no_mutated_token_is_accepted() {
    const MUTATIONS: usize = 100_000;
    let algorithms = ["EdDSA", "ES256", "RS256", "PS256"];
    let token = |(index, algorithm): (usize, &&str)| {
        let header = json!({"alg": algorithm, "kid": key_for(algorithm)});
        sign(&header, &json!({"exp": NOW_S + 60, "sub": format!("user {index}")}))
    };
    let tokens: Vec<String> = algorithms.iter().enumerate().map(token).collect();
    let jwt = jwt(&[rsa(), p256(), ed25519()], None);
    for token in &tokens {
        assert!(jwt.verify(token, now()).is_ok(), "{token}");
    }
    let (mut random, mut checked) = (Random(0x9e37_79b9_7f4a_7c15), 0);
    while checked < MUTATIONS {
        let mut token = random.one_of(&tokens);
        for _ in 0..=random.below(3) {
            token = mutate(&token, &tokens, &mut random);
            if token.is_empty() {
                break;
            }
        }
        if !tokens.contains(&token) {
            assert!(jwt.verify(&token, now()).is_err(), "{token}");
            checked += 1;
        }
    }
}
