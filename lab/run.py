# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Runs one command in one throwaway machine, and reports the result.

In: a fetched kernel, a machine, a command. Out: a `Result`; the folder `out` holds `stdout`,
`stderr`, `dmesg` and `result.json`.
Refuses: to run without root (the host's files are served from a mount namespace), or without the
tools that `scripts/setup` installs.
"""

import contextlib
import ctypes
import json
import os
import selectors
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any

from lab import accel, initramfs, splats
from lab.catalogue import named
from lab.errors import LabError
from lab.fetch import busybox
from lab.machine import Accel, Attachments, Machine, command_line
from lab.store import FetchedKernel, cache

_HERE = Path(__file__).resolve().parent
_MODULES = ("overlay", "virtio_blk")
_VIRTIOFSD = Path("/usr/lib/qemu/virtiofsd")
_BOOT_SECONDS = {Accel.KVM: 60, Accel.TCG: 600, Accel.ICOUNT: 600}
_STOP_SECONDS = 30


class Verdict(Enum):
    """The end of a run. `finished`: the command ended by itself, and the kernel reported no problem."""

    FINISHED = "finished"
    BOOT_HANG = "boot-hang"
    TIMEOUT = "timeout"
    DIED = "died"
    SPLAT = "splat"


EXIT_CODES = {Verdict.BOOT_HANG: 90, Verdict.TIMEOUT: 91, Verdict.DIED: 92, Verdict.SPLAT: 93}
SET_UP_FAILED = 94


@dataclass(frozen=True)
class Result:
    """The content of `result.json`."""

    verdict: Verdict
    exit: int
    command_exit: int | None
    boot_s: float | None
    wall_s: float
    accel: str
    kernel: str
    splats: list[splats.Splat]

    def as_json(self) -> dict[str, Any]:
        """The result for other programs."""
        return {
            "exit": self.exit,
            "verdict": self.verdict.value,
            "command_exit": self.command_exit,
            "boot_s": self.boot_s,
            "wall_s": self.wall_s,
            "accel": self.accel,
            "kernel": self.kernel,
            "splats": [vars(one) for one in self.splats],
        }


@dataclass(frozen=True)
class _Limits:
    """Time limits of the boot and of the command, in seconds."""

    boot: float
    command: float


@dataclass
class _Progress:
    """The messages of the guest so far, with their times."""

    started: float
    ready: float | None = None
    command_exit: int | None = None
    timed_out: bool = False


def script_of(words: list[str]) -> str:
    """The script to run: one word is a script, several are a command and its arguments."""
    return words[0] if len(words) == 1 else shlex.join(words)


def guest_files(kernel: FetchedKernel, out: Path, script: str) -> dict[str, bytes]:
    """The files that the guest's scripts read: paths, the command, and its environment."""
    machine = {
        "XK_OUT": str(out),
        # The guest uses this path before that file system is its root, so it cannot follow links.
        "XK_KERNEL_ROOT": str(kernel.root.resolve()),
        "XK_HOSTNAME": f"xk-{kernel.name}",
    }
    path = f"{os.environ.get('PATH', '')}:/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin"
    environment = {
        **{name: value for name, value in os.environ.items() if name.startswith("XK_")},
        "PATH": path,
        "HOME": str(Path.home()),
        "USER": "root",
        "LANG": "C.UTF-8",
        "TERM": os.environ.get("TERM", "dumb"),
        "XK_CACHE": str(cache()),
        "XK_OUT": str(out),
        "XK_LAB_KERNEL": kernel.name,
    }
    exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in environment.items())
    command = f"{exports}cd {shlex.quote(os.getcwd())} || exit\n{script}\n"
    return {
        "init": (_HERE / "guest" / "init").read_bytes(),
        "xk/session": (_HERE / "guest" / "session").read_bytes(),
        "xk/machine": "".join(f"{k}={shlex.quote(v)}\n" for k, v in machine.items()).encode(),
        "xk/command": command.encode(),
    }


def _die_with_parent() -> None:
    """Runs in a child before exec, so that no machine outlives the lab, even if the lab is killed."""
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


