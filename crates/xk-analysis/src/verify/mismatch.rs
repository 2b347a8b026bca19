//! How a function of a table differs from the deployed or the rebuilt one.

use thiserror::Error;
use xk_table::{Incoherent, Refusal};

use crate::identity::Unreadable;

/// Why a function of a table is not the one that runs.
#[derive(Debug, Error)]
pub(super) enum NotDeployed {
    /// The table does not say what the function is.
    #[error(transparent)]
    Table(#[from] Incoherent),
    /// The deployed kernel cannot be read.
    #[error(transparent)]
    Kernel(#[from] Unreadable),
    /// No function of this name is there.
    #[error("{owner} has no {symbol} at {section}+{offset:#x}")]
    NotThere {
        /// A module, or vmlinux.
        owner: String,
        /// Name of the function.
        symbol: String,
        /// Its section.
        section: String,
        /// Offset in the section, in bytes.
        offset: u64,
    },
    /// Another byte runs there.
    #[error("{symbol}+{at:#x}: the table has byte {table:02x}, the deployed kernel {}", byte(*.deployed))]
    Byte {
        /// Name of the function.
        symbol: String,
        /// Offset of the byte.
        at: usize,
        /// The byte of the table.
        table: u8,
        /// The one that runs, unless the text ends before.
        deployed: Option<u8>,
    },
}

/// Why a function of a table is not the rebuilt one.
#[derive(Debug, Error)]
pub(super) enum NotRebuilt {
    /// The table does not say what the function is.
    #[error(transparent)]
    Table(#[from] Incoherent),
    /// The rebuilt function is not in the deployed kernel.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The rebuilt function is elsewhere.
    #[error("{symbol} is at {section}+{offset:#x}, the table says {table_section}+{table_offset:#x}")]
    Elsewhere {
        /// Name of the function.
        symbol: String,
        /// Section of the rebuilt function.
        section: String,
        /// Offset in it, in bytes.
        offset: u64,
        /// Section in the table.
        table_section: String,
        /// Offset in it, in bytes.
        table_offset: u64,
    },
    /// The mask of the table leaves out a byte that must be compared.
    #[error("{symbol}+{at:#x}: the table does not compare this byte")]
    NotCompared {
        /// Name of the function.
        symbol: String,
        /// Offset of the byte.
        at: usize,
    },
    /// The table has another byte.
    #[error("{symbol}+{at:#x}: the table's byte is not the rebuilt one")]
    Byte {
        /// Name of the function.
        symbol: String,
        /// Offset of the byte.
        at: usize,
    },
}

fn byte(byte: Option<u8>) -> String {
    byte.map_or_else(|| "ends".into(), |byte| format!("{byte:02x}"))
}
