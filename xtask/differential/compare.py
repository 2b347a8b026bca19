# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Runs both builds of a function from the same state, and says what first differs.

In: the layout of a function, its sites, a state's number. Out: how the runs ended, and a difference if there is one.
"""

import struct
from dataclasses import dataclass

from unicorn import UcError

from calls import ARGUMENTS, CALLEE_SAVED, RAX, REGISTERS, Callee, Callees, conversions
from explore import Trace
from layout import CODE, CONSTANTS, PER_CPU, STEPS, STUB_SIZE, STUBS, Layout, Side
from machine import ENTRY_RSP, FLAGS, GPR, RESTORE, RIP, RSP, SAVE, STACK, STACK_SIZE, Machine, Mode
from operations import ALL, Fault, Op, Surroundings, mask, run
from record import Differ, Event, Record
from sites import Site, Sites
from states import Genome, Pool
from world import World

# Stops of one run, at calls and at sites, and of one that only looks for states.
MOST_STOPS, MOST_TRACED_STOPS = 120, 50
# Bytes of an object in the frame that are compared when a function gets its address.
FRAME_BYTES = 32
# What another function sees of an address in its caller's frame or code.
FRAME, CODE_PLACE = 0xF0F0_F0F0_F0F0_F0F0, 0xC0DE_C0DE_C0DE_C0DE
UD2 = b"\x0f\x0b"


@dataclass
class Outcome:
    """How a pair of runs ended: `end`, `fault`, `trap`, `limit`, or `undefined`, when one of them divides by zero."""

    end: str
    difference: str | None = None
    # Registers that may be arguments differed at a call whose arguments are not known.
    doubt: str | None = None


class Runner:
    """Both builds of a function with one value."""

    def __init__(self, layout: Layout, sites: Sites, callees: Callees, pool: Pool, mode: Mode = Mode.FAST) -> None:
        self.layout, self.sites = layout, sites
        self.machine = Machine(layout, sites.steps, mode)
        self.world = World(self.machine, pool)
        self.record = Record(self.machine)
        self.callees: list[Callee] = [callees[name] for name in layout.stubs]
        self.result = callees.result(layout.function.split(".")[0])
        self.side = layout.sides[0]
        # Sites at which an update was executed, by address.
        self.reached: set[int] = set()
        # Those of the last state.
        self.passed: set[int] = set()
        self._stops = MOST_TRACED_STOPS if mode == Mode.TRACED else MOST_STOPS
        self._doubt: str | None = None
        self._perhaps: dict[int, tuple[int, ...]] = {}

    def trace(self, genome: Genome) -> Trace:
        """The deployed side alone, looked at closely."""
        machine, self.reached = self.machine, set()
        machine.blocks, machine.reads = set(), {}
        self._run(self.layout.sides[0], genome)
        return Trace(machine.blocks, machine.reads, self.record.index, self.reached)

    def state(self, genome: Genome) -> Outcome:
        """Both sides from one state."""
        self._doubt, self._perhaps = None, {}
        self.passed = set()
        self.machine.timed = False
        ends: list[str] = []
        difference = None
        try:
            for side in self.layout.sides:
                ends.append(self._run(side, genome))
                if ends[-1] == "undefined":
                    return Outcome("undefined", None, self._doubt)
            if ends[0] != ends[1]:
                ours, theirs = len(self.record.events), self.record.index
                raise Differ(
                    f"deployed code: {ends[0]} after {ours} events, compiled code: {ends[1]} after {theirs} events"
                )
        except Differ as found:
            difference = str(found)
        if self.machine.timed or self._unfinished(ends):
            return Outcome("limit", None, self._doubt)
        return Outcome(ends[0], difference, self._doubt)

    def _unfinished(self, ends: list[str]) -> bool:
        """Whether a side ran for too long; until then both did the same."""
        beyond = self.record.index >= len(self.record.events)
        return "limit" in ends and (len(ends) == 2 or beyond)

    def strays(self, genome: Genome) -> bool:
        """Whether a side reads as a number where a call returns to."""
        self.machine.strayed = False
        self.state(genome)
        return self.machine.strayed

    def explains(self, other: "Runner") -> bool:
        """Whether the last state of this runner, which found no difference, explains away that of `other`: it came to
        the same updates, and one of the builds met the same events."""
        same = any(ours == theirs for ours, theirs in zip(self.record.names, other.record.names))
        return same and self.passed >= other.passed

    def _run(self, side: Side, genome: Genome) -> str:
        """One side."""
        self.side = side
        self.machine.enter(side)
        self.world.begin(genome)
        self.record.begin(comparing=side.number == 1)
        self.machine.words[RIP] = side.address(side.pieces[0].section, side.pieces[0].value)
        address = RESTORE
        for _ in range(self._stops):
            try:
                stub = self.machine.go(address)
                if stub == 1:
                    return self._returned()
                address, end = self._called(stub) if stub else self._stopped(self.machine.rip())
            except Fault:
                return "fault"
            except UcError:
                if self.machine.faulted:
                    return "fault"
                address, end = self._trapped(self.machine.rip())
            if end:
                return end
        return "limit"

    # Stops in the code itself.

    def _stopped(self, rip: int) -> tuple[int, str]:
        """Where to go on, or how it ends: at a site; anywhere else it has run for too long."""
        site = self.sites.by_address.get(rip - 1) if self.side.number == 0 else None
        if site is None:
            return 0, "limit"
        self.reached.add(site.address)
        self.passed.add(site.address)
        block = self.machine.words
        self.machine.go(SAVE)
        self._updates(site, "before")
        if self._updates(site, "instead"):
            block[RIP] = site.address + site.length
            return RESTORE, ""
        block[RIP] = site.step
        stub = self.machine.go(RESTORE)
        if stub:
            self._come_back(site)
            return STUBS + STUB_SIZE * stub, ""
        rip = self.machine.rip() - 1
        if not STEPS <= rip < STUBS:
            return 0, "limit"
        address = rip + site.address - site.step
        if all(when != "after" for when, *_ in site.updates):
            return address, ""
        self.machine.go(SAVE)
        self._updates(site, "after")
        block[RIP] = address
        return RESTORE, ""

    def _come_back(self, site: Site) -> None:
        """The copy of a call returns behind the call itself."""
        top = self.machine.words[GPR + RSP] - STACK
        back = struct.unpack_from("<Q", self.machine.stack.map, top)[0]
        if STEPS <= back < STUBS:
            struct.pack_into("<Q", self.machine.stack.map, top, back + site.address - site.step)

    def _updates(self, site: Site, when: str) -> bool:
        """Executes the operations that run then, if there are any."""
        block = self.machine.words
        due = [(ops, ivs) for moment, ops, ivs in site.updates if moment == when]
        around = Surroundings(self._load, self._store, lambda op: self._text(site, op), PER_CPU)
        for ops, ivs in due:
            regs, block[FLAGS] = run(ops, ivs, block[GPR : GPR + 16], block[FLAGS], around)
            block[GPR : GPR + 16] = regs
        return bool(due)

    def _text(self, site: Site, op: Op) -> int:
        """What the linker wrote into the function."""
        at = site.start + op["imm"]
        field = int.from_bytes(self.machine.uc.mem_read(at, 4), "little", signed=True)
        return (field + (at + 4 + op.get("c", 0) if op.get("b", 0) else 0)) & ALL

    def _places(self, address: int, width: int) -> list[int]:
        places = [self.machine.physical(address + at & ALL) for at in range(width)]
        found = [place for place in places if place is not None]
        if len(found) < width:
            raise Fault
        return found

    def _load(self, address: int, width: int) -> int:
        read = self.machine.uc.mem_read
        return int.from_bytes(b"".join(bytes(read(place, 1)) for place in self._places(address, width)), "little")

    def _store(self, address: int, width: int, value: int) -> None:
        for place, byte in zip(self._places(address, width), value.to_bytes(width, "little")):
            self.machine.uc.mem_write(place, bytes([byte]))

    # Events.

    def _seen(self, value: int, frames: list[bytes]) -> int:
        """A value as another function sees it: of its caller's frame and code only that it is there."""
        if STACK <= value < STACK + STACK_SIZE:
            size = max(min(FRAME_BYTES, ENTRY_RSP - value), 0)
            frames.append(self.machine.stack.read(value - STACK, size))
            return FRAME
        return CODE_PLACE if CODE[0] <= value < STUBS else value

    def _called(self, stub: int) -> tuple[int, str]:
        """A call: an event, and what any function might do."""
        if stub >= len(self.callees):
            # Code wrote over the block of registers, through a pointer at random.
            return 0, "limit"
        block, callee = self.machine.words, self.callees[stub]
        frames: list[bytes] = []
        values = [self._seen(block[GPR + register] & bits, frames) for register, bits in callee.arguments]
        if callee.through is not None:
            values.append(self._seen(block[GPR + callee.through], []))
        top = block[GPR + RSP] - STACK
        if callee.on_stack:
            values += struct.unpack_from(f"<{callee.on_stack}Q", self.machine.stack.map, top + 8)
        if callee.format is not None:
            values += self._printed(callee, values[callee.format], frames)
        if callee.perhaps:
            self._doubtful(callee)
        self.record.add(Event(callee.name, tuple(values), tuple(frames)))
        if callee.ends:
            return 0, "end"
        if self.record.full:
            return 0, "limit"
        self.world.answer(callee, values, self.record.index)
        block[RIP] = struct.unpack_from("<Q", self.machine.stack.map, top)[0]
        block[GPR + RSP] += 8
        return RESTORE, ""

    def _printed(self, callee: Callee, address: int, frames: list[bytes]) -> list[int]:
        """What follows a format, as far as it is in registers; a number may have 32 bits."""
        at = address - CONSTANTS
        if not 0 <= at < self.machine.constants.size:
            return []
        text = self.machine.constants.read(at, self.machine.constants.size - at).split(b"\0")[0]
        first = len(callee.arguments)
        more = ARGUMENTS[first : first + conversions(text)]
        return [self._seen(self.machine.words[GPR + register], frames) & mask(4) for register in more]

    def _doubtful(self, callee: Callee) -> None:
        """Registers that may be arguments: what differs there is told, and is no proof of a difference."""
        index = self.record.index
        values = tuple(self._seen(self.machine.words[GPR + register], []) for register in callee.perhaps)
        if self.side.number == 0:
            self._perhaps[index] = values
        elif self._perhaps.get(index, values) != values and self._doubt is None:
            pairs = zip(callee.perhaps, self._perhaps[index], values)
            which = [REGISTERS[register] for register, ours, theirs in pairs if ours != theirs]
            self._doubt = f"event {index}, {callee.name}: {', '.join(which)}"

    def _returned(self) -> str:
        """The end: what the caller finds."""
        block = self.machine.words
        values = [block[GPR + register] for register in (*CALLEE_SAVED, RSP)]
        if self.result != 0:
            # What is narrower than an address is none, whatever is above it.
            result = block[GPR + RAX] & mask(self.result or 8)
            values.append(result if self.result in {1, 2, 4} else self._seen(result, []))
        self.record.add(Event("return", tuple(values)))
        return "end"

    def _trapped(self, rip: int) -> tuple[int, str]:
        """An instruction that cannot be executed: the kernel goes on behind a warning."""
        for section, base in self.side.bases.items():
            if (section, rip - base) in self.side.code.warnings:
                self.record.add(Event("warning"))
                return rip + len(UD2), "limit" if self.record.full else ""
        if self.machine.uc.mem_read(rip, len(UD2)) != UD2:
            # A division: C does not say what happens, and a compiler that needs no quotient leaves it out.
            return 0, "undefined"
        self.record.add(Event("trap"))
        return 0, "trap"
