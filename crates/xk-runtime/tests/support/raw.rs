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

/// A table, and the request to load it.
pub struct Flat {
    pub head: abi::Table,
    pub values: Vec<i64>,
    pub sites: Vec<abi::Site>,
    pub scopes: Vec<abi::Scope>,
    /// What the sites and scopes refer to: see [`Flat::put`].
    tail: Vec<u8>,
    pub flags: u32,
    pub abi: u32,
    pub size: u32,
    pub signature: Vec<u8>,
}

/// Room between the beginning of a table and what it refers to: the tests' arrays are smaller.
const TAIL: usize = 1 << 16;

impl Flat {
    /// RAW, with one site in `xk_target_value`, which lies at `address`.
    pub fn new(address: u64, text: &[u8], mask: &[u8], span: &CriticalSpan) -> Self {
        let head = abi::Table {
            magic: abi::TABLE_MAGIC,
            abi: abi::ABI_VERSION,
            flags: 0,
            name: field("RAW"),
            default_value: 32,
            min: 1,
            max: 1000,
            mode: abi::MODE_NOW,
            nr_values: 0,
            nr_sites: 1,
            nr_scopes: 0,
        };
        let mut flat = Self {
            head,
            values: Vec::new(),
            sites: Vec::new(),
            scopes: Vec::new(),
            tail: Vec::new(),
            flags: 0,
            abi: abi::ABI_VERSION,
            size: size_of::<abi::Load>() as u32,
            signature: Vec::new(),
        };
        let (text_at, mask_at) = (flat.put(text), flat.put(mask));
        flat.sites.push(site(address, (text_at, mask_at, text.len()), span));
        flat
    }

    /// Where in the table `bytes` are.
    pub fn put(&mut self, bytes: &[u8]) -> u64 {
        self.tail.extend_from_slice(bytes);
        (TAIL + self.tail.len() - bytes.len()) as u64
    }

    /// A scope in the function of the site, with its text once more.
    pub fn scope(&mut self, address: u64, text: &[u8], mask: &[u8], ranges: &[[u32; 2]]) {
        let (text_at, mask_at) = (self.put(text), self.put(mask));
        let ranges: Vec<u8> = ranges.iter().flatten().flat_map(|number| number.to_ne_bytes()).collect();
        let ranges_at = self.put(&ranges);
        self.scopes.push(abi::Scope {
            address,
            symbol: field("xk_target_value"),
            module: field("xk_target"),
            text_len: text.len() as u32,
            nr_ranges: (ranges.len() / 8) as u32,
            text: text_at,
            mask: mask_at,
            ranges: ranges_at,
        });
        self.head.nr_scopes = 1;
    }

    /// As it lies in memory.
    pub fn bytes(&self) -> Vec<u8> {
        let values: Vec<u8> = self.values.iter().flat_map(|value| value.to_ne_bytes()).collect();
        let mut bytes =
            [memory(std::slice::from_ref(&self.head)), &values, memory(&self.sites), memory(&self.scopes)].concat();
        bytes.resize(TAIL.max(bytes.len()), 0);
        bytes.extend_from_slice(&self.tail);
        bytes
    }

    /// Asks the kernel: the number of the tune, or the error, and its sentence.
    pub fn load(&self, device: &File) -> Result<u32, (i32, String)> {
        load(device, &self.bytes(), self)
    }
}

/// Asks the kernel to load these bytes.
pub fn load(device: &File, bytes: &[u8], like: &Flat) -> Result<u32, (i32, String)> {
    let mut load = abi::Load {
        size: like.size,
        abi: like.abi,
        table: bytes.as_ptr() as u64,
        signature: like.signature.as_ptr() as u64,
        table_len: bytes.len() as u32,
        signature_len: like.signature.len() as u32,
        flags: like.flags,
        id: 0,
        error: [0; abi::ERROR_LEN],
    };
    match ioctl(device, abi::IOC_LOAD, &mut load) {
        Ok(()) => Ok(load.id),
        Err(error) => Err((error.raw_os_error().unwrap(), text(&load.error))),
    }
}

/// The bytes of structures without padding.
fn memory<T>(parts: &[T]) -> &[u8] {
    // SAFETY: as long as its parts; the structures of the interface have no padding.
    unsafe { std::slice::from_raw_parts(parts.as_ptr().cast(), size_of_val(parts)) }
}

fn site(address: u64, (text, mask, len): (u64, u64, usize), span: &CriticalSpan) -> abi::Site {
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
        text_len: len as u32,
        start: 0,
        window: 0,
        window_lead: 0,
        nr_patches: 0,
        pad: 0,
        text,
        mask,
        ivs,
        ops,
        patches: Default::default(),
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
    unload_in(device, id, abi::MODE_NOW);
}

pub fn unload_in(device: &File, id: u32, mode: u32) {
    let changes = [abi::Change { id, flags: abi::CHANGE_UNLOAD, value: 0 }];
    let mut transition = transition(&changes);
    transition.mode = mode;
    transition.timeout_ms = if mode == abi::MODE_NOW { 0 } else { 60_000 };
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
