# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Requirements on a configuration, and on the archives of other releases."""

import re
import unittest

from lab import build
from lab.apt import parse_targets, sources, suites_of
from lab.catalogue import load
from lab.errors import LabError

TARGETS = """\
bookworm http://mirror/debian/ main
bookworm-updates http://mirror/debian/ main
bookworm-security http://mirror/security/ main
nodistro http://elsewhere/ contrib
"""


class Configuration(unittest.TestCase):
    def test_an_option_that_the_rules_changed_is_named(self) -> None:
        config = 'CONFIG_A=y\n# CONFIG_B is not set\nCONFIG_N=16\nCONFIG_LSM="lockdown"\n'
        held = ["CONFIG_A=y", "# CONFIG_B is not set", "# CONFIG_UNKNOWN is not set", 'CONFIG_LSM="lockdown"']
        self.assertEqual(build.broken(held, config), [])
        wrong = ["CONFIG_B=y", "# CONFIG_A is not set", "CONFIG_N=1", "CONFIG_C=y"]
        self.assertEqual(build.broken(wrong, config), wrong)

    def test_every_option_has_one_value(self) -> None:
        for kernel in load().values():
            lines = build.options_of(kernel)
            names = [re.sub(r"^# |[ =].*", "", line.removeprefix("# ")) for line in lines]
            self.assertEqual(len(names), len(set(names)), kernel.name)
            self.assertEqual(bool(lines), bool(kernel.built), kernel.name)

    def test_the_compiler_is_that_of_the_kernel(self) -> None:
        text = 'CONFIG_CC_VERSION_TEXT="x86_64-linux-gnu-gcc-12 (Debian 12.2.0-14) 12.2.0"\n'
        self.assertEqual(build.compiler_of(text), "gcc-12")
        with self.assertRaisesRegex(LabError, "no compiler"):
            build.compiler_of("CONFIG_A=y\n")


class OtherReleases(unittest.TestCase):
    def test_they_come_from_the_mirrors_of_the_host(self) -> None:
        lines = sources("trixie-backports", parse_targets(TARGETS), "bookworm")
        places = [line.split(" ", 2)[2] for line in lines]
        self.assertEqual(
            places,
            [
                "http://mirror/debian/ trixie main",
                "http://mirror/security/ trixie-security main",
                "http://mirror/debian/ trixie-backports main",
            ],
        )
        self.assertTrue(all("signed-by=" in line for line in lines))

    def test_a_release_has_no_backports_unless_asked_for(self) -> None:
        self.assertEqual(suites_of("trixie"), ["trixie", "trixie-security"])

    def test_a_host_without_the_source_is_refused(self) -> None:
        with self.assertRaisesRegex(LabError, "bookworm-security"):
            sources("trixie", {"bookworm": "http://mirror/debian/"}, "bookworm")


if __name__ == "__main__":
    unittest.main()
