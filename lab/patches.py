# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The patches of a featureset (real time), which Debian's package of the source does not contain.

In: a fetched kernel. Out: `usr/src/linux-patch-6.12-rt.patch.xz` in its folder: `debian/patches-rt` of the source
package, in the order of its file `series`. Refuses: a kernel of which no source package can be downloaded.

The archive may no longer have the source package of the kernel's own version. Then the newest older one serves, also
of another release: `xk build` accepts patches only if they apply exactly and give the headers of the headers package.
"""

import lzma
import re
import tarfile
import tempfile
from pathlib import Path

from lab.apt import Archive, source_archive_of
from lab.catalogue import named
from lab.debversion import order
from lab.errors import LabError
from lab.process import say
from lab.store import FetchedKernel

_FOLDER = "debian/patches-rt"


def parse_sources(text: str) -> list[str]:
    """The versions in the output of `apt-cache showsrc`."""
    return re.findall(r"^Version: (\S+)$", text, re.MULTILINE)


def upstream(version: str) -> str:
    """The version of Linux in the version of a package."""
    return re.split(r"[-~+]", version)[0]


def eligible(versions: list[str], wanted: str) -> set[str]:
    """The versions of the same series of Linux that are not newer than `wanted`."""
    series = upstream(wanted).rsplit(".", 1)[0] + "."
    return {one for one in versions if one.startswith(series) and order(upstream(one)) <= order(upstream(wanted))}


def joined(archive: Path) -> bytes:
    """The patches in `*.debian.tar.xz`, one after the other."""
    with tarfile.open(archive) as files:

        def text(name: str) -> bytes:
            file = files.extractfile(f"{_FOLDER}/{name}")
            if file is None:
                raise LabError(f"{archive.name} has no {_FOLDER}/{name}")
            return file.read()

        lines = (line.split("#")[0].split() for line in text("series").decode().splitlines())
        return b"".join(text(line[0]) for line in lines if line)


def _download(archive: Archive, package: str, version: str) -> bytes | None:
    with tempfile.TemporaryDirectory() as folder:
        try:
            return joined(archive.source(package, version, Path(folder)))
        except LabError:
            return None


def ensure(kernel: FetchedKernel) -> None:
    """Put the patches into the kernel's folder, unless it needs none or has them."""
    described = named(kernel.name)
    path = kernel.root / "usr" / "src" / f"{described.source.replace('source', 'patch')}-rt.patch.xz"
    if not described.patches or path.exists():
        return
    found: list[tuple[str, str, Archive]] = []
    for place in described.patches:
        debian, package = place.split("/")
        archive = source_archive_of(debian)
        known = parse_sources(archive.cache("showsrc", "--only-source", package))
        found += [(version, package, archive) for version in eligible(known, kernel.version)]
    for version, package, archive in sorted(found, key=lambda one: order(upstream(one[0])), reverse=True):
        text = _download(archive, package, version)
        if text is not None:
            say(f"{kernel.release}: patches of {package} {version}")
            path.write_bytes(lzma.compress(text))
            return
    raise LabError(f"no source package of {kernel.release} can be downloaded: tried {', '.join(described.patches)}")
