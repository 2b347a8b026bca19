//! Where one jump may stand: small functions that show one reason each, assembled and
//! linked as a module, with the tables that a kernel has about itself.

#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use common::CompiledUnit;
use xk_span::window::{fill, Index, Reason, Window, Windows};
use xk_table::{Indirection, When};

/// The function that the tests ask about; a part of a compiled one, by its name.
const F: &str = "f.part.0";

/// Assembles functions; `fn NAME` begins one and `end NAME` ends it.
fn assembled(text: &str) -> CompiledUnit {
    let macros = ".macro fn name\n.type \\name,@function\n\\name:\n.endm\n\
        .macro end name\n.size \\name, . - \\name\n.endm\n\
        .macro section name, flags\n.pushsection \\name,\"\\flags\"\n.endm\n";
    let text = format!("{text}\n").replace(" f\n", &format!(" {F}\n"));
    CompiledUnit::new(&format!("asm(R\"(\n{macros}.text\n.p2align 4\n{text})\");"))
}

/// The window at instruction `index` of `function`.
fn window_of(unit: &CompiledUnit, function: &str, index: usize) -> Result<Window, Reason> {
    let insns = unit.insns(function);
    let map = Index::new(&unit.world);
    Windows::new(&unit.world, &map).at(insns[index].ip())
}

/// The window at the first instruction of a function with this body.
fn first(body: &str) -> Result<Window, Reason> {
    window_of(&assembled(&format!("fn f\n{body}\nend f")), F, 0)
}

fn window(lead: i8, len: u8, insns: u8, padding: u8) -> Result<Window, Reason> {
    Ok(Window { lead, len, insns, padding })
}

#[test]
fn whole_instructions_of_at_least_five_bytes() {
    assert_eq!(first("mov $1,%eax\nret"), window(0, 5, 1, 0));
    assert_eq!(first("push %rbp\nmov %rsp,%rbp\nsub $8,%rsp\nret"), window(0, 8, 3, 0));
    assert_eq!(first("mov 8(%rip),%rax\nret"), window(0, 7, 1, 0), "relative operands move with their displacement");
    assert_eq!(first("test %eax,%eax\njne 1f\ninc %eax\nmov $1,%eax\n1: ret"), window(0, 6, 3, 0), "a branch goes out");
    assert_eq!(first("1: nop\ninc %eax\njne 1b\nmov $1,%eax\nret"), window(0, 5, 3, 0), "back to the beginning");
    assert_eq!(first("xor %eax,%eax\ncall g\nret"), window(0, 7, 2, 0), "a call in the last place");
    assert_eq!(first("xor %eax,%eax\njmp g"), window(0, 7, 2, 0));
}

#[test]
fn padding_that_nobody_reaches_belongs_to_the_window() {
    assert_eq!(first("pop %rbx\nret\n.fill 8,1,0xcc"), window(0, 5, 2, 3));
    assert_eq!(first("jmp 1f\nnopl 0(%rax)\n1: mov $1,%eax\nret"), window(0, 5, 1, 3), "between two blocks");
    assert_eq!(first("pop %rbx\nret\n.nops 6"), window(0, 8, 2, 6), "whole instructions only");
}

#[test]
fn the_end_of_a_function_is_no_padding() {
    let next = "\nend f\nfn g.part.0\nmov $1,%eax\nret\nend g.part.0\nfn f2";
    assert_eq!(first(&format!("pop %rbx\nret\nint3{next}")), Err(Reason::Ends), "the next function");
    assert_eq!(first("pop %rbx\nret\nmov $1,%eax"), Err(Reason::Ends), "code that is not understood to be dead");
    assert_eq!(first("jmp 1f\n1: nopl 0(%rax)\nret"), Err(Reason::Entered(2)), "no-ops that somebody reaches");
    assert_eq!(first("pop %rbx\nret\n1: nopl 0(%rax)\njmp 1b"), Err(Reason::Entered(2)));
    let room = "\nend f\nfn __pfx_g\n.fill 16,1,0x90\nend __pfx_g\nfn g.part.0\nret\nend g.part.0\nfn f2";
    assert_eq!(
        first(&format!("pop %rbx\nret{room}")),
        Err(Reason::Ends),
        "the kernel fills the room before a function"
    );
    assert_eq!(first("call g\n.fill 4,1,0xcc"), window(0, 5, 1, 0), "behind a call that does not return");
    assert_eq!(first("inc %eax\nnop"), Err(Reason::Ends), "it falls into what follows");
}

