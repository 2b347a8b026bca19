//! The lockstep comparison accepts nothing that is not the deployed code with
//! constants replaced: every pair here differs in what it does.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::collections::HashSet;

use xk_analysis::constants::Differences;
use xk_analysis::diff::{compare, compare_with, Mismatch, Rules};
use xk_analysis::proof::Solver;
use xk_lift::object::Object;
use xk_lift::prototypes::Prototypes;
use xk_testing::{function, object};

fn diff(base: &Object, variant: &Object) -> Result<Differences, Mismatch> {
    compare(base, variant, &HashSet::new())
}

/// The same, comparing blocks as a whole where instructions do not match.
fn with_solver(base: &Object, variant: &Object) -> Result<Differences, Mismatch> {
    let solver = Solver::z3(10).expect("z3 is needed: apt-get install z3");
    let rules = Rules {
        noreturns: &HashSet::new(),
        prototypes: &Prototypes::default(),
        solver: Some(&solver),
        expected: &Differences::new(),
        flow: None,
    };
    compare_with(base, variant, &rules)
}

/// What is called `what` must be refused, in both directions.
fn refused(what: &str, base: &Object, variant: &Object) {
    assert_eq!(diff(base, base).map(|d| d.len()), Ok(0), "{what}: the fixture against itself");
    assert_eq!(diff(variant, variant).map(|d| d.len()), Ok(0), "{what}: the variant against itself");
    for (from, to) in [(base, variant), (variant, base)] {
        if let Ok(differences) = diff(from, to) {
            panic!("{what}: accepted with {differences:?}");
        }
    }
}

