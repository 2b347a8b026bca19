//! Reading objects: what the kernel changes in its own code is masked, and
//! nothing else is; liveness and the predictions about probes.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::collections::BTreeSet;
use std::path::PathBuf;

use xk_lift::flow::Flow;
use xk_lift::insn::Node;
use xk_lift::object::Object;
use xk_lift::probe::{not_optimised, unprobeable};
use xk_lift::prototypes::Prototypes;
use xk_lift::state::Flag;
use xk_testing::{assemble, function, object};

/// Offsets of masked bytes of `f`.
fn masked(object: &Object) -> BTreeSet<usize> {
    let f = object.functions.values().find(|f| f.name == "f").unwrap();
    let (_, mask) = object.text_and_mask(f);
    assert!(mask.iter().all(|byte| matches!(byte, 0 | 0xff)));
    mask.iter().enumerate().filter(|(_, byte)| **byte == 0).map(|(at, _)| at).collect()
}

fn with_table(body: &str, table: &str) -> Object {
    object(&format!(".text\n.globl f\n.type f,@function\nf:\n{body}\n.size f,.-f\n{table}\n.text\n"))
}

#[test]
fn relocations_mask_their_own_bytes() {
    let at = |body: &str| masked(&function(body)).into_iter().collect::<Vec<_>>();
    assert_eq!(at("mov $1,%eax; ret"), Vec::<usize>::new());
    assert_eq!(at("call g; ret"), [1, 2, 3, 4]);
    assert_eq!(at("mov a(%rip),%eax; ret"), [2, 3, 4, 5]);
    assert_eq!(at("movabs $a,%rax; ret"), [2, 3, 4, 5, 6, 7, 8, 9]);
    assert_eq!(at("cmpl $5,a(%rip); ret"), [2, 3, 4, 5]);
    assert_eq!(at(".byte 0xb8; .byte b,0,0,0; ret"), [1]);
    assert_eq!(at(".byte 0x66,0xb8; .short b; ret"), [2, 3]);
    assert_eq!(at("nop; .reloc ., R_X86_64_NONE, g; mov $1,%eax; ret"), Vec::<usize>::new());
}

#[test]
fn only_sites_that_the_kernel_patches_are_masked() {
    let whole = |n: usize| (0..n).collect::<Vec<_>>();
    let at = |object: Object| masked(&object).into_iter().collect::<Vec<_>>();
    assert_eq!(at(function("call __fentry__; ret")), whole(5));
    assert_eq!(at(function("call __SCT__might_resched; ret")), whole(5));
    assert_eq!(at(function("jmp __x86_return_thunk")), whole(5));
    assert_eq!(at(function("endbr64; ret")), whole(4));
    // Of a jump label the site, of an alternative exactly its length.
    let jump_table = ".section __jump_table,\"aw\"; .long 1b - ., 2b - .; .quad key - .";
    let label = with_table("1: .byte 0x0f,0x1f,0x44,0,0; mov $1,%eax; 2: ret", jump_table);
    assert_eq!(at(label), whole(5));
    let alternative = |len: u32| {
        let table = format!(
            ".section .altinstructions,\"a\"; .long 1b - ., 2f - ., 0x10; .byte {len}, 3\n\
             .section .altinstr_replacement,\"ax\"; 2: clac"
        );
        with_table("1: nop; nop; nop; mov $1,%eax; ret", &table)
    };
    assert_eq!(at(alternative(3)), whole(3));
    assert_eq!(at(alternative(5)), whole(5));
    // Lock prefixes that are listed, and only those.
    assert_eq!(at(function("lock incl (%rdi); ret")), Vec::<usize>::new());
    let listed = with_table("1: lock incl (%rdi); lock decl (%rdi); ret", ".section .smp_locks,\"a\"; .long 1b - .");
    assert_eq!(at(listed), [0]);
    // The same instructions without a table are code like any other.
    assert_eq!(at(function("nopl 0(%rax,%rax,1); ret")), Vec::<usize>::new());
}

#[test]
fn damaged_objects_are_errors() {
    assert!(Object::parse(b"").is_err());
    assert!(Object::parse(b"\x7fELF").is_err());
    let whole = xk_testing::assemble(".text\n.type f,@function\nf: mov $1,%eax; call g; ret\n.size f,.-f\n");
    for len in 0..whole.len() {
        let _ = Object::parse(&whole[..len]);
    }
    for at in 0..whole.len() {
        for bit in [0, 7] {
            let mut damaged = whole.clone();
            damaged[at] ^= 1 << bit;
            let _ = Object::parse(&damaged);
        }
    }
    // A short branch at the very beginning of a section.
    assert!(Object::parse(&xk_testing::assemble(".text\n.type f,@function\nf: jmp f\n.size f,.-f\n")).is_ok());
}

fn nth(object: &Object, n: usize) -> Node {
    *object.insns.keys().nth(n).unwrap()
}

