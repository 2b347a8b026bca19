# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The build of a kernel that is chosen, for archives in various states."""

import unittest

from lab.apt import parse_madison
from lab.catalogue import load, named, resolve, satisfies
from lab.errors import LabError


def archive(*builds: tuple[str, str], without: tuple[str, ...] = ()) -> dict[str, set[str]]:
    """An archive that has every package of the given (abi, version) builds, minus some names."""
    available: dict[str, set[str]] = {}
    for abi, version in builds:
        for kernel in load().values():
            for package in kernel.packages:
                available.setdefault(package.format(abi=abi), set()).add(version)
    return {name: versions for name, versions in available.items() if name not in without}


OLD = ("6.12.99+deb12", "6.12.99-1~deb12u1")
MID = ("6.12.115+deb12", "6.12.115-1~deb12u1")
NEW = ("6.12.117+deb12", "6.12.117-1~deb12u1")


class Resolve(unittest.TestCase):
    def test_newest_by_number_not_by_text(self) -> None:
        chosen = resolve(named("amd64"), archive(OLD, MID))
        self.assertEqual(chosen.release, "6.12.115+deb12-amd64")
        self.assertEqual(chosen.version, MID[1])

    def test_flavours_are_not_confused(self) -> None:
        self.assertEqual(resolve(named("cloud"), archive(NEW)).release, f"{NEW[0]}-cloud-amd64")
        self.assertIn(f"linux-headers-{NEW[0]}-common", resolve(named("cloud"), archive(NEW)).packages)

    def test_a_build_without_headers_is_passed_over(self) -> None:
        available = archive(MID, NEW, without=(f"linux-headers-{NEW[0]}-amd64",))
        self.assertEqual(resolve(named("amd64"), available).abi, MID[0])
        self.assertEqual(resolve(named("cloud"), available).abi, NEW[0])

    def test_source_of_another_patch_level_does_not_count(self) -> None:
        available = archive(MID, NEW)
        available["linux-source-6.12"] = {MID[1]}
        self.assertEqual(resolve(named("amd64"), available).abi, MID[0])

    def test_a_rebuilt_version_wins(self) -> None:
        rebuilt = (MID[0], "6.12.115-2~deb12u1")
        self.assertEqual(resolve(named("amd64"), archive(rebuilt, MID)).version, rebuilt[1])

    def test_override(self) -> None:
        self.assertEqual(resolve(named("amd64"), archive(OLD, MID, NEW), "6.12.115").abi, MID[0])

    def test_override_that_does_not_exist_names_what_does(self) -> None:
        with self.assertRaisesRegex(LabError, r"6\.12\.116.*6\.12\.99\+deb12, 6\.12\.117"):
            resolve(named("amd64"), archive(OLD, NEW), "6.12.116")

    def test_empty_archive(self) -> None:
        with self.assertRaisesRegex(LabError, "apt-get update"):
            resolve(named("amd64"), {})

    def test_override_is_not_a_prefix_of_a_number(self) -> None:
        self.assertFalse(satisfies("6.12.115+deb12", "6.12.11"))
        self.assertTrue(satisfies("6.12.115+deb12", "6.12.115+deb12"))

    def test_unknown_name_lists_the_known(self) -> None:
        with self.assertRaisesRegex(LabError, "amd64, cloud"):
            named("riscv")


class Madison(unittest.TestCase):
    def test_binary_packages_only(self) -> None:
        text = (
            " linux-source-6.12 | 6.12.117-1~deb12u1 | http://archive security/main amd64 Packages\n"
            " linux-source-6.12 | 6.12.115-2~deb12u1 | http://archive security/main amd64 Packages\n"
            "     linux-6.12 | 6.12.117-1~deb12u1 | http://archive security/main Sources\n"
        )
        self.assertEqual(
            parse_madison(text), {"linux-source-6.12": {"6.12.117-1~deb12u1", "6.12.115-2~deb12u1"}}
        )


if __name__ == "__main__":
    unittest.main()
