# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The operations of an update, executed as kernel/xk/uapi/xk.h describes them.

In: the `ops` of a table, transformed values, registers and flags. Out: new registers and flags, and what was
stored. Written from the description alone: nothing of the analysis is used.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

STATUS_FLAGS = 0x8D5
CF, PF, AF, ZF, SF, OF = 0x001, 0x004, 0x010, 0x040, 0x080, 0x800
ALL = (1 << 64) - 1

Op = dict[str, Any]


def mask(width: int) -> int:
    """The bits of a value of `width` bytes."""
    return (1 << (8 * width)) - 1


def signed(value: int, width: int) -> int:
    """`value` of `width` bytes as a signed number."""
    value &= mask(width)
    return value - (1 << (8 * width)) if value >> (8 * width - 1) else value


def transformed(fit: dict[str, Any], value: int) -> int:
    """What a number of the code is for V = `value`, modulo 2^64."""
    a, b, form = fit["a"], fit["b"], fit.get("form", "linear")
    if form == "linear":
        return (a * value + b) & ALL
    if form == "log2":
        return (a * (value.bit_length() - 1) + b) & ALL if value > 0 else b & ALL
    (kind, by), = form.items()
    if kind == "quotient":
        return (signed(a * value + b, 8) // by) & ALL
    if kind == "power":
        return ((signed(a << value, 8) >> by) + b) & ALL if 0 <= value <= 62 else b & ALL
    raise ValueError(f"the table has a form of V that is not known: {form}")


def _result_flags(result: int, width: int) -> int:
    flags = 0 if result else ZF
    flags |= SF if result >> (8 * width - 1) else 0
    return flags | (0 if (result & 0xFF).bit_count() % 2 else PF)


def _add_flags(a: int, b: int, width: int) -> int:
    result = (a + b) & mask(width)
    flags = _result_flags(result, width)
    flags |= CF if a + b > mask(width) else 0
    flags |= AF if (a & 15) + (b & 15) > 15 else 0
    total = signed(a, width) + signed(b, width)
    return flags | (0 if total == signed(result, width) else OF)


def _sub_flags(a: int, b: int, width: int) -> int:
    result = (a - b) & mask(width)
    flags = _result_flags(result, width)
    flags |= CF if a < b else 0
    flags |= AF if (a & 15) < (b & 15) else 0
    difference = signed(a, width) - signed(b, width)
    return flags | (0 if difference == signed(result, width) else OF)


def _holds(flags: int, condition: int) -> bool:
    cf, zf, sf = bool(flags & CF), bool(flags & ZF), bool(flags & SF)
    less = sf != bool(flags & OF)
    holds = (bool(flags & OF), cf, zf, cf or zf, sf, bool(flags & PF), less, less or zf)[condition >> 1]
    return holds != bool(condition & 1)


def _compute(op: Op, a: int, b: int, c: int) -> int:
    """The result of an operation that neither reads nor changes the machine."""
    width = op["width"]
    x, y, bits = a & mask(width), b & mask(width), 8 * width
    match op["code"]:
        case "add":
            return x + y
        case "sub":
            return x - y
        case "mul":
            return x * y
        case "and":
            return x & y
        case "or":
            return x | y
        case "xor":
            return x ^ y
        case "shl":
            return 0 if y >= bits else x << y
        case "shr":
            return 0 if y >= bits else x >> y
        case "sar":
            return signed(x, width) >> min(y, bits - 1)
        case "not":
            return ~x
        case "neg":
            return -x
        case "sext":
            return signed(a, op["b"])
        case "eq":
            return int(x == y)
        case "ult":
            return int(x < y)
        case "slt":
            return int(signed(x, width) < signed(y, width))
        case "select":
            return b if a else c
    return _flags_of(op, a, x, y)


def _flags_of(op: Op, a: int, x: int, y: int) -> int:
    """The same, of operations that are about flags."""
    match op["code"]:
        case "flags_add":
            return _add_flags(x, y, op["width"])
        case "flags_sub":
            return _sub_flags(x, y, op["width"])
        case "flags_logic":
            return _result_flags(x, op["width"])
        case "cond":
            return int(_holds(a, op["imm"]))
    raise ValueError(f"the table has an operation that is not known: {op['code']}")


# Their result is a word of flags or a truth value, whatever the width of what they compare.
_UNCUT = frozenset({"eq", "ult", "slt", "flags_add", "flags_sub", "flags_logic", "cond"})


@dataclass
class Surroundings:
    """What operations read besides registers."""

    load: Callable[[int, int], int]
    store: Callable[[int, int, int], None]
    text: Callable[[Op], int]
    per_cpu: int


class Fault(Exception):
    """An access to memory that is not there: registers and flags stay as they were."""


def run(ops: list[Op], ivs: list[int], regs: list[int], flags: int, around: Surroundings) -> tuple[list[int], int]:
    """Registers and flags after the operations; they take effect only if no access faulted."""
    regs = list(regs)
    temps = [0] * 256
    for op in ops:
        width, imm = op["width"], op.get("imm", 0)
        a, b, c = temps[op.get("a", 0)], temps[op.get("b", 0)], temps[op.get("c", 0)]
        match op["code"]:
            case "iv":
                value = ivs[imm]
            case "imm":
                value = imm
            case "reg":
                value = regs[op.get("a", 0)] >> (8 * op.get("b", 0))
            case "flags":
                temps[op.get("dst", 0)] = flags & STATUS_FLAGS
                continue
            case "per_cpu":
                value = around.per_cpu
            case "text":
                value = around.text(op)
            case "load":
                value = around.load((a + imm) & ALL, width)
            case "store":
                around.store((a + imm) & ALL, width, b & mask(width))
                continue
            case "set_reg":
                number = op.get("dst", 0)
                kept = 0 if width >= 4 else regs[number] & ~mask(width)
                regs[number] = kept | a & mask(width)
                continue
            case "set_flags":
                flags = flags & ~imm | a & imm
                continue
            case code:
                value = _compute(op, a, b, c)
                if code in _UNCUT:
                    temps[op.get("dst", 0)] = value
                    continue
        temps[op.get("dst", 0)] = value & mask(width)
    return regs, flags
