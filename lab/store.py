# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The location and the parts of fetched kernels.

In: a kernel name. Out: the paths of everything that belongs to the build in the cache.
Refuses: a kernel that was not fetched.

Layout: `<cache>/kernels/<release>/` is a small root file system (`boot/`, `lib/modules/`,
`usr/src/`), plus `kernel.json`. This file is written last; a folder without it is not valid.
"""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.catalogue import PackageSet, named, satisfies
from lab.debversion import order
from lab.errors import LabError

MANIFEST = "kernel.json"
# In a kernel's folder: a link to a root file system, if the host's tools cannot build modules for it.
TOOLCHAIN = "toolchain"
# Prefix of the names of incomplete folders in the cache.
UNFINISHED = ".unfinished-"


def cache() -> Path:
    """The project's cache folder: XK_CACHE, else the user's cache folder."""
    if explicit := os.environ.get("XK_CACHE"):
        return Path(explicit).resolve()
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return (Path(base) / "xk").resolve()


@dataclass(frozen=True)
class FetchedKernel:
    """A kernel in the cache, complete with modules, headers and source."""

    name: str
    flavour: str
    abi: str
    version: str
    release: str
    root: Path

    @property
    def vmlinuz(self) -> Path:
        """The bootable image."""
        return self.root / "boot" / f"vmlinuz-{self.release}"

    @property
    def modules(self) -> Path:
        """The folder that a machine with this kernel has as `/lib/modules/<release>`."""
        return self.root / "lib" / "modules" / self.release

    @property
    def headers(self) -> Path:
        """The folder with the headers for external modules."""
        return self.root / "usr" / "src" / f"linux-headers-{self.release}"

    @property
    def source_tarball(self) -> Path:
        """The distribution's source, with its patches applied."""
        return self.root / "usr" / "src" / f"{named(self.name).source}.tar.xz"

    @property
    def toolchain(self) -> Path | None:
        """The root file system with the tools that build modules for it; None: use the host's tools."""
        link = self.root / TOOLCHAIN
        return link.resolve() if link.is_symlink() else None

    def info(self) -> dict[str, str]:
        """All paths and names as text, for other programs."""
        return {
            "name": self.name,
            "release": self.release,
            "version": self.version,
            "flavour": self.flavour,
            "root": str(self.root),
            "vmlinuz": str(self.vmlinuz),
            "config": str(self.root / "boot" / f"config-{self.release}"),
            "system_map": str(self.root / "boot" / f"System.map-{self.release}"),
            "modules": str(self.modules),
            "headers": str(self.headers),
            "source_tarball": str(self.source_tarball),
            "toolchain": str(self.toolchain or ""),
            "slowness": str(named(self.name).slowness),
        }


def kernels_folder() -> Path:
    """The folder that holds one folder per fetched release."""
    return cache() / "kernels"


def manifest_of(chosen: PackageSet) -> dict[str, Any]:
    """The content of `kernel.json` for a set of packages."""
    return {
        "name": chosen.kernel.name,
        "flavour": chosen.kernel.flavour,
        "abi": chosen.abi,
        "version": chosen.version,
        "release": chosen.release,
    }


def fetched() -> list[FetchedKernel]:
    """Every complete kernel in the cache, oldest first."""
    manifests = kernels_folder().glob(f"[!.]*/{MANIFEST}")
    kernels = [
        FetchedKernel(root=path.parent, **json.loads(path.read_text())) for path in manifests
    ]
    return sorted(kernels, key=lambda kernel: (order(kernel.abi), order(kernel.version)))


def newest(name: str, wanted: str | None = None) -> FetchedKernel:
    """The newest fetched build of the kernel called `name`."""
    named(name)
    wanted = wanted or os.environ.get("XK_KERNEL_VERSION")
    candidates = [
        kernel for kernel in fetched() if kernel.name == name and satisfies(kernel.abi, wanted)
    ]
    if not candidates:
        asked = f" {wanted}" if wanted else ""
        raise LabError(f"kernel '{name}'{asked} is not in the cache: run 'lab/lab fetch {name}'")
    return candidates[-1]
