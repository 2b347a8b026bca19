//! What the golden tests render. The expected texts are in `tests/golden`;
//! `XK_BLESS=1 cargo test` writes them again.

use std::path::Path;

pub use xk_harness::example::{data_table, powers_table, table, tune};
use xk_store::Tables;
use xk_table::ScopeTable;

/// The tables of the example's kernel.
pub fn tables(good: Vec<ScopeTable>) -> Tables {
    Tables::of("0123456789abcdef0123456789abcdef01234567", good)
}

/// Compares with the text that was agreed upon.
pub fn golden(name: &str, actual: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("XK_BLESS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, actual).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(actual, expected, "differs from {}; XK_BLESS=1 accepts it", path.display());
}
