//! eBPF instructions, and the loading and attaching of programs.
//!
//! In: instructions, and the name of a function or tracepoint. Out: an attached program; the kernel removes it when its
//! descriptor is closed. The programs are short enough to be written as instructions, so no compiler is needed.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use libbpf_sys::{
    bpf_link_create, bpf_link_create_opts, bpf_prog_load, bpf_prog_load_opts, bpf_raw_tracepoint_open,
    BPF_PROG_TYPE_KPROBE, BPF_PROG_TYPE_RAW_TRACEPOINT, BPF_TRACE_KPROBE_MULTI,
};

/// An instruction of eBPF.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Insn {
    code: u8,
    registers: u8,
    offset: i16,
    immediate: i32,
}

pub const fn insn(code: u8, dst: u8, src: u8, offset: i16, immediate: i32) -> Insn {
    Insn { code, registers: dst | src << 4, offset, immediate }
}

/// dst = src
pub const fn mov(dst: u8, src: u8) -> Insn {
    insn(0xbf, dst, src, 0, 0)
}

/// dst = immediate
pub const fn set(dst: u8, immediate: i32) -> Insn {
    insn(0xb7, dst, 0, 0, immediate)
}

/// dst += immediate
pub const fn add(dst: u8, immediate: i32) -> Insn {
    insn(0x07, dst, 0, 0, immediate)
}

/// 8 bytes at dst + offset = src
pub const fn store(dst: u8, offset: i16, src: u8) -> Insn {
    insn(0x7b, dst, src, offset, 0)
}

/// 4 bytes at dst + offset = src
pub const fn store_word(dst: u8, offset: i16, src: u8) -> Insn {
    insn(0x63, dst, src, offset, 0)
}

pub const fn call(helper: i32) -> Insn {
    insn(0x85, 0, 0, 0, helper)
}

pub const MAP_LOOKUP: i32 = 1;
pub const MAP_UPDATE: i32 = 2;
pub const MAP_DELETE: i32 = 3;
pub const KTIME_GET_NS: i32 = 5;
pub const GET_CURRENT_PID_TGID: i32 = 14;

/// dst = the map
pub fn map(dst: u8, map: &MapHandle) -> [Insn; 2] {
    [insn(0x18, dst, 1, 0, map.as_fd().as_raw_fd()), insn(0, 0, 0, 0, 0)]
}

/// The end of a program, also of `count`.
pub const END: [Insn; 2] = [set(0, 0), insn(0x95, 0, 0, 0, 0)];

/// Adds 1 to the element of an array whose index is at r10 - 24, and ends the program.
pub fn count(array: &MapHandle) -> Vec<Insn> {
    let mut program = map(1, array).to_vec();
    program.extend([
        mov(2, 10),
        add(2, -24),
        call(MAP_LOOKUP),
        insn(0x15, 0, 0, 2, 0), // no such element: to the end
        set(1, 1),
        insn(0xdb, 0, 1, 0, 0), // 8 bytes at r0 += r1, atomically
    ]);
    program.extend(END);
    program
}

/// The sum of an element over all processors.
pub fn sum(array: &MapHandle, element: u32) -> libbpf_rs::Result<u64> {
    let counts = array.lookup_percpu(&element.to_ne_bytes(), MapFlags::ANY)?.unwrap_or_default();
    Ok(counts.iter().map(|bytes| bytes.first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes))).sum())
}

const LICENCE: &CStr = c"GPL";

fn owned(fd: i32) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd));
    }
    // SAFETY: the kernel has just returned this descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn load(name: &CStr, program: &[Insn], kind: u32, attach: u32) -> io::Result<OwnedFd> {
    let mut opts = bpf_prog_load_opts {
        sz: size_of::<bpf_prog_load_opts>() as _,
        expected_attach_type: attach,
        ..Default::default()
    };
    // SAFETY: the instructions have the layout of `struct bpf_insn`. They and the names live until the call returns.
    owned(unsafe {
        bpf_prog_load(kind, name.as_ptr(), LICENCE.as_ptr(), program.as_ptr().cast(), program.len() as _, &mut opts)
    })
}

/// Attaches a program to the entry of a function or, with `BPF_F_KPROBE_MULTI_RETURN`, to its return.
pub fn at_function(name: &CStr, program: &[Insn], function: &CStr, flags: u32) -> Result<OwnedFd, Refused> {
    let program = load(name, program, BPF_PROG_TYPE_KPROBE, BPF_TRACE_KPROBE_MULTI).map_err(Refused::Program)?;
    let mut symbols = [function.as_ptr()];
    let mut opts = bpf_link_create_opts { sz: size_of::<bpf_link_create_opts>() as _, ..Default::default() };
    opts.__bindgen_anon_1.kprobe_multi.flags = flags;
    opts.__bindgen_anon_1.kprobe_multi.cnt = 1;
    opts.__bindgen_anon_1.kprobe_multi.syms = symbols.as_mut_ptr();
    // SAFETY: the name lives until the call returns.
    owned(unsafe { bpf_link_create(program.as_raw_fd(), 0, BPF_TRACE_KPROBE_MULTI, &opts) }).map_err(Refused::Place)
}

/// Attaches a program to a tracepoint.
pub fn at_tracepoint(name: &CStr, program: &[Insn], tracepoint: &CStr) -> Result<OwnedFd, Refused> {
    let program = load(name, program, BPF_PROG_TYPE_RAW_TRACEPOINT, 0).map_err(Refused::Program)?;
    // SAFETY: the name lives until the call returns.
    owned(unsafe { bpf_raw_tracepoint_open(tracepoint.as_ptr(), program.as_raw_fd()) }).map_err(Refused::Place)
}

/// What the kernel refused.
#[derive(Debug)]
pub enum Refused {
    /// The program.
    Program(io::Error),
    /// To attach it there.
    Place(io::Error),
}

impl Refused {
    /// The reason in words; `hint` names likely reasons why the place cannot be traced.
    pub fn words(&self, hint: &str) -> String {
        match self {
            Self::Program(error) => format!("the kernel refuses the program: {error}"),
            Self::Place(error) => format!("it cannot be traced ({error}): {hint}"),
        }
    }
}

/// Why a function cannot be traced.
pub const NO_FUNCTION: &str = "there is no such function, or the compiler has inlined it, or the kernel excludes \
                               it; /sys/kernel/tracing/available_filter_functions lists those that can";

/// Why a tracepoint cannot be traced.
pub const NO_TRACEPOINT: &str =
    "the kernel has no tracepoint of this name; the directories in /sys/kernel/tracing/events list them";
