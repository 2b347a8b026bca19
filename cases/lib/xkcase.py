# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What the `observe` scripts share: tracing, sysctls, modules, a network of one's own, the result.

Everything that is changed in the guest goes through a context manager that puts it back. SIGTERM
and SIGINT unwind them as an exception would, but never in the middle of a change, so that a script
can be run again and again in the same guest, also after it was interrupted.
"""

import contextlib
import ctypes
import json
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

TRACEFS = Path("/sys/kernel/tracing")
CLONE_NEWNET = 0x40000000
TCP_INFO_CWND = 80  # offset of tcpi_snd_cwnd in struct tcp_info
MODULE_BUSY_SECONDS = 60
BUFFER_KILOBYTES = 4096  # per CPU
INTERRUPTS = {signal.SIGINT, signal.SIGTERM}

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long


class CaseError(Exception):
    """The workload could not be run, or what it observed proves nothing."""


def run(observe):
    """Runs `observe`, which returns (name of the observable, number), and prints the result."""

    def unwind(number, _frame):
        raise SystemExit(128 + number)

    for interrupt in INTERRUPTS:
        signal.signal(interrupt, unwind)
    try:
        if os.geteuid() != 0:
            raise CaseError("must be run as root, inside a guest")
        observable, value = observe()
    except (CaseError, OSError) as error:
        sys.exit(f"{Path(sys.argv[0]).parent.name}: {error}")
    print(json.dumps({"observable": observable, "value": value}))


def note(text):
    """A line for the person who reads the log; the result is the last line of the output."""
    print(text, flush=True)


def tally(numbers):
    """How often each number occurs, for a note."""
    return ", ".join(f"{number} ({times}x)" for number, times in sorted(Counter(numbers).items()))


@contextlib.contextmanager
def _interrupts(how):
    before = signal.pthread_sigmask(how, INTERRUPTS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def undisturbed():
    """Interrupts wait until the block is left; the commands that it starts do not see them."""
    return _interrupts(signal.SIG_BLOCK)


@contextlib.contextmanager
def changed(change, revert):
    """Something that is changed inside the block. Only the block itself can be interrupted."""
    with undisturbed():
        try:
            change()
            with _interrupts(signal.SIG_UNBLOCK):
                yield
        finally:
            revert()


def command(*argv):
    """Runs a command and returns its output; its own words are the error message.

    It is never interrupted: half a modprobe is worse than a late end.
    """
    if shutil.which(argv[0]) is None:
        raise CaseError(f"{argv[0]} is not installed: see cases/packages.txt")
    with undisturbed():
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CaseError(f"{' '.join(argv)}: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def syscall(what, number, *arguments):
    """A system call that the standard library does not offer."""
    result = libc.syscall(ctypes.c_long(number), *arguments)
    if result < 0:
        error = ctypes.get_errno()
        raise CaseError(f"{what}: {os.strerror(error)}")
    return result


@contextlib.contextmanager
def module(name, *parameters):
    """A kernel module with these parameters; it is taken out again unless it was there before."""
    if Path("/sys/module", name).exists():
        if parameters:
            raise CaseError(f"module {name} is loaded already, remove it with modprobe -r")
        yield
        return
    with changed(lambda: command("modprobe", name, *parameters), lambda: _remove_module(name)):
        if parameters and not _is_loaded(name):
            raise CaseError(f"{name} is built into this kernel and takes no parameters any more")
        yield


def _is_loaded(name):
    """Whether it is a module, loaded, and not a part of the kernel's image."""
    return Path("/sys/module", name, "initstate").exists()


def _remove_module(name):
    """A device may still be held for a moment by whatever looks at new devices."""
    deadline = time.monotonic() + MODULE_BUSY_SECONDS
    while _is_loaded(name):
        try:
            command("modprobe", "-r", name)
        except CaseError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


@contextlib.contextmanager
def sysctl(name, value):
    """A sysctl with another value, put back at the end, also from another network namespace."""
    # /proc/sys/net shows the namespace of the process that opens the file.
    with Path("/proc/sys", name.replace(".", "/")).open("r+b", buffering=0) as file:
        before = file.read()

        def write(text):
            file.seek(0)
            file.write(text)

        with changed(lambda: write(f"{value}\n".encode()), lambda: write(before)):
            yield


def own_network():
    """Moves this process into a network namespace of its own, with the loopback device up.

    The namespace, its counters, devices and queueing disciplines end with the process.
    """
    if libc.unshare(CLONE_NEWNET) != 0:
        raise CaseError(f"unshare: {os.strerror(ctypes.get_errno())}")
    command("ip", "link", "set", "lo", "up")


def netstat(name):
    """A counter of /proc/net/netstat, for the network namespace of this process."""
    lines = Path("/proc/self/net/netstat").read_text().splitlines()
    for names, values in zip(lines[::2], lines[1::2]):
        for key, value in zip(names.split()[1:], values.split()[1:]):
            if key == name:
                return int(value)
    raise CaseError(f"/proc/net/netstat has no {name}")


