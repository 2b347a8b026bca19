# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The kernels of the lab, and the choice of one consistent set of packages.

In: `kernels.toml`, and which package versions are available.
Out: a `PackageSet`: image, headers and source of the newest build for which all exist at the same
version.
Refuses: an unknown kernel name; a kernel of which no complete set is available.
"""

import re
import tomllib
from collections.abc import Mapping, Set
from dataclasses import dataclass
from pathlib import Path

from lab.debversion import order
from lab.errors import LabError

DATA_FILE = Path(__file__).with_name("kernels.toml")


@dataclass(frozen=True)
class Kernel:
    """One entry of `kernels.toml`, which describes the fields."""

    name: str
    flavour: str
    release: str
    source: str
    image: str = ""
    packages: tuple[str, ...] = ()
    debian: str = ""
    tools: tuple[str, ...] = ()
    source_tools: tuple[str, ...] = ()
    patches: tuple[str, ...] = ()
    built: str = ""
    configs: tuple[str, ...] = ()
    only: str = ""
    slowness: int = 1

    @property
    def for_every_test(self) -> bool:
        """Whether all tests run on it; otherwise only the tests of the modules do, on request."""
        return not self.only


@dataclass(frozen=True)
class PackageSet:
    """The packages that make up one build of one kernel, all at the same version."""

    kernel: Kernel
    abi: str
    version: str

    @property
    def release(self) -> str:
        """The release that `uname -r` prints on this kernel."""
        return self.kernel.release.format(abi=self.abi)

    @property
    def packages(self) -> tuple[str, ...]:
        """Package names."""
        return tuple(package.format(abi=self.abi) for package in self.kernel.packages)


def load(path: Path = DATA_FILE) -> dict[str, Kernel]:
    """Read the kernels, keyed by name."""
    with path.open("rb") as file:
        entries = tomllib.load(file)
    lists = ("packages", "configs", "tools", "source_tools", "patches")
    return {
        name: Kernel(name=name, **{k: tuple(v) if k in lists else v for k, v in entry.items()})
        for name, entry in entries.items()
    }


def names_for_every_test() -> list[str]:
    """The kernels on which every test runs."""
    return [name for name, kernel in load().items() if kernel.for_every_test]


def named(name: str) -> Kernel:
    """The kernel called `name`."""
    kernels = load()
    if name not in kernels:
        raise LabError(f"no kernel is called '{name}': choose one of {', '.join(kernels)}")
    return kernels[name]


def satisfies(abi: str, wanted: str | None) -> bool:
    """Whether a build is the requested one: `6.12.115` means `6.12.115+deb12`, never `6.12.1150`."""
    return not wanted or abi == wanted or abi.startswith(f"{wanted}+")


def resolve(
    kernel: Kernel, available: Mapping[str, Set[str]], wanted: str | None = None
) -> PackageSet:
    """Choose the newest complete set of `kernel` among the `available` package versions."""
    complete: list[PackageSet] = []
    builds = set()
    for package in available:
        match = re.fullmatch(kernel.image, package)
        if not match:
            continue
        builds.add(match["abi"])
        if not satisfies(match["abi"], wanted):
            continue
        names = [name.format(abi=match["abi"]) for name in kernel.packages]
        versions = set.intersection(*(set(available.get(name, ())) for name in names))
        complete += [PackageSet(kernel, match["abi"], version) for version in versions]
    if not complete:
        asked = f" {wanted}" if wanted else ""
        known = ", ".join(sorted(builds, key=order)) or "none"
        raise LabError(
            f"kernel '{kernel.name}'{asked}: no build has image, headers and source at one version"
            f" (builds seen: {known}); run 'apt-get update', or set XK_KERNEL_VERSION to another"
        )
    return max(complete, key=lambda one: (order(one.abi), order(one.version)))