#[test]
fn liveness_errs_on_the_side_of_live() {
    let live = |body: &str, n: usize| {
        let object = function(body);
        (Flow::new(&object, &Prototypes::default()).live_in(nth(&object, n)), object)
    };
    // Overwritten before it is read.
    let (at, _) = live("nop; mov $1,%eax; ret", 0);
    assert!(!at.register(0) && at.register(3) && !at.register(7));
    // A partial write keeps the rest alive; so does a conditional one.
    assert!(live("nop; mov $1,%al; ret", 0).0.register(0));
    assert!(live("nop; cmovb %rcx,%rax; ret", 0).0.register(0));
    // At a return its result, and what it preserves.
    let at = live("nop; ret", 0).0;
    assert_eq!((0..16).filter(|&r| at.register(r)).collect::<Vec<_>>(), [0, 2, 3, 4, 5, 12, 13, 14, 15]);
    // Every register at a call and at a tail call.
    for body in ["nop; call g; mov $1,%eax; ret", "nop; jmp g", "nop; jmp *%rax"] {
        let at = live(body, 0).0;
        assert!((0..16).all(|r| at.register(r)), "{body}");
        assert!(Flag::ALL.into_iter().all(|f| !at.flag(f)), "{body}");
    }
    // Flags until something overwrites them, which a shift by cl may not.
    assert!(live("nop; jb 1f; 1: ret", 0).0.flag(Flag::Cf));
    assert!(!live("nop; add %rax,%rcx; jb 1f; 1: ret", 0).0.flag(Flag::Cf));
    assert!(live("nop; shl %cl,%rax; jb 1f; 1: ret", 0).0.flag(Flag::Cf));
    assert!(live("nop; shrd %cl,%rax,%rdx; jb 1f; 1: ret", 0).0.flag(Flag::Cf));
    assert!(live("nop; inc %rax; jb 1f; 1: ret", 0).0.flag(Flag::Cf));
    // A repeated string instruction may not run at all.
    assert!(live("nop; rep stosb; ret", 0).0.register(0));
    // Through loops, and along the path of a fault.
    assert!(live("1: dec %rdi; jne 1b; mov %rcx,%rax; ret", 0).0.register(1));
    let fault = with_table(
        "1: mov (%rdi),%rax; mov $1,%ecx; mov $1,%eax; ret; 2: mov %rcx,%rax; ret",
        ".section __ex_table,\"a\"; .long 1b - ., 2b - ., 1",
    );
    assert!(Flow::new(&fault, &Prototypes::default()).live_in(nth(&fault, 0)).register(1));
    // A fault comes before the write: what the instruction would have overwritten is still there.
    let fault = with_table(
        "1: mov (%rdi),%rcx; mov $1,%eax; mov $1,%ecx; ret; 2: mov %rcx,%rax; ret",
        ".section __ex_table,\"a\"; .long 1b - ., 2b - ., 1",
    );
    assert!(Flow::new(&fault, &Prototypes::default()).live_in(nth(&fault, 0)).register(1));
    // What replaces a no-op may read anything.
    let patched = with_table(
        "1: nop; nop; nop; mov $1,%ecx; mov $1,%eax; ret",
        ".section .altinstructions,\"a\"; .long 1b - ., 2f - ., 0x10; .byte 3, 3\n\
         .section .altinstr_replacement,\"ax\"; 2: mov %rcx,%rdx",
    );
    assert!(Flow::new(&patched, &Prototypes::default()).live_in(nth(&patched, 0)).register(1));
}

#[test]
fn blocks_begin_where_something_jumps() {
    let object = function("mov $1,%eax; 1: inc %rax; cmp %rdi,%rax; jb 1b; call g; mov $2,%eax; ret");
    let flow = Flow::new(&object, &Prototypes::default());
    let lens = |n: usize| flow.block(&object, nth(&object, n)).len();
    assert_eq!([0, 1, 2, 3, 4, 5, 6].map(lens), [1, 3, 3, 3, 1, 2, 2]);
    let loop_start = nth(&object, 1).offset;
    assert!(flow.jumped_into(nth(&object, 0).section, loop_start - 1, loop_start + 1));
    assert!(!flow.jumped_into(nth(&object, 0).section, loop_start, loop_start + 3));
}

fn prediction(body: &str, n: usize) -> (Option<String>, Option<String>) {
    predicted(&function(body), n)
}

fn predicted(object: &Object, n: usize) -> (Option<String>, Option<String>) {
    let f = object.functions.values().find(|f| f.name == "f").unwrap();
    let insn = &object.insns[&nth(object, n)];
    (unprobeable(object, f, insn), not_optimised(object, &Flow::new(object, &Prototypes::default()), f, insn))
}

