//! How control reaches the program of a probe.

use iced_x86::{FlowControl, Instruction, OpKind};
use xk_span::window::{Reason, Short, Window};

/// Bytes of a direct call without prefixes.
const CALL_LEN: usize = 5;
/// Sections that the kernel's list of functions without kprobes contains as a whole.
const LISTED: [&str; 4] = [".noinstr.text", ".entry.text", ".kprobes.text", ".cpuidle.text"];

/// How an instruction can be reached, as far as the analysis of the image tells. xk.ko decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reach {
    /// By a jump in place of this window.
    Jump(Window),
    /// By a short jump in place of this window, to a jump at the end of one of the hosts.
    Short(Window, Vec<Host>),
    /// By the function tracer, or by a kprobe if a program calls `bpf_get_func_ip()`.
    Tracer(NoJump),
    /// By a kprobe.
    Kprobe(NoJump),
    /// By neither.
    Nothing(Reason),
}

/// A window that has room for another one's relay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Host {
    /// From the start of the short window to that of the host.
    pub distance: i16,
    /// Bytes of the host.
    pub len: u8,
}

/// Why no jump reaches an instruction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoJump {
    /// There is no window.
    Window(Reason),
    /// It has a short window, and other places use the room for its relay.
    Crowded,
    /// It is entry code that does nothing by itself; a window begins this many bytes after it.
    EntryCode(u8),
}

impl Reach {
    /// From what the analysis says about windows around `insn`, and about short ones.
    pub(crate) fn new(
        window: Result<Window, Reason>,
        short: impl FnOnce() -> Result<Short, Reason>,
        insn: &Instruction,
    ) -> Self {
        match window {
            Ok(window) if window.lead >= 0 => Self::Jump(window),
            Ok(window) => Self::Tracer(NoJump::EntryCode(window.lead.unsigned_abs())),
            Err(Reason::Tracing) => Self::Tracer(NoJump::Window(Reason::Tracing)),
            Err(reason) => match short() {
                Ok(short) => Self::short(&short, insn.ip()),
                Err(_) if forbids_kprobes(&reason, insn) => Self::Nothing(reason),
                Err(_) => Self::Kprobe(NoJump::Window(reason)),
            },
        }
    }

    fn short(short: &Short, address: u64) -> Self {
        let start = address - u64::from(short.window.lead.unsigned_abs());
        let host = |relay: &xk_span::window::Relay| {
            let distance = i16::try_from(relay.host.wrapping_sub(start) as i64).ok()?;
            Some(Host { distance, len: relay.window.len })
        };
        Self::Short(short.window, short.relays.iter().filter_map(host).collect())
    }

    /// One word: `jump`, `tracer`, `kprobe` or `nothing`.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Jump(_) | Self::Short(..) => "jump",
            Self::Tracer(_) => "tracer",
            Self::Kprobe(_) => "kprobe",
            Self::Nothing(_) => "nothing",
        }
    }
}

/// A direct call with a prefix: of retpolines of r8 to r15. Kprobes take it, and emulate it as if it had five bytes: the
/// callee returns into the middle of an instruction (`int3_emulate_call()` of Linux 6.12). So nothing may use a kprobe here.
pub(crate) fn is_long_call(insn: &Instruction) -> bool {
    insn.flow_control() == FlowControl::Call && insn.len() != CALL_LEN
}

/// Whether kprobes refuse an instruction that has no window: `check_kprobe_address_safe`, `can_probe` and
/// `prepare_emulation` of Linux 6.12.
fn forbids_kprobes(reason: &Reason, insn: &Instruction) -> bool {
    let indirect = matches!(insn.flow_control(), FlowControl::IndirectBranch | FlowControl::IndirectCall);
    let trap = matches!(insn.flow_control(), FlowControl::Exception | FlowControl::Interrupt);
    if trap || indirect && insn.op0_kind() != OpKind::Register || is_long_call(insn) {
        return true;
    }
    match reason {
        Reason::NoCode
        | Reason::NoInstruction
        | Reason::Boot
        | Reason::Blacklisted
        // xk.ko refuses probes there, although kprobes accept them.
        | Reason::RunsElsewhere
        | Reason::JumpLabel
        | Reason::StaticCall
        | Reason::Trap(_) => true,
        Reason::Section(name) => LISTED.iter().any(|listed| name.starts_with(listed)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use iced_x86::{Decoder, DecoderOptions};

    use super::*;

    fn insn(bytes: &[u8]) -> Instruction {
        Decoder::new(64, bytes, DecoderOptions::NONE).decode()
    }

    #[test]
    fn a_window_that_begins_after_the_instruction_is_not_used() {
        let window = |lead| Window { lead, len: 5, insns: 1, padding: 0 };
        let nop = insn(&[0x0f, 0x1f, 0x44, 0, 0]);
        let reach = |lead| Reach::new(Ok(window(lead)), || Err(Reason::NoRelay), &nop);
        assert_eq!(reach(0), Reach::Jump(window(0)));
        assert_eq!(reach(3), Reach::Jump(window(3)));
        assert_eq!(reach(-5), Reach::Tracer(NoJump::EntryCode(5)));
        let alone = Reach::new(Err(Reason::Tracing), || Err(Reason::NoRelay), &nop);
        assert_eq!(alone, Reach::Tracer(NoJump::Window(Reason::Tracing)));
    }

    #[test]
    fn what_kprobes_refuse_is_known() {
        let (ret, by_register, by_memory) = (insn(&[0xc3]), insn(&[0xff, 0xd0]), insn(&[0xff, 0x10]));
        let word = |reason: Reason, insn: &Instruction| Reach::new(Err(reason), || Err(Reason::NoRelay), insn).word();
        assert_eq!(word(Reason::Ends, &ret), "kprobe");
        assert_eq!(word(Reason::Section(".noinstr.text".into()), &ret), "nothing");
        assert_eq!(word(Reason::Section(".irqentry.text".into()), &ret), "kprobe");
        assert_eq!(word(Reason::Blacklisted, &ret), "nothing");
        let long = insn(&[0x2e, 0xe8, 0, 0, 0, 0]); // cs call
        assert_eq!(word(Reason::Assembly, &long), "nothing");
        assert_eq!(word(Reason::Assembly, &insn(&[0xe8, 0, 0, 0, 0])), "kprobe");
        // After the jump of a static call's trampoline.
        assert_eq!(word(Reason::Section(".static_call.text".into()), &insn(&[0x0f, 0xb9, 0xcc])), "nothing");
        assert_eq!(word(Reason::Indirect("call *%rax".into()), &by_register), "kprobe");
        assert_eq!(word(Reason::Indirect("call *(%rax)".into()), &by_memory), "nothing");
    }
}
