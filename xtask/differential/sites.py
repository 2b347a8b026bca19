# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The updates of a table in the deployed code: where it stops, and what is done there.

In: a table, the layout of a function. Out: `Sites`. Bytes of the table replace those of the object where the table
compares them; there the two must agree anyway.
"""

from dataclasses import dataclass, field
from typing import Any

from layout import HLT, STEPS, Layout, NotExecutable, Side
from objects import RELATIVE, SIZES, Symbol
from operations import ALL, transformed


@dataclass
class Site:
    """An instruction with updates: each is `when`, operations and values of V."""

    address: int
    length: int
    start: int
    updates: list[tuple[str, list[dict[str, Any]], list[int]]] = field(default_factory=list)
    # Where a copy of the instruction lies.
    step: int = 0


@dataclass
class Step:
    """A copy of one instruction among stops: what it jumps to, and what follows it, is a stop as far away."""

    base: int
    size: int
    at: int
    code: bytes


class Sites:
    """What a tune with this value changes in a function."""

    def __init__(self, table: dict[str, Any], source: str, layout: Layout, value: int, in_place: bool) -> None:
        self.by_address: dict[int, Site] = {}
        self.steps: list[Step] = []
        side = layout.sides[0]
        sections = {}
        for piece in side.pieces:
            for index, function in enumerate(table["functions"]):
                if (function["symbol"], function["source"]) != (piece.name, source):
                    continue
                overlay(function, side, piece)
                for span in (span for span in table["spans"] if span["function"] == index):
                    if in_place:
                        patch(span, side, piece, value)
                    else:
                        sections[self._add(span, side, piece, value)] = piece.section
        for address, section in sections.items():
            self._stop(self.by_address[address], section, side)
        for address, section in sections.items():
            side.image[section][address - side.bases[section]] = HLT

    def _add(self, span: dict[str, Any], side: Side, piece: Symbol, value: int) -> int:
        what = span["indirection"]
        start = side.address(piece.section, piece.value)
        address = start + what["offset"]
        site = self.by_address.setdefault(address, Site(address, what["insn_len"], start))
        ivs = [transformed(fit, value) & ALL for fit in span["ivs"]]
        site.updates.append((what["when"], what["program"]["ops"], ivs))
        return address

    def _stop(self, site: Site, section: int, side: Side) -> None:
        """Makes the copy; what it refers to stays where it is."""
        image = side.image[section]
        offset = site.address - side.bases[section]
        base = self.steps[-1].base + self.steps[-1].size if self.steps else STEPS
        half = (len(image) + 0x1FFF) & ~0xFFF
        site.step = base + half
        code = bytearray(image[offset : offset + site.length])
        for entry in side.code.sections[section].relocations:
            at = entry.offset - offset
            if 0 <= at < site.length and entry.kind in RELATIVE:
                field_bytes = slice(at, at + SIZES[entry.kind])
                moved = int.from_bytes(code[field_bytes], "little", signed=True) + site.address - site.step
                code[field_bytes] = moved.to_bytes(4, "little", signed=True)
        self.steps.append(Step(base, 2 * half, site.step, bytes(code)))


def overlay(function: dict[str, Any], side: Side, piece: Symbol) -> None:
    """The deployed bytes, where the table compares them."""
    deployed, mask = bytes.fromhex(function["bytes"]), bytes.fromhex(function["mask"])
    image = side.image[piece.section]
    if len(deployed) != piece.size:
        raise NotExecutable(f"{piece.name} has {len(deployed)} bytes in the table and {piece.size} in the object")
    for at, (byte, compared) in enumerate(zip(deployed, mask)):
        if compared:
            if image[piece.value + at] != byte:
                raise NotExecutable(
                    f"{piece.name}+{at:#x} is {byte:02x} in the table and {image[piece.value + at]:02x} in the object"
                )
            image[piece.value + at] = byte


def patch(span: dict[str, Any], side: Side, piece: Symbol, value: int) -> None:
    """The value in the instructions themselves."""
    for entry in span["in_place"]["patches"]:
        at = piece.value + entry["offset"] + entry["field"]
        number = transformed(span["ivs"][entry["iv"]], value) & ((1 << 8 * entry["size"]) - 1)
        side.image[piece.section][at : at + entry["size"]] = number.to_bytes(entry["size"], "little")


def spans_of(table: dict[str, Any], symbols: set[str], source: str) -> list[dict[str, Any]]:
    """The spans in functions of these names, of one unit."""
    chosen = {i for i, f in enumerate(table["functions"]) if f["symbol"] in symbols and f["source"] == source}
    return [span for span in table["spans"] if span["function"] in chosen]