/// Pairs that differ in what they do: what, deployed, variant.
const MUTANTS: &[(&str, &str, &str)] = &[
    ("another source", "mov %rdi,%rax; ret", "mov %rsi,%rax; ret"),
    ("another width", "mov %rdi,%rax; ret", "mov %edi,%eax; ret"),
    ("another byte", "movzbl %ah,%eax; ret", "movzbl %al,%eax; ret"),
    ("another operation", "add %rsi,%rdi; mov %rdi,%rax; ret", "sub %rsi,%rdi; mov %rdi,%rax; ret"),
    ("swapped operands", "sub %rsi,%rdi; mov %rdi,%rax; ret", "sub %rdi,%rsi; mov %rsi,%rax; ret"),
    ("sign for zero extension", "movzbl (%rdi),%eax; ret", "movsbl (%rdi),%eax; ret"),
    ("width of memory", "mov (%rdi),%eax; ret", "mov (%rdi),%rax; ret"),
    ("width of a store", "mov %esi,(%rdi); ret", "mov %rsi,(%rdi); ret"),
    ("scale", "mov (%rdi,%rsi,4),%eax; ret", "mov (%rdi,%rsi,8),%eax; ret"),
    ("base and index", "lea (%rdi,%rsi,2),%rax; ret", "lea (%rsi,%rdi,2),%rax; ret"),
    ("an index more", "mov (%rdi),%eax; ret", "mov (%rdi,%rsi),%eax; ret"),
    ("segment", "mov %gs:8,%eax; ret", "mov 8,%eax; ret"),
    ("address size", "mov (%rdi),%eax; ret", "mov (%edi),%eax; ret"),
    ("address size of lea", "lea 1(%rdi),%rax; ret", "lea 1(%edi),%rax; ret"),
    ("lock prefix", "lock incl (%rdi); ret", "incl (%rdi); ret"),
    ("an instruction more", "mov %rdi,%rax; ret", "mov %rdi,%rax; inc %rax; ret"),
    ("a store more", "mov %rdi,%rax; ret", "mov %rdi,%rax; movl $1,(%rdi); ret"),
    ("a fence more", "movl $1,(%rdi); ret", "movl $1,(%rdi); mfence; ret"),
    (
        "another condition",
        "cmp %rsi,%rdi; jb 1f; inc %rdx; 1: mov %rdx,%rax; ret",
        "cmp %rsi,%rdi; jl 1f; inc %rdx; 1: mov %rdx,%rax; ret",
    ),
    (
        "inverted condition, same targets",
        "cmp %rsi,%rdi; jb 1f; mov %rdi,%rax; ret; 1: mov %rsi,%rax; ret",
        "cmp %rsi,%rdi; jae 1f; mov %rdi,%rax; ret; 1: mov %rsi,%rax; ret",
    ),
    (
        "another set condition",
        "cmp %rsi,%rdi; setb %al; movzbl %al,%eax; ret",
        "cmp %rsi,%rdi; setl %al; movzbl %al,%eax; ret",
    ),
    (
        "cmov condition",
        "cmp %rsi,%rdi; mov %rdi,%rax; cmovb %rsi,%rax; ret",
        "cmp %rsi,%rdi; mov %rdi,%rax; cmova %rsi,%rax; ret",
    ),
    (
        "swapped comparison",
        "cmp %rsi,%rdi; jb 1f; inc %rdx; 1: mov %rdx,%rax; ret",
        "cmp %rdi,%rsi; jb 1f; inc %rdx; 1: mov %rdx,%rax; ret",
    ),
    (
        "flags of another instruction",
        "cmp %rsi,%rdi; mov $1,%eax; jb 1f; inc %rax; 1: ret",
        "cmp %rsi,%rdi; mov $1,%eax; test %rdi,%rdi; jb 1f; inc %rax; 1: ret",
    ),
    ("another callee", "call g; ret", "call h; ret"),
    ("another tail call", "jmp g", "jmp h"),
    ("a call for a tail call", "jmp g", "call g; ret"),
    ("another argument", "mov %rsi,%rdi; call g; ret", "mov %rdx,%rdi; call g; ret"),
    ("swapped arguments", "mov %rcx,%rdi; mov %r8,%rsi; call g; ret", "mov %rcx,%rsi; mov %r8,%rdi; call g; ret"),
    (
        "the wrong result register",
        "push %rbx; call g; mov %rax,%rbx; call h; mov %rbx,%rax; pop %rbx; ret",
        "push %rbx; call g; mov %rax,%rbx; call h; pop %rbx; ret",
    ),
    (
        "target of a retpoline",
        "mov (%rdi),%rbx; mov 8(%rdi),%rbp; call __x86_indirect_thunk_rbx; 1: jmp 1b",
        "mov (%rdi),%rbp; mov 8(%rdi),%rbx; call __x86_indirect_thunk_rbx; 1: jmp 1b",
    ),
    (
        "callee-saved register at a return",
        "push %rbx; mov %rdi,%rbx; pop %rbx; mov $1,%eax; ret",
        "push %rbx; mov %rdi,%rbx; pop %rcx; mov $1,%eax; ret",
    ),
    (
        "callee-saved register at a tail call",
        "mov (%rsp),%r12; mov 8(%rsp),%r13; jmp g",
        "mov (%rsp),%r13; mov 8(%rsp),%r12; jmp g",
    ),
    (
        "r10 that a helper keeps",
        "mov (%rdi),%r10; mov 8(%rdi),%r11; call __helper; mov %r10,%rax; ret",
        "mov (%rdi),%r11; mov 8(%rdi),%r10; call __helper; mov %r10,%rax; ret",
    ),
    (
        "high byte leaves the low one",
        "mov (%rdi),%r10b; mov (%rsi),%al; mov %dl,%ah; ret",
        "mov (%rdi),%al; mov (%rsi),%r10b; mov %dl,%ah; ret",
    ),
    ("low byte is not the register", "mov %sil,%al; ret", "mov %sil,%al; movzbl %al,%eax; ret"),
    (
        "a partial write keeps the rest",
        "mov %rdi,%rcx; mov %rsi,%rdx; mov %r8b,%cl; mov %rcx,%rax; ret",
        "mov %rdi,%rdx; mov %rsi,%rcx; mov %r8b,%cl; mov %rcx,%rax; ret",
    ),
    (
        "square against product",
        "mov (%rdi),%rax; mov 8(%rdi),%rcx; mul %rax; ret",
        "mov (%rdi),%rcx; mov 8(%rdi),%rax; mul %rcx; ret",
    ),
    (
        "high half of a product",
        "mov 8(%rdi),%rdx; mov (%rdi),%rax; mul %rdx; mov %rdx,(%rsi); ret",
        "mov 8(%rdi),%rcx; mov (%rdi),%rax; mul %rcx; mov %rcx,(%rsi); ret",
    ),
    (
        "one-operand products of two widths",
        "mov (%rdi),%rax; mov %rsi,%rcx; imul %ecx; mov %dx,(%rdi); mov $1,%eax; ret",
        "mov (%rdi),%rax; mov %rsi,%rcx; imul %cx; mov %dx,(%rdi); mov $1,%eax; ret",
    ),
    (
        "cwd leaves the upper bits",
        "mov (%rdi),%rdx; mov 8(%rdi),%rcx; cwd; mov %rdx,(%rsi); mov $1,%eax; ret",
        "mov (%rdi),%rcx; mov 8(%rdi),%rdx; cwd; mov %rdx,(%rsi); mov $1,%eax; ret",
    ),
    (
        "lahf leaves the low byte",
        "mov (%rdi),%rax; mov 8(%rdi),%rcx; lahf; ret",
        "mov (%rdi),%rcx; mov 8(%rdi),%rax; lahf; ret",
    ),
    (
        "bsr may keep its destination",
        "mov (%rdi),%rax; mov 8(%rdi),%rcx; bsr %rsi,%rax; ret",
        "mov (%rdi),%rcx; mov 8(%rdi),%rax; bsr %rsi,%rax; ret",
    ),
    (
        "a zero idiom clears, a comparison does not",
        "cmp $5,%rdi; je 1f; inc %rdi; 1: mov %rdi,%rax; ret",
        "xor %rdi,%rdi; je 1f; inc %rdi; 1: mov %rdi,%rax; ret",
    ),
    (
        "xor changes the flags",
        "cmp %rsi,%rdi; mov $5,%eax; jb 1f; inc %rdx; 1: ret",
        "cmp %rsi,%rdi; xor %eax,%eax; jb 1f; inc %rdx; 1: ret",
    ),
    (
        "test of another width",
        "cmp $5,%rdi; je 1f; inc %rdi; 1: mov %rdi,%rax; ret",
        "test %edi,%edi; je 1f; inc %rdi; 1: mov %rdi,%rax; ret",
    ),
    (
        "compare memory with register",
        "cmp (%rsi),%rdi; jb 1f; inc %rdx; 1: mov %rdx,%rax; ret",
        "cmp %rdi,(%rsi); jb 1f; inc %rdx; 1: mov %rdx,%rax; ret",
    ),
    (
        "a loop entered elsewhere",
        "1: dec %rdi; 2: inc %rsi; test %rdi,%rdi; jne 1b; mov %rsi,%rax; ret",
        "1: dec %rdi; 2: inc %rsi; test %rdi,%rdi; jne 2b; mov %rsi,%rax; ret",
    ),
    ("another symbol", "mov a(%rip),%eax; ret", "mov b(%rip),%eax; ret"),
    ("another symbol as a value", "mov $a,%rax; ret", "mov $b,%rax; ret"),
    (
        "stack layout",
        "sub $24,%rsp; movl $1,8(%rsp); mov 16(%rsp),%eax; add $24,%rsp; ret",
        "sub $24,%rsp; movl $1,16(%rsp); mov 16(%rsp),%eax; add $24,%rsp; ret",
    ),
    ("frame size", "sub $24,%rsp; call g; add $24,%rsp; ret", "sub $40,%rsp; call g; add $40,%rsp; ret"),
    (
        "shift by cl against shift by dl's owner",
        "mov %esi,%ecx; shl %cl,%rdi; mov %rdi,%rax; ret",
        "mov %edx,%ecx; shl %cl,%rdi; mov %rdi,%rax; ret",
    ),
    (
        "second half of a result",
        "mov (%rdi),%rdx; mov 8(%rdi),%rcx; mov $1,%eax; ret",
        "mov (%rdi),%rcx; mov 8(%rdi),%rdx; mov $1,%eax; ret",
    ),
    (
        "flags behind a shift by nothing",
        "add $1,%rsi; shl %cl,%rdi; jb 1f; inc %rdx; 1: mov %rdx,%rax; ret",
        "sub $-1,%rsi; shl %cl,%rdi; jb 1f; inc %rdx; 1: mov %rdx,%rax; ret",
    ),
    (
        "flags behind a shift by a constant of nothing",
        "add $1,%rsi; shl $32,%edi; jb 1f; inc %rdx; 1: mov %rdx,%rax; ret",
        "sub $-1,%rsi; shl $32,%edi; jb 1f; inc %rdx; 1: mov %rdx,%rax; ret",
    ),
    (
        "flags behind nothing that is repeated",
        "add $1,%rsi; repne scasb; jb 1f; inc %rdx; 1: mov %rdx,%rax; ret",
        "sub $-1,%rsi; repne scasb; jb 1f; inc %rdx; 1: mov %rdx,%rax; ret",
    ),
    (
        "a place that two ways reach, with more done on one of them",
        "mov %rsi,%rax; test %rdi,%rdi; je 1f; inc %rax; 1: add $2,%rax; ret",
        "mov %rsi,%rax; test %rdi,%rdi; je 1f; 1: inc %rax; lea 1(%rax),%rax; ret",
    ),
    (
        "a decision that is the same on one of two ways",
        "test %rdx,%rdx; je 5f; cmp $8,%rdi; 2: jb 1f; mov $1,%eax; ret; 1: mov $2,%eax; ret; 5: add $1,%rsi; jmp 2b",
        "test %rdx,%rdx; je 5f; mov %rdi,%rcx; shr $3,%rcx; 2: je 1f; mov $1,%eax; ret; 1: mov $2,%eax; ret; \
         5: sub $-1,%rsi; jmp 2b",
    ),
    ("rep", "rep movsb; ret", "movsb; ret"),
    ("direction", "std; rep movsb; cld; ret", "cld; rep movsb; cld; ret"),
];

