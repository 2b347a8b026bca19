//! Functions that get no window whatever their instructions are: by name, since what
//! they are for cannot be seen in their code.
//!
//! The lists were written by hand from the source of Linux 6.12. A name that a kernel does
//! not have does no harm; nothing notices one that is missing here.

use std::collections::HashSet;

use iced_x86::{Code, CpuidFeature, Instruction, Mnemonic, OpKind, Register};

use crate::world::World;

use super::reason::Reason;

/// What a change of text executes.
static CHANGES_CODE: &str = include_str!("changes_code.txt");

/// The names of the list.
pub fn changes_code() -> impl Iterator<Item = &'static str> {
    CHANGES_CODE.lines().filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// Functions that are copied and executed elsewhere, that run under other page tables or change stacks, or that a CPU
/// executes while it is not set up: without per-CPU memory or without a table of interrupts. From hibernate_asm_64.S,
/// wakeup_64.S, entry_64.S, efi_stub_64.S, efi_thunk_64.S, head_64.S, madt_playdead.S, relocate_kernel_64.S, smpboot.c,
/// cpu/common.c, idt.c, power/cpu.c, machine_kexec_64.c. `kernel/xk/text/unready.c` has the same list.
pub const RUNS_ELSEWHERE: [&str; 49] = [
    "__efi64_thunk",
    "__efi_call",
    "__restore_processor_state",
    "__startup_64",
    "__switch_to_asm",
    "asm_acpi_mp_play_dead",
    "common_startup_64",
    "core_restore_code",
    "cpu_init_exception_handling",
    "cr4_init",
    "cr4_update_irqsoff",
    "do_suspend_lowlevel",
    "early_idt_handler_array",
    "early_idt_handler_common",
    "early_setup_idt",
    "load_current_idt",
    "load_segments",
    "machine_kexec",
    "native_load_idt",
    "native_load_tr_desc",
    "native_read_msr",
    "native_write_cr0",
    "native_write_cr4",
    "native_write_gdt_entry",
    "native_write_msr",
    "pvh_start_xen",
    "relocate_kernel",
    "relocate_range",
    "restore_image",
    "restore_processor_state",
    "restore_registers",
    "secondary_startup_64",
    "secondary_startup_64_no_verify",
    "setup_getcpu",
    "setup_ghcb",
    "sev_verify_cbit",
    "soft_restart_cpu",
    "start_cpu0",
    "start_secondary",
    "startup_64",
    "startup_64_load_idt",
    "startup_64_setup_gdt_idt",
    "swsusp_arch_suspend",
    "tss_setup_io_bitmap",
    "tss_setup_ist",
    "vc_boot_ghcb",
    "vc_no_ghcb",
    "verify_cpu",
    "wakeup_long64",
];

/// Stubs that the kernel writes, or that mitigations rely on byte by byte.
const THUNKS: [&str; 12] = [
    "__SCT__",
    "__x86_",
    "__static_call_return0",
    "srso_",
    "retbleed_",
    "entry_untrain_ret",
    "entry_ibpb",
    "its_",
    "clear_bhb_loop",
    "write_ibpb",
    "__fentry__",
    "zen_untrain_ret",
];

/// Why the function of these names gets no window; `changing` are those of [`changes_code`].
pub fn by_name(names: &[String], changing: &HashSet<&str>) -> Option<Reason> {
    let any = |of: &dyn Fn(&str) -> bool| names.iter().any(|name| of(base(name)));
    let begins = |list: &[&str]| any(&|name| list.iter().any(|prefix| name.starts_with(prefix)));
    if begins(&["__pfx_", "__cfi_"]) {
        return Some(Reason::Room);
    }
    if begins(&THUNKS) {
        return Some(Reason::Thunk);
    }
    if any(&|name| changing.contains(name)) || begins(&["optprobe_template_"]) {
        return Some(Reason::ChangesCode);
    }
    any(&|name| RUNS_ELSEWHERE.contains(&name)).then_some(Reason::RunsElsewhere)
}

/// Without what the compiler appended to a part or a clone.
pub fn base(name: &str) -> &str {
    const SUFFIXES: [&str; 5] = [".cold", ".constprop.", ".isra.", ".part.", ".llvm."];
    let mut dots = name.match_indices('.').map(|(at, _)| at);
    let end = dots.find(|at| SUFFIXES.iter().any(|suffix| name[*at..].starts_with(suffix)));
    end.map_or(name, |end| &name[..end])
}

