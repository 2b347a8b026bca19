//! Hosts of short windows that are probed together.
//!
//! In: instructions by address. Out: the same; each short window has one host. Two short windows have no host in common. A
//! host takes no bytes from a window that begins before it. Where that is not possible, a kprobe is used.

use std::collections::HashMap;
use std::ops::Range;

use crate::reach::{Host, NoJump, Reach};

/// Chooses the hosts.
pub(crate) fn separate(all: &mut [(u64, &mut Reach)]) {
    let windows = windows(all);
    let mut taken: Vec<Range<u64>> = Vec::new();
    let mut chosen: HashMap<u64, Option<Host>> = HashMap::new();
    for (address, reach) in all {
        let Reach::Short(window, hosts) = &mut **reach else { continue };
        let start = *address - u64::from(window.lead.unsigned_abs());
        let bytes = |host: &Host| {
            let first = start.wrapping_add_signed(host.distance.into());
            first..first + u64::from(host.len)
        };
        let host = *chosen.entry(start).or_insert_with(|| {
            let free = |host: &&Host| !taken.iter().any(|other| meet(other, &bytes(host)));
            hosts.iter().filter(free).find(|host| !cuts(&windows, bytes(host).start)).copied()
        });
        match host {
            Some(host) => {
                taken.push(bytes(&host));
                hosts.clear();
                hosts.push(host);
            }
            None => **reach = Reach::Kprobe(NoJump::Crowded),
        }
    }
}

/// The bytes that xk.ko replaces for the other instructions, ascending: one jump serves all instructions in its window.
fn windows(all: &[(u64, &mut Reach)]) -> Vec<Range<u64>> {
    let mut windows: Vec<Range<u64>> = Vec::new();
    for (address, reach) in all {
        let Reach::Jump(window) = &**reach else { continue };
        if windows.last().is_some_and(|last| last.contains(address)) {
            continue;
        }
        let start = *address - u64::from(window.lead.unsigned_abs());
        windows.push(start..start + u64::from(window.len));
    }
    windows
}

/// Whether a window begins before an address and goes on after it.
fn cuts(windows: &[Range<u64>], address: u64) -> bool {
    let before = windows.partition_point(|window| window.start < address);
    windows[..before].last().is_some_and(|window| window.end > address)
}

fn meet(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use xk_span::window::Window;

    use super::*;

    fn window(lead: i8, len: u8) -> Window {
        Window { lead, len, insns: 1, padding: 0 }
    }

    fn short(lead: i8, hosts: &[i16]) -> Reach {
        Reach::Short(window(lead, 2), hosts.iter().map(|distance| Host { distance: *distance, len: 10 }).collect())
    }

    /// The distance of the host of each short window.
    fn chosen(places: Vec<(u64, Reach)>) -> Vec<Option<i16>> {
        let mut places = places;
        let mut all: Vec<(u64, &mut Reach)> = places.iter_mut().map(|(address, reach)| (*address, reach)).collect();
        separate(&mut all);
        let host = |reach: &Reach| match reach {
            Reach::Short(_, hosts) => Some(hosts.first().map(|host| host.distance)),
            Reach::Kprobe(NoJump::Crowded) => Some(None),
            _ => None,
        };
        places.iter().filter_map(|(_, reach)| host(reach)).collect()
    }

    #[test]
    fn the_nearest_host_is_chosen() {
        assert_eq!(chosen(vec![(100, short(0, &[20, -30]))]), [Some(20)]);
    }

    #[test]
    fn two_short_windows_have_no_host_in_common() {
        assert_eq!(chosen(vec![(100, short(0, &[20])), (110, short(0, &[15, 60]))]), [Some(20), Some(60)]);
        assert_eq!(chosen(vec![(100, short(0, &[20])), (110, short(0, &[10]))]), [Some(20), None]);
    }

    #[test]
    fn instructions_of_one_short_window_share_its_host() {
        assert_eq!(chosen(vec![(100, short(0, &[20, 40])), (101, short(1, &[20, 40]))]), [Some(20), Some(20)]);
    }

    #[test]
    fn a_host_does_not_cut_a_window() {
        let jump = |lead, len| Reach::Jump(window(lead, len));
        assert_eq!(chosen(vec![(100, short(0, &[20, 40])), (117, jump(0, 6))]), [Some(40)], "it begins before");
        assert_eq!(chosen(vec![(100, short(0, &[20])), (117, jump(0, 6))]), [None]);
        assert_eq!(chosen(vec![(100, short(0, &[20])), (115, jump(0, 5))]), [Some(20)], "it ends there");
        assert_eq!(
            chosen(vec![(100, short(0, &[20])), (120, jump(0, 5)), (125, jump(0, 7))]),
            [Some(20)],
            "in the host"
        );
    }
}
