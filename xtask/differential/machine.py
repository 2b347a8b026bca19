# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A processor with the memory of a layout, and a fast way to read and set its registers.

Code stops at `hlt`: in stubs of functions, and at sites. Registers are passed through a block of memory that code at
`SAVE` writes and code at `RESTORE` reads: that is far quicker than asking the emulator for each.
"""

import ctypes
import mmap
import struct

from unicorn import UC_ARCH_X86, UC_MODE_64, UC_PROT_EXEC, UC_PROT_READ, UC_PROT_WRITE, Uc
from unicorn.x86_const import UC_X86_REG_GS_BASE, UC_X86_REG_RIP

from layout import CONSTANTS, HLT, PER_CPU, RETURN, STUB_SIZE, STUBS, SYMBOLS, Layout, Side
from sites import Step

PAGE = 4096
SAVE = 0x0900_0000
RESTORE = SAVE + 0x200
BLOCK = 0x0A00_0000
# Words of the block.
ID, RIP, GPR, FLAGS, WORDS = 0, 1, 2, 18, 19
RSP = 4
ARENA_BELOW, ARENA_ABOVE = 16 << 10, 48 << 10
ARENA_SIZE = ARENA_BELOW + ARENA_ABOVE
# The arena is there several times: the upper half of a pointer into it is one of these.
ARENA_BASES = (1, 2, 3)
STACK, STACK_SIZE = 0x6_0000_0000, 64 << 10
ENTRY_RSP = STACK + 0xC000 - 8
# Instructions between two stops.
INSTRUCTIONS = 20_000

_libc = ctypes.CDLL(None)
memmove, memcmp = ctypes.memmove, _libc.memcmp
memcmp.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


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

    def __init__(self, layout: Layout, steps: list[Step]) -> None:
        self.uc = Uc(UC_ARCH_X86, UC_MODE_64)
        self.layout = layout
        self.world = Buffer(ARENA_SIZE + 2 * layout.symbols_size)
        self.world_size = ARENA_SIZE + 2 * layout.symbols_size
        self.stack, self.block = Buffer(STACK_SIZE), Buffer(PAGE)
        self.constants = Buffer(len(layout.sides[0].constants))
        self.words = (ctypes.c_uint64 * WORDS).from_buffer(self.block.map)
        self._map_data()
        self._map_code(steps)
        self.uc.reg_write(UC_X86_REG_GS_BASE, PER_CPU)
        self._differ = bytes(layout.sides[0].constants) != bytes(layout.sides[1].constants)
        self._load_constants(layout.sides[0])

    def _map_data(self) -> None:
        access = UC_PROT_READ | UC_PROT_WRITE
        for base in ARENA_BASES:
            self.uc.mem_map_ptr((base << 32) - ARENA_BELOW, ARENA_SIZE, access, self.world.address)
        symbols = self.world.address + ARENA_SIZE
        size = self.layout.symbols_size
        self.uc.mem_map_ptr(SYMBOLS, size, access, symbols)
        self.uc.mem_map_ptr(SYMBOLS + PER_CPU, size, access, symbols + size)
        # The canary of the stack protector.
        self.uc.mem_map(PER_CPU, PAGE, UC_PROT_READ)
        self.uc.mem_map_ptr(STACK, STACK_SIZE, access, self.stack.address)
        self.uc.mem_map_ptr(BLOCK, PAGE, access, self.block.address)
        self.uc.mem_map_ptr(CONSTANTS, self.constants.size, UC_PROT_READ, self.constants.address)

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
        self.uc.mem_map(address, (len(code) + PAGE) & ~(PAGE - 1), UC_PROT_READ | UC_PROT_EXEC)
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
        """Executes from `address` to the next stop; the number of the stub, or 0."""
        self.words[ID] = 0
        self.uc.emu_start(address, 0, count=INSTRUCTIONS)
        return self.words[ID]

    def rip(self) -> int:
        """Where it stopped."""
        return self.uc.reg_read(UC_X86_REG_RIP)