/// Every way in which somebody may arrive three bytes behind the beginning.
#[test]
fn nobody_may_enter_a_window() {
    let body = "mov %rdi,%rax\n.Lin: add %rsi,%rax\nret\n.p2align 4";
    let other = |text: &str| format!("fn f\n{body}\nend f\n{text}");
    let ways = [
        ("a jump of the function", format!("fn f\n{body}\njmp .Lin\nend f")),
        ("a short branch", format!("fn f\n{body}\njne .Lin\nend f")),
        ("a jump of another function", other("fn g.part.0\njmp .Lin\nend g.part.0")),
        ("a call of another function", other("fn g.part.0\ncall .Lin\nret\nend g.part.0")),
        ("its cold part", other("section .text.unlikely,ax\nfn f.cold\njmp .Lin\nend f.cold\n.popsection")),
        (
            "code that runs at the start",
            other("section .init.text,ax\nfn g.part.0\njmp .Lin\nend g.part.0\n.popsection"),
        ),
        ("an address that is taken", other("fn g.part.0\nlea .Lin(%rip),%rax\nret\nend g.part.0")),
        ("an address in an operand", other("fn g.part.0\nmov $.Lin,%rax\nret\nend g.part.0")),
        ("a word of data", other("section .data,aw\n.balign 8\n.quad .Lin\n.popsection")),
        ("a word that is not aligned", other("section .data,aw\n.balign 8\n.byte 1\n.quad .Lin\n.popsection")),
        ("a table of read-only data", other("section .rodata,a\n.balign 8\n.quad 0, .Lin\n.popsection")),
        (
            "what continues behind a fault",
            other(
                "fn g.part.0\n.Lg: mov (%rdi),%rax\nret\nend g.part.0\n\
                   section __ex_table,a\n.long .Lg - ., .Lin - ., 1\n.popsection",
            ),
        ),
        (
            "a jump label",
            other(
                "fn g.part.0\n.Lg: .byte 0x0f,0x1f,0x44,0,0\nret\nend g.part.0\n\
                   section __jump_table,aw\n.long .Lg - ., .Lin - .\n.quad 0\n.popsection",
            ),
        ),
        (
            "what an alternative puts in",
            other(
                "fn g.part.0\n.Lg: .nops 5\nret\nend g.part.0\n\
                   section .altinstr_replacement,ax\n.Lr: jmp .Lin\n.popsection\n\
                   section .altinstructions,a\n.long .Lg - ., .Lr - ., 1\n.byte 5,2\n.popsection",
            ),
        ),
        ("a label", other(".globl entry\n.set entry, .Lin")),
    ];
    for (way, text) in ways {
        let reason = window_of(&assembled(&text), F, 0).unwrap_err();
        // A symbol is the end of what was a function.
        let expected = if way == "a label" { Reason::Ends } else { Reason::Entered(3) };
        assert_eq!(reason, expected, "{way}");
    }
    assert_eq!(window_of(&assembled(&other("")), F, 0), window(0, 6, 2, 0), "and without any");
}

#[test]
fn the_beginning_may_be_entered() {
    let unit =
        assembled("fn f\nmov %rdi,%rax\nadd %rsi,%rax\njne f\njmp f\nend f\nfn g.part.0\ncall f\nret\nend g.part.0");
    assert_eq!(window_of(&unit, F, 0), window(0, 6, 2, 0));
}

/// An instruction before a place that is entered has the window that begins before it.
#[test]
fn a_window_may_begin_before_the_instruction() {
    let body = |before: &str| format!("fn f\n{before}\npop %rbx\n1: mov $1,%eax\nret\n.p2align 4\njmp 1b\nend f");
    assert_eq!(window_of(&assembled(&body("mov 8(%rdi),%rax")), F, 1), window(4, 5, 2, 0));
    assert_eq!(
        window_of(&assembled(&body("test %rax,%rax\njne 1f")), F, 2),
        window(5, 6, 3, 0),
        "who leaves does not come"
    );
    assert_eq!(
        window_of(&assembled(&body("push %rax\ncall g")), F, 2),
        Err(Reason::Entered(1)),
        "a call comes back there"
    );
    let entered = "mov 8(%rdi),%rax\njmp 2f\nmov 8(%rdi),%rax\n2:";
    assert_eq!(window_of(&assembled(&body(entered)), F, 3), Err(Reason::Entered(1)), "somebody does not come by");
    assert_eq!(window_of(&assembled(&body("mov $1,%eax\nret")), F, 2), Err(Reason::Entered(1)), "nobody comes by");
}

