# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Runs tools of the host one at a time, with progress, locks, and failures in one line."""

import contextlib
import fcntl
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from lab.errors import LabError

_PROGRESS_SECONDS = 5


def say(message: str) -> None:
    """Print progress to standard error; standard output is for results."""
    print(f"lab: {message}", file=sys.stderr, flush=True)


def run(
    command: list[str],
    failure: str,
    cwd: Path | None = None,
    log: Path | None = None,
) -> None:
    """Run a tool of the host. Its messages go to `log`; if it fails, the error shows the last line.

    Reports the size of `cwd` at intervals, because a download may take minutes.
    """
    with log.open("w+") if log else tempfile.TemporaryFile("w+") as messages:
        try:
            process = subprocess.Popen(command, cwd=cwd, stdout=messages, stderr=messages)
        except FileNotFoundError as error:
            raise LabError(f"{failure}: {command[0]} is not installed; run scripts/setup") from error
        with process:
            try:
                while process.poll() is None:
                    try:
                        process.wait(timeout=_PROGRESS_SECONDS)
                    except subprocess.TimeoutExpired:
                        if cwd:
                            say(f"{_size(cwd) >> 20} MB so far")
            except BaseException:
                # If the lab is interrupted, it does not wait for the end of a build.
                process.terminate()
                raise
        if process.returncode:
            messages.seek(0)
            words = messages.read().strip().splitlines()
            where = f"; all of it is in {log}" if log else ""
            raise LabError(f"{failure} ({words[-1] if words else ' '.join(command)}){where}")


def _size(folder: Path) -> int:
    """Current size of `folder` in bytes."""
    sizes = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            sizes += path.stat().st_size
    return sizes


@contextlib.contextmanager
def lock(folder: Path) -> Iterator[None]:
    """Hold the lock of the folder, so that one process at a time writes to it."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another fetch is running, waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
