# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Builds the guest's initramfs.

In: a static busybox, the modules that the first steps need, scripts. Out: an archive in the format
that the kernel unpacks (newc cpio). Refuses: a module that is neither a file of the kernel nor built in.
"""

import lzma
from collections.abc import Iterable, Mapping
from pathlib import Path

from lab.errors import LabError

_FOLDER, _EXECUTABLE, _DEVICE = 0o040755, 0o100755, 0o020600


def cpio(files: Mapping[str, bytes]) -> bytes:
    """An archive of `files` (path to content, all executable), their folders and /dev/console."""
    folders = {"dev"} | {
        str(parent) for path in files for parent in Path(path).parents if str(parent) != "."
    }
    entries = [_entry(folder, _FOLDER) for folder in sorted(folders)]
    entries.append(_entry("dev/console", _DEVICE, device=(5, 1)))
    entries += [_entry(path, _EXECUTABLE, content) for path, content in files.items()]
    return b"".join([*entries, _entry("TRAILER!!!", 0)])


def _entry(path: str, mode: int, content: bytes = b"", device: tuple[int, int] = (0, 0)) -> bytes:
    name = path.encode() + b"\0"
    links = 2 if mode == _FOLDER else 1
    fields = (0, mode, 0, 0, links, 0, len(content), 0, 0, *device, len(name), 0)
    header = b"070701" + b"".join(b"%08X" % field for field in fields) + name
    return _padded(header) + _padded(content)


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 4)


def load_order(wanted: Iterable[str], modules_dep: str, modules_builtin: str) -> list[str]:
    """Paths of the modules to load, dependencies first, as named by depmod's index.

    Modules that are built into the kernel need no loading; unknown ones are refused.
    """
    dependencies: dict[str, list[str]] = {}
    path_of: dict[str, str] = {}
    for line in modules_dep.splitlines():
        path, _, needs = line.partition(":")
        dependencies[path] = needs.split()
        path_of[_module_name(path)] = path
    builtin = {_module_name(path) for path in modules_builtin.split()}
    order: list[str] = []
    for name in wanted:
        if name in builtin:
            continue
        if name not in path_of:
            raise LabError(f"this kernel has no module '{name}', which the lab needs to boot it")
        # depmod lists every dependency of a module, nearest first.
        for path in [*reversed(dependencies[path_of[name]]), path_of[name]]:
            if path not in order:
                order.append(path)
    return order


def _module_name(path: str) -> str:
    return Path(path).name.partition(".")[0].replace("-", "_")


def build(
    busybox: Path, modules: Path, wanted: Iterable[str], files: Mapping[str, bytes]
) -> bytes:
    """The initramfs: busybox, the wanted modules of the `modules` folder, and `files`."""
    paths = load_order(
        wanted,
        (modules / "modules.dep").read_text(),
        (modules / "modules.builtin").read_text(),
    )
    contents = {"bin/busybox": busybox.read_bytes()}
    names = []
    for path in paths:
        name = f"{_module_name(path)}.ko"
        data = (modules / path).read_bytes()
        contents[f"modules/{name}"] = lzma.decompress(data) if path.endswith(".xz") else data
        names.append(name)
    contents["modules/order"] = "".join(f"{name}\n" for name in names).encode()
    return cpio({**contents, **files})
