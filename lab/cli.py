# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The lab's commands: `list`, `fetch`, `info`, `run`, `shell`.

In: arguments. Out: an exit code. That of `run` is the command's own, or one of 90 to 94 (see README).
"""

import argparse
import json
import os
import shlex
import signal
import sys
import tempfile
from pathlib import Path
from typing import NoReturn

from lab import catalogue
from lab.errors import LabError
from lab.fetch import fetch
from lab.machine import Accel, Machine, parse_size
from lab.run import SET_UP_FAILED, Verdict, explain, run, script_of, unwind_on_sigterm
from lab.store import newest


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Exit with a code of the lab: argparse's own code could be that of a guest's command."""
        self.print_usage(sys.stderr)
        self.exit(SET_UP_FAILED, f"lab: {message}\n")


def _machine_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kernel", default="amd64", metavar="NAME", help="see lab/kernels.toml")
    parser.add_argument("--cpus", type=int, help="default 2, with --icount 1")
    parser.add_argument("--memory", default="2G", metavar="SIZE", help="default 2G")
    parser.add_argument(
        "--icount", action="store_true", help="deterministic: one CPU, 1 ns is one instruction"
    )
    parser.add_argument("--numa", type=int, default=1, metavar="NODES", help="split into nodes")
    parser.add_argument(
        "--disk", action="append", default=[], metavar="SIZE", help="an empty disk: /dev/vda, ..."
    )
    parser.add_argument(
        "--append", action="append", default=[], metavar="ARG", help="kernel argument"
    )
    parser.add_argument(
        "--qemu-opt",
        action="append",
        default=[],
        metavar="ARGS",
        help="arguments for QEMU, such as --qemu-opt='-device pvpanic'",
    )


def _arguments() -> argparse.ArgumentParser:
    parser = _Parser(prog="lab", description="throwaway virtual machines on stock kernels")
    commands = parser.add_subparsers(dest="verb", required=True)
    names = ", ".join(catalogue.load())
    default = ", ".join(catalogue.names_for_every_test())

    verb = commands.add_parser("list", help="names of the kernels on which every test runs")
    verb.add_argument("--all", action="store_true", help="also of those for the modules' tests")

    verb = commands.add_parser("fetch", help="bring kernels into the cache")
    verb.add_argument("names", nargs="*", metavar="NAME", help=f"{names}; default {default}")

    verb = commands.add_parser("info", help="where the parts of a fetched kernel are")
    verb.add_argument("name", metavar="NAME", help=names)
    verb.add_argument("field", nargs="?", metavar="FIELD", help="only this, such as release")
    verb.add_argument("--json", action="store_true", help="one JSON object")

    verb = commands.add_parser("run", help="run a command in a new guest")
    _machine_options(verb)
    verb.add_argument("--timeout", type=float, default=600, metavar="SECONDS", help="default 600")
    verb.add_argument("--out", type=Path, metavar="DIR", help="keep output, log and result here")
    verb.add_argument("command", nargs="+", metavar="COMMAND", help="a script, or words")

    verb = commands.add_parser("shell", help="a prompt in a new guest")
    _machine_options(verb)
    verb.add_argument("command", nargs="*", metavar="COMMAND", help="run before the prompt")
    return parser


def _machine(options: argparse.Namespace) -> Machine:
    return Machine(
        cpus=options.cpus or (1 if options.icount else 2),
        memory=parse_size(options.memory),
        nodes=options.numa,
        disks=tuple(map(parse_size, options.disk)),
        append=tuple(options.append),
        qemu_options=tuple(word for text in options.qemu_opt for word in shlex.split(text)),
        # Only a request: the probe decides whether KVM is used.
        accel=Accel.ICOUNT if options.icount else Accel.KVM,
    )


def _run(options: argparse.Namespace) -> int:
    kernel, machine = newest(options.kernel), _machine(options)
    with tempfile.TemporaryDirectory(prefix="xk-out-") as scratch:
        out = options.out or Path(scratch)
        result = run(kernel, machine, options.command, out, options.timeout)
        if text := explain(result, out):
            print(text, file=sys.stderr)
    return result.exit


def _shell(options: argparse.Namespace) -> int:
    if not sys.stdin.isatty():
        raise LabError("shell needs a terminal; for scripts there is 'lab/lab run'")
    columns, rows = os.get_terminal_size()
    prompt = [
        f"stty rows {rows} cols {columns}",
        script_of(options.command) if options.command else ":",
        f"echo 'Linux {newest(options.kernel).release}. Nothing you do here touches the host.'",
        "exec bash -i",
    ]
    day = 24 * 3600
    with tempfile.TemporaryDirectory(prefix="xk-out-") as scratch:
        out = Path(scratch)
        kernel, machine = newest(options.kernel), _machine(options)
        result = run(kernel, machine, ["\n".join(prompt)], out, day, terminal=True)
        if text := explain(result, out):
            print(text, file=sys.stderr)
    return result.exit if result.verdict is not Verdict.FINISHED else 0


def _info(options: argparse.Namespace) -> int:
    information = newest(options.name).info()
    if options.field:
        if options.field not in information:
            raise LabError(f"no field '{options.field}': choose one of {', '.join(information)}")
        print(information[options.field])
    elif options.json:
        print(json.dumps(information))
    else:
        print("\n".join(f"{key:15} {value}" for key, value in information.items()))
    return 0


def _list(options: argparse.Namespace) -> int:
    print("\n".join(catalogue.load() if options.all else catalogue.names_for_every_test()))
    return 0


def _fetch(options: argparse.Namespace) -> int:
    for name in options.names or catalogue.names_for_every_test():
        kernel = fetch(name)
        print(f"{name}: {kernel.release} ({kernel.version}) in {kernel.root}")
    return 0


def main(arguments: list[str]) -> int:
    """Run one command; print every expected failure as one line."""
    unwind_on_sigterm()
    options = _arguments().parse_args(arguments)
    verbs = {"list": _list, "fetch": _fetch, "info": _info, "run": _run, "shell": _shell}
    try:
        return verbs[options.verb](options)
    except LabError as error:
        print(f"lab: {error}", file=sys.stderr)
        return SET_UP_FAILED
    except OSError as error:
        print(f"lab: {error.strerror}: {error.filename}", file=sys.stderr)
        return SET_UP_FAILED
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
