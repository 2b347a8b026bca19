# SPDX-License-Identifier: Apache-2.0 OR MIT
"""One unit with one value: which functions are executed, and what came of each.

In: what was exported of a constant, a unit, a value. Out: a `Result` for each function that has an update, and for each
whose code is another with the value: those must behave the same without one.
"""

import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from calls import Callees
from compare import Outcome, Runner
from explore import Corpus
from layout import Layout, NotExecutable
from machine import Mode
from objects import Object, Section, Symbol
from operations import mask, transformed
from sites import Sites, spans_of
from states import MASK, Pool

# Differences of one function that are told.
MOST_TOLD = 3
COLD = ".cold"


@dataclass
class Result:
    """What came of one function, or of the data of a unit."""

    constant: str
    function: str
    value: int
    # `update`, `in place`, `no update` or `data`.
    way: str
    ends: dict[str, int] = field(default_factory=dict)
    differences: int = 0
    told: list[str] = field(default_factory=list)
    doubts: int = 0
    doubt: str = ""
    # Instructions with an update, and how many of them were executed.
    sites: int = 0
    reached: int = 0
    # Why it was not executed.
    error: str = ""

    @property
    def states(self) -> int:
        """How many it was executed from."""
        return sum(self.ends.values())


@lru_cache(maxsize=6)
def opened(path: str) -> Object:
    """An object, read once."""
    return Object(Path(path))


@lru_cache(maxsize=1)
def pool(seed: int) -> Pool:
    """Random words, made once."""
    return Pool(seed)


def examine(
    exported: dict[str, Any], unit: dict[str, Any], value: int, numbers: list[int], seed: int
) -> Iterator[Result]:
    """Executes what the value changes in a unit from the states of these numbers."""
    table = exported["table"]
    with_sites = {f["symbol"].removesuffix(COLD) for f, spans in _functions(table, unit["source"]) if spans}
    paths = unit["default"], unit["variants"][str(value)]
    if not with_sites and same(*paths):
        return
    builds = opened(paths[0]), opened(paths[1])
    yield from data(exported, unit, builds[1], value)
    others = {name for name in _changed(builds) if name not in with_sites}
    for name in sorted(with_sites | others):
        spans = spans_of(table, {name, name + COLD}, unit["source"])
        corpus: Corpus | None = None
        for way in _ways(table, spans, value):
            result = Result(exported["name"], name, value, way)
            try:
                corpus = _execute(exported, unit["source"], builds, result, numbers, seed, corpus)
            except NotExecutable as error:
                result.error = str(error)
            except Exception:  # noqa: BLE001  (one function must not stop the rest)
                result.error = traceback.format_exc()
            yield result


def same(one: str, other: str) -> bool:
    """Whether two objects are the same file, byte for byte: most units only see the constant."""
    return Path(one).read_bytes() == Path(other).read_bytes()


def _functions(table: dict[str, Any], source: str) -> Iterator[tuple[dict[str, Any], bool]]:
    used = {span["function"] for span in table["spans"]}
    for index, function in enumerate(table["functions"]):
        if function["source"] == source:
            yield function, index in used


def _ways(table: dict[str, Any], spans: list[dict[str, Any]], value: int) -> list[str]:
    if not spans:
        return ["no update"]
    ways = [] if any(span.get("only_in_place") for span in table["spans"]) else ["update"]
    held = [span["in_place"]["range"] for span in spans if span.get("in_place")]
    if len(held) == len(spans) and all(one["min"] <= value <= one["max"] for one in held):
        ways.append("in place")
    return ways


def _execute(
    exported: dict[str, Any],
    source: str,
    builds: tuple[Object, Object],
    result: Result,
    numbers: list[int],
    seed: int,
    corpus: Corpus | None,
) -> Corpus:
    """Runs both builds. States are looked for once, with the updates, and used again for code that is patched."""
    callees, words = Callees(exported), pool(seed)
    layout = Layout(builds, result.function, callees.is_function, result.value)
    sites = Sites(exported["table"], source, layout, result.value, result.way == "in place")
    if corpus is None:
        words.near(_numbers(exported, source, result), seed)
        corpus = Corpus(words, layout.places())
        corpus.explore(Runner(layout, sites, callees, words, Mode.TRACED).trace, seed, set(sites.by_address))
    runner = Runner(layout, sites, callees, words)
    truth: Runner | None = None
    stray: Runner | None = None
    for number in numbers:
        genome = corpus.state(number)
        outcome = runner.state(genome)
        if outcome.difference:
            # Code may rely on a truth value being one, and memory at random does not know which bytes are.
            truth = truth or Runner(layout, sites, callees, words, Mode.TRUTH)
            if not truth.state(genome).difference and truth.explains(runner):
                outcome.doubt, outcome.difference = f"not if single bytes are 0 or 1: {outcome.difference}", None
        if outcome.difference:
            # A pointer at random refers to the stack, and the builds lie in different places.
            stray = stray or Runner(layout, sites, callees, words, Mode.STRAY)
            if stray.strays(genome):
                outcome.doubt, outcome.difference = f"a return address is read: {outcome.difference}", None
        _count(result, number, outcome)
    result.sites, result.reached = len(sites.by_address), len(runner.reached)
    return corpus


