# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The patches of a featureset: which version is chosen, and in which order they are joined."""

import io
import tarfile
import tempfile
import unittest
from pathlib import Path

from lab import patches

SHOWN = "Package: linux\nVersion: 6.12.107-1\n\nPackage: linux\nVersion: 6.12.118-1\nBinary: Version: x\n"


class Patches(unittest.TestCase):
    def test_only_the_same_series_and_nothing_newer(self) -> None:
        known = [*patches.parse_sources(SHOWN), "6.1.180-1", "6.12.117-1~deb12u1"]
        self.assertEqual(patches.eligible(known, "6.12.117-1~deb12u1"), {"6.12.107-1", "6.12.117-1~deb12u1"})
        self.assertEqual(patches.eligible(known, "7.3.4-1~bpo13+1"), set())

    def test_the_series_gives_the_order(self) -> None:
        files = {"series": "# comment\nb.patch\n\na.patch # why\n", "a.patch": "A\n", "b.patch": "B\n", "c.patch": "C\n"}
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "x.debian.tar.xz"
            with tarfile.open(path, "w:xz") as archive:
                for name, text in files.items():
                    entry = tarfile.TarInfo(f"debian/patches-rt/{name}")
                    entry.size = len(text)
                    archive.addfile(entry, io.BytesIO(text.encode()))
            self.assertEqual(patches.joined(path), b"B\nA\n")