#[test]
fn one_instruction_that_does_something_else_is_refused() {
    for (what, base, variant) in MUTANTS {
        refused(what, &function(base), &function(variant));
    }
}

/// Comparing blocks as a whole accepts none of them either.
#[test]
fn the_solver_does_not_take_them_for_equal() {
    for (what, base, variant) in MUTANTS {
        let (base, variant) = (function(base), function(variant));
        if let Ok(differences) = with_solver(&base, &variant) {
            // As long as it says which constants: a frame is one.
            assert!(*what == "frame size" && differences.len() == 2, "{what}: accepted with {differences:?}");
        }
    }
}

/// A condition that is accepted changes only what is recorded.
fn accepted(what: &str, base: &str, variant: &str, constants: &[u64]) {
    let (base, variant) = (function(base), function(variant));
    let differences = diff(&base, &variant).unwrap_or_else(|e| panic!("{what}: {} at {:#x}", e.detail, e.base.offset));
    let values: Vec<u64> = differences.values().map(|other| other.value).collect();
    assert_eq!(values, constants, "{what}");
}

#[test]
fn what_a_compiler_does_with_another_constant_is_accepted() {
    accepted("immediate", "mov $32,%eax; ret", "mov $10,%eax; ret", &[10]);
    accepted("encoding length", "add $32,%rdi; mov %rdi,%rax; ret", "add $3200,%rdi; mov %rdi,%rax; ret", &[3200]);
    accepted("zero idiom", "mov $32,%eax; ret", "xor %eax,%eax; ret", &[0]);
    accepted(
        "compare with zero",
        "cmp $32,%edi; je 1f; inc %rdi; 1: mov %rdi,%rax; ret",
        "test %edi,%edi; je 1f; inc %rdi; 1: mov %rdi,%rax; ret",
        &[0],
    );
    accepted(
        "scratch register",
        "mov (%rdi),%ecx; lea 32(%rcx),%eax; xor %ecx,%ecx; ret",
        "mov (%rdi),%r8d; lea 10(%r8),%eax; xor %r8d,%r8d; ret",
        &[10],
    );
    accepted(
        "block order",
        "cmp $32,%edi; ja 1f; mov %esi,%eax; ret; 1: mov %edx,%eax; ret",
        "cmp $10,%edi; jbe 1f; mov %edx,%eax; ret; 1: mov %esi,%eax; ret",
        &[10],
    );
    accepted("memory displacement", "mov 32(%rdi),%eax; ret", "mov 320(%rdi),%eax; ret", &[320]);
    accepted("symbol offset", "mov a+32(%rip),%eax; ret", "mov a+40(%rip),%eax; ret", &[40]);
}