#[test]
fn probes_are_predicted_by_the_rules_of_kprobes() {
    assert_eq!(prediction("mov $1,%eax; ret", 0), (None, None));
    let stays = |body: &str, n: usize, because: &str| {
        let (never, reason) = prediction(body, n);
        assert_eq!(never, None, "{body}");
        let reason = reason.unwrap_or_else(|| panic!("{body}: a jump is expected"));
        assert!(reason.contains(because), "{body}: {reason}");
    };
    stays("mov $1,%al; ret", 0, "end of the function");
    stays("jb 1f; 1: mov $1,%eax; ret", 0, "out of line");
    stays("call g; ret", 0, "out of line");
    stays("xor %eax,%eax; 1: inc %rax; dec %rdi; jne 1b; ret; nop; nop; nop", 0, "jump goes into");
    let never = |body: &str, table: &str, n: usize, because: &str| {
        let reason = predicted(&with_table(body, table), n).0.unwrap_or_else(|| panic!("{body}"));
        assert!(reason.contains(because), "{body}: {reason}");
    };
    never("call __fentry__; ret", "", 0, "ftrace");
    never("1: ud2; ret", ".section __bug_table,\"aw\"; .long 1b - ., 0; .short 1, 1", 0, "trap");
    never("1: mov (%rdi),%eax; 2: ret", ".section __ex_table,\"a\"; .long 1b - ., 2b - ., 1", 0, "fault");
    never("mov $1,%eax; ret", ".section _kprobe_blacklist,\"aw\"; .quad f", 0, "blacklist");
    never("1: nop; nop; nop; ret",
          ".section .altinstructions,\"a\"; .long 1b - ., 2f - ., 0x10; .byte 3, 3\n.section .altinstr_replacement,\"ax\"; 2: clac",
          1, "alternative");
}

/// The stored source of the kernel: unpacked by a build, or as the lab fetched it.
fn kernel_source(path: &str) -> String {
    let home = std::env::var_os("HOME").map_or_else(|| "/root".into(), PathBuf::from);
    let cache = std::env::var_os("XK_CACHE").map_or_else(|| home.join(".cache/xk"), PathBuf::from);
    let trees = std::fs::read_dir(cache.join("trees")).into_iter().flatten().flatten();
    if let Some(text) = trees.filter_map(|tree| std::fs::read_to_string(tree.path().join(path)).ok()).next() {
        return text;
    }
    let lab = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../lab/lab");
    let info = std::process::Command::new(lab).args(["info", "amd64", "--json"]).output().expect("lab/lab runs");
    assert!(info.status.success(), "{}", String::from_utf8_lossy(&info.stderr));
    let info: serde_json::Value = serde_json::from_slice(&info.stdout).unwrap();
    let tarball = info["source_tarball"].as_str().expect("the lab has fetched the source: lab/lab fetch amd64");
    let member = format!("linux-source-*/{path}");
    let text = std::process::Command::new("tar").args(["-xOf", tarball, "--wildcards", &member]).output().unwrap();
    assert!(text.status.success(), "{}", String::from_utf8_lossy(&text.stderr));
    String::from_utf8(text.stdout).unwrap()
}

/// `twobyte_is_boostable` row by row: an instruction of two bytes of opcode is
/// boostable exactly when the kernel's table says so.
#[test]
fn the_table_of_two_byte_opcodes_is_the_kernels() {
    let source = kernel_source("arch/x86/kernel/kprobes/core.c");
    let rows: Vec<&str> = source.lines().map(str::trim_start).filter(|line| line.starts_with("W(0x")).collect();
    assert_eq!(rows.len(), 16);
    for (number, row) in rows.iter().enumerate() {
        let inside = row.trim_start_matches("W(").split(')').next().unwrap();
        let bits: Vec<u32> = inside.split(',').skip(1).map(|bit| bit.trim().parse().unwrap()).collect();
        let word: u16 = bits.iter().enumerate().map(|(at, bit)| (*bit as u16) << at).sum();
        assert_eq!(bits.len(), 16, "{row}");
        assert_eq!(xk_lift::probe::TWO_BYTE_BOOSTABLE[number], word, "row {number:x}0: {row}");
    }
}

/// Found by fuzzing: what a damaged header states is not believed.
#[test]
fn damaged_objects_are_refused() {
    let whole = assemble(".text\n.globl f\n.type f,@function\nf:\nret\n.size f,.-f\n");
    assert!(Object::parse(&whole).is_ok());
    // A global function in section 1, as the symbol table has it.
    let symbol = [0x12, 0, 1, 0];
    let at: Vec<usize> = (0..whole.len() - 4).filter(|&at| whole[at..at + 4] == symbol).collect();
    assert_eq!(at.len(), 1);
    let mut elsewhere = whole;
    elsewhere[at[0] + 3] = 0x69;
    assert!(Object::parse(&elsewhere).unwrap_err().to_string().contains("outside its section"));
}

/// Found by fuzzing: a table without content has no entries, however large it says that it is.
#[test]
fn a_table_without_content_is_empty() {
    let text = ".section __jump_table,\"a\",@nobits\n.skip 0x1000000000000\n.text\n";
    assert!(object(text).jump_labels.is_empty());
}
