# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What the `run` scripts of the studies share: policies, what they are told, the result.

A study runs once in a guest of its own, in which `xk` is on the PATH, xk.ko is loaded, and XK_POLICY
is the compiled policy of the study. Everything that is measured is a number of the kernel's.
"""

import contextlib
import ctypes
import json
import math
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import xkcase

SYS_BPF = 321
BPF_MAP_UPDATE_ELEM, BPF_OBJ_GET = 2, 7
OPTIMISING_S = 0.5


def run(study):
    """Runs `study`, which returns the result as a dictionary, and prints it as the last line."""
    try:
        if os.geteuid() != 0:
            raise xkcase.CaseError("must be run as root, inside a guest")
        result = study()
    except (xkcase.CaseError, OSError) as error:
        sys.exit(f"{Path(sys.argv[0]).resolve().parent.name}: {error}")
    print(json.dumps(result))


def short():
    """Whether the least that shows the effect is asked for: the form that tests run."""
    return "--short" in sys.argv[1:]


def result(metric, default, tuned, points, **more):
    """What a study returns; the ratio is the larger of the two over the smaller."""
    least, most = sorted((default, tuned))
    if least <= 0:
        raise xkcase.CaseError(f"{metric}: {default} by default and {tuned} tuned make no ratio")
    ratio = round(most / least, 3)
    return {"metric": metric, "default": default, "tuned": tuned, "ratio": ratio, "points": points, **more}


def percentile(numbers, share):
    """The smallest number that this share of them does not exceed."""
    ordered = sorted(numbers)
    if not ordered:
        raise xkcase.CaseError("nothing was measured")
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


median = statistics.median


def xk(*arguments):
    """Runs `xk`; its own words are the error message."""
    done = subprocess.run(["xk", *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        words = (done.stderr or done.stdout).strip()
        raise xkcase.CaseError(f"xk {' '.join(arguments)}: {words}")
    return done.stdout


def status():
    """Every tune that `xk status` shows."""
    return json.loads(xk("status", "--json"))["tunes"]


@contextlib.contextmanager
def policy(name="study", mode=None):
    """The study's policy is in force inside the block, by the transition that its constants need.

    Without `mode`, the scope table says whether `task` or `global` is what is safe.
    """
    options = ("--mode", mode) if mode else ()
    xkcase.note(xk("load", os.environ["XK_POLICY"], "--name", name, *options).strip())
    try:
        time.sleep(OPTIMISING_S)
        yield
        require_hits()
    finally:
        xk("unload", name)


@contextlib.contextmanager
def value(constant, number, *options):
    """The constant has this value for everybody inside the block."""
    xk("set", f"{constant}={number}", *options)
    try:
        time.sleep(OPTIMISING_S)
        yield
        require_hits()
    finally:
        xk("unset", constant, *options)


def require_hits():
    """A tuned side on which the mechanism did not run would be no measurement."""
    for tune in status():
        missed = sum(site["missed"] for site in tune["sites"])
        asked = [site["asked"] for site in (tune.get("policy") or {}).get("sites", [])]
        hits = sum(site["hits"] for site in tune["sites"] if site["counted"])
        xkcase.note(f"{tune['id']}: reached {hits} times, policy asked {asked}, missed {missed}")
        if asked and not any(asked):
            raise xkcase.CaseError(f"{tune['id']}: the policy was never asked")


class Map:
    """A map of a loaded policy, by the name that it has below /sys/fs/bpf/xk."""

    def __init__(self, name, of="study"):
        self._path = ctypes.create_string_buffer(f"/sys/fs/bpf/xk/{of}/{name}".encode())
        attributes = (ctypes.c_uint64 * 16)(ctypes.addressof(self._path))
        self._fd = self._bpf(BPF_OBJ_GET, attributes)

    @staticmethod
    def _bpf(command, attributes):
        size = ctypes.c_uint(ctypes.sizeof(attributes))
        return xkcase.syscall("bpf", SYS_BPF, ctypes.c_int(command), ctypes.byref(attributes), size)

    def set(self, key, number):
        """Both are 32 bits wide."""
        at = ctypes.c_uint32(key)
        holds = ctypes.c_uint32(number)
        attributes = (ctypes.c_uint64 * 16)(
            self._fd, ctypes.addressof(at), ctypes.addressof(holds), 0
        )
        self._bpf(BPF_MAP_UPDATE_ELEM, attributes)
