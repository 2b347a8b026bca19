# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A relocatable object: sections, symbols and relocations, with names that are the same in another build.

In: the path of an object file for x86-64. Out: `Object`, and for each place that code refers to a `Place`: a name that
does not depend on where the build puts it.
"""

import re
import struct
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from elftools.elf.elffile import ELFFile

# R_X86_64_*
R_64, R_PC32, R_PLT32, R_32, R_32S = 1, 2, 4, 10, 11
SIZES = {R_64: 8, R_PC32: 4, R_PLT32: 4, R_32: 4, R_32S: 4}
RELATIVE = frozenset({R_PC32, R_PLT32})
SHF_EXECINSTR, SHF_ALLOC, SHF_WRITE, SHT_NOBITS = 4, 2, 1, 8
STT_NOTYPE, STT_OBJECT, STT_FUNC, STT_SECTION = 0, 1, 2, 3
# Entries of `__bug_table`.
BUG_SIZE, BUGFLAG_WARNING = 12, 1
_NUMBER = re.compile(r"\.\d+$")


@dataclass(frozen=True)
class Symbol:
    """One symbol; `section` is an index, 0 where another object defines it."""

    name: str
    section: int
    value: int
    size: int
    kind: int


@dataclass(frozen=True)
class Relocation:
    """A field that the linker fills in."""

    offset: int
    kind: int
    symbol: Symbol
    addend: int


@dataclass
class Section:
    """A section that is loaded, or not."""

    index: int
    name: str
    data: bytes
    flags: int
    entry_size: int
    relocations: list[Relocation] = field(default_factory=list)

    @property
    def executable(self) -> bool:
        """Whether it holds code."""
        return bool(self.flags & SHF_EXECINSTR and self.flags & SHF_ALLOC)


@dataclass(frozen=True)
class Place:
    """What a field refers to: a name, and the distance from it. `kind` is `extern`, `function`, `label` (code
    without a function), `data`, `constant` or `literal`."""

    kind: str
    name: str
    offset: int
    section: int = 0
    at: int = 0


class Object:
    """A parsed object."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open("rb") as stream:
            elf = ELFFile(stream)
            raw = list(elf.iter_sections())
            names = [section.name for section in raw]
            self.sections = [self._section(index, section) for index, section in enumerate(raw)]
            at = names.index(".symtab")
            self.symbols = self._symbols(raw[at].data(), raw[raw[at]["sh_link"]].data())
            for section in raw:
                if section["sh_type"] == "SHT_RELA" and self.sections[section["sh_info"]].flags & SHF_ALLOC:
                    self.sections[section["sh_info"]].relocations = self._relocations(section.data())

    @staticmethod
    def _section(index: int, section) -> Section:  # noqa: ANN001  (pyelftools has no types)
        empty = section["sh_type"] in ("SHT_NOBITS", "SHT_NULL")
        data = bytes(section["sh_size"]) if empty else section.data()
        return Section(index, section.name, data, section["sh_flags"], section["sh_entsize"])

    @staticmethod
    def _symbols(table: bytes, strings: bytes) -> list[Symbol]:
        found = []
        for name, info, _, section, value, size in struct.iter_unpack("<IBBHQQ", table):
            text = strings[name : strings.index(b"\0", name)].decode(errors="replace")
            found.append(Symbol(text, section if section < 0xFF00 else 0, value, size, info & 15))
        return found

    def _relocations(self, table: bytes) -> list[Relocation]:
        rows = struct.iter_unpack("<QQq", table)
        found = [Relocation(at, info & 0xFFFFFFFF, self.symbols[info >> 32], addend) for at, info, addend in rows]
        return sorted((entry for entry in found if entry.kind in SIZES), key=lambda entry: entry.offset)

    @cached_property
    def functions(self) -> dict[str, Symbol]:
        """Functions by name; of aliases each."""
        return {symbol.name: symbol for symbol in self.symbols if symbol.kind == STT_FUNC and symbol.section}

    @cached_property
    def warnings(self) -> set[tuple[int, int]]:
        """Places of `ud2` that the kernel reports and goes on behind (include/asm-generic/bug.h)."""
        found = set()
        for section in self.sections:
            for entry in section.relocations if section.name == "__bug_table" else []:
                flags = section.data[entry.offset + 10 : entry.offset + 12]
                if entry.offset % BUG_SIZE == 0 and flags[0] & BUGFLAG_WARNING:
                    found.add((entry.symbol.section, entry.symbol.value + entry.addend))
        return found

    @cached_property
    def _starts(self) -> dict[int, tuple[list[int], list[Symbol]]]:
        """By section, what lies in it: where, and what."""
        found: dict[int, list[Symbol]] = {}
        for symbol in self.symbols:
            if symbol.section and symbol.kind in (STT_FUNC, STT_OBJECT) and symbol.size:
                found.setdefault(symbol.section, []).append(symbol)
        sort = {index: sorted(symbols, key=lambda s: (s.value, -s.size)) for index, symbols in found.items()}
        return {index: ([symbol.value for symbol in symbols], symbols) for index, symbols in sort.items()}

    @cached_property
    def _names(self) -> dict[Symbol, str]:
        """Names of data without the number that the compiler gives to those that are local to a function: what
        counts is which of those of one name it is."""
        counts: dict[str, int] = {}
        found = {}
        for symbol in sorted(self.symbols, key=lambda s: (s.section, s.value)):
            if symbol.kind == STT_OBJECT and symbol.section and _NUMBER.search(symbol.name):
                base = _NUMBER.sub("", symbol.name)
                counts[base] = counts.get(base, 0) + 1
                found[symbol] = f"{base}#{counts[base]}"
        return found

    def symbol_at(self, section: int, offset: int) -> Symbol | None:
        """What lies there."""
        starts, symbols = self._starts.get(section, ([], []))
        at = bisect_right(starts, offset) - 1
        if at < 0 or offset >= symbols[at].value + symbols[at].size:
            return None
        return symbols[at]

    def between(self, section: int, start: int, end: int) -> list[Relocation]:
        """The relocations of a part of a section."""
        entries = self.sections[section].relocations
        low = bisect_left(entries, start, key=lambda entry: entry.offset)
        return entries[low : bisect_left(entries, end, key=lambda entry: entry.offset)]

    def place(self, symbol: Symbol, offset: int) -> Place:
        """The place `offset` bytes behind a symbol."""
        if not symbol.section:
            return Place("extern", symbol.name, offset)
        section, at = self.sections[symbol.section], symbol.value + offset
        if section.name.startswith(".rodata.str"):
            end = section.data.index(b"\0", at) + 1
            return Place("literal", "string " + section.data[at:end].hex(), 0, section.index, at)
        if section.name.startswith(".rodata.cst"):
            size = section.entry_size or 8
            start = at // size * size
            content = section.data[start : start + size].hex()
            return Place("literal", "constant " + content, at - start, section.index, start)
        there = self.symbol_at(section.index, at)
        if section.executable:
            kind = "function" if there else "label"
        else:
            kind = "data" if section.flags & SHF_WRITE else "constant"
        if symbol.kind != STT_SECTION and (there is None or there.section != symbol.section):
            there = symbol
        if there is None:
            return Place(kind, f"{section.name}", at, section.index, at)
        return Place(kind, self._names.get(there, there.name), at - there.value, section.index, at)


