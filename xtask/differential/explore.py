# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Finds states from which code gets far: at random, most never come to the instructions that matter.

In: a function that can be run, a seed. Out: a `Corpus`: states that reach something new, and from each number a state
that is one of them, changed at a few places that its run reads, or one that is new altogether. The same seed gives the
same states.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from states import POOL_WORDS, Genome, Pool

# Runs that only look for states, at most, and those of them that begin anywhere.
RUNS, FRESH = 1500, 40
# When so many found nothing new, and all updates were executed, there is nothing left to be found soon.
PATIENCE = 250
# Places that a run reads, at most so many are changed later.
MOST_READ = 256
# Registers that pass arguments.
_ARGUMENTS = (7, 6, 2, 1, 8, 9)


@dataclass
class Trace:
    """What a run did."""

    blocks: set[int] = field(default_factory=set)
    # Offsets in the world that were read, in order, and the addresses by which they were.
    reads: dict[int, int] = field(default_factory=dict)
    events: int = 0
    sites: set[int] = field(default_factory=set)


@dataclass
class Found:
    """A state that reaches something new."""

    genome: Genome
    reads: list[tuple[int, int]]
    events: int
    sites: bool


class Corpus:
    """States to begin with."""

    def __init__(self, pool: Pool, places: list[int]) -> None:
        """`places` are addresses with which code may compare pointers."""
        self.pool, self.places = pool, places
        self.found: list[Found] = []
        self._with_sites: list[Found] = []

    def explore(self, run: Callable[[Genome], Trace], seed: int, sites: set[int]) -> None:
        """Looks for states that reach something new, such as `sites`."""
        draw = random.Random(seed)
        seen: set[int] = set()
        last = 0
        for number in range(RUNS):
            if number - last > PATIENCE and sites <= seen:
                return
            if number < FRESH or not self.found:
                genome = Genome(draw.getrandbits(63))
            else:
                among = self.found[-8:] if draw.random() < 0.5 else self.found
                genome = self._changed(draw.choice(among), draw, draw.choice((1, 1, 2, 3)))
            trace = run(genome)
            new = (trace.blocks | trace.sites) - seen
            if new:
                seen |= new
                last = number
                self._keep(genome, trace)

    def _keep(self, genome: Genome, trace: Trace) -> None:
        found = Found(genome, list(trace.reads.items())[:MOST_READ], trace.events, bool(trace.sites))
        self.found.append(found)
        if found.sites:
            self._with_sites.append(found)

    def state(self, number: int) -> Genome:
        """The state with this number."""
        draw = random.Random(number)
        kind = draw.random()
        if not self.found or kind < 0.3:
            return Genome(number)
        among = self._with_sites if self._with_sites and kind < 0.8 else self.found
        return self._changed(draw.choice(among), draw, draw.randint(0, 3))

    def _word(self, draw: random.Random) -> int:
        if self.places and draw.random() < 0.2:
            return draw.choice(self.places)
        return self.pool.words[draw.randrange(POOL_WORDS)]

    def _changed(self, found: Found, draw: random.Random, times: int) -> Genome:
        genome = found.genome
        words, registers, seeds = dict(genome.words), dict(genome.registers), dict(genome.seeds)
        for _ in range(times):
            word = self._word(draw)
            kind = draw.random()
            if kind < 0.65 and found.reads:
                at, address = draw.choice(found.reads)
                # Its own address makes it an empty list; that of another, the end of one.
                pointed = draw.random()
                words[at] = address - draw.choice((0, 0, 8)) if pointed < 0.1 else word
                if 0.1 <= pointed < 0.15:
                    words[at] = draw.choice(found.reads)[1]
            elif kind < 0.72 or not found.events:
                registers[draw.choice(_ARGUMENTS)] = word
            else:
                event = draw.randint(1, found.events)
                seeds = {at: seed for at, seed in seeds.items() if at < event} | {event: draw.getrandbits(64)}
        return Genome(genome.number, tuple(words.items()), tuple(registers.items()), tuple(seeds.items()))
