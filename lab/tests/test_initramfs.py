# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Module order and archive format."""

import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from lab.errors import LabError
from lab.initramfs import cpio, load_order

DEP = """\
kernel/net/9p/9pnet.ko.xz:
kernel/fs/netfs/netfs.ko.xz:
kernel/fs/9p/9p.ko.xz: kernel/net/9p/9pnet.ko.xz kernel/fs/netfs/netfs.ko.xz
kernel/drivers/block/virtio_blk.ko.xz:
"""
BUILTIN = "kernel/drivers/virtio/virtio-pci.ko\n"


class LoadOrder(unittest.TestCase):
    def test_dependencies_come_first_and_once(self) -> None:
        order = load_order(["9p", "9pnet", "virtio_blk"], DEP, BUILTIN)
        self.assertEqual(len(order), len(set(order)))
        self.assertLess(
            order.index("kernel/net/9p/9pnet.ko.xz"), order.index("kernel/fs/9p/9p.ko.xz")
        )
        self.assertIn("kernel/drivers/block/virtio_blk.ko.xz", order)

    def test_builtin_needs_no_loading(self) -> None:
        self.assertEqual(load_order(["virtio_pci"], DEP, BUILTIN), [])

    def test_unknown_is_refused(self) -> None:
        with self.assertRaisesRegex(LabError, "overlay"):
            load_order(["overlay"], DEP, BUILTIN)


@unittest.skipUnless(shutil.which("cpio"), "needs cpio")
class Archive(unittest.TestCase):
    def test_unpacks(self) -> None:
        data = cpio({"init": b"#!/bin/sh\n", "a/b/c": b"12345"})
        with tempfile.TemporaryDirectory() as folder:
            listing = subprocess.run(
                ["cpio", "--list", "--quiet"], input=data, capture_output=True, check=True
            ).stdout.split()
            self.assertEqual(listing, [b"a", b"a/b", b"dev", b"dev/console", b"init", b"a/b/c"])
            subprocess.run(
                ["cpio", "-id", "--quiet", "init", "a/b/c"], cwd=folder, input=data, check=True
            )
            self.assertEqual((Path(folder) / "a/b/c").read_bytes(), b"12345")
            self.assertEqual((Path(folder) / "init").stat().st_mode & 0o777, 0o755)


if __name__ == "__main__":
    unittest.main()
