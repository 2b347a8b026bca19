# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The QEMU command line of a machine, and the descriptions that are refused."""

import unittest
from pathlib import Path

from lab.errors import LabError
from lab.machine import Accel, Attachments, Machine, command_line, kernel_arguments, parse_size

WIRES = Attachments(Path("/vmlinuz"), Path("/initramfs"), Path("/console"))


def text(machine: Machine) -> str:
    """The command line as one string."""
    return " ".join(command_line(machine, WIRES))


class Sizes(unittest.TestCase):
    def test_units(self) -> None:
        self.assertEqual(parse_size("2G"), 2 << 30)
        self.assertEqual(parse_size("512m"), 512 << 20)
        self.assertEqual(parse_size("4096"), 4096)

    def test_refused(self) -> None:
        for wrong in ("", "G", "-1G", "1.5G", "2GB", "0"):
            with self.subTest(wrong), self.assertRaises(LabError):
                parse_size(wrong)


class CommandLine(unittest.TestCase):
    def test_deterministic(self) -> None:
        line = text(Machine(cpus=1, accel=Accel.ICOUNT))
        self.assertIn("-icount shift=0,sleep=off", line)
        self.assertIn("-seed 1", line)
        self.assertNotIn("kvm", line)

    def test_deterministic_has_one_cpu(self) -> None:
        with self.assertRaisesRegex(LabError, "--cpus 1"):
            Machine(cpus=2, accel=Accel.ICOUNT)

    def test_flags_of_cmpxchg16b_are_wrong_where_it_is_emulated(self) -> None:
        self.assertIn("cx16=off", text(Machine(accel=Accel.TCG)))
        self.assertNotIn("cx16", text(Machine(accel=Accel.KVM)))

    def test_nodes_share_cpus_and_memory(self) -> None:
        line = text(Machine(cpus=4, nodes=2, memory=2 << 30))
        self.assertIn("-smp 4,sockets=2,cores=2", line)
        self.assertIn("node,nodeid=0,memdev=mem0,cpus=0-1", line)
        self.assertIn("node,nodeid=1,memdev=mem1,cpus=2-3", line)
        self.assertEqual(line.count(f"size={1 << 30}B"), 2)

    def test_nodes_that_do_not_divide_the_cpus(self) -> None:
        for cpus, nodes in ((2, 3), (3, 2), (2, 0)):
            with self.subTest(cpus=cpus, nodes=nodes), self.assertRaises(LabError):
                Machine(cpus=cpus, nodes=nodes)

    def test_only_emulation_is_given_more_time(self) -> None:
        self.assertIn("rcu_cpu_stall_timeout", kernel_arguments(Machine(accel=Accel.TCG)))
        self.assertNotIn("rcu_cpu_stall_timeout", kernel_arguments(Machine(accel=Accel.KVM)))


if __name__ == "__main__":
    unittest.main()
