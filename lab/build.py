# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Builds a kernel from the distribution's source, with a configuration of the lab.

In: an entry of `kernels.toml` with `built`, and the fetched kernel whose source and compiler are used.
Out: a kernel in the cache, with the layout of one from packages.
Refuses: a configuration in which a line of `configs` does not hold, because a Kconfig rule changed it.

An interrupted build continues where it stopped. It starts from the beginning if the configuration, the
source or the compiler has changed. The source is not modified.
"""

import hashlib
import json
import os
import re
import shutil
from pathlib import Path

from lab.catalogue import Kernel, PackageSet
from lab.errors import LabError
from lab.process import lock, run, say
from lab.store import MANIFEST, UNFINISHED, FetchedKernel, cache, fetched, kernels_folder, manifest_of, newest

_CONFIGS = Path(__file__).resolve().parent / "configs"
# File in a kernel's folder with the digest of the inputs of its build.
_RECIPE = "recipe"
# Version of this file; it increases when a change affects the built kernel.
_EDITION = 1


def options_of(kernel: Kernel) -> list[str]:
    """Every line that must hold in the configuration."""
    lines = []
    for name in kernel.configs:
        for line in (_CONFIGS / f"{name}.config").read_text().splitlines():
            if re.match(r"CONFIG_\w+=|# CONFIG_\w+ is not set$", line):
                lines.append(line)
    return lines


def broken(wanted: list[str], config: str) -> list[str]:
    """Lines that do not hold in a configuration. An option that it does not mention is not set."""
    lines = set(config.splitlines())
    names = {line.split("=", 1)[0] for line in lines if line.startswith("CONFIG_")}
    off = re.compile(r"# (CONFIG_\w+) is not set")
    return [
        line
        for line in wanted
        if ((match := off.fullmatch(line)) and match[1] in names) or (not match and line not in lines)
    ]


def compiler_of(config: str) -> str:
    """The name, without the machine's prefix, of the compiler that built a kernel, from its configuration."""
    match = re.search(r'^CONFIG_CC_VERSION_TEXT="(?:\w+-linux-gnu-)?(\S+)', config, re.MULTILINE)
    if not match:
        raise LabError("the configuration names no compiler (CONFIG_CC_VERSION_TEXT)")
    return match[1]


def ensure(kernel: Kernel, base: FetchedKernel) -> FetchedKernel:
    """The kernel; built now unless the cache has it with the same inputs."""
    chosen = PackageSet(kernel, base.abi, base.version)
    compiler = compiler_of(Path(base.info()["config"]).read_text())
    wanted = options_of(kernel)
    recipe = hashlib.sha256(
        json.dumps([_EDITION, chosen.release, base.version, compiler, wanted]).encode()
    ).hexdigest()
    work = cache() / "building" / kernel.name
    with lock(work):
        if not any(
            one.release == chosen.release and (one.root / _RECIPE).read_text() == recipe
            for one in fetched()
            if (one.root / _RECIPE).exists()
        ):
            _start(work, recipe)
            _build(work, chosen, base, compiler, wanted)
            _install(work, chosen, base, compiler, recipe)
            for part in ("source", "objects"):
                shutil.rmtree(work / part)
    return newest(kernel.name, chosen.abi)


def _start(work: Path, recipe: str) -> None:
    """Keep the files of an interrupted build with the same inputs, and remove all others."""
    noted = work / _RECIPE
    if not noted.exists() or noted.read_text() != recipe:
        for part in ("source", "objects", "root"):
            shutil.rmtree(work / part, ignore_errors=True)
        noted.write_text(recipe)


def _make(work: Path, compiler: str, *targets: str) -> list[str]:
    return [
        *("make", "-C", str(work / "source"), f"O={work / 'objects'}", f"-j{os.cpu_count() or 1}"),
        *(f"CC={compiler}", f"HOSTCC={compiler}", "KBUILD_BUILD_USER=xk", "KBUILD_BUILD_HOST=lab"),
        *targets,
    ]


