# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Whether the interpreter of operations and the emulator agree on flags and conditions."""

import random
import unittest

from unicorn import UC_ARCH_X86, UC_MODE_64, Uc
from unicorn.x86_const import UC_X86_REG_EFLAGS, UC_X86_REG_RAX, UC_X86_REG_RBX

from layout import HLT
from operations import AF, STATUS_FLAGS, Surroundings, mask, run

CODE = 0x1000
# `add`, `sub` and `test` of al, ax, eax and rax.
INSTRUCTIONS = {1: ("00d8", "28d8", "84c0"), 2: ("6601d8", "6629d8", "6685c0"), 4: ("01d8", "29d8", "85c0"),
                8: ("4801d8", "4829d8", "4885c0")}
OPERATIONS = ("flags_add", "flags_sub", "flags_logic")
NOWHERE = Surroundings(lambda *_: 0, lambda *_: None, lambda _: 0, 0)
# The two that are computed with, then an operation of one or both.
LOADS = [{"code": "reg", "width": 8, "dst": 0, "a": 0}, {"code": "reg", "width": 8, "dst": 1, "a": 3}]


class Flags(unittest.TestCase):
    """Each operation beside the instruction that it stands for."""

    def setUp(self) -> None:
        self.uc = Uc(UC_ARCH_X86, UC_MODE_64)
        self.uc.mem_map(CODE, 0x1000)

    def executed(self, code: bytes) -> None:
        """One instruction."""
        self.uc.mem_write(CODE, code + bytes([HLT]))
        self.uc.ctl_remove_cache(CODE, CODE + 0x1000)
        self.uc.emu_start(CODE, 0)

    def test_flags_are_those_of_the_processor(self) -> None:
        """For every width, near the ends of each."""
        draw = random.Random(1)
        for _ in range(3000):
            width, kind = draw.choice((1, 2, 4, 8)), draw.randrange(3)
            ends = (0, mask(width), mask(width) >> 1, (mask(width) >> 1) + 1, draw.getrandbits(8), draw.getrandbits(64))
            a, b = draw.choice(ends), draw.choice(ends)
            self.uc.reg_write(UC_X86_REG_RAX, a)
            self.uc.reg_write(UC_X86_REG_RBX, b)
            self.executed(bytes.fromhex(INSTRUCTIONS[width][kind]))
            wanted = self.uc.reg_read(UC_X86_REG_EFLAGS) & STATUS_FLAGS
            ops = [*LOADS, {"code": OPERATIONS[kind], "width": width, "dst": 2, "a": 0, "b": 1},
                   {"code": "set_flags", "width": 8, "a": 2, "imm": STATUS_FLAGS}]
            _, flags = run(ops, [], [a, 0, 0, b] + [0] * 12, 0, NOWHERE)
            # `test` leaves AF undefined.
            compared = STATUS_FLAGS & ~AF if kind == 2 else STATUS_FLAGS
            self.assertEqual(flags & compared, wanted & compared, (OPERATIONS[kind], width, hex(a), hex(b)))

    def test_conditions_are_those_of_the_processor(self) -> None:
        """Each with all flags."""
        for flags in (f for f in range(0x1000) if f & STATUS_FLAGS == f):
            for condition in range(16):
                self.uc.reg_write(UC_X86_REG_EFLAGS, flags | 2)
                self.executed(bytes([0x0F, 0x90 + condition, 0xC0]))
                ops = [{"code": "flags", "width": 8, "dst": 0},
                       {"code": "cond", "width": 8, "dst": 1, "a": 0, "imm": condition},
                       {"code": "set_reg", "width": 8, "dst": 0, "a": 1}]
                regs, _ = run(ops, [], [0] * 16, flags, NOWHERE)
                self.assertEqual(regs[0], self.uc.reg_read(UC_X86_REG_RAX) & 0xFF, (condition, hex(flags)))


if __name__ == "__main__":
    unittest.main()
