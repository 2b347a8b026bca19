//! The interface of xk.ko without the crate: requests that it would not make.

use std::fs::File;
use std::os::fd::AsRawFd;

use xk_runtime::abi;
use xk_table::CriticalSpan;

fn field<const N: usize>(text: &str) -> [u8; N] {
    let mut out = [0; N];
    out[..text.len()].copy_from_slice(text.as_bytes());
    out
}

pub fn site(address: u64, text: &[u8], mask: &[u8], span: &CriticalSpan) -> abi::Site {
    let mut ops = [abi::Op::default(); xk_table::MAX_OPS];
    for (to, from) in ops.iter_mut().zip(&span.indirection.program.ops) {
        *to = abi::Op { code: from.code as u8, width: from.width, dst: from.dst, ..abi::Op::default() };
    }
    let mut ivs = [abi::Iv::default(); xk_table::MAX_IVS];
    ivs[0].a = 1;
    abi::Site {
        address,
        symbol: field("xk_target_value"),
        module: field("xk_target"),
        offset: span.indirection.offset,
        insn_len: span.indirection.insn_len,
        when: abi::BEFORE,
        nr_ops: span.indirection.program.ops.len() as u8,
        nr_ivs: 1,
        flags: 0,
        text_len: text.len() as u32,
        start: 0,
        window: 0,
        window_lead: 0,
        nr_patches: 0,
        pad: 0,
        text: text.as_ptr() as u64,
        mask: mask.as_ptr() as u64,
        ivs,
        ops,
        patches: Default::default(),
    }
}

pub fn load(site: &abi::Site) -> abi::Load {
    abi::Load {
        size: size_of::<abi::Load>() as u32,
        abi: abi::ABI_VERSION,
        name: field("RAW"),
        default_value: 32,
        min: 1,
        max: 1000,
        flags: 0,
        nr_sites: 1,
        nr_scopes: 0,
        nr_values: 0,
        sites: std::ptr::from_ref(site) as u64,
        scopes: 0,
        values: 0,
        id: 0,
        pad: 0,
        error: [0; abi::ERROR_LEN],
    }
}

/// A scope in the function of [`site`].
pub fn scope(address: u64, text: &[u8], mask: &[u8], ranges: &[abi::Range]) -> abi::Scope {
    abi::Scope {
        address,
        symbol: field("xk_target_value"),
        module: field("xk_target"),
        text_len: text.len() as u32,
        nr_ranges: ranges.len() as u32,
        text: text.as_ptr() as u64,
        mask: mask.as_ptr() as u64,
        ranges: ranges.as_ptr() as u64,
    }
}

pub fn transition(changes: &[abi::Change]) -> abi::Transition {
    abi::Transition {
        size: size_of::<abi::Transition>() as u32,
        mode: abi::MODE_NOW,
        timeout_ms: 0,
        nr_changes: changes.len() as u32,
        changes: changes.as_ptr() as u64,
        report: 0,
        report_len: 0,
        outcome: 0,
        stops: 0,
        pad: 0,
        elapsed_ns: 0,
        error: [0; abi::ERROR_LEN],
    }
}

pub fn unload(device: &File, id: u32) {
    let changes = [abi::Change { id, flags: abi::CHANGE_UNLOAD, value: 0 }];
    let mut transition = transition(&changes);
    ioctl(device, abi::IOC_TRANSITION, &mut transition).unwrap();
    assert_eq!(transition.outcome, abi::OUTCOME_DONE);
}

/// The sentence that the kernel wrote.
pub fn text(field: &[u8]) -> String {
    let len = field.iter().position(|&byte| byte == 0).unwrap_or(field.len());
    String::from_utf8_lossy(&field[..len]).into_owned()
}

/// A request for what is known of a tune.
pub fn tune_info(index: u32) -> abi::TuneInfo {
    // SAFETY: integers and arrays of integers, of which zero is a value.
    abi::TuneInfo { index, ..unsafe { std::mem::zeroed() } }
}

pub fn device() -> File {
    File::options().read(true).write(true).open("/dev/xk").unwrap()
}

/// Changes one byte that the structure uses: its head more often than the
/// long arrays at its end.
pub fn scribble<T>(structure: &mut T, place: u64, byte: u64) {
    let size = size_of::<T>() as u64;
    let at = if place % 2 == 0 { place / 2 % 400.min(size) } else { place / 2 % size };
    // SAFETY: within the structure, which consists of integers.
    unsafe { *std::ptr::from_mut(structure).cast::<u8>().add(at as usize) = byte as u8 };
}

pub fn ioctl<T>(device: &File, command: u32, argument: &mut T) -> std::io::Result<()> {
    // SAFETY: the command's size is that of `T`. Pointers inside may be
    // anything: the kernel has to cope.
    match unsafe { libc::ioctl(device.as_raw_fd(), libc::c_ulong::from(command), std::ptr::from_mut(argument)) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}
