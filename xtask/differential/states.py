# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Random states: words that are plausible as pointers, as numbers and as two numbers at once.

In: a seed, numbers that code compares with. Out: a pool of words from which states and what functions return are taken.
"""

import random
from array import array
from collections.abc import Sequence
from dataclasses import dataclass

# The pool is a row of images of the arena: each word in one of its places.
IMAGES, IMAGE_BYTES = 16, 64 << 10
# Where the first byte of the arena lies.
BEGIN = (1 << 32) - (16 << 10)
POOL_WORDS = IMAGES * IMAGE_BYTES // 8
# Memory is put together from parts of images.
PART_BYTES = 8 << 10
MASK = (1 << 64) - 1
# Errors of the kernel, as pointers and as numbers.
# Upper halves of pointers: most are those with which the arena is said to begin.
_UPPER = (1, 1, 1, 1, 1, 2, 3)
_ERRORS = (-1, -2, -4, -11, -12, -14, -22)


def mix(number: int) -> int:
    """splitmix64's last step: neighbours become strangers."""
    number = (number + 0x9E3779B97F4A7C15) & MASK
    number = ((number ^ number >> 30) * 0xBF58476D1CE4E5B9) & MASK
    number = ((number ^ number >> 27) * 0x94D049BB133111EB) & MASK
    return number ^ number >> 31


@dataclass(frozen=True)
class Genome:
    """A state: everything follows from its number, but for single words of memory and registers, and for what called
    functions do from some event on."""

    number: int
    # Offsets in memory, and what is there.
    words: tuple[tuple[int, int], ...] = ()
    registers: tuple[tuple[int, int], ...] = ()
    # Events, and what answers and those after them follow from.
    seeds: tuple[tuple[int, int], ...] = ()


class Pool:
    """Words at random; a part of them is near to the numbers of one function."""

    def __init__(self, seed: int) -> None:
        draw = random.Random(seed)
        self._near: list[tuple[int, bool]] = []
        self.words = array("Q", (self._word(draw, at) for at in range(POOL_WORDS)))
        self.address = self.words.buffer_info()[0]

    def _word(self, draw: random.Random, at: int) -> int:
        kind = draw.random()
        if kind < 0.15:
            self._near.append((at, draw.random() < 0.6))
            return 0
        if kind < 0.70:
            return _pointer(draw)
        if kind < 0.77:
            # The head of an empty list, or its second word.
            return BEGIN + 8 * at % IMAGE_BYTES - draw.choice((0, 0, 8))
        if kind < 0.80:
            return 0
        if kind < 0.90:
            return draw.randrange(256) | draw.randrange(1 << 12) << 32
        if kind < 0.92:
            return draw.choice(_ERRORS) & MASK
        return draw.getrandbits(64)

    def part(self, drawn: int, offset: int) -> int:
        """The address of one image's content for this offset of the arena."""
        return self.address + drawn % IMAGES * IMAGE_BYTES + offset

    def near(self, numbers: Sequence[int], seed: int) -> None:
        """Puts numbers that are near to these into their places."""
        draw = random.Random(seed)
        for at, pointer in self._near:
            number = draw.choice(numbers) + draw.choice((-2, -1, -1, 0, 0, 0, 0, 1, 1, 2))
            if pointer and 0 <= number < 1 << 15:
                # A small number in the lower half, and a pointer as a whole.
                number |= draw.choice(_UPPER) << 32
            elif draw.random() < 0.5:
                number = number & 0xFFFFFFFF | (draw.choice(numbers) & 0xFFFFFFFF) << 32
            self.words[at] = number & MASK


def _pointer(draw: random.Random) -> int:
    low = draw.randrange(1 << 15)
    if draw.random() < 0.8:
        low &= ~7
    return draw.choice(_UPPER) << 32 | low