/// The compiler merged V with an equal constant; a variant tells them apart.
/// No single replacement of the merged one gives the variant.
#[test]
fn a_constant_merged_with_another_is_refused() {
    let base = "test %rdi,%rdi; je 1f; inc %rsi; 1: mov $32,%eax; add %rsi,%rax; ret";
    let variant =
        "test %rdi,%rdi; je 1f; inc %rsi; mov $32,%eax; add %rsi,%rax; ret; 1: mov $10,%eax; add %rsi,%rax; ret";
    let swapped =
        "test %rdi,%rdi; je 1f; inc %rsi; mov $10,%eax; add %rsi,%rax; ret; 1: mov $32,%eax; add %rsi,%rax; ret";
    for variant in [variant, swapped] {
        assert!(diff(&function(base), &function(variant)).is_err());
        assert!(with_solver(&function(base), &function(variant)).is_err());
    }
    let memory = |a: u32, b: u32| {
        function(&format!("test %rdi,%rdi; je 1f; inc %rsi; mov {a}(%rsi),%eax; ret; 1: mov {b}(%rsi),%eax; ret"))
    };
    let merged = function("test %rdi,%rdi; je 1f; inc %rsi; 1: mov 32(%rsi),%eax; ret");
    assert!(diff(&merged, &memory(32, 10)).is_err());
    assert!(diff(&merged, &memory(10, 32)).is_err());
    assert!(diff(&merged, &memory(10, 10)).is_ok());
}