#[test]
fn what_the_kernel_changes_is_left_alone() {
    let nop = ".byte 0x0f,0x1f,0x44,0,0";
    let tables = [
        (Reason::JumpLabel, "section __jump_table,aw\n.long .Lat - ., .Lout - .\n.quad 0\n.popsection"),
        (Reason::StaticCall, "section .static_call_sites,aw\n.long .Lat - ., 0\n.popsection"),
        (
            Reason::Alternative,
            "section .altinstr_replacement,ax\n.Lr: clac\n.popsection\n\
             section .altinstructions,a\n.long .Lat - ., .Lr - ., 1\n.byte 5,3\n.popsection",
        ),
        (Reason::Tracing, "section __mcount_loc,aw\n.quad .Lat\n.popsection"),
    ];
    for (reason, table) in tables {
        let text = format!("fn f\nxor %eax,%eax\n.Lat: {nop}\nmov $1,%eax\n.Lout: ret\n.p2align 4\nend f\n{table}");
        let unit = assembled(&text);
        assert_eq!(window_of(&unit, F, 0), Err(reason.clone()), "it begins before {reason:?}");
        let at = window_of(&unit, F, 1);
        // An update before the tracer's bytes is one behind them.
        let behind = if reason == Reason::Tracing { window(-5, 5, 1, 0) } else { Err(reason.clone()) };
        assert_eq!(at, behind, "at {reason:?}");
        assert_eq!(window_of(&unit, F, 2), window(0, 5, 1, 0), "behind {reason:?}");
    }
    let text = format!("fn f\nxor %eax,%eax\n.Lat: {nop}\nmov $1,%eax\n.Lout: ret\nend f");
    assert_eq!(window_of(&assembled(&text), F, 0), window(0, 7, 2, 0), "without a table they are no-ops");
}

#[test]
fn what_may_fault_on_purpose_stays() {
    let text = "fn f\nxor %eax,%eax\n.Lat: mov (%rdi),%rax\nnop\n.Lout: ret\n.p2align 4\nend f\n\
        section __ex_table,a\n.long .Lat - ., .Lout - ., 1\n.popsection";
    let reason = window_of(&assembled(text), F, 0).unwrap_err();
    assert_eq!(reason, Reason::Faults("mov rax,[rdi]".into()));
    assert!(reason.to_string().contains("exception table"));
}

#[test]
fn instructions_that_cannot_move() {
    let trap = ["ud2", "int3", "int $0x80", "ud1 %eax,%eax"];
    let indirect = ["call *%rax", "jmp *(%rax)", "notrack jmp *%rax", "call *8(%rip)", "lcall *(%rax)"];
    let position = [
        "1: loop 1b",
        "1: jrcxz 1b",
        "xbegin f2",
        "sti",
        "hlt",
        "mwait",
        "mov %rax,%cr3",
        "mov %eax,%ss",
        "syscall",
        "sysretq",
        "iretq",
        "lretq",
        "vmlaunch",
        "swapgs",
        "fld1",
        "mov 8(%eip),%eax",
        "vmrun",
    ];
    let all = [(&trap[..], "trap"), (&indirect[..], "indirect"), (&position[..], "position")];
    for (insns, key) in all {
        for insn in insns {
            let reason = first(&format!("nop\n{insn}\n.nops 8\nret\nend f\nfn f2")).unwrap_err();
            // The whole function is refused where a jump may go anywhere.
            let computed = reason == Reason::Computed && insn.contains("jmp");
            assert!(reason.key() == key || computed, "{insn}: {reason:?}");
        }
    }
    for insn in ["cli", "popf", "wrmsr", "in %dx,%al", "mov %eax,%ds", "mov %cr2,%rax", "clac", "ret $8", "verw (%rax)"]
    {
        assert_eq!(first(&format!("nop\n{insn}\n.nops 8\nret")).unwrap_err().key(), "position", "{insn}: as xk.ko");
    }
    assert_eq!(first("rdmsr\nmov $1,%eax\nret"), window(0, 7, 2, 0), "privileged is not the same as immovable");
}

