//! The directories of keys: this machine's own key, and the keys that it trusts.
//!
//! In: two directories. Out: keys. It refuses texts that are not keys, and never overwrites a key.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use ed25519_dalek::SigningKey;

use crate::hex::{hex, unhex};
use crate::key::PublicKey;
use crate::SealError;

/// The source of new keys. The kernel has seeded it long before this program runs.
const RANDOM: &str = "/dev/urandom";

/// The directories of keys.
#[derive(Debug, Clone)]
pub struct Keys {
    own: PathBuf,
    trusted: PathBuf,
}

impl Keys {
    /// The own key in the directory `state`, and the trusted keys in another, as `*.pub`.
    #[must_use]
    pub fn new(state: &Path, trusted: &Path) -> Self {
        Self { own: state.join("key"), trusted: trusted.to_owned() }
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.trusted
    }

    /// This machine's public key.
    ///
    /// # Errors
    /// [`SealError::File`].
    pub fn public(&self) -> Result<PublicKey, SealError> {
        Ok(PublicKey::of(&self.own()?))
    }

    /// This machine's key. It is created at first use.
    ///
    /// # Errors
    /// [`SealError::File`].
    pub(crate) fn own(&self) -> Result<SigningKey, SealError> {
        let failed = |error| SealError::file(&self.own, error);
        match fs::read_to_string(&self.own) {
            Ok(text) => {
                let bytes = unhex(text.trim());
                let bytes = bytes.ok_or_else(|| SealError::OwnKey(self.own.clone()))?;
                return Ok(SigningKey::from_bytes(&bytes));
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(failed(error)),
        }
        if let Some(folder) = self.own.parent() {
            fs::create_dir_all(folder).map_err(|error| SealError::file(folder, error))?;
        }
        let mut bytes = [0; 32];
        File::open(RANDOM)
            .and_then(|mut random| random.read_exact(&mut bytes))
            .map_err(|error| SealError::file(Path::new(RANDOM), error))?;
        // At no moment may others read it, and an existing file is not overwritten.
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&self.own);
        file.and_then(|mut file| writeln!(file, "{}", hex(&bytes)).and_then(|()| file.sync_all())).map_err(failed)?;
        Ok(SigningKey::from_bytes(&bytes))
    }

    /// Whether files that are signed with this key are trusted.
    ///
    /// # Errors
    /// [`SealError::File`]: a file in the directory of keys does not contain a key.
    pub(crate) fn trusts(&self, key: &PublicKey) -> Result<bool, SealError> {
        if self.own.exists() && self.public()? == *key {
            return Ok(true);
        }
        let entries = match fs::read_dir(&self.trusted) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(SealError::file(&self.trusted, error)),
        };
        let mut found = false;
        for entry in entries {
            let path = entry.map_err(|error| SealError::file(&self.trusted, error))?.path();
            if path.extension().is_some_and(|extension| extension == "pub") {
                let text = fs::read_to_string(&path).map_err(|error| SealError::file(&path, error))?;
                let known: PublicKey =
                    text.trim().parse().map_err(|problem| SealError::TrustedKey { path, problem })?;
                found |= known == *key;
            }
        }
        Ok(found)
    }
}
