//! The windows of the updates of a scope table.

use xk_table::{CriticalSpan, ScopeTable, When};

use super::{Reason, Windows};
use crate::scope::address;
use crate::world::World;

/// Gives every critical span of `table` the window around its site, or the reason why
/// there is none.
///
/// # Errors
/// A function of the table that is not in `world`, in words.
pub fn fill(world: &World, windows: Windows<'_>, table: &mut ScopeTable) -> Result<(), String> {
    let starts: Vec<u64> = table.functions.iter().map(|f| address(world, f)).collect::<Result<_, _>>()?;
    for span in &mut table.spans {
        let site = &mut span.indirection;
        let found =
            starts.get(span.function).map_or(Err(Reason::NoCode), |start| windows.at(start + u64::from(site.offset)));
        // What does nothing by itself is not what an update is about.
        let found = found.and_then(|window| Ok((window.len, u8::try_from(window.lead).map_err(|_| Reason::Landing)?)));
        match found {
            Ok((len, lead)) => (site.window, site.window_lead, site.window_reason) = (len, lead, None),
            Err(reason) => (site.window, site.window_lead, site.window_reason) = (0, 0, Some(reason.to_string())),
        }
    }
    crowd(&mut table.spans);
    Ok(())
}

/// Two updates of one place share its window; those of different places cannot lie in
/// the same bytes, whatever backend the other one has.
fn crowd(spans: &mut [CriticalSpan]) {
    let place = |span: &CriticalSpan| (span.function, span.indirection.offset, span.indirection.when);
    let covers = |span: &CriticalSpan| {
        let site = &span.indirection;
        site.window_range().unwrap_or(site.offset..site.offset + u32::from(site.insn_len.max(1)))
    };
    let all: Vec<(usize, u32, When, std::ops::Range<u32>)> = spans
        .iter()
        .map(|span| {
            let (function, offset, when) = place(span);
            (function, offset, when, covers(span))
        })
        .collect();
    for span in spans.iter_mut().filter(|span| span.indirection.window > 0) {
        let (own, range) = (place(span), covers(span));
        let meets = |(function, offset, when, other): &(usize, u32, When, std::ops::Range<u32>)| {
            let elsewhere = (*function, *offset, *when) != own && *function == own.0;
            elsewhere && other.start < range.end && range.start < other.end
        };
        if all.iter().any(meets) {
            let site = &mut span.indirection;
            (site.window, site.window_lead) = (0, 0);
            site.window_reason = Some(Reason::Crowded.to_string());
        }
    }
}
