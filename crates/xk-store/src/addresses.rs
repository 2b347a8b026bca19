//! What loading a table needs besides the table: addresses in the running kernel, and the signature next to the table.

use std::fs;

use xk_runtime::{AddressError, AddressOf, SignatureError, Symbols, SymbolsError};
use xk_table::{DataSite, Function, ScopeTable};

use crate::folders::Folders;

/// Symbols of the running kernel, and signatures in the directories of tables.
#[derive(Debug)]
pub struct Addresses(Symbols);

impl Addresses {
    /// Reads the symbols of the running kernel, and keeps those that `tables` name.
    ///
    /// # Errors
    /// As [`Symbols::live`].
    pub fn live<'a>(tables: impl Iterator<Item = &'a ScopeTable>) -> Result<Self, SymbolsError> {
        Symbols::live(tables).map(Self)
    }

    /// The address from which a signed table counts the addresses of vmlinux.
    ///
    /// # Errors
    /// As [`Symbols::anchor`].
    pub fn anchor(&self) -> Result<u64, SymbolsError> {
        self.0.anchor()
    }
}

impl AddressOf for Addresses {
    fn address(&self, function: &Function) -> Result<Option<u64>, AddressError> {
        Ok(self.0.function(function)?)
    }

    fn data_address(&self, data: &DataSite) -> Result<Option<u64>, AddressError> {
        Ok(self.0.object(data)?)
    }

    fn signature(&self, table: &ScopeTable) -> Result<Option<Vec<u8>>, SignatureError> {
        let file = Folders::from_environment().signature_file(table)?;
        match fs::read(&file) {
            Ok(signature) => Ok(Some(signature)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(SignatureError::Unreadable { file, error }),
        }
    }
}
