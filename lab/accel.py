# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Decides whether hardware virtualisation can be used.

In: a kernel and an initramfs to try. Out: `Accel.KVM` or `Accel.TCG`.
Refuses nothing: any doubt means emulation.

It is not enough that `/dev/kvm` can be opened: inside some virtual machines it exists, but an ordinary
guest hangs or aborts. So the lab boots a guest as far as its first process, once per kernel and boot of
the host. The result is kept in the cache.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from lab.machine import Accel, Attachments, Machine, command_line
from lab.store import cache

_SECONDS = 20
_PASSED = b"xk-lab: probe passed"


def choose(vmlinuz: Path, initramfs: Path) -> Accel:
    """The fastest accelerator that really runs a guest on this host."""
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return Accel.TCG
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    verdict = cache() / "probe" / f"{boot}-{vmlinuz.name}"
    if not verdict.exists():
        print("lab: trying whether KVM can run a guest here", file=sys.stderr, flush=True)
        accel = Accel.KVM if _boots(vmlinuz, initramfs) else Accel.TCG
        verdict.parent.mkdir(parents=True, exist_ok=True)
        scratch = verdict.with_name(f".{verdict.name}.{os.getpid()}")
        scratch.write_text(accel.value)
        scratch.rename(verdict)
        if accel is Accel.TCG:
            print("lab: it cannot; emulating from now on", file=sys.stderr, flush=True)
    return Accel(verdict.read_text())


def _boots(vmlinuz: Path, initramfs: Path) -> bool:
    with tempfile.TemporaryDirectory(prefix="xk-probe-") as scratch:
        console = Path(scratch) / "console"
        machine = Machine(cpus=1, memory=512 << 20, accel=Accel.KVM)
        command = command_line(
            machine, Attachments(vmlinuz, initramfs, console), ("xk_lab_probe",)
        )
        try:
            subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=_SECONDS,
                check=False,
            )
        except (subprocess.TimeoutExpired, FileNotFoundError):
            return False
        return console.exists() and _PASSED in console.read_bytes()
