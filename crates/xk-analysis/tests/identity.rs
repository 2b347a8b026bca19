//! A whole unit is the deployed one only if all of its functions are, and refer to the same.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::path::Path;
use std::process::Command;

use xk_analysis::identity::whole_unit;
use xk_kernel::Image;
use xk_lift::object::Object;
use xk_table::Refusal;
use xk_testing::{assemble, compile_c};

const UNIT: &str = "
extern long g(long), h(long), print(const char *);
extern long shared, other;
static long one = 1, two = 2;
static long zero, none;
__attribute__((weak)) long soft = 7;
static const long table[] = { 3, 5, 7, 11 };
long f(long x) { one += x; zero++; return g(x) + table[x]; }
long k(long x) { two ^= x; none--; return h(x) + shared; }
long p(long x) { return print(\"one\") + print(\"two\") + other; }
static __attribute__((noinline)) long q(long x) { one -= two; return x * 3; }
long r(long x) { return 1 + q(x); }
__attribute__((weak)) long w(long x) { return x * 5 + one + soft; }
__attribute__((section(\".init.text\"))) long start(long x) { return x + 1000; }
";

const REST: &str = "
long shared, other;
long g(long x) { return x + 1; }
long h(long x) { return x + 2; }
long print(const char *text) { return *text; }
";

/// What every kernel has: where it begins, its banner, its build-id.
const FRAME: &str =
    ".section .rodata,\"a\"\n.globl linux_banner\nlinux_banner: .asciz \"Linux version 6.12.1-test (a@b) #1\"\n\
     .section .notes,\"a\",@note\n.long 4, 20, 3\n.asciz \"GNU\"\n.fill 20,1,7\n";

const SCRIPT: &str = "SECTIONS { . = 0xffffffff81000000;
    .text : { _text = .; _stext = .; *(.text .text.*) *(.init.text) _etext = .; }
    .rodata : { *(.rodata .rodata.*) } .notes : { *(.notes) } .data : { *(.data) } .bss : { *(.bss) }
    /DISCARD/ : { *(.comment) *(.note*) *(.eh_frame) } }";

fn run(folder: &Path, program: &str, arguments: &[&str]) -> Vec<u8> {
    let done = Command::new(program).current_dir(folder).args(arguments).output().unwrap();
    assert!(done.status.success(), "{program}: {}", String::from_utf8_lossy(&done.stderr));
    done.stdout
}

/// A kernel that is linked from these.
fn kernel(unit: &str, rest: &str) -> (tempfile::TempDir, Image) {
    let folder = tempfile::tempdir().unwrap();
    let objects = [("unit.o", compile_c(unit, "0")), ("rest.o", compile_c(rest, "0")), ("frame.o", assemble(FRAME))];
    for (name, bytes) in &objects {
        std::fs::write(folder.path().join(name), bytes).unwrap();
    }
    std::fs::write(folder.path().join("script"), SCRIPT).unwrap();
    let mut link = vec!["-T", "script", "--no-warn-rwx-segments", "-o", "vmlinux", "--build-id=none"];
    link.extend(objects.iter().rev().map(|(name, _)| *name));
    run(folder.path(), "ld", &link);
    let map = run(folder.path(), "nm", &["-n", "vmlinux"]);
    std::fs::write(folder.path().join("System.map"), map).unwrap();
    let image =
        Image::from_vmlinuz(&folder.path().join("vmlinux"), Some(&folder.path().join("System.map"))).expect("an image");
    (folder, image)
}

/// The unit against a kernel in which it, or the rest, has `from` in place of `to`.
fn compared(from: &str, to: &str) -> Result<usize, Refusal> {
    assert!(UNIT.contains(from) || REST.contains(from) || from.is_empty(), "{from}");
    let replaced = |text: &str| if from.is_empty() { text.to_owned() } else { text.replacen(from, to, 1) };
    let (_folder, image) = kernel(&replaced(UNIT), &replaced(REST));
    let object = Object::parse(&compile_c(UNIT, "0")).unwrap();
    whole_unit(&object, "unit.c", None, &image)
}

#[test]
fn the_deployed_unit_is_found() {
    // f, k, p, q, r, w; not what is gone after boot.
    assert_eq!(compared("", ""), Ok(6));
    assert_eq!(compared("x + 1000", "x + 1001"), Ok(6));
    // Another definition stands in the place of a weak one, which is there all the same.
    let strong = "{ return x + 1; } long w(long x) { return x; } long soft = 8;";
    assert_eq!(compared("{ return x + 1; }", strong), Ok(6));
}

#[test]
fn a_unit_that_differs_anywhere_is_refused() {
    for (what, from, to) in [
        ("another callee", "return g(x) + table", "return h(x) + table"),
        ("another object", "+ shared", "+ other"),
        ("another static object", "two ^= x", "one ^= x"),
        ("another object without a value", "none--", "zero--"),
        ("another literal", "print(\"two\")", "print(\"owt\")"),
        ("swapped literals", "print(\"one\") + print(\"two\")", "print(\"two\") + print(\"one\")"),
        ("another place in a table", "table[x]", "table[x + 1]"),
        ("a static function", "x * 3", "x * 9"),
        ("a weak function", "x * 5", "x * 3"),
        ("objects in another order", "static long one = 1, two = 2;", "static long two = 2, one = 1;"),
    ] {
        let refusal = compared(from, to).expect_err(what);
        let fits = matches!(refusal, Refusal::IdentityMismatch { .. } | Refusal::NotDeployed { .. });
        assert!(fits, "{what}: {refusal}");
    }
    let missing = compared("long r(long x)", "long t(long x)").unwrap_err();
    assert!(missing.to_string().contains("no function r"), "{missing}");
    let callee = compared("return g(x) + table", "return h(x) + table").unwrap_err().to_string();
    assert!(callee.contains("f+") && callee.contains("refers to g") && callee.contains("to h"), "{callee}");
}
