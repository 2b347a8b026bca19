//! What the fuzzer begins with: small files that the parsers accept, made by
//! the tools that make the real ones.

use std::io::Write;
use std::process::{Command, Stdio};

use anyhow::{ensure, Context, Result};
use flate2::write::GzEncoder;
use flate2::Compression;
use sha2::{Digest, Sha256};

/// Functions, calls, data, pools, a warning, prototypes.
const C: &str = "
    struct s { int a; unsigned long b; char c[3]; };
    extern int printf(const char *, ...); extern unsigned long g(struct s *, int);
    static int limit = 32; const int table[] = { 1, 2, 3 };
    unsigned long f(struct s *p, int x) { p->a = 32; if (x > limit) return g(p, x * 10); return table[x & 1]; }
    int h(int x) { return printf(\"%d of %s\", x, x ? \"a\" : \"b\") + 7; }
    struct s wide(int x) { struct s s = { x, 2, {3} }; return s; }
    static const char info[] __attribute__((used, section(\".modinfo\"))) = \"vermagic=6.12.0 SMP\";";

/// The tables through which the kernel patches itself.
const TABLES: &str = "
    .text; .globl f; .type f,@function
    f: endbr64; 1: nop; nop; nop; nop; nop; mov $32,%edi; 2: mov (%rsi),%eax; lock addl $1,(%rdi)
    ud2; jmp g; 3: ret
    .size f,.-f
    .section __jump_table,\"a\"; .long 1b - ., 3b - .; .quad key - .
    .section __ex_table,\"a\"; .long 2b - ., 3b - ., 1
    .section __bug_table,\"a\"; .long 3b - ., 0; .word 7, 1
    .section .altinstructions,\"a\"; .long 1b - ., 4f - ., 16; .byte 5, 5
    .section .altinstr_replacement,\"ax\"; 4: jmp f
    .section .altinstr_aux,\"ax\"; nop; jmp f
    .section .smp_locks,\"a\"; .long 2b - .
    .section _kprobe_blacklist,\"aw\"; .quad f
    .section .rodata.cst8,\"aM\",@progbits,8; .quad 1
    .section .rodata.str1.1,\"aMS\",@progbits,1; .string \"text\"\n";

fn compile(language: &str, flags: &[&str], text: &str) -> Result<Vec<u8>> {
    let folder = tempfile::tempdir()?;
    let output = folder.path().join("unit.o");
    let mut gcc = Command::new("gcc-12")
        .args(["-x", language, "-c", "-mcmodel=kernel", "-fno-PIE", "-mno-sse"])
        .args(flags)
        .args(["-o".as_ref(), output.as_os_str(), "-".as_ref()])
        .stdin(Stdio::piped())
        .spawn()
        .context("gcc-12 is needed: apt-get install gcc-12")?;
    gcc.stdin.take().context("gcc-12 takes no input")?.write_all(text.as_bytes())?;
    ensure!(gcc.wait()?.success(), "gcc-12 rejects a seed");
    Ok(std::fs::read(output)?)
}

/// Relocatable objects.
pub fn objects() -> Result<Vec<Vec<u8>>> {
    Ok(vec![compile("c", &["-O2"], C)?, compile("c", &["-O0"], C)?, compile("assembler", &[], TABLES)?])
}

/// Objects as modules: plain, with types, compressed.
pub fn modules() -> Result<Vec<Vec<u8>>> {
    let plain = compile("c", &["-O2", "-gbtf"], C)?;
    let packed = xz(&plain)?;
    Ok(vec![plain, packed])
}

/// `.BTF` sections, as the target takes them: vmlinux, then a module, after the length of the first.
pub fn btf() -> Result<Vec<Vec<u8>>> {
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(file.path(), compile("c", &["-O2", "-gbtf"], C)?)?;
    let module = xk_kernel::Module::open(file.path())?;
    let section = module.section(".BTF").context("gcc-12 wrote no .BTF")?.data.clone();
    let pair = |second: &[u8]| [&(section.len() as u16).to_le_bytes(), &section[..], second].concat();
    Ok(vec![pair(b""), pair(&section)])
}

fn align(bytes: &mut Vec<u8>) {
    bytes.resize(bytes.len().next_multiple_of(8), 0);
}

/// The symbol tables of an image, as `scripts/kallsyms.c` writes them.
pub fn kallsyms(count: usize) -> Vec<u8> {
    let own = ["T_text", "T_stext", "tabc", "T_etext"].map(str::to_owned);
    let names: Vec<String> = own.into_iter().chain((4..count).map(|n| format!("tsymbol_{n}"))).collect();
    let mut bytes = vec![0xa5; 64];
    bytes.extend((names.len() as u32).to_le_bytes());
    align(&mut bytes);
    let start = bytes.len();
    let mut markers = Vec::new();
    for (at, name) in names.iter().enumerate() {
        if at % 256 == 0 {
            markers.extend(((bytes.len() - start) as u32).to_le_bytes());
        }
        bytes.push(name.len() as u8);
        bytes.extend(name.as_bytes());
    }
    align(&mut bytes);
    bytes.extend(markers);
    align(&mut bytes);
    let (table, mut index) = (bytes.len(), Vec::new());
    for code in 0..=255_u8 {
        index.extend(((bytes.len() - table) as u16).to_le_bytes());
        match code {
            graphic if graphic.is_ascii_graphic() => bytes.push(graphic),
            other => bytes.extend(format!("u{other}").into_bytes()),
        }
        bytes.push(0);
    }
    align(&mut bytes);
    bytes.extend(index);
    align(&mut bytes);
    // Two symbols begin the text, which an object file links to 0.
    bytes.extend((0..names.len() as u32).flat_map(|n| (n.saturating_sub(1)).to_le_bytes()));
    align(&mut bytes);
    bytes.extend([0; 16]);
    bytes
}

/// A linked kernel in small: text, banner, symbols, identity.
pub fn kernel() -> Result<Vec<u8>> {
    let tables: Vec<String> = kallsyms(8).iter().map(u8::to_string).collect();
    let text = format!(
        ".text; nop; nop; nop; ret\n\
         .section .rodata,\"a\"; .balign 8; .byte {}; .string \"Linux version 6.12.0 (a@b)\"\n\
         .section .notes,\"a\"; .long 4, 20, 3; .string \"GNU\"; .fill 20, 1, 7\n\
         .section .BTF,\"a\"; .byte 0x9f, 0xeb\n",
        tables.join(",")
    );
    compile("assembler", &[], &text)
}

/// A core with two segments.
pub fn core() -> Vec<u8> {
    let mut file = vec![0; 64 + 2 * 56];
    file[..6].copy_from_slice(b"\x7fELF\x02\x01");
    for (at, value) in [(0x10, 4), (0x12, 62), (0x20, 64), (0x36, 56), (0x38, 2)] {
        file[at] = value;
    }
    for (header, address) in [(64, 0xffff_ffff_8100_0000_u64), (120, 0xffff_8880_0000_0000)] {
        file[header] = 1;
        file[header + 8] = 176;
        file[header + 16..header + 24].copy_from_slice(&address.to_le_bytes());
        file[header + 40] = 16;
    }
    file.extend(b"0123456789abcdef");
    file
}

/// A boot image around a compressed payload.
fn boot_image(payload: &[u8]) -> Vec<u8> {
    let mut file = vec![0_u8; 0x400];
    file[0x1f1] = 1;
    file[0x202..0x206].copy_from_slice(b"HdrS");
    file[0x206..0x208].copy_from_slice(&0x20f_u16.to_le_bytes());
    file[0x20e..0x210].copy_from_slice(&0x100_u16.to_le_bytes());
    file[0x300..0x308].copy_from_slice(b"6.12.0 x");
    file[0x248..0x24c].copy_from_slice(&16_u32.to_le_bytes());
    file[0x24c..0x250].copy_from_slice(&(payload.len() as u32).to_le_bytes());
    file.extend([0; 16]);
    file.extend(payload);
    file
}

fn gzip(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes)?;
    Ok(encoder.finish()?)
}

fn xz(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut encoder = liblzma::write::XzEncoder::new(Vec::new(), 1);
    encoder.write_all(bytes)?;
    Ok(encoder.finish()?)
}

fn lz4(bytes: &[u8]) -> Vec<u8> {
    let block = lz4_flex::block::compress(bytes);
    let size = (block.len() as u32).to_le_bytes();
    [&[0x02, 0x21, 0x4c, 0x18][..], &size, &block, &(bytes.len() as u32).to_le_bytes()].concat()
}

/// Boot images in each format.
pub fn boot_images() -> Result<Vec<Vec<u8>>> {
    let kernel = [&b"\x7fELF and the rest of a kernel "[..]; 40].concat();
    let zstd = zstd::encode_all(&kernel[..], 1)?;
    Ok([gzip(&kernel)?, xz(&kernel)?, lz4(&kernel), zstd].iter().map(|payload| boot_image(payload)).collect())
}

/// A bundle before it is compressed.
pub fn bundle_archive() -> Result<Vec<u8>> {
    let start = 0xffff_ffff_9a00_0000_u64;
    let kallsyms = format!("{start:x} T _stext\n{start:x} t f\t[mod]\n{:x} T _etext\n", start + 4).into_bytes();
    let parts = [
        ("kallsyms", None, kallsyms),
        ("config", None, b"CONFIG_X=y\n".to_vec()),
        ("btf", None, vec![0x9f, 0xeb]),
        ("text", Some(start), vec![1, 2, 3, 4]),
    ];
    let manifest = serde_json::json!({
        "schema": 1,
        "id": { "release": "6.12.0-amd64", "build_id": "abab", "flavour": "amd64" },
        "parts": parts.iter().map(|(name, address, content)| serde_json::json!({
            "name": name, "size": content.len(), "address": address,
            "sha256": Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect::<String>(),
        })).collect::<Vec<_>>(),
        "modules": { "mod": [{ "name": ".text", "address": start }] },
    });
    let manifest = ("manifest.json", None, serde_json::to_vec(&manifest)?);
    let mut archive = tar::Builder::new(Vec::new());
    for (name, _, content) in [manifest].iter().chain(&parts) {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        archive.append_data(&mut header, name, &content[..])?;
    }
    Ok(archive.into_inner()?)
}

/// A bundle.
pub fn bundle() -> Result<Vec<u8>> {
    gzip(&bundle_archive()?)
}
