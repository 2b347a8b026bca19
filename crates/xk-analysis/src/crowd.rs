//! Updates that are too close to each other for kprobes to make jumps of them.
//!
//! In: all critical spans of a table. Out: the same, with the probes that will stay
//! breakpoints marked as such.

use xk_lift::probe;
use xk_table::{CriticalSpan, ProbeKind, When};

/// Kprobes does not optimise a probe when another one lies in the bytes that the
/// jump would cover: also not one of the same constant.
pub(crate) fn crowd(spans: &mut [CriticalSpan]) {
    let place = |span: &CriticalSpan| (span.function, span.indirection.offset, span.indirection.when);
    let sites: Vec<_> = spans.iter().map(place).collect();
    for span in spans.iter_mut() {
        let (function, at, _) = place(span);
        let covered = at..at + probe::JUMP_LEN as u32;
        let crowds = |&(f, site, when): &(usize, u32, When)| {
            f == function && covered.contains(&site) && (site != at || when != When::Before)
        };
        if sites.iter().any(crowds) && span.indirection.probe == ProbeKind::Jump {
            span.indirection.probe = ProbeKind::Int3;
            span.indirection.probe_reason = Some("another update lies in the five bytes".into());
        }
    }
}
