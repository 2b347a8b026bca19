//! The processor that runs the tests, one instruction at a time.

use std::sync::{Mutex, MutexGuard, PoisonError};

use xk_lift::state::RSP;

/// Layout of the private region, as offsets.
const CODE: u64 = 0;
const REGS_IN: u64 = 0x8000;
const REGS_OUT: u64 = 0x8100;
const HOST_RSP: u64 = 0x8200;
/// Below these a stray signal frame does no harm.
const FLAGS_IN: u64 = 0x1_8000;
const FLAGS_OUT: u64 = 0x2_8000;
const BUFFER: u64 = 0x4_0000;
pub const BUFFER_LEN: u64 = 0x400;
const REGION_LEN: usize = 0x8_0000;

/// The registers, flags and memory that an instruction sees and leaves.
#[derive(Clone, PartialEq, Eq)]
pub struct Machine {
    pub regs: [u64; 16],
    pub flags: u64,
    pub memory: Vec<u8>,
}

/// Executes single instructions natively, with all sixteen registers, the
/// status flags and a buffer under control.
pub struct Processor {
    base: u64,
    body: usize,
}

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

impl Processor {
    pub fn new() -> (Self, MutexGuard<'static, ()>) {
        let guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        // Below 2 GiB, so that every part of it has a 32-bit absolute address.
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_32BIT;
        let protection = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
        // SAFETY: a fresh anonymous mapping; nothing else refers to it.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), REGION_LEN, protection, flags, -1, 0) };
        assert_ne!(at, libc::MAP_FAILED, "a low executable mapping");
        let mut this = Self { base: at as u64, body: 0 };
        let mut code = vec![0x53, 0x55, 0x41, 0x54, 0x41, 0x55, 0x41, 0x56, 0x41, 0x57, 0x9c]; // push rbx … r15, pushfq
        this.absolute(&mut code, 0x89, RSP, HOST_RSP);
        this.set_rsp(&mut code, FLAGS_IN);
        code.push(0x9d); // popfq
        for register in (0..16).filter(|r| *r != RSP).chain([RSP]) {
            this.absolute(&mut code, 0x8b, register, REGS_IN + 8 * register as u64);
        }
        this.body = code.len();
        this.write(CODE, &code);
        (this, guard)
    }

    /// `mov r64, [address]` (8b) or `mov [address], r64` (89).
    fn absolute(&self, code: &mut Vec<u8>, opcode: u8, register: usize, offset: u64) {
        let (high, low) = ((register >> 3) as u8, (register & 7) as u8);
        code.extend([0x48 | high << 2, opcode, 0x04 | low << 3, 0x25]);
        code.extend(((self.base + offset) as u32).to_le_bytes());
    }

    /// `mov rsp, imm32`: changes no flag.
    fn set_rsp(&self, code: &mut Vec<u8>, offset: u64) {
        code.extend([0x48, 0xc7, 0xc4]);
        code.extend(((self.base + offset) as u32).to_le_bytes());
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) {
        assert!(offset as usize + bytes.len() <= REGION_LEN);
        // SAFETY: inside the mapping of this processor, which is exclusive.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), (self.base + offset) as *mut u8, bytes.len()) }
    }

    fn read(&self, offset: u64, len: usize) -> Vec<u8> {
        assert!(offset as usize + len <= REGION_LEN);
        // SAFETY: inside the mapping of this processor, which is initialised.
        unsafe { std::slice::from_raw_parts((self.base + offset) as *const u8, len) }.to_vec()
    }

    fn word(&self, offset: u64) -> u64 {
        u64::from_le_bytes(self.read(offset, 8).try_into().unwrap())
    }

    pub fn buffer(&self) -> u64 {
        self.base + BUFFER
    }

    /// Makes `instruction` the one that [`Processor::run`] executes.
    pub fn load(&mut self, instruction: &[u8]) {
        let mut code = instruction.to_vec();
        for register in 0..16 {
            self.absolute(&mut code, 0x89, register, REGS_OUT + 8 * register as u64);
        }
        self.set_rsp(&mut code, FLAGS_OUT + 8);
        code.push(0x9c); // pushfq
        self.absolute(&mut code, 0x8b, RSP, HOST_RSP);
        code.extend([0x9d, 0x41, 0x5f, 0x41, 0x5e, 0x41, 0x5d, 0x41, 0x5c, 0x5d, 0x5b, 0xc3]);
        self.write(CODE + self.body as u64, &code);
    }

    pub fn run(&mut self, before: &Machine) -> Machine {
        let words: Vec<u8> = before.regs.iter().flat_map(|r| r.to_le_bytes()).collect();
        self.write(REGS_IN, &words);
        self.write(FLAGS_IN, &(before.flags | 0x202).to_le_bytes());
        self.write(BUFFER, &before.memory);
        // SAFETY: the trampoline saves what the ABI asks it to save, and the
        // instruction in its middle reads and writes the buffer only.
        unsafe { std::mem::transmute::<u64, extern "C" fn()>(self.base)() };
        Machine {
            regs: std::array::from_fn(|i| self.word(REGS_OUT + 8 * i as u64)),
            flags: self.word(FLAGS_OUT) & 0x8d5,
            memory: self.read(BUFFER, BUFFER_LEN as usize),
        }
    }
}

impl Drop for Processor {
    fn drop(&mut self) {
        // SAFETY: the mapping made by `new`; nothing refers to it any more.
        unsafe { libc::munmap(self.base as *mut libc::c_void, REGION_LEN) };
    }
}
