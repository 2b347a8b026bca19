//! Keys: this machine's own, and those that it trusts. Ed25519, as 64 hexadecimal digits.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use ed25519_dalek::{Signature, SigningKey, VerifyingKey};

use super::{hex, unhex, wrong};
use crate::Error;

/// Where keys are made of. By the time a tuner runs, the kernel has long gathered enough.
const RANDOM: &str = "/dev/urandom";

/// A key that others know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PublicKey(VerifyingKey);

impl PublicKey {
    pub(super) fn of(key: &SigningKey) -> Self {
        Self(key.verifying_key())
    }

    /// Whether this signature is of this key and these bytes, and of nothing else.
    pub(super) fn verify(&self, bytes: &[u8], seal: &Signature) -> Result<(), ()> {
        self.0.verify_strict(bytes, seal).map_err(drop)
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
    #[error("`{0}` is no key: it has 64 hexadecimal digits")]
    Digits(String),
    /// The number is not a key of Ed25519.
    #[error("`{0}` is no key: its digits are not an Ed25519 public key")]
    Point(String),
}

impl FromStr for PublicKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        let bytes = unhex(text).ok_or_else(|| KeyError::Digits(text.to_owned()))?;
        VerifyingKey::from_bytes(&bytes).map(Self).map_err(|_| KeyError::Point(text.to_owned()))
    }
}

/// Where keys are.
#[derive(Debug, Clone)]
pub struct Keys {
    own: PathBuf,
    trusted: PathBuf,
}

impl Keys {
    /// The own one in the tuner's folder, those that are trusted in another, as `*.pub`.
    #[must_use]
    pub fn new(state: &Path, trusted: &Path) -> Self {
        Self { own: state.join("key"), trusted: trusted.to_owned() }
    }

    pub(super) fn folder(&self) -> &Path {
        &self.trusted
    }

    /// This machine's key, for others.
    ///
    /// # Errors
    /// As [`Keys::own`].
    pub fn public(&self) -> Result<PublicKey, Error> {
        Ok(PublicKey::of(&self.own()?))
    }

    /// This machine's key; it is made when it is needed first.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Exchange`].
    pub(super) fn own(&self) -> Result<SigningKey, Error> {
        let failed = |error| Error::io(&self.own, error);
        match fs::read_to_string(&self.own) {
            Ok(text) => {
                let bytes = unhex(text.trim()).ok_or_else(|| {
                    wrong(&self.own, "is no key: remove it, and a new one is made, which others must be told".into())
                })?;
                return Ok(SigningKey::from_bytes(&bytes));
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(failed(error)),
        }
        let mut bytes = [0; 32];
        File::open(RANDOM)
            .and_then(|mut random| random.read_exact(&mut bytes))
            .map_err(|error| Error::io(RANDOM, error))?;
        // Nobody else may read it, at any moment, and none that is there is written over.
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&self.own);
        file.and_then(|mut file| writeln!(file, "{}", hex(&bytes)).and_then(|()| file.sync_all())).map_err(failed)?;
        Ok(SigningKey::from_bytes(&bytes))
    }

    /// Whether files that are signed with this key are believed.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Exchange`]: a file in the folder of keys holds none.
    pub(super) fn trusts(&self, key: &PublicKey) -> Result<bool, Error> {
        if self.own.exists() && self.public()? == *key {
            return Ok(true);
        }
        let entries = match fs::read_dir(&self.trusted) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(Error::io(&self.trusted, error)),
        };
        let mut found = false;
        for entry in entries {
            let path = entry.map_err(|error| Error::io(&self.trusted, error))?.path();
            if path.extension().is_some_and(|extension| extension == "pub") {
                let text = fs::read_to_string(&path).map_err(|error| Error::io(&path, error))?;
                let known: PublicKey = text.trim().parse().map_err(|why: KeyError| wrong(&path, why.to_string()))?;
                found |= known == *key;
            }
        }
        Ok(found)
    }
}
