//! A fingerprint of everything that the analysis is made of: its own sources and the versions of the
//! crates that it uses. Results are reused only under the same fingerprint.

#[path = "../fingerprint.rs"]
mod fingerprint;

fn main() -> std::io::Result<()> {
    fingerprint::set("XK_ANALYSIS", &["xk-analysis", "xk-const", "xk-kernel", "xk-lift", "xk-table"])
}
