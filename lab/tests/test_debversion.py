# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The order of versions agrees with dpkg, on pairs for which a naive order is wrong."""

import shutil
import subprocess
import unittest

from lab.debversion import compare, order

OLDER_THEN_NEWER = [
    ("6.12.99-1~deb12u1", "6.12.107-1~deb12u1"),
    ("6.12.115-1~deb12u1", "6.12.115-2~deb12u1"),
    ("6.12.115-1~deb12u1", "6.12.115-1"),
    ("6.12.115-1", "6.12.115-1+b1"),
    ("6.12~rc1-1", "6.12-1"),
    ("9.0", "1:1.0"),
    ("1.0a", "1.0+"),
    ("1.0", "1.0-1"),
]


class Order(unittest.TestCase):
    def test_pairs(self) -> None:
        for older, newer in OLDER_THEN_NEWER:
            with self.subTest(older=older, newer=newer):
                self.assertLess(compare(older, newer), 0)
                self.assertGreater(compare(newer, older), 0)
                self.assertEqual(compare(older, older), 0)

    @unittest.skipUnless(shutil.which("dpkg"), "needs dpkg")
    def test_pairs_agree_with_dpkg(self) -> None:
        for older, newer in OLDER_THEN_NEWER:
            with self.subTest(older=older, newer=newer):
                subprocess.run(["dpkg", "--compare-versions", older, "lt", newer], check=True)

    def test_sorts(self) -> None:
        self.assertEqual(max("6.12.99+deb12", "6.12.117+deb12", key=order), "6.12.117+deb12")


if __name__ == "__main__":
    unittest.main()
