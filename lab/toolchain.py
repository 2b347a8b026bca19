# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The tools that build a kernel of another release of Debian, and modules for it.

In: a kernel. Out: a root file system in the cache with these tools (see `in-toolchain`; `xk build` finds it).
Refuses: to run without mmdebstrap.

A module is built with the compiler of its kernel. The programs in the headers package (modpost, objtool)
are linked with the libraries of that release, which may be newer than the host's.
"""

import os
import shutil
import tempfile
from pathlib import Path

from lab.apt import release_of, sources_of
from lab.catalogue import Kernel, load
from lab.process import lock, run, say
from lab.store import UNFINISHED, cache

# The installed packages, one per line; written last.
_PACKAGES = "etc/xk-tools"
# If it is set, the tools that compile a kernel's source are not needed.
_MODULES_ONLY = "XK_LAB_MODULES_ONLY"


def ensure(kernel: Kernel) -> Path:
    """The root file system with the tools of all kernels of the release; created if it does not exist."""
    release = release_of(kernel.debian)
    kernels = [one for one in load().values() if one.debian and release_of(one.debian) == release]
    tools = {tool for one in kernels for tool in one.tools}
    if not os.environ.get(_MODULES_ONLY):
        tools |= {tool for one in kernels for tool in one.source_tools}
    folder = cache() / "toolchains"
    final = folder / release
    with lock(folder):
        for remains in folder.glob(f"{UNFINISHED}*"):
            shutil.rmtree(remains)
        present = set((final / _PACKAGES).read_text().split()) if (final / _PACKAGES).exists() else set()
        if tools <= present:
            return final
        tools = sorted(tools | present)
        say(f"installing {', '.join(tools)} of {release} in a folder (up to 1.3 GB)")
        with tempfile.TemporaryDirectory(dir=folder, prefix=UNFINISHED) as scratch:
            root = Path(scratch) / "root"
            command = ["mmdebstrap", "--quiet", "--mode=root", "--variant=apt"]
            command += [f"--include={','.join(tools)}", release, str(root)]
            run([*command, *sources_of(release)], f"cannot install the tools of {release}")
            (root / _PACKAGES).write_text("".join(f"{tool}\n" for tool in tools))
            if final.exists():
                shutil.rmtree(final)
            root.rename(final)
    return final
