# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Memory and registers of a state, and what called functions make of them.

In: a machine, a pool of random words, a state's number. Out: the same memory and registers for both builds, at the
beginning and behind each call: what a called function returns and writes depends on the state and the event alone.
"""

import struct
from collections.abc import Sequence

from calls import RAX, Callee
from layout import PER_CPU, STUB_SIZE, STUBS, SYMBOLS
from machine import (ARENA_BELOW, ARENA_SIZE, ENTRY_RSP, FLAGS, GPR, RSP, STACK, STACK_SIZE, Machine, arena_offset,
                     memmove)
from operations import ALL
from states import PART_BYTES, POOL_WORDS, Genome, Pool, mix

# The part of the stack that is filled anew.
_USED = 16 << 10
# Bytes of `struct pcpu_hot`.
_CURRENT = 64
# Bytes that a called function writes to where it is pointed to.
_WRITTEN = 128


class World:
    """What both builds find."""

    def __init__(self, machine: Machine, pool: Pool) -> None:
        self.machine, self.pool = machine, pool
        self._seed, self._seeds = 0, {}
        self._return = (STUBS + STUB_SIZE * machine.layout.stubs["(return)"]).to_bytes(8, "little")
        self._pins: dict[int, bytes] = {}

    def _per_cpu(self, name: str) -> int | None:
        """Where a per-CPU object lies in memory."""
        at = self.machine.layout.symbols.get(name)
        return None if at is None else ARENA_SIZE + self.machine.layout.symbols_size + at - SYMBOLS

    def _pinned(self) -> dict[int, bytes]:
        """Places that hold the same until the end: where per-CPU data are, in per-CPU data; and what the kernel declares
        to be constant since no thread sees it change (arch/x86/include/asm/current.h)."""
        pins = {}
        if (at := self._per_cpu("this_cpu_off")) is not None:
            pins[at] = PER_CPU.to_bytes(8, "little")
        if (at := self._per_cpu("const_pcpu_hot")) is not None:
            pins[at] = self.machine.world.read(at, _CURRENT)
        return pins

    def begin(self, genome: Genome) -> None:
        """Memory and registers of a state."""
        drawn = mix(genome.number)
        self._seed, self._seeds = mix(genome.number ^ 0xD1FF), dict(genome.seeds)
        self._fill(drawn)
        for at, word in genome.words:
            at = min(at, self.machine.world_size - 8)
            memmove(self.machine.world.address + at, word.to_bytes(8, "little"), 8)
        self._pins = self._pinned()
        self._pin()
        self._fill_stack(drawn)
        block, words = self.machine.words, self.pool.words
        for register in range(16):
            block[GPR + register] = words[mix(drawn + register) % POOL_WORDS]
        for register, word in genome.registers:
            block[GPR + register] = word
        block[GPR + RSP] = ENTRY_RSP
        block[FLAGS] = 2

    def _fill(self, drawn: int) -> None:
        world, size, parts = self.machine.world.address, self.machine.world_size, drawn
        for offset in range(0, ARENA_SIZE, PART_BYTES):
            memmove(world + offset, self.pool.part(parts, offset), PART_BYTES)
            parts >>= 4
        for offset in range(ARENA_SIZE, size, PART_BYTES):
            memmove(world + offset, self._anywhere(mix(drawn + offset)), min(PART_BYTES, size - offset))

    def _anywhere(self, drawn: int) -> int:
        """The address of some words of the pool."""
        return self.pool.address + 8 * (drawn % (POOL_WORDS - PART_BYTES // 8))

    def _pin(self) -> None:
        for at, content in self._pins.items():
            memmove(self.machine.world.address + at, content, len(content))

    def _fill_stack(self, drawn: int) -> None:
        """The frame is the same four bytes again and again: builds may lay it out differently, and read of it what the
        functions would have written that are not executed."""
        stack, entry = self.machine.stack.address, ENTRY_RSP - STACK
        pattern = struct.pack("<I", drawn >> 32)
        memmove(stack + entry - _USED, pattern * (_USED // 4), _USED)
        memmove(stack + entry, self._return, 8)
        memmove(stack + entry + 8, self._anywhere(drawn >> 20), min(256, STACK_SIZE - entry - 8))

    def answer(self, callee: Callee, arguments: Sequence[int], index: int) -> None:
        """Results of event `index`, and what it leaves of registers and memory."""
        self._seed = self._seeds.get(index, self._seed)
        hashed = self._seed ^ callee.number ^ index * 0x9E37_79B9_7F4A_7C15 & ALL
        for value in arguments:
            hashed = mix(hashed ^ value)
        hashed = mix(hashed)
        block, words = self.machine.words, self.pool.words
        for register in callee.changes:
            block[GPR + register] = words[(hashed + 977 * register) % POOL_WORDS]
        if RAX in callee.changes and callee.result == 1:
            # A truth value, which code may rely on.
            block[GPR + RAX] = hashed >> 40 & 1
        self._write(hashed, arguments)
        self._pin()

    def _write(self, hashed: int, arguments: Sequence[int]) -> None:
        world = self.machine.world.address
        for value in arguments:
            offset = arena_offset(value)
            if 0 < (value + ARENA_BELOW) >> 32 < 4 and offset < ARENA_SIZE - _WRITTEN:
                memmove(world + offset, self.pool.part(hashed, offset), _WRITTEN)
        if hashed >> 60 < 6:
            offset = (hashed >> 50) % (ARENA_SIZE // PART_BYTES) * PART_BYTES
            memmove(world + offset, self.pool.part(hashed >> 40, offset), PART_BYTES)
            symbols = self.machine.world_size - ARENA_SIZE
            size = min(PART_BYTES, symbols)
            offset = ARENA_SIZE + ((hashed >> 30) % (symbols - size + 1) & -8)
            memmove(world + offset, self._anywhere(hashed >> 8), size)