def snd_cwnd(sock):
    """The congestion window of a TCP socket as TCP_INFO reports it (`tcpi_snd_cwnd`)."""
    tcp_info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
    return struct.unpack_from("I", tcp_info, TCP_INFO_CWND)[0]


class Event:
    """One line of the trace: its name, CPU, text, and the fields `key=value` of the text."""

    LINE = re.compile(
        r"^\s*.*-\d+\s+\[(?P<cpu>\d+)\]\s+\S+\s+[\d.]+: (?P<name>\w+): (?P<text>.*)$"
    )
    FIELD = re.compile(r"(\w+)=(\S+)")

    def __init__(self, match):
        self.cpu = int(match["cpu"])
        self.name, self.text = match["name"], match["text"]

    def __getitem__(self, field):
        for key, value in self.FIELD.findall(self.text):
            if key == field:
                return int(value, 0)
        raise CaseError(f"{self.name} has no field {field}: {self.text}")


class Trace:
    """A tracing instance of our own (see `tracing`): no other user of tracing is disturbed.

    Functions are observed through fprobe events: they use ftrace, not kprobes, and stay out of
    the way of a probe that a tune places in the same function.
    """

    GROUP = "xkcase"

    def __init__(self):
        self.path = TRACEFS / "instances" / f"xkcase-{os.getpid()}"
        self.functions = []
        self.enabled = []

    def create(self):
        """Makes the instance, with tracing off."""
        if not (TRACEFS / "instances").is_dir():
            raise CaseError(f"tracefs is not mounted at {TRACEFS}")
        self.path.mkdir()
        self._write("tracing_on", "0")
        # Recording the names of tasks would patch the scheduler's text at every start and end.
        self._write("trace_options", "norecord-cmd")
        self._write("buffer_size_kb", BUFFER_KILOBYTES)

    def remove(self):
        """Removes what was made, however far that went."""
        if self.path.exists():
            self._write("tracing_on", "0")
            for event in reversed(self.enabled):
                self._write(f"events/{event}/enable", "0")
                self._write(f"events/{event}/filter", "0")
            self.path.rmdir()
        for name in self.functions:
            self._define(f"-:{self.GROUP}/{name}")

    @staticmethod
    def _define(definition):
        """Adds or removes a dynamic event. The file cannot seek, which rules out open(..., "a")."""
        descriptor = os.open(TRACEFS / "dynamic_events", os.O_WRONLY | os.O_APPEND)
        try:
            os.write(descriptor, f"{definition}\n".encode())
        except OSError as error:
            raise CaseError(f"tracing: {definition}: {error.strerror}") from None
        finally:
            os.close(descriptor)

    def _write(self, name, text):
        try:
            (self.path / name).write_text(f"{text}\n")
        except OSError as error:
            raise CaseError(f"tracing: {name}: {text}: {error.strerror}") from None

    def event(self, event, condition=None):
        """Records a tracepoint, given as `group/name`."""
        with undisturbed():
            if condition:
                self._write(f"events/{event}/filter", condition)
            self._write(f"events/{event}/enable", "1")
            self.enabled.append(event)

    def function(self, function, condition=None, fields=""):
        """Records the calls of a kernel function, with fields such as `nr=control->nr`."""
        name = f"{function}_{os.getpid()}"
        definition = f"f:{self.GROUP}/{name} {function} {fields}"
        with undisturbed():
            self._define(definition)
            self.functions.append(name)
        self.event(f"{self.GROUP}/{name}", condition)

    @contextlib.contextmanager
    def recording(self):
        """Tracing is on inside the block."""
        self._write("trace", "")
        self._write("tracing_on", "1")
        try:
            yield
        finally:
            self._write("tracing_on", "0")

    def mark(self, text):
        """Puts a line of our own into the trace: an event `tracing_mark_write`."""
        self._write("trace_marker", text)

    def events(self):
        """What was recorded, in order. An incomplete record is an error, not a result."""
        for cpu in self.path.glob("per_cpu/cpu*/stats"):
            for line in cpu.read_text().splitlines():
                key, _, value = line.partition(":")
                if key in ("overrun", "dropped events") and int(value) > 0:
                    raise CaseError(f"tracing: {value.strip()} events were lost, buffer too small")
        suffix = f"_{os.getpid()}"
        found = []
        with (self.path / "trace").open() as trace:
            for line in trace:
                match = Event.LINE.match(line)
                if match:
                    event = Event(match)
                    event.name = event.name.removesuffix(suffix)
                    found.append(event)
        return found


@contextlib.contextmanager
def tracing():
    """A `Trace` that is gone, with all that it defined, at the end of the block."""
    trace = Trace()
    with changed(trace.create, trace.remove):
        yield trace
