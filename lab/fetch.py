# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Puts a kernel into the cache: from the distribution's packages, or built from their source.

In: kernel names. Out: one folder per release in the cache (see `lab.store`).
Refuses: to run without apt's package lists, or when no complete set is available.

A folder gets its final name only when it is complete. Concurrent fetches wait for each other. Nothing
is installed on the host.
"""

import contextlib
import json
import os
import re
import shutil
import tempfile
from pathlib import Path

from lab import build, patches, toolchain
from lab.apt import Archive, archive_of, parse_madison
from lab.catalogue import Kernel, PackageSet, named, resolve
from lab.errors import LabError
from lab.process import lock, run, say
from lab.store import (
    MANIFEST,
    TOOLCHAIN,
    UNFINISHED,
    FetchedKernel,
    cache,
    fetched,
    kernels_folder,
    manifest_of,
    newest,
)

BUSYBOX_PACKAGE = "busybox-static"


def available_for(kernel: Kernel, archive: Archive) -> dict[str, set[str]]:
    """Ask apt which builds of `kernel` exist, and at which versions."""
    names = archive.cache("pkgnames", "linux-image-").split()
    abis = {match["abi"] for name in names if (match := re.fullmatch(kernel.image, name))}
    packages = sorted({package.format(abi=abi) for abi in abis for package in kernel.packages})
    return parse_madison(archive.cache("madison", *packages)) if packages else {}


def unpack(packages: list[Path], root: Path) -> None:
    """Extract packages into `root`, laid out as on a system with a merged `/usr`."""
    for package in packages:
        say(f"unpacking {package.name} ({package.stat().st_size >> 20} MB)")
        run(["dpkg-deb", "-x", str(package), str(root)], f"cannot unpack {package.name}")
    if (root / "lib").is_dir():
        (root / "usr" / "lib").mkdir(parents=True, exist_ok=True)
        for entry in (root / "lib").iterdir():
            entry.rename(root / "usr" / "lib" / entry.name)
        (root / "lib").rmdir()
    (root / "lib").symlink_to("usr/lib")


def make_relocatable(root: Path) -> None:
    """Let the headers find their common part relative to themselves, not in the host's `/usr/src`."""
    beside = "$(dir $(realpath $(lastword $(MAKEFILE_LIST))))../"
    for makefile in root.glob("usr/src/linux-headers-*/Makefile"):
        text = makefile.read_text()
        # A Makefile of the distribution consists of a few lines with such a path. The kernel's own has none.
        if re.fullmatch(r"(KBUILD_OUTPUT=/usr/src/\S+\n)?include /usr/src/\S+/Makefile\n", text):
            makefile.write_text(text.replace("T=/usr/src/", f"T:={beside}").replace("/usr/src/", beside))
    for link in root.glob("usr/lib/modules/*/*"):
        if link.is_symlink() and (target := os.readlink(link)).startswith("/usr/src/"):
            link.unlink()
            link.symlink_to(f"../../..{target.removeprefix('/usr')}")


def fill_boot(root: Path, release: str) -> None:
    """Link files into `/boot` that newer packages have next to the modules."""
    (root / "boot").mkdir(exist_ok=True)
    for name in ("vmlinuz", "config", "System.map"):
        link = root / "boot" / f"{name}-{release}"
        if not link.exists() and (root / "usr" / "lib" / "modules" / release / name).exists():
            link.symlink_to(f"../usr/lib/modules/{release}/{name}")


def assemble(chosen: PackageSet, archive: Archive) -> None:
    """Download and unpack one build, and give it its final name."""
    folder = kernels_folder()
    tools = toolchain.ensure(chosen.kernel) if chosen.kernel.debian else None
    say(f"downloading {chosen.release} {chosen.version}: image, headers, source (some 270 MB)")
    with tempfile.TemporaryDirectory(dir=folder, prefix=UNFINISHED) as scratch:
        debs, root = Path(scratch) / "debs", Path(scratch) / "root"
        debs.mkdir()
        root.mkdir()
        names = [f"{package}={chosen.version}" for package in chosen.packages]
        unpack(archive.download(names, debs), root)
        make_relocatable(root)
        fill_boot(root, chosen.release)
        say(f"indexing the modules of {chosen.release}")
        run(["depmod", "-b", str(root), chosen.release], "cannot index the modules")
        if tools:
            (root / TOOLCHAIN).symlink_to(os.path.relpath(tools, folder / chosen.release))
        (root / MANIFEST).write_text(json.dumps(manifest_of(chosen), indent=2) + "\n")
        final = folder / chosen.release
        if final.exists():
            shutil.rmtree(final)
        root.rename(final)


def fetch(name: str) -> FetchedKernel:
    """Make the newest build of the kernel called `name` available in the cache."""
    kernel = named(name)
    if kernel.built:
        return build.ensure(kernel, fetch(kernel.built))
    wanted = os.environ.get("XK_KERNEL_VERSION")
    with lock(kernels_folder()):
        for remains in kernels_folder().glob(f"{UNFINISHED}*"):
            # Left by a killed fetch: no other fetch can run while this one holds the lock.
            shutil.rmtree(remains)
        try:
            archive = archive_of(kernel.debian)
            chosen = resolve(kernel, available_for(kernel, archive), wanted)
        except LabError as error:
            # Offline, or the archive has newer packages only: use the kernel in the cache.
            with contextlib.suppress(LabError):
                cached = newest(name, wanted)
                say(f"using {cached.release} from the cache; {error}")
                return cached
            raise
        present = [one for one in fetched() if one.release == chosen.release]
        if not any(one.version == chosen.version for one in present):
            assemble(chosen, archive)
        elif kernel.debian:
            toolchain.ensure(kernel)
        found = newest(name, chosen.abi)
        patches.ensure(found)
        return found


def busybox() -> Path:
    """The distribution's static busybox, for the guest's first steps; kept in the cache."""
    path = cache() / "tools" / "busybox"
    if path.exists():
        return path
    with lock(path.parent):
        if not path.exists():
            with tempfile.TemporaryDirectory(dir=path.parent, prefix=UNFINISHED) as scratch:
                unpack(Archive().download([BUSYBOX_PACKAGE], Path(scratch)), Path(scratch) / "root")
                (Path(scratch) / "root" / "bin" / "busybox").rename(path)
    return path