@contextlib.contextmanager
def _child(command: list[str], **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """A child process that does not survive the block."""
    process = subprocess.Popen(command, preexec_fn=_die_with_parent, **options)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


@contextlib.contextmanager
def _share(path: Path, server: list[str]) -> Iterator[Path]:
    """Let `server` serve files on a socket at `path`; `{socket}` stands for its descriptor."""
    with socket.socket(socket.AF_UNIX) as listener, path.with_suffix(".log").open("wb") as log:
        listener.bind(str(path))
        listener.listen(1)
        number = listener.fileno()
        command = [word.replace("{socket}", str(number)) for word in server]
        with _child(command, pass_fds=[number], stdout=log, stderr=log) as process:
            listener.close()
            yield path
            process.terminate()


@contextlib.contextmanager
def _share_root(scratch: Path) -> Iterator[Path]:
    """Serve the host's file systems, read-only."""
    # This folder is removed only if it is empty: inside the server's namespace it is the host's root.
    view = Path(tempfile.mkdtemp(prefix="xk-view-"))
    try:
        command = ["unshare", "--mount", "--propagation", "private"]
        command += [str(_HERE / "serve-root"), str(view), "{socket}"]
        with _share(scratch / "host.socket", command) as path:
            yield path
    finally:
        view.rmdir()


@contextlib.contextmanager
def _share_out(scratch: Path, out: Path) -> Iterator[Path]:
    """Serve the output folder, for writing."""
    command = [str(_VIRTIOFSD), "--fd={socket}", "-o", f"source={out}"]
    with _share(scratch / "out.socket", [*command, "-o", "cache=auto", "-o", "log_level=err"]) as path:
        yield path


def _check_host() -> None:
    if os.geteuid() != 0:
        raise LabError("the lab needs root to serve the host's files read-only: run it as root")
    for tool in ("qemu-system-x86_64", "unshare", "modprobe", "ip"):
        if not shutil.which(tool, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"):
            raise LabError(f"{tool} is not installed: run scripts/setup")
    if not _VIRTIOFSD.exists():
        raise LabError(f"{_VIRTIOFSD} is missing (package qemu-system-common): run scripts/setup")


def run(
    kernel: FetchedKernel,
    machine: Machine,
    words: list[str],
    out: Path,
    timeout: float,
    terminal: bool = False,
) -> Result:
    """Boot `kernel`, run the command, collect everything in `out`.

    All time limits are multiplied by the kernel's slowness.
    """
    _check_host()
    slowness = named(kernel.name).slowness
    out = out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    for name in ("stdout", "stderr", "dmesg", "result.json"):
        (out / name).unlink(missing_ok=True)
    with contextlib.ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="xk-lab-")))
        archive = scratch / "initramfs"
        files = guest_files(kernel, out, script_of(words))
        archive.write_bytes(initramfs.build(busybox(), kernel.modules, _MODULES, files))
        if machine.accel is Accel.KVM:
            machine = replace(machine, accel=accel.choose(kernel.vmlinuz, archive))
        limits = _Limits(_BOOT_SECONDS[machine.accel] * slowness, timeout * slowness)
        progress = _boot(stack, kernel, machine, archive, scratch, out, limits, terminal)
    result = _judge(progress, kernel, machine, (out / "dmesg"))
    (out / "result.json").write_text(json.dumps(result.as_json(), indent=2) + "\n")
    return result


def _boot(
    stack: contextlib.ExitStack,
    kernel: FetchedKernel,
    machine: Machine,
    archive: Path,
    scratch: Path,
    out: Path,
    limits: _Limits,
    terminal: bool,
) -> _Progress:
    """Start the machine and follow it to its end."""
    images = []
    for number, size in enumerate(machine.disks):
        image = scratch / f"disk{number}"
        with image.open("wb") as file:
            file.truncate(size)
        images.append(image)
    pipes = {name: os.pipe() for name in ("xk.out", "xk.err", "xk.ctl")}
    attachments = Attachments(
        vmlinuz=kernel.vmlinuz,
        initramfs=archive,
        console=out / "dmesg",
        ports={name: f"/proc/self/fd/{writer}" for name, (_, writer) in pipes.items()},
        shares={
            "host": stack.enter_context(_share_root(scratch)),
            "out": stack.enter_context(_share_out(scratch, out)),
        },
        disk_images=tuple(images),
        terminal=terminal,
    )
    qemu_log = (out / "qemu").open("wb")
    progress = _Progress(started=time.monotonic())
    process = stack.enter_context(
        _child(
            command_line(machine, attachments),
            pass_fds=[writer for _, writer in pipes.values()],
            stdin=None if terminal else subprocess.DEVNULL,
            stdout=None if terminal else qemu_log,
            stderr=qemu_log,
        )
    )
    for _, writer in pipes.values():
        os.close(writer)
    qemu_log.close()
    readers = {name: reader for name, (reader, _) in pipes.items()}
    _follow(process, readers, out, limits, progress)
    text = (out / "qemu").read_text(errors="replace").strip()
    (out / "qemu").unlink()
    if progress.ready is None and not progress.timed_out and not (out / "dmesg").exists():
        raise LabError(f"qemu did not start: {text.splitlines()[-1] if text else 'no message'}")
    return progress


