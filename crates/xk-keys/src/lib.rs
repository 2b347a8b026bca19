//! Keys of machines, and texts that are sealed with them (Ed25519).
//!
//! In: a text, and the directories of keys. Out: the text in an envelope that names the key and contains a signature; or the
//! text of an envelope. It refuses envelopes that were altered or cut off, are of another format or version, or are signed
//! with a key that is not trusted.

mod error;
mod hex;
mod key;
mod keys;

use ed25519_dalek::{Signature, Signer};
use serde::{Deserialize, Serialize};

pub use error::SealError;
pub use key::{KeyError, PublicKey};
pub use keys::Keys;

use hex::{hex, unhex};

/// What the sealed text is. The signature covers it, so a text of one format cannot be taken for another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Format {
    /// Its name.
    pub name: &'static str,
    /// Its version.
    pub version: u32,
    /// The command that writes it, for messages.
    pub command: &'static str,
}

/// The file. The signed content is a text within, so that the signature covers its exact bytes.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Envelope {
    format: String,
    version: u32,
    key: String,
    signature: String,
    content: String,
}

impl Format {
    /// The signed bytes.
    fn signed(self, content: &str) -> Vec<u8> {
        format!("{} {}\n{content}", self.name, self.version).into_bytes()
    }

    /// Seals a text with this machine's key.
    ///
    /// # Errors
    /// The key cannot be read or created.
    pub fn seal(self, keys: &Keys, content: String) -> Result<String, SealError> {
        let key = keys.own()?;
        let envelope = Envelope {
            format: self.name.into(),
            version: self.version,
            key: PublicKey::of(&key).to_string(),
            signature: hex(&key.sign(&self.signed(&content)).to_bytes()),
            content,
        };
        let text = serde_json::to_string_pretty(&envelope).map_err(SealError::Unwritable)?;
        Ok(text + "\n")
    }

    /// The content of an envelope, and the key with which it was signed.
    ///
    /// # Errors
    /// It is altered, of another format or version, or signed with a key that is not trusted.
    pub fn open(self, keys: &Keys, text: &str) -> Result<(String, PublicKey), SealError> {
        // Alteration is reported before a key that is not trusted, since it is the more serious of the two.
        let (content, key) = self.verified(text)?;
        if !keys.trusts(&key)? {
            return Err(SealError::Untrusted { key: Box::new(key), folder: keys.folder().to_owned() });
        }
        Ok((content, key))
    }

    fn verified(self, text: &str) -> Result<(String, PublicKey), SealError> {
        let envelope = serde_json::from_str(text);
        let envelope: Envelope = envelope.map_err(|source| SealError::Envelope { command: self.command, source })?;
        let Envelope { format, version, key, signature, content } = envelope;
        if format != self.name || version != self.version {
            return Err(SealError::Version { format, version, wanted: self });
        }
        let key: PublicKey = key.parse().map_err(SealError::Key)?;
        let signature = Signature::from_bytes(&unhex(&signature).ok_or(SealError::Signature)?);
        match key.has_signed(&self.signed(&content), &signature) {
            true => Ok((content, key)),
            false => Err(SealError::Altered(Box::new(key))),
        }
    }
}

#[cfg(test)]
mod tests;