const EXCEPTION_TABLE: &str = ".section __ex_table,\"a\"; .long 1b - .; .long 2b - .; .long";

fn with_fixup(access: &str, behind: &str, kind: u32) -> Object {
    object(&format!(
        ".text\n.globl f\n.type f,@function\nf: mov 16(%rsi),%rax; mov 24(%rsi),%rcx\n1: {access}\n mov $1,%eax; ret\n2: {behind}\n ret\n.size f,.-f\n{EXCEPTION_TABLE} {kind}\n.text\n"
    ))
}

/// A fault leaves the destination as it was before.
#[test]
fn a_fault_does_not_write_the_destination() {
    let base = with_fixup("mov (%rdi),%rdx", "mov %rdx,%rax", 1);
    assert_eq!(diff(&base, &base).map(|d| d.len()), Ok(0));
    refused("renamed destination", &base, &with_fixup("mov (%rdi),%r8", "mov %r8,%rax", 1));
    refused("another handler", &base, &with_fixup("mov (%rdi),%rdx", "mov %rdx,%rax", 3));
    refused("another continuation", &base, &with_fixup("mov (%rdi),%rdx", "mov %rcx,%rax", 1));
}

fn with_jump_label(site: &str, key: &str) -> Object {
    object(&format!(
        ".text\n.globl f\n.type f,@function\nf:\n1: {site}\n mov $1,%eax; ret\n2: mov %rdi,%rax; ret\n.size f,.-f\n.section __jump_table,\"aw\"; .long 1b - ., 2b - .; .quad {key} - .\n.text\n"
    ))
}