#[test]
fn one_instruction_has_fifteen_bytes() {
    let long = "movq $0x12345678,0x12345678(%rax,%rcx,2)";
    assert_eq!(first(&format!("mov %rax,%rbx\n{long}\nret")), window(0, 15, 2, 0));
    assert_eq!(first(&format!("mov 8(%rax),%rbx\n{long}\nret")), Err(Reason::TooLong));
}

#[test]
fn an_update_at_the_entry_runs_behind_what_belongs_to_others() {
    let traced = "section __mcount_loc,aw\n.quad .Lat\n.popsection";
    let text = |rest: &str| {
        format!("fn f\nendbr64\n.Lat: .byte 0x0f,0x1f,0x44,0,0\n.Lin: mov $1,%eax\nret\n.p2align 4\n{rest}\nend f\n{traced}")
    };
    let unit = assembled(&text(""));
    assert_eq!(window_of(&unit, F, 0), window(-9, 5, 1, 0));
    assert_eq!(window_of(&unit, F, 1), window(-5, 5, 1, 0));
    let unit = assembled(&text("jmp .Lin"));
    assert_eq!(window_of(&unit, F, 0), Err(Reason::Landing), "a loop comes back behind it");
    assert_eq!(window_of(&unit, F, 1), Err(Reason::Tracing));
    assert_eq!(window_of(&unit, F, 2), window(0, 5, 1, 0));
}

#[test]
fn functions_that_get_none() {
    let body = "mov $1,%eax\nret";
    let of = |name: &str| assembled(&format!("fn {name}\n{body}\nend {name}"));
    let named = [
        ("text_poke_bp.part.0", Reason::ChangesCode),
        ("multi_cpu_stop.constprop.0", Reason::ChangesCode),
        ("restore_registers", Reason::RunsElsewhere),
        ("__pfx_f", Reason::Room),
        ("__SCT__tp_func_x", Reason::Thunk),
        ("__x86_indirect_thunk_rax", Reason::Thunk),
        ("assembly", Reason::Assembly),
    ];
    for (name, reason) in named {
        assert_eq!(window_of(&of(name), name, 0), Err(reason), "{name}");
    }
    for section in [".noinstr.text", ".entry.text", ".kprobes.text", ".static_call.text"] {
        let text = format!("section {section},ax\nfn f\n{body}\nend f\n.popsection");
        assert_eq!(window_of(&assembled(&text), F, 0), Err(Reason::Section(section.into())));
    }
    let text = format!("section .init.text,ax\nfn f\n{body}\nend f\n.popsection");
    assert_eq!(window_of(&assembled(&text), F, 0), Err(Reason::Boot));
    let text = format!("fn f\n{body}\nend f\nsection _kprobe_blacklist,aw\n.quad f\n.popsection");
    let text = text.replace(".quad f", &format!(".quad {F}"));
    assert_eq!(window_of(&assembled(&text), F, 0), Err(Reason::Blacklisted));
    // A part of a listed function is listed, too; a function with a longer name is not.
    let of_three = |names: [&str; 3]| names.map(|name| format!("fn {name}\n{body}\nend {name}\n")).concat();
    let three = of_three(["g", "g.isra.0", "g_other"]);
    let three = assembled(&format!("{three}section _kprobe_blacklist,aw\n.quad g\n.popsection"));
    let reason = |name: &str| window_of(&three, name, 0).err();
    assert_eq!([reason("g"), reason("g.isra.0")], [Some(Reason::Blacklisted), Some(Reason::Blacklisted)]);
    assert_ne!(reason("g_other"), Some(Reason::Blacklisted));
    assert_eq!(first("mov $1,%eax\nret\n.byte 0x06"), Err(Reason::Undecodable));
    assert_eq!(first("mov $1,%eax\njne . - 3\nret"), Err(Reason::Undecodable), "a jump between two instructions");
    assert_eq!(first("mov $1,%eax\njmp *%rax"), Err(Reason::Computed));
}

