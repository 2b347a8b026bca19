//! What the tests of this crate share: reproducible randomness.

#![allow(dead_code)] // each test binary uses its part

#[path = "../../../../fuzz/src/random.rs"]
mod random;

pub use random::Random;

impl Random {
    /// One of `choices`.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    /// A value at which arithmetic likes to go wrong, more often than not.
    pub fn value(&mut self) -> u64 {
        const EDGES: [u64; 26] = [
            0,
            1,
            2,
            3,
            7,
            8,
            0xf,
            0x10,
            0x1f,
            0x20,
            0x3f,
            0x40,
            0x7f,
            0x80,
            0xff,
            0x100,
            0x7fff,
            0x8000,
            0xffff,
            0x7fff_ffff,
            0x8000_0000,
            0xffff_ffff,
            0x1_0000_0000,
            0x7fff_ffff_ffff_ffff,
            0x8000_0000_0000_0000,
            0xffff_ffff_ffff_ffff,
        ];
        let edge = self.pick(&EDGES);
        match self.below(8) {
            0 | 1 => edge,
            2 => edge.wrapping_neg(),
            3 => edge.wrapping_add(self.below(3) as u64).wrapping_sub(1),
            // Edges of the sub-registers under random upper bits.
            4 => self.next() << 32 | edge & 0xffff_ffff,
            5 => self.next() << 8 | edge & 0xff,
            _ => self.next(),
        }
    }
}

/// Assembles AT&T text to an object file, with a folder of its own.
pub fn assemble(text: &str) -> Vec<u8> {
    compile(&["-x", "assembler", "-c"], text)
}

/// Compiles C as the kernel does, with `V` defined.
pub fn compile_c(text: &str, v: &str) -> Vec<u8> {
    compile_c_with(text, v, &[])
}

/// The same as assembly, with the compiler's own instructions beside the machine's.
#[allow(clippy::unwrap_used)]
pub fn noted_c(text: &str, v: &str) -> String {
    String::from_utf8(compile_c_with(text, v, &["-S", "-dP"])).unwrap()
}

/// The same, or what the compiler said.
pub fn try_compile_c(text: &str, v: &str) -> Result<Vec<u8>, String> {
    with_flags(v, &[], |flags| try_compile(flags, text))
}

fn compile_c_with(text: &str, v: &str, more: &[&str]) -> Vec<u8> {
    with_flags(v, more, |flags| compile(flags, text))
}

fn with_flags<T>(v: &str, more: &[&str], compile: impl FnOnce(&[&str]) -> T) -> T {
    let define = format!("-DV={v}");
    let flags = [
        "-x",
        "c",
        "-c",
        "-O2",
        "-std=gnu11",
        "-fno-jump-tables",
        "-mno-red-zone",
        "-mcmodel=kernel",
        "-fno-PIE",
        "-fno-asynchronous-unwind-tables",
        "-fno-stack-protector",
        "-fno-strict-aliasing",
        "-fno-delete-null-pointer-checks",
        "-fcf-protection=none",
        "-mno-sse",
        "-mno-mmx",
        "-mno-80387",
        "-falign-functions=16",
        &define,
    ];
    compile(&[&flags[..], more].concat())
}

fn compile(arguments: &[&str], text: &str) -> Vec<u8> {
    try_compile(arguments, text).unwrap_or_else(|messages| panic!("does not compile:\n{text}\n{messages}"))
}

/// The object, or what the compiler said.
#[allow(clippy::unwrap_used, clippy::expect_used)]
fn try_compile(arguments: &[&str], text: &str) -> Result<Vec<u8>, String> {
    use std::io::Write;
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("unit.o");
    let mut child = std::process::Command::new("gcc-12")
        .args(arguments)
        .args(["-o".as_ref(), output.as_os_str(), "-".as_ref()])
        .stdin(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("gcc-12 is needed: apt-get install gcc-12");
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let done = child.wait_with_output().unwrap();
    if !done.status.success() {
        return Err(String::from_utf8_lossy(&done.stderr).into_owned());
    }
    Ok(std::fs::read(output).unwrap())
}

/// An object that defines one function `f` with this body.
#[allow(clippy::unwrap_used)]
pub fn function(body: &str) -> xk_sie::object::Object {
    object(&format!(".text\n.globl f\n.type f,@function\nf:\n{body}\n.size f,.-f\n"))
}

/// A parsed object of this assembly text.
#[allow(clippy::unwrap_used)]
pub fn object(text: &str) -> xk_sie::object::Object {
    xk_sie::object::Object::parse(&assemble(text)).unwrap()
}

/// A `.BTF` section that knows functions by name and number of arguments, all of them `long`.
pub fn btf(functions: &[(&str, u32)]) -> Vec<u8> {
    let [int, func, proto] = [1_u32, 12, 13];
    let mut strings = vec![0];
    let mut types: Vec<u8> = Vec::new();
    let mut push = |words: &[u32]| words.iter().for_each(|word| types.extend(word.to_le_bytes()));
    push(&[0, int << 24, 8, 64]);
    for (number, (name, arguments)) in functions.iter().enumerate() {
        push(&[0, proto << 24 | arguments, 1]);
        (0..*arguments).for_each(|_| push(&[0, 1]));
        push(&[strings.len() as u32, func << 24, 2 + 2 * number as u32]);
        strings.extend(name.bytes().chain([0]));
    }
    let mut data = vec![0x9f, 0xeb, 1, 0];
    for field in [24, 0, types.len() as u32, types.len() as u32, strings.len() as u32] {
        data.extend(field.to_le_bytes());
    }
    data.into_iter().chain(types).chain(strings).collect()
}
