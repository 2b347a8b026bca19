# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A processor with the memory of a layout, and a fast way to read and set its registers.

Every pointer is valid, but for null and errors: what has no place of its own is one in the arena. So code that follows
pointers through random memory gets somewhere.

Code stops at `hlt`: in stubs of functions, and at sites. Registers are passed through a block of memory that code at
`SAVE` writes and code at `RESTORE` reads: that is far quicker than asking the emulator for each.
"""

import ctypes
import mmap
import struct
from enum import Enum
from typing import NamedTuple

from unicorn import UC_ARCH_X86, UC_HOOK_BLOCK, UC_HOOK_CODE, UC_HOOK_MEM_READ, UC_HOOK_TLB_FILL, UC_MEM_FETCH
from unicorn import UC_MEM_WRITE, UC_MODE_64, UC_PROT_EXEC, UC_PROT_READ, UC_PROT_WRITE, UC_TLB_VIRTUAL, Uc
from unicorn.x86_const import UC_X86_REG_GS_BASE, UC_X86_REG_RIP

from layout import CODE, CONSTANTS, HLT, PER_CPU, RETURN, STUB_SIZE, STUBS, SYMBOLS, Layout, Side
from sites import Step
from states import BEGIN, IMAGE_BYTES

PAGE = 4096
SAVE = 0x0900_0000
RESTORE = SAVE + 0x200
BLOCK = 0x0A00_0000
# Words of the block.
ID, RIP, GPR, FLAGS, WORDS = 0, 1, 2, 18, 19
RSP = 4
ARENA_SIZE, ARENA_BELOW = IMAGE_BYTES, -BEGIN % IMAGE_BYTES
# What a pointer without a place of its own refers to: the arena is everywhere, again and again.
ARENA_PAGES = ARENA_SIZE // PAGE
# But where the null pointer and the kernel's error pointers are.
NOWHERE = 64 << 10
STACK, STACK_SIZE = 0xFFFF_C900_7A5B_0000, 64 << 10
# Where these two are mapped.
ARENA_AT, STACK_AT = 0x4000_0000, 0x5000_0000
ENTRY_RSP = STACK + 0xC000 - 8
# Instructions between two stops, and when each read is noted.
INSTRUCTIONS, TRACED_INSTRUCTIONS = 5_000, 2_000

_libc = ctypes.CDLL(None)
memmove, memcmp = ctypes.memmove, _libc.memcmp
memcmp.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


_NEEDED = {UC_MEM_WRITE: UC_PROT_WRITE, UC_MEM_FETCH: UC_PROT_EXEC}


def arena_offset(address: int) -> int:
    """Where in the arena an address lies that has no place of its own."""
    return (address + ARENA_BELOW) % ARENA_SIZE


class Mode(Enum):
    """What the emulator tells besides: that is slow."""

    FAST = 0
    # Where code comes, and what it reads.
    TRACED = 1
    # Nothing; but every byte that code reads alone is a truth value, 0 or 1.
    TRUTH = 2
    # Whether code reads a return address as a number, through a pointer at random.
    STRAY = 3


class Memory(NamedTuple):
    """Where memory of this process lies."""

    address: int
    size: int


class Buffer:
    """Whole pages of this process's memory."""

    def __init__(self, size: int) -> None:
        self.size = max((size + PAGE - 1) & ~(PAGE - 1), PAGE)
        self.map = mmap.mmap(-1, self.size)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.map))

    def read(self, at: int, size: int) -> bytes:
        """Bytes of it."""
        return self.map[at : at + size]


def _moves(opcode: int) -> bytes:
    """`mov` between every register but rsp and the block."""
    code = b""
    for number in range(16):
        if number != RSP:
            code += _absolute(opcode, number, GPR + number)
    return code


def _absolute(opcode: int, register: int, word: int) -> bytes:
    modrm = 0x04 | (register & 7) << 3
    return bytes([0x4C if register > 7 else 0x48, opcode, modrm, 0x25]) + struct.pack("<I", BLOCK + 8 * word)


def _memory(opcode: int, extension: int, word: int) -> bytes:
    return bytes([opcode, 0x04 | extension << 3, 0x25]) + struct.pack("<I", BLOCK + 8 * word)


