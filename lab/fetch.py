# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Brings a kernel into the cache from the distribution's packages.

In: kernel names. Out: one folder per release in the cache (see `lab.store`).
Refuses: to run without apt's package lists, or when no complete set is available.

A folder appears under its final name only when it is complete; concurrent fetches wait for each
other. Nothing is installed on the host.
"""

import contextlib
import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from lab.catalogue import Kernel, PackageSet, named, resolve
from lab.errors import LabError
from lab.store import MANIFEST, FetchedKernel, cache, fetched, kernels_folder, manifest_of, newest

BUSYBOX_PACKAGE = "busybox-static"
_UNFINISHED = ".unfinished-"
_PROGRESS_SECONDS = 5


def say(message: str) -> None:
    """Progress goes to standard error: standard output is for results."""
    print(f"lab: {message}", file=sys.stderr, flush=True)


def run(command: list[str], failure: str, cwd: Path | None = None) -> None:
    """Run a host tool; its own messages are shown only if it fails.

    Says now and then how much has arrived in `cwd`: a download may take minutes.
    """
    with tempfile.TemporaryFile("w+") as messages:
        try:
            process = subprocess.Popen(command, cwd=cwd, stdout=messages, stderr=messages)
        except FileNotFoundError as error:
            raise LabError(f"{failure}: {command[0]} is not installed; run scripts/setup") from error
        with process:
            while process.poll() is None:
                try:
                    process.wait(timeout=_PROGRESS_SECONDS)
                except subprocess.TimeoutExpired:
                    if cwd:
                        say(f"{_size(cwd) >> 20} MB so far")
        if process.returncode:
            messages.seek(0)
            words = messages.read().strip().splitlines()
            raise LabError(f"{failure} ({words[-1] if words else ' '.join(command)})")


def _size(folder: Path) -> int:
    """Bytes in `folder`, at this moment."""
    sizes = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            sizes += path.stat().st_size
    return sizes


@contextlib.contextmanager
def lock(folder: Path) -> Iterator[None]:
    """Hold the folder's lock: one fetch at a time."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another fetch is running, waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def parse_madison(text: str) -> dict[str, set[str]]:
    """Available versions by package, from the output of `apt-cache madison`."""
    available: dict[str, set[str]] = {}
    for line in text.splitlines():
        fields = [field.strip() for field in line.split("|")]
        if len(fields) == 3 and fields[2].endswith(" Packages"):
            available.setdefault(fields[0], set()).add(fields[1])
    return available


def available_for(kernel: Kernel) -> dict[str, set[str]]:
    """Ask apt which builds of `kernel` exist, and at which versions."""
    names = _apt_cache("pkgnames", "linux-image-").split()
    abis = {match["abi"] for name in names if (match := re.fullmatch(kernel.image, name))}
    packages = sorted({package.format(abi=abi) for abi in abis for package in kernel.packages})
    return parse_madison(_apt_cache("madison", *packages)) if packages else {}


def _apt_cache(*arguments: str) -> str:
    try:
        return subprocess.run(
            ["apt-cache", *arguments], stdout=subprocess.PIPE, text=True, check=True
        ).stdout
    except FileNotFoundError as error:
        raise LabError("apt-cache is not installed: the lab needs Debian 12") from error
    except subprocess.CalledProcessError as error:
        raise LabError("apt-cache failed: run 'apt-get update' as root") from error


def download(packages: list[str], folder: Path) -> list[Path]:
    """Download packages (`name=version` or `name`) into `folder`."""
    # apt's sandbox user cannot write into a private folder, and says so at length.
    command = ["apt-get", "download", "-qq", "-o", "APT::Sandbox::User=root", *packages]
    try:
        run(command, "download failed, run 'apt-get update' and check the network", cwd=folder)
    except LabError:
        say("download failed, refreshing the package lists")
        run(["apt-get", "update", "-qq"], "'apt-get update' failed: needs root and a network")
        run(command, "download failed, check the network", cwd=folder)
    return sorted(folder.glob("*.deb"))


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
    """Let the headers find their common part beside themselves instead of in the host's `/usr/src`."""
    for makefile in root.glob("usr/src/linux-headers-*/Makefile"):
        text = makefile.read_text()
        match = re.fullmatch(r"include /usr/src/(\S+/Makefile)\n", text)
        if match:
            makefile.write_text(
                f"include $(dir $(realpath $(lastword $(MAKEFILE_LIST))))../{match[1]}\n"
            )
    for link in root.glob("usr/lib/modules/*/*"):
        if link.is_symlink() and (target := os.readlink(link)).startswith("/usr/src/"):
            link.unlink()
            link.symlink_to(f"../../..{target.removeprefix('/usr')}")


def assemble(chosen: PackageSet) -> None:
    """Download and unpack one build, and give it its final name."""
    folder = kernels_folder()
    say(f"downloading {chosen.release} {chosen.version}: image, headers, source (some 270 MB)")
    with tempfile.TemporaryDirectory(dir=folder, prefix=_UNFINISHED) as scratch:
        debs, root = Path(scratch) / "debs", Path(scratch) / "root"
        debs.mkdir()
        root.mkdir()
        names = [f"{package}={chosen.version}" for package in chosen.packages]
        unpack(download(names, debs), root)
        make_relocatable(root)
        say(f"indexing the modules of {chosen.release}")
        run(["depmod", "-b", str(root), chosen.release], "cannot index the modules")
        (root / MANIFEST).write_text(json.dumps(manifest_of(chosen), indent=2) + "\n")
        final = folder / chosen.release
        if final.exists():
            shutil.rmtree(final)
        root.rename(final)


def fetch(name: str) -> FetchedKernel:
    """Make the newest build of the kernel called `name` available in the cache."""
    kernel = named(name)
    wanted = os.environ.get("XK_KERNEL_VERSION")
    with lock(kernels_folder()):
        for remains in kernels_folder().glob(f"{_UNFINISHED}*"):
            # A fetch was killed here; nobody else can be at work while the lock is held.
            shutil.rmtree(remains)
        try:
            chosen = resolve(kernel, available_for(kernel), wanted)
        except LabError as error:
            # Offline, or the archive moved on: what is in the cache still works.
            with contextlib.suppress(LabError):
                cached = newest(name, wanted)
                say(f"using {cached.release} from the cache; {error}")
                return cached
            raise
        present = [one for one in fetched() if one.release == chosen.release]
        if not any(one.version == chosen.version for one in present):
            assemble(chosen)
        return newest(name, chosen.abi)


def busybox() -> Path:
    """A static busybox for the guest's first steps, from the distribution, kept in the cache."""
    path = cache() / "tools" / "busybox"
    if path.exists():
        return path
    with lock(path.parent):
        if not path.exists():
            with tempfile.TemporaryDirectory(dir=path.parent, prefix=_UNFINISHED) as scratch:
                unpack(download([BUSYBOX_PACKAGE], Path(scratch)), Path(scratch) / "root")
                (Path(scratch) / "root" / "bin" / "busybox").rename(path)
    return path