def _build(
    work: Path, chosen: PackageSet, base: FetchedKernel, compiler: str, wanted: list[str]
) -> None:
    """Unpack the source, configure it, and build the objects."""
    source, objects, log = work / "source", work / "objects", work / "log"
    if not source.exists():
        say(f"unpacking {base.source_tarball.name}")
        fresh = work / f"{UNFINISHED}source"
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir()
        unpack = ["tar", "-xJf", str(base.source_tarball), "-C", str(fresh), "--strip-components=1"]
        run(unpack, "cannot unpack the source")
        fresh.rename(source)
    objects.mkdir(exist_ok=True)
    fragment = work / "fragment"
    # The suffix that `uname -r` prints after the version of the source.
    number = re.match(r"[\d.]+\d", chosen.release)
    assert number
    name = f'CONFIG_LOCALVERSION="{chosen.release.removeprefix(number[0])}"'
    fragment.write_text("\n".join([*wanted, name]) + "\n")
    configure = _make(work, compiler, f"KCONFIG_ALLCONFIG={fragment}", "allnoconfig")
    run(configure, f"cannot configure {chosen.release}", log=log)
    if lines := broken(wanted, (objects / ".config").read_text()):
        raise LabError(
            f"the rules of {chosen.release} do not allow: {', '.join(lines)}; change lab/configs"
            f" ({', '.join(chosen.kernel.configs)}), 'make menuconfig' in {source} tells what they need"
        )
    say(f"building {chosen.release}: ten minutes or more, once; {log} tells how far it is")
    run(_make(work, compiler, "bzImage", "modules"), f"cannot build {chosen.release}", log=log)


def _install(
    work: Path, chosen: PackageSet, base: FetchedKernel, compiler: str, recipe: str
) -> None:
    """Arrange the built files as packages do, and give the folder its final name."""
    objects, root, log, release = work / "objects", work / "root", work / "log", chosen.release
    say(f"installing {release} into the cache")
    shutil.rmtree(root, ignore_errors=True)
    modules, headers = root / "usr" / "lib" / "modules", root / "usr" / "src" / f"linux-headers-{release}"
    for folder in (root / "boot", modules, headers):
        folder.mkdir(parents=True)
    (root / "lib").symlink_to("usr/lib")
    shutil.copy(objects / "arch" / "x86" / "boot" / "bzImage", root / "boot" / f"vmlinuz-{release}")
    shutil.copy(objects / ".config", root / "boot" / f"config-{release}")
    shutil.copy(objects / "System.map", root / "boot" / f"System.map-{release}")

    failure = f"cannot install {release}"
    strip = (f"INSTALL_MOD_PATH={root}", "INSTALL_MOD_STRIP=1")
    run(_make(work, compiler, *strip, "modules_install"), failure, log=log)
    collect = f"$(srctree)/scripts/package/install-extmod-build {headers}"
    run(_make(work, compiler, f"KBUILD_RUN_COMMAND={collect}", "run-command"), failure, log=log)
    shutil.copy(objects / ".config", headers / ".config")
    # The BTF of modules refers to the BTF of the kernel.
    run(["objcopy", "--strip-debug", str(objects / "vmlinux"), str(headers / "vmlinux")], failure)
    # Debian's source reads this file.
    (headers / ".kernelvariables").write_text(f"override CC = {compiler}\n")
    for name in ("build", "source"):
        link = modules / release / name
        link.unlink(missing_ok=True)
        link.symlink_to(f"../../../src/{headers.name}")
    tarball = root / "usr" / "src" / base.source_tarball.name
    try:
        os.link(base.source_tarball, tarball)
    except OSError:
        shutil.copy(base.source_tarball, tarball)

    (root / _RECIPE).write_text(recipe)
    (root / MANIFEST).write_text(json.dumps(manifest_of(chosen), indent=2) + "\n")
    with lock(kernels_folder()):
        final = kernels_folder() / release
        if final.exists():
            shutil.rmtree(final)
        root.rename(final)
