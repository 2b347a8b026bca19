//! A public key: Ed25519, as 64 hexadecimal digits.

use std::fmt;
use std::str::FromStr;

use ed25519_dalek::{Signature, SigningKey, VerifyingKey};

use crate::hex::{hex, unhex};

/// A public key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PublicKey(VerifyingKey);

impl PublicKey {
    pub(crate) fn of(key: &SigningKey) -> Self {
        Self(key.verifying_key())
    }

    /// Whether this is a signature of exactly these bytes by this key.
    pub(crate) fn has_signed(&self, bytes: &[u8], seal: &Signature) -> bool {
        self.0.verify_strict(bytes, seal).is_ok()
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(self.0.as_bytes()))
    }
}

/// Why a text is not a key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// It is not 64 hexadecimal digits.
    #[error("`{0}` is not a key: a key has 64 hexadecimal digits")]
    Digits(String),
    /// The number is not a key of Ed25519.
    #[error("`{0}` is not a key: its digits are not an Ed25519 public key")]
    Point(String),
}

impl FromStr for PublicKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        let bytes = unhex(text).ok_or_else(|| KeyError::Digits(text.to_owned()))?;
        VerifyingKey::from_bytes(&bytes).map(Self).map_err(|_| KeyError::Point(text.to_owned()))
    }
}
