# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The virtual machine as a QEMU command line.

In: a `Machine` (size, accelerator, devices) and `Attachments` (the kernel, and the host's ends of its devices).
Out: arguments. This module starts no process and opens no file.
Refuses: invalid sizes, CPUs that do not split evenly over the nodes, a deterministic machine with several CPUs.
"""

import re
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from lab.errors import LabError

_PAGE = 2 << 20
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


class Accel(Enum):
    """The accelerator: what executes the guest's instructions."""

    KVM = "kvm"
    TCG = "tcg"
    ICOUNT = "tcg-icount"


def parse_size(text: str) -> int:
    """Bytes in `512M`, `2G`, `1048576`."""
    match = re.fullmatch(r"(\d+)([KMGT]?)", text.upper())
    if not match or int(match[1]) == 0:
        raise LabError(f"'{text}' is not a size: write a number and K, M, G or T, such as 2G")
    return int(match[1]) * _UNITS[match[2]]


@dataclass(frozen=True)
class Machine:
    """The machine that the user requested."""

    cpus: int = 2
    memory: int = 2 << 30
    nodes: int = 1
    disks: tuple[int, ...] = ()
    append: tuple[str, ...] = ()
    qemu_options: tuple[str, ...] = ()
    accel: Accel = Accel.TCG

    def __post_init__(self) -> None:
        if self.cpus < 1:
            raise LabError("a machine needs at least one CPU")
        if self.nodes < 1 or self.cpus % self.nodes:
            raise LabError(f"{self.cpus} CPUs cannot be split evenly over {self.nodes} NUMA nodes")
        if self.accel is Accel.ICOUNT and self.cpus != 1:
            raise LabError("--icount counts the instructions of one CPU: use --cpus 1")


@dataclass(frozen=True)
class Attachments:
    """The kernel that this run boots, and the host's ends of the guest's devices."""

    vmlinuz: Path
    initramfs: Path
    console: Path
    ports: dict[str, str] = field(default_factory=dict)
    shares: dict[str, Path] = field(default_factory=dict)
    disk_images: tuple[Path, ...] = ()
    terminal: bool = False


def kernel_arguments(machine: Machine, extra: tuple[str, ...] = ()) -> str:
    """The kernel command line."""
    arguments = [
        "console=ttyS0",
        "ignore_loglevel",
        "printk.devkmsg=on",
        "printk.time=1",
        # Any oops fails the run. Stopping at once keeps the log and the wait short.
        "oops=panic",
        "panic=-1",
        "rdinit=/init",
    ]
    if machine.accel is not Accel.KVM:
        # An emulated CPU on a busy host may be late by seconds, so the limits are longer.
        arguments += ["no_timer_check", "watchdog_thresh=60", "rcupdate.rcu_cpu_stall_timeout=120"]
        arguments += ["sysctl.kernel.hung_task_timeout_secs=300"]
    if machine.accel is Accel.ICOUNT:
        arguments += ["nokaslr"]
    return " ".join([*arguments, *machine.append, *extra])


def _accel_options(accel: Accel) -> list[str]:
    if accel is Accel.KVM:
        return ["-accel", "kvm", "-cpu", "host"]
    # Five-level paging costs an emulator one more memory access per lookup.
    cpu = "max,la57=off"
    if accel is Accel.TCG:
        # One thread for all CPUs: with several threads, QEMU 7.2 sometimes lets a CPU execute
        # kernel text that another CPU is patching (an oops at int3). No real CPU does this.
        # No cmpxchg16b: after it QEMU 7.2 may load the low half of a pointer into the flags,
        # and a kernel that uses it to allocate memory sometimes crashes (README.md).
        return ["-accel", "tcg,thread=single", "-cpu", f"{cpu},cx16=off"]
    return [
        *("-accel", "tcg,thread=single"),
        *("-icount", "shift=0,sleep=off"),
        *("-rtc", "base=2024-01-01,clock=vm"),
        *("-seed", "1"),
        *("-cpu", cpu),
    ]


def _memory_options(machine: Machine) -> list[str]:
    """CPUs, and memory that the file server can map. Each node is a socket with its share of both."""
    cores = machine.cpus // machine.nodes
    options = ["-smp", f"{machine.cpus},sockets={machine.nodes},cores={cores}"]
    per_node = machine.memory // machine.nodes // _PAGE * _PAGE
    options += ["-m", f"{per_node * machine.nodes}B"]
    for node in range(machine.nodes):
        first, last = node * cores, (node + 1) * cores - 1
        options += ["-object", f"memory-backend-memfd,id=mem{node},size={per_node}B,share=on"]
        options += ["-numa", f"node,nodeid={node},memdev=mem{node},cpus={first}-{last}"]
    return options


def command_line(machine: Machine, wires: Attachments, extra: tuple[str, ...] = ()) -> list[str]:
    """The whole QEMU command line; `extra` are further kernel arguments."""
    command = [
        *("qemu-system-x86_64", "-nodefaults", "-no-user-config", "-no-reboot"),
        *("-display", "none", "-machine", "q35"),
        *_accel_options(machine.accel),
        *_memory_options(machine),
        *("-kernel", str(wires.vmlinuz), "-initrd", str(wires.initramfs)),
        *("-append", kernel_arguments(machine, extra)),
        *("-chardev", f"file,id=console,path={wires.console}", "-serial", "chardev:console"),
        *("-device", "virtio-serial-pci"),
    ]
    for name, path in wires.ports.items():
        identifier = name.replace(".", "-")
        command += ["-chardev", f"file,id={identifier},path={path}"]
        command += ["-device", f"virtserialport,chardev={identifier},name={name}"]
    for tag, socket in wires.shares.items():
        command += ["-chardev", f"socket,id=share-{tag},path={socket}"]
        command += ["-device", f"vhost-user-fs-pci,chardev=share-{tag},tag={tag}"]
    for number, image in enumerate(wires.disk_images):
        drive = f"file={image},if=none,id=disk{number},format=raw,cache=unsafe,discard=unmap"
        command += ["-drive", drive, "-device", f"virtio-blk-pci,drive=disk{number}"]
    if wires.terminal:
        command += ["-chardev", "stdio,id=terminal,signal=off,mux=off"]
        command += ["-device", "virtconsole,chardev=terminal"]
    return [*command, *machine.qemu_options]
