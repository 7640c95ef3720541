//! Encryption of Secrets on disk: AES-256 in GCM (RFC 5116) with the operator's key. Each value has a random nonce and
//! is bound to its partition and key: moved to the place of another object, it cannot be decrypted.

use std::fmt;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom, SystemRandom};

/// The length of a key, in bytes.
const KEY_LEN: usize = 32;
/// The maximum length of a key file, in bytes.
const FILE_LEN_MAX: usize = 1024;

/// Encrypts and decrypts values.
pub struct Seal(LessSafeKey);

/// A value that was encrypted with another key or for another place, or was changed since.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DecryptionError;

impl Seal {
    /// Reads the key: 32 bytes, either raw or in base64 (RFC 4648 section 4).
    ///
    /// # Errors
    /// Returns the reason, without any bytes of the file.
    pub fn read(path: &Path) -> Result<Self, String> {
        let bytes = std::fs::read(path).map_err(|why| why.to_string())?;
        Self::of(&bytes)
            .ok_or_else(|| format!("its {} bytes are not a key: expected 32 bytes, raw or in base64", bytes.len()))
    }

    fn of(bytes: &[u8]) -> Option<Self> {
        if bytes.len() > FILE_LEN_MAX {
            return None;
        }
        let decoded = STANDARD.decode(bytes.trim_ascii()).ok().filter(|decoded| decoded.len() == KEY_LEN);
        let key = decoded.as_deref().unwrap_or(bytes);
        // No other length is accepted.
        Some(Self(LessSafeKey::new(UnboundKey::new(&AES_256_GCM, key).ok()?)))
    }

    /// Encrypts a value for a place; the result is the nonce and the ciphertext. `None` if the system has no random
    /// bytes.
    #[must_use]
    pub fn close(&self, context: &[&str], value: &[u8]) -> Option<Vec<u8>> {
        let mut nonce = [0; NONCE_LEN];
        SystemRandom::new().fill(&mut nonce).ok()?;
        let mut sealed = value.to_vec();
        let aad = Aad::from(bound_to(context));
        self.0.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), aad, &mut sealed).ok()?;
        Some([&nonce, &*sealed].concat())
    }

    /// Decrypts a value of a place.
    ///
    /// # Errors
    /// Returns an error if it was encrypted for another place or with another key.
    pub fn open(&self, context: &[&str], sealed: &[u8]) -> Result<Vec<u8>, DecryptionError> {
        let (nonce, sealed) = sealed.split_first_chunk::<NONCE_LEN>().ok_or(DecryptionError)?;
        let mut value = sealed.to_vec();
        let aad = Aad::from(bound_to(context));
        let opened = self.0.open_in_place(Nonce::assume_unique_for_key(*nonce), aad, &mut value);
        let length = opened.map_err(|_unspecified| DecryptionError)?.len();
        value.truncate(length);
        Ok(value)
    }
}

/// A place as bytes. No component contains a zero byte.
fn bound_to(context: &[&str]) -> Vec<u8> {
    [&["tidegate cluster cache"], context].concat().join("\0").into_bytes()
}

impl fmt::Debug for Seal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seal")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seal(byte: u8) -> Seal {
        Seal::of(&[byte; KEY_LEN]).unwrap()
    }

    #[test]
    fn a_value_opens_only_unchanged_with_its_key_in_its_place() {
        let context = ["Secret", "shop/tls"];
        let sealed = seal(1).close(&context, b"value").unwrap();
        assert_eq!(seal(1).open(&context, &sealed).as_deref(), Ok(&b"value"[..]));
        assert_eq!(seal(2).open(&context, &sealed), Err(DecryptionError));
        assert_eq!(seal(1).open(&["Secret", "shop/other"], &sealed), Err(DecryptionError));
        assert_eq!(seal(1).open(&["Secrets", "hop/tls"], &sealed), Err(DecryptionError));
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert_eq!(seal(1).open(&context, &changed), Err(DecryptionError), "byte {at}");
            assert_eq!(seal(1).open(&context, &sealed[..at]), Err(DecryptionError), "cut at {at}");
        }
    }

    #[test]
    fn equal_values_are_sealed_differently() {
        let [one, other] = [(); 2].map(|()| seal(1).close(&["Secret", "a/b"], b"value").unwrap());
        assert_ne!(one[..NONCE_LEN], other[..NONCE_LEN]);
        assert_ne!(one[NONCE_LEN..], other[NONCE_LEN..]);
        assert!(!one.windows(5).any(|window| window == b"value"));
    }

    #[test]
    fn keys_are_32_bytes_or_their_base64() {
        let text = STANDARD.encode([7; KEY_LEN]);
        let sealed = seal(7).close(&["a"], b"value").unwrap();
        for bytes in [vec![7; KEY_LEN], text.clone().into_bytes(), format!("{text}\n").into_bytes()] {
            assert!(Seal::of(&bytes).unwrap().open(&["a"], &sealed).is_ok());
        }
        for bytes in [vec![], vec![7; 31], vec![7; 33], text.as_bytes()[1..].to_vec(), vec![b'a'; FILE_LEN_MAX + 1]] {
            assert!(Seal::of(&bytes).is_none(), "{} bytes", bytes.len());
        }
    }
}