/// Whether BTF knows the function, or it is a part or a clone of one that the compiler
/// made. Interrupt entries, stubs and labels in assembly have no type.
pub fn is_compiled(world: &World, names: &[String]) -> bool {
    names.iter().any(|name| base(name) != name || world.types.has_function(name))
}

/// Whether a jump through a thunk can be a call in the last place: what the compiler
/// makes of those has a prototype, and what it compiles has no jump tables
/// (`-fno-jump-tables`); the addresses of computed gotos are words of the data. In
/// assembly, which has types without parameters and results, it may go anywhere.
pub fn may_tail_call(world: &World, names: &[String]) -> bool {
    let typed = |name: &String| {
        let prototype = world.types.function(base(name));
        prototype.is_none_or(|of| !of.parameters.is_empty() || of.results > 0 || base(name) != name)
    };
    is_compiled(world, names) && names.iter().any(typed)
}

/// Whether an instruction must stay where it is, or only works together with the one after it.
pub fn stays(insn: &Instruction) -> bool {
    depends_on_place(insn.mnemonic())
        || is_system(insn)
        || moves_system_register(insn)
        || insn.memory_base() == Register::EIP
        || is_narrow_jump(insn)
        // The FPU records the address of its last instruction.
        || insn.cpuid_features().contains(&CpuidFeature::FPU)
}

/// Instructions whose effect depends on their address, or on the instruction after them.
fn depends_on_place(mnemonic: Mnemonic) -> bool {
    use Mnemonic as M;
    matches!(
        mnemonic,
        // Interrupts are held off until the instruction after it.
        M::Sti | M::Hlt | M::Mwait | M::Mwaitx | M::Tpause | M::Umwait
        // The processor saves or replaces the instruction pointer itself.
        | M::Syscall | M::Sysret | M::Sysretq | M::Sysenter | M::Sysexit | M::Sysexitq | M::Rsm
        | M::Vmlaunch | M::Vmresume | M::Vmrun | M::Vmcall | M::Vmmcall | M::Vmfunc | M::Vmgexit | M::Skinit
        | M::Getsec | M::Encls | M::Enclu | M::Enclv | M::Seamcall | M::Seamops | M::Seamret | M::Tdcall
        | M::Xbegin | M::Xabort | M::Xend | M::Uiret | M::Lkgs | M::Swapgs | M::Pvalidate | M::Psmash
        | M::Rmpadjust | M::Rmpupdate
        // Loops on a counter reach only 127 bytes.
        | M::Loop | M::Loope | M::Loopne | M::Jcxz | M::Jecxz | M::Jrcxz
    )
}

/// Instructions that `kernel/xk/text/relocate.c` refuses: those of interrupts, ports, segments and the machine.
fn is_system(insn: &Instruction) -> bool {
    use Mnemonic as M;
    #[rustfmt::skip]
    let by_name = matches!(
        insn.mnemonic(),
        M::Cli | M::Popf | M::Popfd | M::Popfq
        | M::In | M::Out | M::Insb | M::Insw | M::Insd | M::Outsb | M::Outsw | M::Outsd
        | M::Sldt | M::Str | M::Lldt | M::Ltr | M::Verr | M::Verw | M::Sgdt | M::Sidt | M::Lgdt | M::Lidt
        | M::Smsw | M::Lmsw | M::Clts | M::Wrmsr | M::Xgetbv | M::Xsetbv | M::Rdpkru | M::Wrpkru
        | M::Invd | M::Wbinvd | M::Invlpg | M::Invlpga | M::Invlpgb | M::Tlbsync | M::Clzero | M::Mcommit
        | M::Monitor | M::Monitorx | M::Clac | M::Stac | M::Rdtscp | M::Rdpru | M::Serialize
        | M::Vmload | M::Vmsave | M::Stgi | M::Clgi | M::Encls
    );
    by_name || matches!(insn.code(), Code::Retnq_imm16)
}

/// Whether an instruction writes a segment register, or reads or writes a control or debug register.
fn moves_system_register(insn: &Instruction) -> bool {
    insn.mnemonic() == Mnemonic::Mov
        && (0..insn.op_count()).any(|n| {
            let register = if insn.op_kind(n) == OpKind::Register { insn.op_register(n) } else { Register::None };
            register.is_cr() || register.is_dr() || n == 0 && register.is_segment_register()
        })
}

/// Whether an instruction is a jump with an operand size that is not the one of 64-bit code.
fn is_narrow_jump(insn: &Instruction) -> bool {
    let jumps = insn.is_jcc_near() || insn.is_jcc_short() || insn.is_jmp_near() || insn.is_jmp_short();
    jumps && insn.op0_kind() != OpKind::NearBranch64
}
