//! Instructions that the host has found, as its files name them.

use anyhow::{bail, Result};
use xk_runtime::ProbePlace;

/// Reads `DISTANCE,WINDOW,LEAD,HOST,HOST_WINDOW`: the distance from `_printk`, which is at `anchor`, and the fields of
/// [`ProbePlace`].
///
/// # Errors
/// When it is another word.
pub fn place(word: &str, anchor: u64) -> Result<ProbePlace> {
    let words: Vec<&str> = word.split(',').collect();
    let [distance, window, lead, host, host_window] = words[..] else { bail!("not a place: {word}") };
    Ok(ProbePlace {
        address: anchor.wrapping_add_signed(distance.parse()?),
        cookie: 0,
        window: window.parse()?,
        window_lead: lead.parse()?,
        host: host.parse()?,
        host_window: host_window.parse()?,
        ..ProbePlace::default()
    })
}
