# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Boots machines: a good run passes, and each failure is reported with its cause.

Needs root, and what `scripts/test` brings before it runs the tests.
"""

import contextlib
import io
import json
import os
import signal
import subprocess
import tempfile
import time
import unittest
from pathlib import Path
from typing import Any
from unittest import mock

from lab import catalogue, run, store
from lab.cli import main

_REPOSITORY = Path(__file__).resolve().parents[2]
_LAB = str(_REPOSITORY / "lab" / "lab")


def _provoke_module() -> str:
    """Build the module that causes a kernel warning or oops; returns its path."""
    release = store.newest("amd64").release
    builder = str(_REPOSITORY / "scripts" / "build-module")
    return subprocess.run(
        [builder, release, "lab/tests/provoke"],
        cwd=_REPOSITORY,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout.strip()


@unittest.skipUnless(os.geteuid() == 0, "needs root")
class Guest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="xk-test-")
        self.addCleanup(folder.cleanup)
        self.out = Path(folder.name)

    def lab(self, *arguments: str) -> tuple[int, str, dict[str, Any]]:
        """Run the lab in a process of its own: exit code, its messages, `result.json`."""
        done = subprocess.run(
            [_LAB, "run", "--out", str(self.out), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        self.stdout = done.stdout
        result = json.loads((self.out / "result.json").read_text())
        self.assertEqual(result["exit"], done.returncode)
        return done.returncode, done.stderr, result

    def test_a_cache_may_consist_of_links(self) -> None:
        cache = self.out / "cache"
        cache.mkdir()
        for shared in ("kernels", "tools"):
            (cache / shared).symlink_to(store.cache() / shared)
        # The host does not have this kernel, so its modules come from the lab only.
        script = "cd /lib/modules/$(uname -r) && test -e modules.dep && pwd -P"
        with mock.patch.dict(os.environ, {"XK_CACHE": str(cache)}):
            code, messages, result = self.lab("--kernel", "cloud", script)
        self.assertEqual((code, result["verdict"]), (0, "finished"), messages)
        self.assertIn(f"{store.newest('cloud').root.resolve()}/usr/lib/modules", self.stdout)

    def test_every_kernel_runs_a_command_and_keeps_the_host_as_it_is(self) -> None:
        victim = self.out.parent / f"{self.out.name}-victim"
        script = f"""
            uname -r
            echo complaint >&2
            echo kept >$XK_OUT/kept
            touch {victim} /etc/xk-victim && test -e {victim}
            # The host's own file system is read-only, even for a process that searches for it.
            mkdir /raw && mount -t virtiofs host /raw 2>/dev/null && touch /raw{victim} 2>/dev/null
            mountpoint -q /sys/kernel/debug && mountpoint -q /sys/kernel/tracing || exit 50
            mountpoint -q /sys/fs/bpf || exit 51
            ip -brief address show lo | grep -q 127.0.0.1 || exit 52
            ip netns add lab && ip netns exec lab true || exit 53
            modprobe null_blk && test -b /dev/nullb0 || exit 54
            test -e /lib/modules/$(uname -r)/build/scripts/Makefile.build || exit 55
            exit 42
        """
        for name in catalogue.names_for_every_test():
            with self.subTest(kernel=name):
                code, messages, result = self.lab("--kernel", name, script)
                self.assertEqual((code, result["verdict"]), (42, "finished"), messages)
                self.assertEqual(self.stdout, f"{store.newest(name).release}\n")
                self.assertEqual((self.out / "stdout").read_text(), self.stdout)
                self.assertIn("complaint\n", messages)
                self.assertEqual((self.out / "kept").read_text(), "kept\n")
                self.assertIn("Linux version", (self.out / "dmesg").read_text())
                self.assertEqual(result["splats"], [])
                self.assertFalse(victim.exists())
                self.assertFalse(Path("/etc/xk-victim").exists())

    def test_words_are_not_a_script(self) -> None:
        code, _, _ = self.lab("--", "printf", "%s|", "a b", "$HOME;exit 3")
        self.assertEqual((code, self.stdout), (0, "a b|$HOME;exit 3|"))

    def test_machine_options(self) -> None:
        script = """
            cat /sys/devices/system/node/online
            nproc
            lsblk -dnbo NAME,SIZE /dev/vda /dev/vdb
        """
        options = ["--cpus", "2", "--numa", "2", "--disk", "64M", "--disk", "1G"]
        code, messages, _ = self.lab(*options, script)
        self.assertEqual(code, 0, messages)
        self.assertEqual(
            self.stdout.split(), ["0-1", "2", "vda", str(64 << 20), "vdb", str(1 << 30)]
        )

    def test_deterministic_machine_counts_instructions(self) -> None:
        # A guest nanosecond is an instruction: the time of a loop is its number of instructions, and
        # those of an interrupt if one comes. None comes in the shortest of some.
        source = self.out / "loop.c"
        source.write_text(
            """
            #include <stdio.h>
            #include <time.h>
            static long spin(long n)
            {
                struct timespec a, b;
                clock_gettime(CLOCK_MONOTONIC, &a);
                __asm__ volatile("1: dec %0; jnz 1b" : "+r"(n));
                clock_gettime(CLOCK_MONOTONIC, &b);
                return (b.tv_sec - a.tv_sec) * 1000000000 + b.tv_nsec - a.tv_nsec;
            }
            static long shortest(long n)
            {
                long least = spin(n);
                for (int i = 0; i < 20; i++) {
                    long again = spin(n);
                    least = again < least ? again : least;
                }
                return least;
            }
            int main(void) { printf("%ld\\n", shortest(101000) - shortest(1000)); }
            """
        )
        subprocess.run(["gcc", "-O1", "-o", self.out / "loop", source], check=True)
        code, messages, result = self.lab("--icount", "$XK_OUT/loop")
        self.assertEqual((code, result["accel"]), (0, "tcg-icount"), messages)
        self.assertAlmostEqual(int(self.stdout), 200000, delta=20000)

    def test_harmless_module_passes_and_a_warning_does_not(self) -> None:
        module = _provoke_module()
        code, messages, result = self.lab(f"insmod {module} && rmmod provoke")
        self.assertEqual((code, result["splats"]), (0, []), messages)
        self.assertIn("taints kernel", (self.out / "dmesg").read_text())

        code, messages, result = self.lab(f"insmod {module} what=warn; exit 0")
        self.assertEqual((code, result["verdict"], result["command_exit"]), (93, "splat", 0))
        self.assertEqual([one["kind"] for one in result["splats"]], ["warning"])
        self.assertIn("provoked by the lab's tests", messages)

    def test_oops_ends_the_run_and_the_log_survives(self) -> None:
        code, messages, result = self.lab(f"echo before; insmod {_provoke_module()} what=oops; sleep 99")
        self.assertEqual((code, result["verdict"]), (92, "died"), messages)
        self.assertEqual(self.stdout, "before\n")
        self.assertIn("bug", [one["kind"] for one in result["splats"]])
        self.assertIn("provoke_init", (self.out / "dmesg").read_text())

    def test_panic(self) -> None:
        code, messages, result = self.lab("echo c >/proc/sysrq-trigger")
        self.assertEqual((code, result["verdict"]), (92, "died"))
        self.assertIn("Kernel panic - not syncing: sysrq triggered crash", messages)

    def test_command_that_does_not_end(self) -> None:
        code, messages, result = self.lab("--timeout", "15", "echo started; sleep 999")
        self.assertEqual((code, result["verdict"], self.stdout), (91, "timeout", "started\n"))
        self.assertIn("did not end in time", messages)

    def test_boot_that_hangs(self) -> None:
        limits = {accel: 2 for accel in run.Accel}
        messages = io.StringIO()
        with mock.patch.dict(run._BOOT_SECONDS, limits), contextlib.redirect_stderr(messages):
            # This machine is never started.
            code = main(["run", "--out", str(self.out), "--qemu-opt=-S", "true"])
        self.assertEqual(code, 90)
        self.assertIn("did not come up in time", messages.getvalue())

    def test_nothing_outlives_a_killed_lab(self) -> None:
        process = subprocess.Popen(
            [_LAB, "run", "--out", str(self.out), "echo up; sleep 99"], stdout=subprocess.PIPE
        )
        assert process.stdout
        self.assertEqual(process.stdout.readline(), b"up\n")
        self.assertTrue(self._machines())
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        for _ in range(600):
            if not self._machines():
                break
            time.sleep(0.1)
        self.assertEqual(self._machines(), [])

    def _machines(self) -> list[str]:
        """Processes that mention this test's output folder."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if str(self.out).encode() in (folder / "cmdline").read_bytes():
                    found.append(folder.name)
        return found


class WithoutAGuest(unittest.TestCase):
    """Errors that are reported before a machine boots."""

    def refused(self, *arguments: str) -> str:
        """The error message of a command line that must be refused."""
        messages = io.StringIO()
        with contextlib.redirect_stderr(messages):
            try:
                code = main(list(arguments))
            except SystemExit as stop:
                code = int(stop.code or 0)
        self.assertEqual(code, run.SET_UP_FAILED)
        return messages.getvalue()

    def test_messages_say_what_to_do(self) -> None:
        self.assertIn("choose one of amd64, cloud", self.refused("run", "--kernel", "x", "true"))
        self.assertIn("--cpus 1", self.refused("run", "--icount", "--cpus", "2", "true"))
        self.assertIn("such as 2G", self.refused("run", "--memory", "much", "true"))
        self.assertIn("COMMAND", self.refused("run"))
        with mock.patch.dict(os.environ, {"XK_KERNEL_VERSION": "6.12.1"}):
            self.assertIn("lab/lab fetch amd64", self.refused("run", "true"))


if __name__ == "__main__":
    unittest.main()