# push, pop and jmp with an operand in the block.
SAVE_CODE = _moves(0x89) + _absolute(0x89, RSP, GPR + RSP) + b"\x9c" + _memory(0x8F, 0, FLAGS) + bytes([HLT])
RESTORE_CODE = (
    _absolute(0x8B, RSP, GPR + RSP) + _memory(0xFF, 6, FLAGS) + b"\x9d" + _moves(0x8B) + _memory(0xFF, 4, RIP)
)


class Machine:
    """One processor for both builds of a function."""

    def __init__(self, layout: Layout, steps: list[Step], mode: Mode = Mode.FAST) -> None:
        self.uc = Uc(UC_ARCH_X86, UC_MODE_64)
        self.uc.ctl_set_tlb_mode(UC_TLB_VIRTUAL)
        self._pages: dict[int, tuple[int, int]] = {}
        # An access failed since this was last set.
        self.faulted = False
        self.layout = layout
        self.world = Buffer(ARENA_SIZE + 2 * layout.symbols_size)
        self.world_size = ARENA_SIZE + 2 * layout.symbols_size
        self.stack, self.block = Buffer(STACK_SIZE), Buffer(PAGE)
        self.constants = Buffer(len(layout.sides[0].constants))
        self.words = (ctypes.c_uint64 * WORDS).from_buffer(self.block.map)
        self._map_data()
        self._map_code(steps)
        self.uc.hook_add(UC_HOOK_TLB_FILL, self._fill)
        # Where code came, and what it read of the world: only when it is traced, since that is slow.
        self.blocks: set[int] = set()
        self.reads: dict[int, int] = {}
        # The clock was read: no two runs read the same.
        self.timed = False
        for at in layout.clocks():
            self.uc.hook_add(UC_HOOK_CODE, self._time, begin=at, end=at)
        self._limit = TRACED_INSTRUCTIONS if mode == Mode.TRACED else INSTRUCTIONS
        if mode == Mode.TRUTH:
            self.uc.hook_add(UC_HOOK_MEM_READ, self._truth)
        self.strayed = False
        if mode == Mode.STRAY:
            self.uc.hook_add(UC_HOOK_MEM_READ, self._stray)
        if mode == Mode.TRACED:
            self.uc.hook_add(UC_HOOK_BLOCK, self._block)
            self.uc.hook_add(UC_HOOK_MEM_READ, self._read)
        self.uc.reg_write(UC_X86_REG_GS_BASE, PER_CPU)
        self._differ = bytes(layout.sides[0].constants) != bytes(layout.sides[1].constants)
        self._load_constants(layout.sides[0])

    def _map_data(self) -> None:
        access = UC_PROT_READ | UC_PROT_WRITE
        symbols = self.world.address + ARENA_SIZE
        size = self.layout.symbols_size
        self.uc.mem_map_ptr(ARENA_AT, ARENA_SIZE, access, self.world.address)
        self._own(SYMBOLS, Memory(symbols, size), access)
        self._own(SYMBOLS + PER_CPU, Memory(symbols + size, size), access)
        # The canary of the stack protector.
        self.canary = Buffer(PAGE)
        self._own(PER_CPU, Memory(self.canary.address, PAGE), UC_PROT_READ)
        self._own(STACK, Memory(self.stack.address, STACK_SIZE), access, STACK_AT)
        self._own(BLOCK, Memory(self.block.address, PAGE), access)
        self._own(CONSTANTS, Memory(self.constants.address, self.constants.size), UC_PROT_READ)

    def _own(self, address: int, memory: Memory, access: int, at: int | None = None) -> None:
        """A place that is not in the arena."""
        at = address if at is None else at
        self.uc.mem_map_ptr(at, memory.size, access, memory.address)
        for offset in range(0, memory.size, PAGE):
            self._pages[(address + offset) // PAGE] = (at + offset, access)

    def _fill(self, _: Uc, address: int, kind: int, entry, __) -> bool:  # noqa: ANN001  (the emulator's types)
        """Where a page is."""
        own = self._pages.get(address // PAGE)
        if own is not None:
            entry.paddr, entry.perms = own
        elif address < NOWHERE or address >= (1 << 64) - NOWHERE:
            self.faulted = True
            return False
        else:
            entry.paddr, entry.perms = ARENA_AT + arena_offset(address & -PAGE), UC_PROT_READ | UC_PROT_WRITE
        allowed = entry.perms & _NEEDED.get(kind, UC_PROT_READ)
        self.faulted |= not allowed
        return bool(allowed)

    def _time(self, *_) -> None:  # noqa: ANN002
        self.timed = True

    def _truth(self, _: Uc, __: int, place: int, size: int, *rest) -> None:  # noqa: ANN002
        """Makes a byte that is about to be read 0 or 1."""
        at = self._in_world(place)
        if size == 1 and at is not None:
            self.world.map[at] = int(self.world.map[at] != 0)

    def _stray(self, _: Uc, __: int, place: int, size: int, *rest) -> None:  # noqa: ANN002
        """Notes that some of a word of the stack is read which is an address in code. Returns read none: the function's
        own goes to a stub, and calls are answered without one. Or of the block, where it is while a call is answered."""
        at = place - STACK_AT
        if BLOCK <= place < BLOCK + PAGE:
            self.strayed |= not SAVE <= self.rip() < SAVE + PAGE
        if 0 <= at < STACK_SIZE:
            for word in {at & -8, at + size - 1 & -8}:
                self.strayed |= CODE[0] <= struct.unpack_from("<Q", self.stack.map, word)[0] < STUBS

    def _in_world(self, place: int) -> int | None:
        symbols = self.layout.symbols_size
        if ARENA_AT <= place < ARENA_AT + ARENA_SIZE:
            return place - ARENA_AT
        if SYMBOLS <= place < SYMBOLS + symbols:
            return ARENA_SIZE + place - SYMBOLS
        if SYMBOLS + PER_CPU <= place < SYMBOLS + PER_CPU + symbols:
            return ARENA_SIZE + symbols + place - SYMBOLS - PER_CPU
        return None

    def _block(self, _: Uc, address: int, size: int, __) -> None:  # noqa: ANN001
        self.blocks.add(address)

    def _read(self, _: Uc, __: int, place: int, size: int, *rest) -> None:  # noqa: ANN002
        """Notes what is read of the world; what is told is where it is, not the address that code uses."""
        at = self._in_world(place)
        if at is not None:
            self.reads[at] = BEGIN + at if at < ARENA_SIZE else place

    def physical(self, address: int) -> int | None:
        """Where an address is, for accesses from outside; `None` if nowhere."""
        own = self._pages.get(address // PAGE)
        if own is not None:
            return own[0] + address % PAGE
        if address < NOWHERE or address >= (1 << 64) - NOWHERE:
            return None
        return ARENA_AT + arena_offset(address)

    def _map_code(self, steps: list[Step]) -> None:
        for side in self.layout.sides:
            for section, image in side.image.items():
                self._code(side.bases[section], bytes(image))
        stubs = b""
        for name, number in self.layout.stubs.items():
            stubs += self._stub(name, number)
        self._code(STUBS, stubs)
        self._code(SAVE, SAVE_CODE.ljust(RESTORE - SAVE, bytes([HLT])) + RESTORE_CODE)
        for step in steps:
            self._code(step.base, bytes([HLT]) * (step.size - PAGE))
            self.uc.mem_write(step.at, step.code)

    def _code(self, address: int, code: bytes) -> None:
        size = (len(code) + PAGE) & ~(PAGE - 1)
        access = UC_PROT_READ | UC_PROT_EXEC
        self.uc.mem_map(address, size, access)
        for at in range(address, address + size, PAGE):
            self._pages[at // PAGE] = (at, access)
        self.uc.mem_write(address, code)

    @staticmethod
    def _stub(name: str, number: int) -> bytes:
        if name == RETURN:
            return b"\xc3".ljust(STUB_SIZE, bytes([HLT]))
        at = STUBS + STUB_SIZE * number
        code = b"\xc7\x04\x25" + struct.pack("<II", BLOCK, number)
        return code + b"\xe9" + struct.pack("<i", SAVE - (at + STUB_SIZE))

    def _load_constants(self, side: Side) -> None:
        memmove(self.constants.address, bytes(side.constants), len(side.constants))

    def enter(self, side: Side) -> None:
        """Constants as this build has them."""
        if self._differ:
            self._load_constants(side)

    def go(self, address: int) -> int:
        """Executes from `address` to the next stop; the number of the stub, or 0. Where it has run for too long while
        it was saving registers, those are not all saved."""
        self.words[ID] = 0
        self.faulted = False
        self.uc.emu_start(address, 0, count=self._limit)
        return self.words[ID] if self.rip() == SAVE + len(SAVE_CODE) else 0

    def rip(self) -> int:
        """Where it stopped."""
        return self.uc.reg_read(UC_X86_REG_RIP)
