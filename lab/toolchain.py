# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The tools that build modules for a kernel of another release of Debian.

In: a kernel. Out: a root file system in the cache with these tools (see `in-toolchain`).
Refuses: to run without mmdebstrap.

A module is built with the compiler of its kernel. The programs in the headers package (modpost, objtool)
are linked with the libraries of that release, which may be newer than the host's.
"""

import shutil
import tempfile
from pathlib import Path

from lab.apt import release_of, sources_of
from lab.catalogue import Kernel
from lab.process import lock, run, say
from lab.store import UNFINISHED, cache

# The installed packages, one per line; written last.
_PACKAGES = "etc/xk-tools"


def ensure(kernel: Kernel) -> Path:
    """The root file system with the tools of `kernel`; created if it does not exist."""
    release = release_of(kernel.debian)
    folder = cache() / "toolchains"
    final = folder / release
    wanted = "".join(f"{package}\n" for package in kernel.tools)
    with lock(folder):
        for remains in folder.glob(f"{UNFINISHED}*"):
            shutil.rmtree(remains)
        if (final / _PACKAGES).exists() and (final / _PACKAGES).read_text() == wanted:
            return final
        say(f"installing {', '.join(kernel.tools)} of {release} in a folder (some 350 MB)")
        with tempfile.TemporaryDirectory(dir=folder, prefix=UNFINISHED) as scratch:
            root = Path(scratch) / "root"
            command = ["mmdebstrap", "--quiet", "--mode=root", "--variant=apt"]
            command += [f"--include={','.join(kernel.tools)}", release, str(root)]
            run([*command, *sources_of(release)], f"cannot install the tools of {release}")
            (root / _PACKAGES).write_text(wanted)
            if final.exists():
                shutil.rmtree(final)
            root.rename(final)
    return final