def _follow(
    process: subprocess.Popen[bytes],
    readers: dict[str, int],
    out: Path,
    limits: _Limits,
    progress: _Progress,
) -> None:
    """Forward the output, record the guest's messages, and stop the machine at the time limit."""
    deadline = progress.started + limits.boot
    control = b""
    with selectors.DefaultSelector() as selector, contextlib.ExitStack() as files:
        copies = {
            "xk.out": (1, files.enter_context((out / "stdout").open("wb"))),
            "xk.err": (2, files.enter_context((out / "stderr").open("wb"))),
        }
        for name, reader in readers.items():
            selector.register(reader, selectors.EVENT_READ, name)
        while selector.get_map():
            left = deadline - time.monotonic()
            if left <= 0 and process.poll() is None:
                progress.timed_out = progress.command_exit is None
                process.kill()
                deadline = time.monotonic() + _STOP_SECONDS
                continue
            for key, _ in selector.select(max(left, 0.1)):
                data = os.read(key.fd, 1 << 16)
                if not data:
                    selector.unregister(key.fd)
                    os.close(key.fd)
                elif key.data == "xk.ctl":
                    control += data
                    *lines, control = control.split(b"\n")
                    for line in lines:
                        deadline = _note(line.decode(), progress, limits.command)
                else:
                    descriptor, file = copies[key.data]
                    file.write(data)
                    file.flush()
                    _forward(descriptor, data)
    process.wait()


def _note(line: str, progress: _Progress, timeout: float) -> float:
    """Take one line from the guest; returns the next deadline."""
    now = time.monotonic()
    if line == "ready":
        progress.ready = now
        return now + timeout
    progress.command_exit = int(line.removeprefix("exit "))
    return now + _STOP_SECONDS


def _forward(descriptor: int, data: bytes) -> None:
    """Write all data; ignore a reader that has closed the pipe."""
    with contextlib.suppress(BrokenPipeError):
        while data:
            data = data[os.write(descriptor, data) :]


def _judge(progress: _Progress, kernel: FetchedKernel, machine: Machine, log: Path) -> Result:
    """The verdict of a run. A fault of the kernel takes precedence over the command's exit code."""
    found = splats.find(log.read_text(errors="replace")) if log.exists() else []
    if progress.timed_out:
        verdict = Verdict.TIMEOUT if progress.ready else Verdict.BOOT_HANG
    elif progress.command_exit is None:
        verdict = Verdict.DIED
    else:
        verdict = Verdict.SPLAT if found else Verdict.FINISHED
    code = EXIT_CODES.get(verdict, progress.command_exit)
    assert code is not None
    return Result(
        verdict=verdict,
        exit=code,
        command_exit=progress.command_exit,
        boot_s=round(progress.ready - progress.started, 2) if progress.ready else None,
        wall_s=round(time.monotonic() - progress.started, 2),
        accel=machine.accel.value,
        kernel=kernel.release,
        splats=found,
    )


def explain(result: Result, out: Path, tail: int = 40) -> str:
    """Why the run failed, as text with the relevant part of the log. Empty if it did not fail."""
    reasons = {
        Verdict.BOOT_HANG: "the guest did not come up in time",
        Verdict.TIMEOUT: "the command did not end in time",
        Verdict.DIED: "the guest died before the command ended",
        Verdict.SPLAT: "the kernel complained while the command ran",
    }
    if result.verdict not in reasons:
        return ""
    lines = [f"lab: {reasons[result.verdict]} ({result.kernel}, {result.accel})"]
    if result.splats:
        lines += [f"--- {one.kind}\n{one.excerpt}" for one in result.splats]
    else:
        log = out / "dmesg"
        text = log.read_text(errors="replace").splitlines() if log.exists() else []
        lines += ["--- end of the kernel log", *text[-tail:]]
    return "\n".join(lines)


def unwind_on_sigterm() -> None:
    """Let SIGTERM unwind the stack like an interrupt, so that machines and scratch files are removed."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