# How many bytes of an immediate follow a field relative to rip, by the opcode before it.
_IMMEDIATE = {0x80: 1, 0x83: 1, 0xC0: 1, 0xC1: 1, 0xC6: 1, 0x6B: 1, 0x81: 4, 0xC7: 4, 0x69: 4}
# Of those behind 0x0f.
_IMMEDIATE_0F = {0xBA: 1, 0xA4: 1, 0xAC: 1, 0x70: 1, 0xC2: 1, 0xC4: 1, 0xC6: 1}


def behind(code: bytes, at: int) -> int:
    """Bytes of the instruction behind the relative field at `at`: an immediate. The linker's addend says where the
    instruction ends only together with them."""
    if at < 2 or code[at - 1] & 0xC7 != 0x05:
        return 0
    opcode, register = code[at - 2], code[at - 1] >> 3 & 7
    if at >= 3 and code[at - 3] == 0x0F:
        return _IMMEDIATE_0F.get(opcode, 0)
    size = _IMMEDIATE.get(opcode, 0)
    if opcode in (0xF6, 0xF7) and register < 2:
        size = 1 if opcode == 0xF6 else 4
    prefixes = code[max(at - 4, 0) : at - 2]
    if size == 4 and (prefixes[-1:] == b"\x66" or len(prefixes) == 2 and prefixes[0] == 0x66 and prefixes[1] >> 4 == 4):
        return 2
    return size
