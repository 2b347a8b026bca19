//! Keys: this machine's own key, and the keys that it trusts. Ed25519, as 64 hexadecimal digits.
//!
//! In: two directories. Out: keys. It refuses texts that are not keys, and never overwrites a key.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use ed25519_dalek::{Signature, SigningKey, VerifyingKey};

use super::{hex, unhex, ExchangeError, FileProblem};

/// The source of new keys. The kernel has seeded it long before a tuner runs.
const RANDOM: &str = "/dev/urandom";

/// A public key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PublicKey(VerifyingKey);

impl PublicKey {
    pub(super) fn of(key: &SigningKey) -> Self {
        Self(key.verifying_key())
    }

    /// Whether this is a signature of exactly these bytes by this key.
    pub(super) fn has_signed(&self, bytes: &[u8], seal: &Signature) -> bool {
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

/// The directories of keys.
#[derive(Debug, Clone)]
pub struct Keys {
    own: PathBuf,
    trusted: PathBuf,
}

impl Keys {
    /// The own key in the tuner's directory, and the trusted keys in another, as `*.pub`.
    #[must_use]
    pub fn new(state: &Path, trusted: &Path) -> Self {
        Self { own: state.join("key"), trusted: trusted.to_owned() }
    }

    pub(super) fn folder(&self) -> &Path {
        &self.trusted
    }

    /// This machine's public key.
    ///
    /// # Errors
    /// [`ExchangeError::File`].
    pub fn public(&self) -> Result<PublicKey, ExchangeError> {
        Ok(PublicKey::of(&self.own()?))
    }

    /// This machine's key. It is created at first use.
    ///
    /// # Errors
    /// [`ExchangeError::File`].
    pub(super) fn own(&self) -> Result<SigningKey, ExchangeError> {
        let failed = |error| ExchangeError::file(&self.own, error);
        match fs::read_to_string(&self.own) {
            Ok(text) => {
                let bytes = unhex(text.trim());
                let bytes = bytes.ok_or_else(|| ExchangeError::file(&self.own, FileProblem::OwnKey))?;
                return Ok(SigningKey::from_bytes(&bytes));
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(failed(error)),
        }
        let mut bytes = [0; 32];
        File::open(RANDOM)
            .and_then(|mut random| random.read_exact(&mut bytes))
            .map_err(|error| ExchangeError::file(Path::new(RANDOM), error))?;
        // At no moment may others read it, and an existing file is not overwritten.
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&self.own);
        file.and_then(|mut file| writeln!(file, "{}", hex(&bytes)).and_then(|()| file.sync_all())).map_err(failed)?;
        Ok(SigningKey::from_bytes(&bytes))
    }

    /// Whether files that are signed with this key are trusted.
    ///
    /// # Errors
    /// [`ExchangeError::File`]: a file in the directory of keys does not contain a key.
    pub(super) fn trusts(&self, key: &PublicKey) -> Result<bool, ExchangeError> {
        if self.own.exists() && self.public()? == *key {
            return Ok(true);
        }
        let entries = match fs::read_dir(&self.trusted) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(ExchangeError::file(&self.trusted, error)),
        };
        let mut found = false;
        for entry in entries {
            let path = entry.map_err(|error| ExchangeError::file(&self.trusted, error))?.path();
            if path.extension().is_some_and(|extension| extension == "pub") {
                let text = fs::read_to_string(&path).map_err(|error| ExchangeError::file(&path, error))?;
                let known: PublicKey =
                    text.trim().parse().map_err(|error: KeyError| ExchangeError::file(&path, error))?;
                found |= known == *key;
            }
        }
        Ok(found)
    }
}
