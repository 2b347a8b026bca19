//! An instruction, as it was found for a place.

use xk_runtime::ProbePlace;
use xk_span::window::{Reason, Window};

use crate::operand::Operand;
use crate::place::Place;
use crate::reach::{NoJump, Reach};

/// An instruction that can be probed, or one that was asked about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Its address in the running kernel; in the image, if that does not run.
    pub address: u64,
    /// The module of its function; `None`: vmlinux.
    pub module: Option<String>,
    /// Its function.
    pub function: String,
    /// Bytes from the first byte of the function.
    pub offset: u64,
    /// It in AT&T syntax.
    pub text: String,
    /// Its length in bytes.
    pub length: u8,
    /// How a probe reaches it.
    pub reach: Reach,
    /// Bytes from the start of its window that xk.ko may use for the jump: at least the window.
    pub room: u8,
    /// It comes after an `endbr64` that was asked for.
    pub after_endbr: bool,
    /// It is a call that kprobes emulate wrongly: none may be there.
    pub long_call: bool,
    /// Where it finds its target, if it is an indirect call or jump, and a place names it by its class.
    pub operand: Option<Operand>,
    /// The function where a window begins, if entry code was asked for.
    pub(crate) body: Option<String>,
}

impl Found {
    /// `[module:]function[+offset]`, which names the instruction again.
    #[must_use]
    pub fn name(&self) -> String {
        Place::Instruction { module: self.module.clone(), function: self.function.clone(), offset: self.offset }
            .to_string()
    }

    /// Why no jump reaches it.
    #[must_use]
    pub fn no_jump(&self) -> Option<String> {
        let why = match &self.reach {
            Reach::Jump(_) | Reach::Short(..) => return None,
            Reach::Nothing(reason) => return Some(sentence(reason)),
            Reach::Tracer(why) | Reach::Kprobe(why) => why,
        };
        Some(match why {
            NoJump::Crowded => "other places use the room for its second jump".into(),
            NoJump::EntryCode(_) => {
                let body = self.body.as_deref().unwrap_or("the instruction after it");
                format!("the function tracer changes these bytes; a jump can reach {body}")
            }
            NoJump::Window(reason) => sentence(reason),
        })
    }

    /// As xk.ko takes it.
    #[must_use]
    pub fn probe(&self, cookie: u64) -> ProbePlace {
        let place = ProbePlace { address: self.address, cookie, ..ProbePlace::default() };
        let lead = |window: &Window| window.lead.unsigned_abs();
        match &self.reach {
            Reach::Jump(window) => ProbePlace { window: self.room, window_lead: lead(window), ..place },
            Reach::Short(window, hosts) => hosts.first().map_or(place, |host| ProbePlace {
                window: window.len,
                window_lead: lead(window),
                host: host.distance,
                host_window: host.len,
                ..place
            }),
            _ => place,
        }
    }
}

pub(crate) fn sentence(reason: &Reason) -> String {
    match reason {
        Reason::Unknown => "the running kernel has freed the lists of code that it changes, and its boot image, which \
                            contains them, is not in /boot: name it with --vmlinuz"
            .into(),
        other => other.to_string(),
    }
}