def _count(result: Result, number: int, outcome: Outcome) -> None:
    result.ends[outcome.end] = result.ends.get(outcome.end, 0) + 1
    if outcome.doubt:
        result.doubts += 1
        result.doubt = result.doubt or f"state {number}: {outcome.doubt}"
    if outcome.difference:
        result.differences += 1
        if len(result.told) < MOST_TOLD:
            result.told.append(f"state {number}: {outcome.difference}")


def _numbers(exported: dict[str, Any], source: str, result: Result) -> list[int]:
    """Numbers that the code is likely to compare something with; those that depend on V several times."""
    spans = spans_of(exported["table"], {result.function, result.function + COLD}, source)
    fits = [fit for span in spans for fit in span["ivs"]]
    own = [exported["default"], result.value]
    for fit in fits:
        own += [transformed(fit, exported["default"]), transformed(fit, result.value)]
    return 6 * own + [number & MASK for number in exported["numbers"]] + [1, 2, 4, 8, 64, 4096]


def _changed(builds: tuple[Object, Object]) -> set[str]:
    """Functions whose code is another, or that only one build has; a cold part counts as its function."""
    ours, theirs = (described(build) for build in builds)
    names = {name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name)}
    return {name.removesuffix(COLD) for name in names}


@lru_cache(maxsize=6)
def described(build: Object) -> dict[str, tuple[bytes, list[Any]]]:
    """Every function in a form that does not depend on where it is."""
    starts = {(symbol.section, symbol.value): symbol.name for symbol in build.functions.values()}
    by_section: dict[int, list[Symbol]] = {}
    for symbol in build.functions.values():
        by_section.setdefault(symbol.section, []).append(symbol)
    found = {}
    for index, symbols in by_section.items():
        section = build.sections[index]
        for symbol in symbols:
            found[symbol.name] = _described(build, section, symbol, starts)
    return found


def _described(
    build: Object, section: Section, symbol: Symbol, starts: dict[tuple[int, int], str]
) -> tuple[bytes, list[Any]]:
    start, end = symbol.value, symbol.value + symbol.size
    code = bytearray(section.data[start:end])
    references: list[Any] = []
    for entry in build.between(section.index, start, end):
        at = entry.offset - start
        code[at : at + 4] = bytes(4)
        place = build.place(entry.symbol, entry.addend + (4 if entry.kind in (2, 4) else 0))
        references.append((at, entry.kind, place.kind, place.name, place.offset))
    for at in range(len(code) - 4):
        if code[at] in (0xE8, 0xE9):
            # A call within the section, which nobody fills in.
            target = start + at + 5 + int.from_bytes(code[at + 1 : at + 5], "little", signed=True)
            name = starts.get((section.index, target))
            if name and target != start:
                code[at + 1 : at + 5] = bytes(4)
                references.append((at, name))
    return bytes(code), references


def data(exported: dict[str, Any], unit: dict[str, Any], build: Object, value: int) -> Iterator[Result]:
    """Whether static objects hold with the value what the table would write into them."""
    for site in exported["table"]["data"]:
        if site["source"] != unit["source"]:
            continue
        result = Result(exported["name"], site["symbol"], value, "data", {"end": 1})
        symbols = [symbol for symbol in build.symbols if symbol.name == site["symbol"] and symbol.section]
        if not symbols:
            result.error = f"the object compiled with {value} has no {site['symbol']}"
        else:
            at, width = symbols[0].value + site["offset"], site["width"]
            held = int.from_bytes(build.sections[symbols[0].section].data[at : at + width], "little")
            written = transformed(site["fit"], value) & mask(width)
            if held != written:
                result.differences = 1
                result.told = [f"+{site['offset']:#x}: the table writes {written:#x}, compiled code has {held:#x}"]
        yield result