#[test]
fn jump_labels_keep_state_and_key() {
    let nop = ".byte 0x0f,0x1f,0x44,0,0";
    let base = with_jump_label(nop, "key");
    assert_eq!(diff(&base, &base).map(|d| d.len()), Ok(0));
    refused("another key", &base, &with_jump_label(nop, "other"));
    refused("another sense", &base, &with_jump_label(nop, "key + 1"));
    refused("taken", &base, &with_jump_label("jmp 2f", "key"));
    refused("no label", &base, &function("nopl 0(%rax,%rax,1); mov $1,%eax; ret"));
}

#[test]
fn code_that_only_one_build_has_is_refused() {
    let one = ".text\n.type f,@function\nf: ret\n.size f,.-f\n";
    let two = ".text\n.type f,@function\nf: ret\n.size f,.-f\n.type g,@function\ng: ret\n.size g,.-g\n";
    refused("a function more", &object(one), &object(two));
}

/// What a call goes to counts, not how far away that is. The function that calls is one that no walk accepts:
/// only being the same makes it acceptable.
#[test]
fn distances_between_functions_may_differ() {
    let build = |size: &str, callee: &str| {
        let function = |name: &str, text: &str| {
            format!(".globl {name}\n.type {name},@function\n{name}:\n{text}\n.size {name},.-{name}\n")
        };
        let before = ".text\n.local near\n.local other\n";
        let near = function("near", "ret").replace(".globl near", "");
        let other = function("other", "inc %rax; ret").replace(".globl other", "");
        let changes = function("changes", &format!("cmp ${size},%rdi; jb 1f; inc %rax; 1: ret"));
        let calls = function("calls", &format!("call {callee}; jmp *(%rdi)"));
        object(&format!("{before}{near}{other}{changes}{calls}"))
    };
    let base = build("100", "near");
    let found = diff(&base, &build("1000", "near")).unwrap();
    assert_eq!(found.len(), 1);
    assert!(diff(&base, &build("1000", "other")).is_err());
    assert!(diff(&base, &build("100", "other")).is_err());
}

/// `callee` reads rsi, whatever is known of another function of that name.
#[test]
fn the_code_of_a_callee_comes_before_its_prototype() {
    let build = |first: &str, second: &str, callee: &str| {
        let function =
            |name: &str, text: &str| format!(".type {name},@function\n{name}:\n{text}\n.size {name},.-{name}\n");
        let calls = format!("mov (%rdi),{first}; mov 8(%rdi),{second}; call callee; ret");
        object(&format!(".text\n{}{}", function("callee", callee), function("f", &calls)))
    };
    let prototypes = Prototypes::of_btf(&xk_testing::btf(&[("callee", 1), ("f", 1)]));
    assert_eq!(prototypes.arguments("callee"), Some(1));
    let found = |callee: &str| {
        let (base, variant) = (build("%rsi", "%r8", callee), build("%r8", "%rsi", callee));
        let rules = Rules {
            noreturns: &HashSet::new(),
            prototypes: &prototypes,
            solver: None,
            expected: &Differences::new(),
            flow: None,
        };
        compare_with(&base, &variant, &rules)
    };
    let mismatch = found("lea (%rdi,%rsi),%rax; ret").expect_err("another argument is accepted");
    assert!(mismatch.detail.contains("rsi may differ"), "{mismatch:?}");
    assert!(found("mov %rdi,%rax; ret").is_ok());
}