/// A call in the last place goes through a thunk; so does a jump through a table in
/// assembly, which has neither parameters nor results.
#[test]
fn a_thunk_is_a_call_only_where_there_is_a_prototype() {
    let thunk = "extern void __x86_indirect_thunk_rax(void);";
    let body = "{ asm volatile(\"mov $1,%eax\\n jmp __x86_indirect_thunk_rax\"); }";
    let naked = |head: &str| CompiledUnit::new(&format!("{thunk} __attribute__((naked)) {head} {body}"));
    assert_eq!(window_of(&naked("u64 f(u64 a)"), "f", 0), window(0, 5, 1, 0));
    assert_eq!(window_of(&naked("void f(void)"), "f", 0), Err(Reason::Computed));
}

#[test]
fn only_instructions_have_windows() {
    let unit = assembled("fn f\nmov $1,%eax\nret\nend f");
    let map = Index::new(&unit.world);
    let windows = Windows::new(&unit.world, &map);
    assert_eq!(windows.at(unit.insns(F)[0].ip() + 1), Err(Reason::NoInstruction));
    assert_eq!(windows.at(0x1000), Err(Reason::NoCode));
}

/// Tables that a running kernel has dropped are not taken for empty ones.
#[test]
fn what_is_not_known_is_refused() {
    let mut unit = assembled("fn f\nmov $1,%eax\nret\nend f");
    assert_eq!(window_of(&unit, F, 0), window(0, 5, 1, 0));
    unit.world.forgotten = true;
    assert_eq!(window_of(&unit, F, 0), Err(Reason::Unknown));
    unit.world.forgotten = false;
    unit.world.patches.incomplete = true;
    assert_eq!(window_of(&unit, F, 0), Err(Reason::Unknown));
}

/// Updates of one constant that lie close together have windows that do not meet.
#[test]
fn neighbours_are_separated_or_one_of_them_has_none() {
    let filled = |body: &str, sites: &[(usize, When)]| {
        let unit = assembled(&format!("fn f\n{body}\n.p2align 4\nend f"));
        let (index, insns) = (Index::new(&unit.world), unit.insns(F));
        let mut table = unit.table_at(F, sites.iter().map(|(n, when)| (insns[*n], *when)));
        fill(&unit.world, Windows::new(&unit.world, &index), &mut table).unwrap();
        table.spans.iter().map(|span| span.indirection.clone()).collect::<Vec<_>>()
    };
    let ranges = |all: &[Indirection]| all.iter().map(Indirection::window_range).collect::<Vec<_>>();
    let (before, after) = (When::Before, When::After);
    let body = "mov 8(%rdi),%rax\ninc %eax\ninc %ecx\nmov $1,%edx\nret";
    assert_eq!(ranges(&filled(body, &[(1, before)])), [Some(4..13)], "alone");
    assert_eq!(ranges(&filled(body, &[(1, before), (2, before)])), [Some(0..6), Some(6..13)], "apart");
    assert_eq!(ranges(&filled(body, &[(2, before), (1, before)])), [Some(6..13), Some(0..6)], "in any order");
    assert_eq!(ranges(&filled(body, &[(3, before), (3, before)])), [Some(8..13), Some(8..13)], "one place");
    let crowded = filled(body, &[(3, before), (3, after)]);
    assert_eq!(ranges(&crowded), [None, None], "before and behind one instruction");
    assert!(crowded.iter().all(|site| site.window_reason == Some(Reason::Crowded.to_string())));
    let one = filled("mov $1,%edx\n1: inc %eax\n2: ret\n.p2align 4\njmp 1b\njmp 2b", &[(0, before), (1, before)]);
    assert_eq!(ranges(&one), [Some(0..5), None]);
}

/// The names in the first list of a file of xk.ko, one per line.
fn names_in(file: &str) -> Vec<String> {
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernel/xk/text").join(file);
    let text = std::fs::read_to_string(file).unwrap();
    let list = text.split("names[] = {").nth(1).unwrap().split("};").next().unwrap();
    list.lines().filter_map(|line| line.trim().strip_prefix('"')?.strip_suffix("\",")).map(String::from).collect()
}

#[test]
fn the_module_refuses_probes_in_the_same_functions() {
    assert_eq!(names_in("unready.c"), xk_span::window::exclude::RUNS_ELSEWHERE);
}

#[test]
fn the_module_refuses_jumps_in_the_same_functions() {
    let mut names: Vec<&str> = xk_span::window::exclude::changes_code().collect();
    names.sort_unstable();
    assert_eq!(names_in("changes_code.c"), names, "ascending, for a binary search");
}
