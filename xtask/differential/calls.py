# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What the functions are like that code calls: arguments, results, registers that they change.

In: the name of a stub, what the kernel's types say of it. Out: a `Callee`. Functions themselves are not executed: each
is any function that reads its arguments and memory, and changes memory.
"""

import re
import zlib
from dataclasses import dataclass
from typing import Any

# Numbers of registers.
RAX, RCX, RDX, RBX, RSP, RBP, RSI, RDI = range(8)
ARGUMENTS = (RDI, RSI, RDX, RCX, 8, 9)
CALLER_SAVED = (RAX, RCX, RDX, RSI, RDI, 8, 9, 10, 11)
CALLEE_SAVED = (RBX, RBP, 12, 13, 14, 15)
REGISTERS = ("rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", *(f"r{n}" for n in range(8, 16)))
ALL = (1 << 64) - 1

# Helpers in assembly: the arguments that they take in registers of their own, and what they change.
_HELPERS = (
    (r"__get_user_(nocheck_)?\d", (RAX,), (RAX, RDX)),
    (r"__put_user_(nocheck_)?\d", (RAX, RCX), (RCX, RBX)),
    (r"(__)?(memcpy|memmove)", (RDI, RSI, RDX), CALLER_SAVED),
    (r"(__)?memset", (RDI, RSI, RDX), CALLER_SAVED),
    (r"__sw_hweight(32|64)", (RDI,), (RAX,)),
    (r"(__SCT__)?preempt_schedule(_notrace)?(_thunk)?", (), ()),
    (r"clear_page_\w+", (RDI,), CALLER_SAVED),
    (r"rep_movs_alternative|rep_stos_alternative", (RDI, RSI, RCX), (RAX, RCX, RDI, RSI)),
)
_INDIRECT = re.compile(r"__x86_indirect_(?:call_|jump_)?thunk_(?:array_)?(r\w+)$")
_PARAVIRTUAL = re.compile(r"pv_ops\+0x([0-9a-f]+)$")
# A conversion of a format.
_CONVERSION = re.compile(rb"%(%|[-+ #0-9.*hlLztj]*)")


@dataclass(frozen=True)
class Callee:
    """A function, seen from its caller."""

    name: str
    number: int
    # Registers that are compared, with the bits that count.
    arguments: tuple[tuple[int, int], ...]
    # Arguments on the stack, 8 bytes each.
    on_stack: int
    # Registers that may or may not be arguments.
    perhaps: tuple[int, ...]
    changes: tuple[int, ...]
    result: int | None
    # The register that holds the address, of an indirect call.
    through: int | None = None
    # The place of a format among the arguments.
    format: int | None = None
    ends: bool = False


def _bits(width: int) -> int:
    return (1 << (8 * min(width, 8))) - 1


class Callees:
    """Every function by name."""

    def __init__(self, exported: dict[str, Any]) -> None:
        self._prototypes = exported["prototypes"]
        self._paravirtual = {int(key): value for key, value in exported["paravirtual"].items()}
        self._noreturns = set(exported["noreturns"]) | {"__stack_chk_fail"}
        self._known: dict[str, Callee] = {}

    def is_function(self, name: str) -> bool:
        """Whether a symbol that another object defines is known to be a function."""
        known = self._prototypes.get(name)
        return bool(known and known["convention"]) or any(re.fullmatch(pattern, name) for pattern, *_ in _HELPERS)

    def result(self, function: str) -> int | None:
        """Bytes of what a function of the unit returns; 0 if nothing, `None` if that is not known."""
        return self._prototypes.get(function, {}).get("result")

    def __getitem__(self, name: str) -> Callee:
        if name not in self._known:
            self._known[name] = self._describe(name)
        return self._known[name]

    def _describe(self, name: str) -> Callee:
        number = zlib.crc32(name.encode()) << 13 | 1
        if indirect := _INDIRECT.match(name):
            through = REGISTERS.index(indirect.group(1))
            return Callee("indirect call", 77, (), 0, ARGUMENTS, CALLER_SAVED, None, through)
        for pattern, arguments, changes in _HELPERS:
            if re.fullmatch(pattern, name):
                return Callee(name, number, tuple((register, ALL) for register in arguments), 0, (), changes, 8)
        if entry := _PARAVIRTUAL.match(name):
            count = self._paravirtual.get(int(entry.group(1), 16), 0)
            arguments = tuple((register, ALL) for register in ARGUMENTS[:count])
            return Callee(name, number, arguments, 0, (), (RAX,), 8)
        return self._prototyped(name, number, self._prototypes.get(name))

    def _prototyped(self, name: str, number: int, known: dict[str, Any] | None) -> Callee:
        ends = name in self._noreturns
        if name == "__stack_chk_fail":
            return Callee(name, number, (), 0, (), (), 0, ends=True)
        if known is None:
            return Callee(name, number, (), 0, ARGUMENTS, (RAX, RDX), None, ends=ends)
        changes = CALLER_SAVED if known["convention"] else (RAX, RDX)
        result = known["result"]
        if known["arguments"] is not None:
            widths = known["arguments"]
            pairs = tuple((register, _bits(width)) for register, width in zip(ARGUMENTS, widths))
            return Callee(name, number, pairs, max(len(widths) - 6, 0), (), changes, result, ends=ends)
        if known["variadic"] is not None:
            count = known["variadic"]
            pairs = tuple((register, ALL) for register in ARGUMENTS[:count])
            return Callee(name, number, pairs, 0, (), changes, result, format=count - 1, ends=ends)
        if known["reads"] is not None:
            pairs = tuple((ARGUMENTS[place], ALL) for place in known["reads"])
            return Callee(name, number, pairs, 0, (), changes, result, ends=ends)
        return Callee(name, number, (), 0, ARGUMENTS, changes, result, ends=ends)


def conversions(text: bytes) -> int:
    """How many arguments a format of the kernel takes."""
    found = [entry for entry in _CONVERSION.findall(text) if entry != b"%"]
    return len(found) + sum(entry.count(b"*") for entry in found)
