# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Where everything lies that is executed: the same addresses for both builds, whatever the builds call near or far.

In: one function in two builds. Out: `Layout`: code with its references filled in, addresses by name. What code refers
to is found by name, strings and constants by content; a function that is called is a stub.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from objects import R_PLT32, RELATIVE, SIZES, Object, Place, Relocation, Section, Symbol, behind

# All but the arena and the stack within 2 GB, as the code model of the kernel wants it.
CODE = (0x0100_0000, 0x0300_0000)
STEPS = 0x0500_0000
STUBS = 0x0800_0000
CONSTANTS = 0x0C00_0000
SYMBOLS = 0x1000_0000
# The base of gs: per-CPU data are where symbols are, so far above.
PER_CPU = 0x2000_0000
STUB_SIZE = 16
# What a function starts and ends with under ftrace and return thunks is no call.
RETURN = "__x86_return_thunk"
TRACE = "__fentry__"
PARAVIRTUAL, PARAVIRTUAL_SIZE = "pv_ops", 0x400
# What code that does not know the value reads it from.
OPAQUE, OPAQUE_SIZE = "xk_opaque_object", 8
NOP5 = bytes.fromhex("0f1f440000")
HLT = 0xF4
RDTSC = b"\x0f\x31"
# Bytes of a symbol of another object that are its own, and at most of one of this object.
FOREIGN_ROOM, MOST_ROOM = 512, 4096


class NotExecutable(Exception):
    """The function cannot be executed; the reason is in words."""


@dataclass
class Side:
    """One build of the function."""

    number: int
    code: Object
    # The function, then its cold part.
    pieces: list[Symbol]
    bases: dict[int, int] = field(default_factory=dict)
    image: dict[int, bytearray] = field(default_factory=dict)
    constants: bytearray = field(default_factory=bytearray)

    def address(self, section: int, offset: int) -> int:
        """Where a place of the code lies."""
        return self.bases[section] + offset

    def owns(self, section: int, offset: int) -> bool:
        """Whether a place is in the function that is executed."""
        return any(p.section == section and p.value <= offset < p.value + p.size for p in self.pieces)


