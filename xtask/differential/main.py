# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Executes deployed code with the operations of scope tables beside code compiled with the value.

In: on standard input, the files that `cargo xtask differential` writes, one name on a line, as they become ready. Out:
a line for each function and value, each difference with the state that shows it, and a sum. Exits with 1 when there is
a difference, or something could not be executed.
"""

import argparse
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from unit import Result, examine

# States of one seed.
STATES_OF_SEED = 1 << 32


@dataclass(frozen=True)
class Task:
    """One unit with one value."""

    path: str
    unit: int
    value: int
    seed: int
    first: int
    states: int


@lru_cache(maxsize=2)
def exported(path: str) -> dict[str, Any]:
    """What was written down of a constant."""
    with open(path, encoding="utf-8") as stream:
        return json.load(stream)


def work(task: Task) -> list[Result]:
    """One task, in a process of its own."""
    constant = exported(task.path)
    numbers = list(range(task.first, task.first + task.states))
    return list(examine(constant, constant["units"][task.unit], task.value, numbers, task.seed))


def tasks(arguments: argparse.Namespace) -> Iterator[Task]:
    """What there is to do, as its files become ready."""
    first, states, seed = arguments.seed * STATES_OF_SEED, arguments.states, arguments.seed
    if arguments.state is not None:
        first, states, seed = arguments.state, 1, arguments.state // STATES_OF_SEED
    for line in sys.stdin:
        constant = exported(line.strip())
        for unit in range(len(constant["units"])):
            for value in constant["values"]:
                yield Task(line.strip(), unit, value, seed, first, states)


def line(result: Result) -> str:
    """One function, in words."""
    ends = ", ".join(f"{number} {end}" for end, number in sorted(result.ends.items()))
    text = f"{result.constant} = {result.value}: {result.function} ({result.way}): {ends or 'not executed'}"
    text += f", {result.differences} DIFFERENCES" if result.differences else ""
    text += "".join(f"\n    {told}" for told in result.told)
    if result.reached < result.sites:
        text += f"\n    {result.sites - result.reached} of {result.sites} updates were not executed"
    text += f"\n    {result.doubts} doubtful, {result.doubt}" if result.doubts else ""
    return text + (f"\n    not executed: {result.error}" if result.error else "")


def total(results: list[Result], seconds: float) -> dict[str, Any]:
    """The sum. Its fields are those of the last JSON object."""

    def ended(*ends: str) -> int:
        return sum(result.ends.get(end, 0) for result in results for end in ends)

    return {
        "constants": len({result.constant for result in results}),
        "functions": len({(result.constant, result.function) for result in results}),
        "values": len({(result.constant, result.value) for result in results}),
        "states": sum(result.states for result in results),
        "finished": ended("end", "trap"),
        "faulted": ended("fault"),
        "unfinished": ended("limit"),
        "undefined": ended("undefined"),
        "differences": sum(result.differences for result in results),
        "updates": sum(result.sites for result in results),
        "executed": sum(result.reached for result in results),
        "doubtful": sum(result.doubts for result in results),
        "errors": sum(bool(result.error) for result in results),
        "seconds": round(seconds, 1),
    }


def parsed() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="compare deployed code with compiled code by executing both")
    parser.add_argument("--states", type=int, default=1000, help="states for each function and value")
    parser.add_argument("--seed", type=int, default=1, help="of the states")
    parser.add_argument("--state", type=int, help="only the state with this number")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    return parser.parse_args()


def main() -> int:
    """All of it."""
    arguments = parsed()
    started = time.monotonic()
    results: list[Result] = []
    with multiprocessing.Pool(arguments.jobs) as workers:
        for some in workers.imap_unordered(work, tasks(arguments)):
            for result in some:
                results.append(result)
                print(line(result), flush=True)
    summary = total(results, time.monotonic() - started)
    if arguments.json:
        print(json.dumps(summary))
    else:
        print(", ".join(f"{number} {what}" for what, number in summary.items()))
    return 1 if summary["differences"] or summary["errors"] or not results else 0


if __name__ == "__main__":
    sys.exit(main())
