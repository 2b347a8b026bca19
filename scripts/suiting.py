# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What scripts/suites-redis and scripts/suites-memcached share: servers in a guest, and a comparison of two runs."""

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

OUT = Path(os.environ.get("XK_OUT", "/tmp"))
# A copy of the source that may be written to.
HERE = Path("/tmp/suite")


def must(*command):
    """Runs a program, and exits if it fails."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        sys.exit(f"suites: {' '.join(command)}: {done.stdout}")


def prepare():
    """What the extensions need of the guest."""
    if not Path("/run/xk/command").exists():
        sys.exit("suites: this runs in a guest of the lab only")
    must("ip", "link", "set", "lo", "up")
    must("insmod", os.environ["XK_MODULE"])


def answers(port):
    """Whether somebody serves a port."""
    try:
        socket.create_connection(("127.0.0.1", port)).close()
        return True
    except OSError:
        return False


def wait_for(port, server):
    """Returns when a process serves a port. That of an extension does when the verifier has accepted its program."""
    for _ in range(6000):
        if answers(port):
            return
        if server.poll() is not None:
            sys.exit(f"suites: {server.args[0]} has ended: its output is in {OUT}")
        time.sleep(0.1)
    sys.exit(f"suites: nobody serves port {port}")


def start(log, *command, **options):
    """Starts a program whose output is in $XK_OUT."""
    with open(OUT / log, "ab") as out:
        return subprocess.Popen(command, stdout=out, stderr=out, **options)


def end(suite, alone, served, missed):
    """Prints the result. `missed` says what happened in tests that passed alone only; a refusal is one that xk said."""
    refusals = {name: text for name, text in missed.items() if "xk: " in text}
    wrong = {name: text for name, text in missed.items() if "xk: " not in text}
    result = {"tests": len(alone), "passed": len(alone & served), "refused": len(refusals)}
    result |= {"failed": wrong, "refusals": refusals}
    print(json.dumps({"suites": {suite: result}}))
    sys.exit(1 if wrong or not alone else 0)
