//! A fingerprint of what the safe spans follow from: the sources of this crate and of
//! those that it reads with. Tables with another one are confined again.

#[path = "../fingerprint.rs"]
mod fingerprint;

fn main() -> std::io::Result<()> {
    fingerprint::set("XK_SPANS", &["xk-kernel", "xk-lift", "xk-span", "xk-table"])
}
