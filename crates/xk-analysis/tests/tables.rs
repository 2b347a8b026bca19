//! Tables beside the code must say the same in a variant: also where only a relocation differs.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use xk_analysis::data::compare;
use xk_lift::object::Object;
use xk_testing::object;

/// Two functions with two places each, and tables about them.
fn with(tables: &str) -> Object {
    object(&format!(
        ".text\n.globl f\n.type f,@function\nf:\n1: .byte 0x0f,0x1f,0x44,0,0\n2: nop; ret\n.size f,.-f\n\
         .globl g\n.type g,@function\ng:\n3: .byte 0x0f,0x1f,0x44,0,0\n4: nop; ret\n.size g,.-g\n{tables}\n.text\n"
    ))
}

/// Pairs of tables of which the second says something else by a relocation alone.
const OTHERS: &[(&str, &str, &str)] = &[
    (
        "the key of a jump label",
        ".section __jump_table,\"aw\"; .long 1b - ., 2b - .; .quad key - .",
        ".section __jump_table,\"aw\"; .long 1b - ., 2b - .; .quad other - .",
    ),
    (
        "whose jump label it is",
        ".section __jump_table,\"aw\"; .long 1b - ., 2b - .; .quad key - .",
        ".section __jump_table,\"aw\"; .long 3b - ., 4b - .; .quad key - .",
    ),
    (
        "where a fault continues",
        ".section __ex_table,\"a\"; .long 1b - ., 2b - ., 1",
        ".section __ex_table,\"a\"; .long 1b - ., 4b - ., 1",
    ),
    (
        "the file of a warning",
        ".section .rodata.str1.1,\"aMS\",@progbits,1; 5: .asciz \"one.c\"\n.section __bug_table,\"aw\"; .long 1b - ., 5b - .; .word 7, 1",
        ".section .rodata.str1.1,\"aMS\",@progbits,1; 5: .asciz \"two.c\"\n.section __bug_table,\"aw\"; .long 1b - ., 5b - .; .word 7, 1",
    ),
    (
        "what is filled in",
        ".section runtime_ptr_a,\"a\"; .long 1b - .",
        ".section runtime_ptr_a,\"a\"; .long 3b - .",
    ),
    (
        "what a replacement calls",
        ".section .altinstructions,\"a\"; .long 1b - ., 6f - ., 0x10; .byte 5, 5\n.section .altinstr_replacement,\"ax\"; 6: call h",
        ".section .altinstructions,\"a\"; .long 1b - ., 6f - ., 0x10; .byte 5, 5\n.section .altinstr_replacement,\"ax\"; 6: call i",
    ),
    (
        "what is replaced",
        ".section .altinstructions,\"a\"; .long 1b - ., 6f - ., 0x10; .byte 5, 5\n.section .altinstr_replacement,\"ax\"; 6: call h",
        ".section .altinstructions,\"a\"; .long 3b - ., 6f - ., 0x10; .byte 5, 5\n.section .altinstr_replacement,\"ax\"; 6: call h",
    ),
    (
        "which of two replacements it is",
        ".section .altinstructions,\"a\"; .long 1b - ., 6f - ., 0x10; .byte 5, 5\n.section .altinstr_replacement,\"ax\"; 6: call h; 7: mov %eax,%ecx; mov %ecx,%eax; nop",
        ".section .altinstructions,\"a\"; .long 1b - ., 7f - ., 0x10; .byte 5, 5\n.section .altinstr_replacement,\"ax\"; 6: call h; 7: mov %eax,%ecx; mov %ecx,%eax; nop",
    ),
];

#[test]
fn a_table_that_differs_in_a_reference_is_seen() {
    for (what, ours, theirs) in OTHERS {
        let (base, variant) = (with(ours), with(theirs));
        assert!(compare(&base, &base, "unit.c", None).is_ok(), "{what}: the fixture against itself");
        assert!(compare(&base, &variant, "unit.c", None).is_err(), "{what}: accepted");
        assert!(compare(&variant, &base, "unit.c", None).is_err(), "{what}: accepted the other way");
        assert!(compare(&base, &with(""), "unit.c", None).is_err(), "{what}: accepted without");
    }
}

/// The order of entries is that of the code, which is up to each build.
#[test]
fn the_order_of_entries_does_not_matter() {
    let table = |entries: [&str; 2]| with(&format!(".section __jump_table,\"aw\"\n{}", entries.join("\n")));
    let (one, two) = (".long 1b - ., 2b - .; .quad key - .", ".long 3b - ., 4b - .; .quad other - .");
    assert!(compare(&table([one, two]), &table([two, one]), "unit.c", None).is_ok());
}
