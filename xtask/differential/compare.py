# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Runs both builds of a function from the same state, and says what first differs.

In: a machine, a state's number. Out: how the run ended, and a difference if there is one. Side 0 is recorded: events,
and memory at each; side 1 is compared with the record as it goes.
"""

import struct
from dataclasses import dataclass
from typing import Any

from unicorn import UcError

import calls
from calls import ARGUMENTS, CALLEE_SAVED, RAX, RDX, REGISTERS, Callee, Callees, conversions
from layout import CODE, CONSTANTS, PER_CPU, RETURN, STEPS, STUBS, SYMBOLS, Layout, Side
from machine import (ARENA_BELOW, ARENA_SIZE, BLOCK, ENTRY_RSP, FLAGS, GPR, ID, RESTORE, RIP, RSP, SAVE, STACK,
                     STACK_SIZE, Buffer, Machine, arena_offset, memcmp, memmove)
from operations import Fault, Surroundings, run
from sites import Site, Sites
from states import MASK, PART_BYTES, POOL_WORDS, Pool, mix

# Stops of one run, and events.
MOST_STOPS, MOST_EVENTS = 400, 48
# Bytes of an object in the frame that are compared when a function gets its address.
FRAME_BYTES = 32
FRAME, CODE_PLACE = 0xF0F0_F0F0_F0F0_F0F0, 0xC0DE_C0DE_C0DE_C0DE
STATUS = 0x8D5
_USED_STACK = 0x4000


@dataclass
class Outcome:
    """How a pair of runs ended: `end`, `fault`, `trap` or `limit`."""

    end: str
    difference: str | None = None
    # Registers that may be arguments differed at a call whose arguments are not known.
    doubt: str | None = None


class Differ(Exception):
    """The builds differ here."""


class Runner:
    """Both builds of a function with one value."""

    def __init__(self, layout: Layout, sites: Sites, callees: Callees, pool: Pool) -> None:
        self.layout, self.sites, self.pool = layout, sites, pool
        self.machine = Machine(layout, sites.steps)
        self.names = list(layout.stubs)
        self.callees: list[Callee] = [callees[name] for name in self.names]
        self.result = callees.result(layout.function.split(".")[0])
        self.snapshots = Buffer(self.machine.world_size * (MOST_EVENTS + 2))
        self.events: list[tuple[Any, ...]] = []
        self.doubt: str | None = None
        self.pins = self._pins()
        self.around = Surroundings(self._load, self._store, lambda op: 0, PER_CPU)

    def _pins(self) -> list[tuple[int, bytes]]:
        """Places of the world that always hold the same."""
        at = self.layout.symbols.get("this_cpu_off")
        if at is None:
            return []
        mirror = ARENA_SIZE + self.layout.symbols_size
        return [(mirror + at - SYMBOLS, PER_CPU.to_bytes(8, "little"))]

    def state(self, number: int) -> Outcome:
        """Both sides from state `number`."""
        self.events, self.doubt = [], None
        end = self._side(self.layout.sides[0], number)
        try:
            other = self._side(self.layout.sides[1], number)
            if "limit" in (end, other):
                return Outcome("limit", None, self.doubt)
            if end != other:
                raise Differ(f"deployed code: {end}, compiled code: {other}, after {len(self.events)} events")
        except Differ as difference:
            return Outcome(end, str(difference), self.doubt)
        return Outcome(end, None, self.doubt)

    def _begin(self, number: int) -> None:
        """Memory and registers of a state."""
        machine, words = self.machine, self.pool.words
        at = mix(number)
        drawn = at
        for offset in range(0, ARENA_SIZE, PART_BYTES):
            memmove(machine.world.address + offset, self.pool.part(drawn, offset), PART_BYTES)
            drawn >>= 4
        for offset in range(ARENA_SIZE, machine.world_size, PART_BYTES):
            drawn = mix(at + offset)
            size = min(PART_BYTES, machine.world_size - offset)
            memmove(machine.world.address + offset, self.pool.address + 8 * (drawn % (POOL_WORDS - PART_BYTES // 8)), size)
        self._pin()
        pattern = struct.pack("<I", at >> 32)
        used = ENTRY_RSP - STACK - _USED_STACK
        memmove(machine.stack.address + used, pattern * (_USED_STACK // 4), _USED_STACK)
        passed = (at >> 20) % (POOL_WORDS - 32)
        memmove(machine.stack.address + ENTRY_RSP - STACK + 8, self.pool.address + 8 * passed, 256)
        end = STUBS + 16 * self.layout.stubs["(return)"]
        memmove(machine.stack.address + ENTRY_RSP - STACK, end.to_bytes(8, "little"), 8)
        block = machine.words
        for register in range(16):
            block[GPR + register] = words[mix(at + register) % POOL_WORDS]
        block[GPR + RSP] = ENTRY_RSP
        block[FLAGS] = 2

    def _pin(self) -> None:
        for at, content in self.pins:
            memmove(self.machine.world.address + at, content, len(content))

    def _side(self, side: Side, number: int) -> str:
        """One run."""
        self.machine.enter(side)
        self._begin(number)
        self.seed = mix(number ^ 0xD1FF)
        self.index = 0
        self.side = side
        block = self.machine.words
        block[RIP] = side.address(side.pieces[0].section, side.pieces[0].value)
        address = RESTORE
        for _ in range(MOST_STOPS):
            try:
                stub = self.machine.go(address)
                if stub == 1:
                    return self._returned()
                if stub:
                    end = self._called(stub)
                    if end:
                        return end
                    address = RESTORE
                    continue
                address = self._stopped(self.machine.rip())
                if not address:
                    return "limit"
            except Fault:
                return "fault"
            except UcError:
                if self.machine.faulted:
                    return "fault"
                address = self._trapped(self.machine.rip())
                if not address:
                    return "trap"
        return "limit"

    # Stops in the code itself.

    def _stopped(self, rip: int) -> int:
        """A site, or the end of a copied instruction: where to go on. 0 when it has run for too long."""
        site = self.sites.by_address.get(rip - 1) if self.side.number == 0 else None
        if site is None:
            return 0
        return self._at(site)

    def _at(self, site: Site) -> int:
        machine, block = self.machine, self.machine.words
        machine.go(SAVE)
        for when, ops, ivs in site.updates:
            if when == "before":
                self._update(site, ops, ivs)
        instead = [update for update in site.updates if update[0] == "instead"]
        for _, ops, ivs in instead:
            self._update(site, ops, ivs)
        block[RIP] = site.address + site.length if instead else site.step
        if instead:
            return RESTORE
        stub = machine.go(RESTORE)
        if stub:
            # A call or a jump to another function: it returns behind the site.
            top = block[GPR + RSP] - STACK
            back = struct.unpack_from("<Q", machine.stack.map, top)[0]
            if STEPS <= back < STUBS:
                struct.pack_into("<Q", machine.stack.map, top, back + site.address - site.step)
            return STUBS + 16 * stub
        rip = machine.rip() - 1
        if not STEPS <= rip < STUBS:
            return 0
        address = rip + site.address - site.step
        after = [update for update in site.updates if update[0] == "after"]
        if not after:
            return address
        machine.go(SAVE)
        for _, ops, ivs in after:
            self._update(site, ops, ivs)
        block[RIP] = address
        return RESTORE

    def _update(self, site: Site, ops: list[dict[str, Any]], ivs: list[int]) -> None:
        block = self.machine.words
        self.around.text = lambda op: self._text(site, op)
        regs, flags = run(ops, ivs, list(block[GPR : GPR + 16]), block[FLAGS], self.around)
        for number, value in enumerate(regs):
            block[GPR + number] = value
        block[FLAGS] = flags

    def _text(self, site: Site, op: dict[str, Any]) -> int:
        """What the linker wrote into the function."""
        at = site.start + op["imm"]
        field = int.from_bytes(self.machine.uc.mem_read(at, 4), "little", signed=True)
        return ((at + 4 + op.get("c", 0) if op.get("b", 0) else 0) + field) & MASK

    def _load(self, address: int, width: int) -> int:
        return int.from_bytes(bytes(self._byte(address + at) for at in range(width)), "little")

    def _byte(self, address: int) -> int:
        return self.machine.uc.mem_read(self._physical(address), 1)[0]

    def _physical(self, address: int) -> int:
        at = self.machine.physical(address & MASK)
        if at is None:
            raise Fault
        return at

    def _store(self, address: int, width: int, value: int) -> None:
        places = [self._physical(address + at) for at in range(width)]
        for place, byte in zip(places, value.to_bytes(width, "little")):
            self.machine.uc.mem_write(place, bytes([byte]))

    # Events.

    def _snapshot(self) -> None:
        """Memory now: kept of side 0, compared of side 1."""
        machine = self.machine
        kept = self.snapshots.address + self.index * machine.world_size
        if self.side.number == 0:
            memmove(kept, machine.world.address, machine.world_size)
        elif memcmp(kept, machine.world.address, machine.world_size):
            raise Differ(f"memory: {self._first_byte()}")

    def _first_byte(self) -> str:
        size = self.machine.world_size
        ours = self.snapshots.read(self.index * size, size)
        theirs = self.machine.world.read(0, size)
        at = next(i for i in range(size) if ours[i] != theirs[i]) & ~7
        words = [int.from_bytes(memory[at : at + 8], "little") for memory in (ours, theirs)]
        where = f"arena+{at - ARENA_BELOW:#x}"
        if at >= ARENA_SIZE:
            place = SYMBOLS + (at - ARENA_SIZE) % self.layout.symbols_size
            name, start = max(((n, a) for n, a in self.layout.symbols.items() if a <= place), key=lambda pair: pair[1])
            where = f"{name}+{place - start:#x}"
        return f"{where} is {words[0]:#x} after deployed code, {words[1]:#x} after compiled code"

    def _record(self, event: tuple[Any, ...], words: str) -> None:
        """An event: kept of side 0, compared of side 1."""
        if self.side.number == 0:
            self.events.append(event)
        else:
            if self.index >= len(self.events):
                raise Differ(f"event {self.index}: compiled code: {words}, deployed code: none")
            if self.events[self.index] != event:
                raise Differ(f"event {self.index}: deployed code: {self._words(self.events[self.index])}, "
                             f"compiled code: {self._words(event)}")
        try:
            self._snapshot()
        except Differ as difference:
            raise Differ(f"event {self.index}, {words}: {difference}") from None
        self.index += 1

    @staticmethod
    def _words(event: tuple[Any, ...]) -> str:
        name, arguments, *rest = event
        return f"{name}({', '.join(f'{a:#x}' for a in arguments)}) {' '.join(str(part) for part in rest if part)}"

    def _seen(self, value: int, frames: list[bytes]) -> int:
        """A value as another function sees it: of the caller's frame and code only that it is there."""
        if STACK <= value < STACK + STACK_SIZE:
            at = value - STACK
            frames.append(self.machine.stack.read(at, max(min(FRAME_BYTES, ENTRY_RSP - value), 0)))
            return FRAME
        if CODE[0] <= value < STUBS:
            return CODE_PLACE
        return value

    def _called(self, stub: int) -> str | None:
        """A call: an event, and what any function might do."""
        block, callee = self.machine.words, self.callees[stub]
        frames: list[bytes] = []
        arguments = [self._seen(block[GPR + register] & bits, frames) for register, bits in callee.arguments]
        if callee.through is not None:
            target = block[GPR + callee.through]
            arguments.insert(0, self._seen(target, []))
        top = block[GPR + RSP] - STACK
        if callee.on_stack:
            arguments += struct.unpack_from(f"<{callee.on_stack}Q", self.machine.stack.map, top + 8)
        if callee.format is not None:
            arguments += self._printed(callee, arguments, frames)
        self._doubtful(callee)
        self._record((callee.name, tuple(arguments), *frames), callee.name)
        if callee.ends:
            return "end"
        if self.index >= MOST_EVENTS:
            return "limit"
        self._answer(callee, arguments)
        block[RIP] = struct.unpack_from("<Q", self.machine.stack.map, top)[0]
        block[GPR + RSP] += 8
        return None

    def _printed(self, callee: Callee, arguments: list[int], frames: list[bytes]) -> list[int]:
        """What follows a format, as far as it is in registers."""
        address = arguments[callee.format or 0]
        at = address - CONSTANTS
        if not 0 <= at < self.machine.constants.size:
            return []
        text = self.machine.constants.read(at, self.machine.constants.size - at).split(b"\0")[0]
        first = len(callee.arguments)
        more = ARGUMENTS[first : first + conversions(text)]
        return [self._seen(self.machine.words[GPR + register] & 0xFFFFFFFF, frames) for register in more]

    def _doubtful(self, callee: Callee) -> None:
        """Registers that may be arguments: differences are told, and are no proof of a difference."""
        if not callee.perhaps:
            return
        values = tuple(self._seen(self.machine.words[GPR + register], []) for register in callee.perhaps)
        if self.side.number == 0:
            self.kept = getattr(self, "kept", {})
            self.kept[self.index] = values
        elif self.kept.get(self.index) != values and self.doubt is None:
            ours = self.kept.get(self.index, ())
            which = [REGISTERS[r] for r, x, y in zip(callee.perhaps, ours, values) if x != y]
            self.doubt = f"event {self.index}, {callee.name}: {', '.join(which)}"

    def _answer(self, callee: Callee, arguments: list[int]) -> None:
        """Results, and what is left of registers and memory, from the state and the event alone."""
        machine, words, block = self.machine, self.pool.words, self.machine.words
        hashed = self.seed ^ callee.number ^ self.index * 0x9E3779B97F4A7C15
        for value in arguments:
            hashed = mix((hashed ^ value) & MASK)
        hashed = mix(hashed & MASK)
        for register in callee.changes:
            block[GPR + register] = words[(hashed + 977 * register) % POOL_WORDS]
        if RAX in callee.changes and callee.result == 1:
            # A truth value, which code may rely on.
            block[GPR + RAX] = hashed >> 40 & 1
        for value in arguments:
            # What it is given, it may write to.
            offset = arena_offset(value)
            if 0 < value >> 32 < 4 and offset < ARENA_SIZE - 128:
                memmove(machine.world.address + offset, self.pool.part(hashed, offset), 128)
        if hashed >> 60 < 6:
            offset = (hashed >> 50) % (ARENA_SIZE // PART_BYTES) * PART_BYTES
            memmove(machine.world.address + offset, self.pool.part(hashed >> 40, offset), PART_BYTES)
            size = min(PART_BYTES, machine.world_size - ARENA_SIZE)
            offset = ARENA_SIZE + (hashed >> 30) % (machine.world_size - ARENA_SIZE - size + 1) & -8
            source = self.pool.address + 8 * ((hashed >> 8) % (POOL_WORDS - PART_BYTES // 8))
            memmove(machine.world.address + offset, source, size)
        self._pin()

    def _returned(self) -> str:
        """The end: what the caller finds."""
        block = self.machine.words
        saved = tuple(block[GPR + register] for register in (*CALLEE_SAVED, RSP))
        result: tuple[int, ...] = ()
        if self.result is None:
            result = (self._seen(block[GPR + RAX], []),)
        elif self.result:
            result = (self._seen(block[GPR + RAX], []) & ((1 << 8 * self.result) - 1),)
        self._record(("return", saved + result), "return")
        return "end"

    def _trapped(self, rip: int) -> int:
        """An instruction that cannot be executed: where to go on, behind a warning; else 0."""
        for section, base in self.side.bases.items():
            if (section, rip - base) in self.side.code.warnings:
                self._record(("warning", ()), "warning")
                return rip + 2 if self.index < MOST_EVENTS else 0
        self._record(("trap", ()), "trap")
        return 0

