# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Packages of the distribution: of the host's own release, or of another one from the same mirror.

In: the name of a release (`trixie`, `trixie-backports`; empty: the host's). Out: an `Archive`.
Refuses: another release, if the host's apt has no source of Debian packages.

Another release has separate package lists in the cache, so that the host's own lists never change. Both
are verified with the installed keyring.
"""

import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from lab.errors import LabError
from lab.process import run, say
from lab.store import cache

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_SECURITY = "-security"
_BACKPORTS = "-backports"
_REFRESH_SECONDS = 24 * 3600


def parse_madison(text: str) -> dict[str, set[str]]:
    """Available versions by package, from the output of `apt-cache madison`."""
    available: dict[str, set[str]] = {}
    for line in text.splitlines():
        fields = [field.strip() for field in line.split("|")]
        if len(fields) == 3 and fields[2].endswith(" Packages"):
            available.setdefault(fields[0], set()).add(fields[1])
    return available


def suites_of(debian: str) -> list[str]:
    """The suites from which a machine of that release takes packages."""
    release = release_of(debian)
    return [release, f"{release}{_SECURITY}", *([debian] if debian != release else [])]


def release_of(debian: str) -> str:
    """The release to which backports belong."""
    return debian.removesuffix(_BACKPORTS)


def parse_targets(text: str) -> dict[str, str]:
    """Mirrors by suite, from the output of `apt-get indextargets` (suite, mirror, component)."""
    rows = (line.split() for line in text.splitlines())
    return {row[0]: row[1] for row in rows if len(row) == 3 and row[2] == "main"}


def sources(debian: str, mirrors: dict[str, str], codename: str) -> list[str]:
    """Lines for `sources.list`: the mirrors of the host's release `codename`, with other suites."""
    lines = []
    for suite in suites_of(debian):
        own = f"{codename}{_SECURITY}" if suite.endswith(_SECURITY) else codename
        if own not in mirrors:
            raise LabError(
                f"apt has no source of {own}, whose mirror would have {suite}: add it to /etc/apt/sources.list"
            )
        lines.append(f"deb [signed-by={KEYRING}] {mirrors[own]} {suite} main")
    return lines


def sources_of(debian: str) -> list[str]:
    """The same lines, from the configuration of the host."""
    if not KEYRING.exists():
        raise LabError(f"{KEYRING} is missing: install the package debian-archive-keyring")
    release = dict(
        line.split("=", 1) for line in Path("/etc/os-release").read_text().splitlines() if "=" in line
    )
    targets = ("apt-get", "indextargets", "--format", "$(CODENAME) $(REPO_URI) $(COMPONENT)", "Created-By: Packages")
    codename = release.get("VERSION_CODENAME", "").strip('"')
    return sources(debian, parse_targets(_output(list(targets))), codename)


@dataclass(frozen=True)
class Archive:
    """A source of packages, as options for the tools of apt."""

    options: tuple[str, ...] = ()

    def cache(self, *arguments: str) -> str:
        """The output of `apt-cache`."""
        return _output(["apt-cache", *self.options, *arguments])

    def update(self) -> None:
        """Refresh the package lists."""
        command = ["apt-get", *self.options, "update", "-qq"]
        run(command, "'apt-get update' failed: needs root and a network")

    def download(self, packages: list[str], folder: Path) -> list[Path]:
        """Download packages (`name=version` or `name`) into `folder`."""
        # apt's sandbox user cannot write into a private folder, and prints long warnings about it.
        sandbox = ("-o", "APT::Sandbox::User=root")
        command = ["apt-get", *self.options, "download", "-qq", *sandbox, *packages]
        try:
            run(command, "download failed, run 'apt-get update' and check the network", cwd=folder)
        except LabError:
            say("download failed, refreshing the package lists")
            self.update()
            run(command, "download failed, check the network", cwd=folder)
        return sorted(folder.glob("*.deb"))

    def source(self, package: str, version: str, folder: Path) -> Path:
        """Download what Debian adds to a source package into `folder`."""
        command = ["apt-get", *self.options, "source", "-qq", "--download-only", "--diff-only", f"{package}={version}"]
        run(command, f"the source of {package} {version} cannot be downloaded", cwd=folder)
        found = sorted(folder.glob("*.debian.tar.xz"))
        if not found:
            raise LabError(f"the source of {package} {version} has no debian.tar.xz")
        return found[0]


def archive_of(debian: str) -> Archive:
    """The packages of a release. The lists of a release that is not the host's are refreshed once a day."""
    return _private(debian, sources_of(debian)) if debian else Archive()


def source_archive_of(debian: str) -> Archive:
    """The source packages of a release, which the host's own lists need not have."""
    lines = [line.replace("deb ", "deb-src ", 1) for line in sources_of(debian)]
    return _private(f"{debian}-sources", lines)


def _private(name: str, lines: list[str]) -> Archive:
    """An archive with its own lists in the cache."""
    folder = cache() / "apt" / name
    for part in ("lists/partial", "cache/archives/partial"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=folder, delete=False) as file:
        file.write("".join(f"{line}\n" for line in lines))
    listed = folder / "sources.list"
    Path(file.name).rename(listed)
    options = {
        "Dir::Etc::sourcelist": listed,
        "Dir::Etc::sourceparts": "-",
        "Dir::Etc::preferences": "-",
        "Dir::Etc::preferencesparts": "-",
        "Dir::State::lists": folder / "lists",
        "Dir::Cache": folder / "cache",
        "APT::Sandbox::User": "root",
    }
    archive = Archive(tuple(word for name, value in options.items() for word in ("-o", f"{name}={value}")))
    fresh = folder / "fresh"
    if not fresh.exists() or time.time() - fresh.stat().st_mtime > _REFRESH_SECONDS:
        say(f"refreshing the package lists of {name}")
        archive.update()
        fresh.touch()
    return archive


def _output(command: list[str]) -> str:
    try:
        return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    except FileNotFoundError as error:
        raise LabError(f"{command[0]} is not installed: the lab needs Debian 12") from error
    except subprocess.CalledProcessError as error:
        raise LabError(f"{command[0]} failed: run 'apt-get update' as root") from error