class Layout:
    """Addresses of what the two builds of a function refer to."""

    def __init__(
        self, builds: tuple[Object, Object], function: str, is_function: Callable[[str], bool], value: int
    ) -> None:
        self.function, self.value = function, value
        self.sides = [self._side(number, build) for number, build in enumerate(builds)]
        self.stubs: dict[str, int] = {"": 0, "(return)": 1}
        self._room: dict[str, int] = {}
        self.symbols: dict[str, int] = {}
        self.constants: dict[str, int] = {}
        self._constants_end = 0
        entries = [entry for side in self.sides for _, entry in self._fields(side)]
        self._called = {entry.symbol.name for entry in entries if entry.kind == R_PLT32}
        self._is_function = is_function
        for side in self.sides:
            for section, entry in self._fields(side):
                self._measure(side, self._place(side, section, entry))
        self._allocate()
        for side in self.sides:
            self._fill(side)
        ends = max(len(side.constants) for side in self.sides)
        for side in self.sides:
            side.constants.extend(bytes(ends - len(side.constants)))
        self._share_constants()

    @property
    def symbols_size(self) -> int:
        """Bytes of all symbols, whole pages."""
        return max(-(-sum(self._room.values()) // 4096), 1) * 4096

    def places(self) -> list[int]:
        """The addresses of what the code refers to."""
        constants = [CONSTANTS + at for at in self.constants.values()]
        return sorted([*self.symbols.values(), *constants])

    def clocks(self) -> list[int]:
        """Where `rdtsc` may stand in the function; not everything that looks like it is one."""
        found = []
        for side in self.sides:
            for piece in side.pieces:
                image, end = side.image[piece.section], piece.value + piece.size
                at = image.find(RDTSC, piece.value, end)
                while at >= 0:
                    found.append(side.address(piece.section, at))
                    at = image.find(RDTSC, at + 1, end)
        return found

    def _side(self, number: int, build: Object) -> Side:
        pieces = [build.functions[name] for name in (self.function, self.function + ".cold") if name in build.functions]
        if not pieces or pieces[0].name != self.function:
            raise NotExecutable(f"{build.path.name} has no function {self.function}")
        side = Side(number, build, pieces)
        at = CODE[number]
        for section in build.sections:
            if section.executable:
                side.bases[section.index] = at
                at += (len(section.data) + 0x1FFF) & ~0xFFF
        return side

    def _fields(self, side: Side) -> Iterable[tuple[Section, Relocation]]:
        """What is filled in in the function, and in code that belongs to no function."""
        for index in side.bases:
            section = side.code.sections[index]
            for entry in section.relocations:
                if side.owns(index, entry.offset) or side.code.symbol_at(index, entry.offset) is None:
                    yield section, entry

    @staticmethod
    def _place(side: Side, section: Section, entry: Relocation) -> Place:
        """What a field refers to. A relative one counts from the end of its instruction."""
        return side.code.place(entry.symbol, entry.addend + _end(section, entry))

    def _foreign_function(self, name: str) -> bool:
        return name in self._called or name.startswith("__x86_") or self._is_function(name)

    def _measure(self, side: Side, place: Place) -> None:
        """Makes room for data."""
        if place.kind == "data":
            there = side.code.symbol_at(place.section, place.at)
            room = min((there.size if there else FOREIGN_ROOM) + 64, MOST_ROOM)
        elif place.kind == "extern" and place.name not in (PARAVIRTUAL, OPAQUE) and not self._foreign_function(place.name):
            room = FOREIGN_ROOM
        else:
            return
        room = max(room, min(place.offset + 64, 64 << 10))
        self._room[place.name] = max(self._room.get(place.name, 0), (room + 63) & ~63)

    def _allocate(self) -> None:
        at = 0
        for name in sorted(self._room):
            self.symbols[name] = SYMBOLS + at
            at += self._room[name]

    def stub(self, name: str) -> int:
        """The address of the function that is called `name`."""
        return STUBS + STUB_SIZE * self.stubs.setdefault(name, len(self.stubs))

    def resolve(self, side: Side, place: Place) -> int:
        """The address of a place."""
        if place.kind == "label":
            return side.address(place.section, place.at)
        if place.kind == "function":
            start = place.section == side.pieces[0].section and place.at == side.pieces[0].value
            if side.owns(place.section, place.at) and not start:
                return side.address(place.section, place.at)
            return self.stub(f"{place.name}+{place.offset:#x}" if place.offset else place.name)
        if place.kind in ("constant", "literal"):
            return self._constant(side, place) + place.offset
        if place.name == PARAVIRTUAL:
            return self._paravirtual() + place.offset
        if place.name == OPAQUE:
            return self._opaque() + place.offset
        if place.kind == "extern" and self._foreign_function(place.name):
            return self.stub(place.name) + place.offset
        if place.name not in self.symbols:
            # Data to which only other data refer.
            self.symbols[place.name] = SYMBOLS + 0x100_0000 + 4096 * len(self.symbols)
        return self.symbols[place.name] + place.offset

    def _reserve(self, name: str, size: int) -> int:
        at = self._constants_end
        self.constants[name] = at
        self._constants_end = (at + size + 63) & ~63
        for side in self.sides:
            side.constants.extend(bytes(self._constants_end - len(side.constants)))
        return at

    def _paravirtual(self) -> int:
        if PARAVIRTUAL not in self.constants:
            at = self._reserve(PARAVIRTUAL, PARAVIRTUAL_SIZE)
            for offset in range(0, PARAVIRTUAL_SIZE, 8):
                word = self.stub(f"{PARAVIRTUAL}+{offset:#x}").to_bytes(8, "little")
                for side in self.sides:
                    side.constants[at + offset : at + offset + 8] = word
        return CONSTANTS + self.constants[PARAVIRTUAL]

    def _opaque(self) -> int:
        if OPAQUE not in self.constants:
            at = self._reserve(OPAQUE, OPAQUE_SIZE)
            for side in self.sides:
                side.constants[at : at + OPAQUE_SIZE] = self.value.to_bytes(OPAQUE_SIZE, "little", signed=True)
        return CONSTANTS + self.constants[OPAQUE]

    def _share_constants(self) -> None:
        """Puts what one build alone refers to into both: a pointer at random must read the same there."""
        starts = [*sorted(self.constants.values()), self._constants_end]
        ours, theirs = (side.constants for side in self.sides)
        for start, end in zip(starts, starts[1:]):
            if not any(theirs[start:end]):
                theirs[start:end] = ours[start:end]
            elif not any(ours[start:end]):
                ours[start:end] = theirs[start:end]

    def _constant(self, side: Side, place: Place) -> int:
        """The address of data that nobody writes to, loaded for this side."""
        section = side.code.sections[place.section]
        start = place.at - place.offset
        if place.kind == "literal":
            content = bytes.fromhex(place.name.split()[1])
        else:
            there = side.code.symbol_at(place.section, place.at)
            content = section.data[start : start + there.size] if there else section.data
        name = f"{place.kind} {place.name}"
        at = self.constants[name] if name in self.constants else self._reserve(name, len(content))
        if not any(side.constants[at : at + len(content)]) and any(content):
            side.constants[at : at + len(content)] = content
            if place.kind == "constant":
                self._pointers(side, section, range(start, start + len(content)), at - start)
        return CONSTANTS + at

    def _pointers(self, side: Side, section: Section, span: range, shift: int) -> None:
        for entry in section.relocations:
            if entry.offset in span:
                target = self.resolve(side, side.code.place(entry.symbol, entry.addend))
                size = SIZES[entry.kind]
                at = entry.offset + shift
                side.constants[at : at + size] = (target & ((1 << 8 * size) - 1)).to_bytes(size, "little")

    def _fill(self, side: Side) -> None:
        """Code with its references; other functions begin with a jump to their stubs."""
        for index in side.bases:
            side.image[index] = bytearray(side.code.sections[index].data)
        for section, entry in self._fields(side):
            self._link(side, section, entry)
        for name, symbol in side.code.functions.items():
            if symbol.section in side.bases and not side.owns(symbol.section, symbol.value):
                at = symbol.value
                distance = self.stub(name) - (side.address(symbol.section, at) + 5)
                side.image[symbol.section][at : at + 5] = b"\xe9" + distance.to_bytes(4, "little", signed=True)

    def _link(self, side: Side, section: Section, entry: Relocation) -> None:
        image, at, size = side.image[section.index], entry.offset, SIZES[entry.kind]
        if entry.symbol.name == TRACE:
            image[at - 1 : at + 4] = NOP5
            return
        value = self.resolve(side, self._place(side, section, entry))
        if entry.kind in RELATIVE:
            value -= side.address(section.index, at) + _end(section, entry)
        image[at : at + size] = (value & ((1 << 8 * size) - 1)).to_bytes(size, "little")


def _end(section: Section, entry: Relocation) -> int:
    """Bytes from a relative field to the end of its instruction."""
    if entry.kind not in RELATIVE:
        return 0
    return SIZES[entry.kind] + (0 if entry.kind == R_PLT32 else behind(section.data, entry.offset))
