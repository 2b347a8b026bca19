# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Random states: words that are plausible as pointers, as numbers and as two numbers at once.

In: a seed, numbers that code compares with. Out: a pool of words from which states and what functions return are taken.
"""

import ctypes
import random
from array import array
from collections.abc import Sequence

POOL_WORDS = 1 << 17
# Words at the end that no state begins with, so that each has a whole world behind it.
MARGIN_WORDS = 1 << 16
MASK = (1 << 64) - 1
# Errors of the kernel, as pointers and as numbers.
_ERRORS = (-1, -2, -4, -11, -12, -14, -22)


def mix(number: int) -> int:
    """splitmix64's last step: neighbours become strangers."""
    number = (number + 0x9E3779B97F4A7C15) & MASK
    number = ((number ^ number >> 30) * 0xBF58476D1CE4E5B9) & MASK
    number = ((number ^ number >> 27) * 0x94D049BB133111EB) & MASK
    return number ^ number >> 31


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
        if kind < 0.77:
            return _pointer(draw)
        if kind < 0.80:
            return 0
        if kind < 0.90:
            return draw.randrange(256) | draw.randrange(1 << 12) << 32
        if kind < 0.92:
            return draw.choice(_ERRORS) & MASK
        return draw.getrandbits(64)

    def near(self, numbers: Sequence[int], seed: int) -> None:
        """Puts numbers that are near to these into their places."""
        draw = random.Random(seed)
        for at, pointer in self._near:
            number = draw.choice(numbers) + draw.choice((-2, -1, -1, 0, 0, 0, 0, 1, 1, 2))
            if pointer and 0 <= number < 1 << 15:
                # A small number in the lower half, and a pointer as a whole.
                number |= draw.choice((1, 2, 3)) << 32
            elif draw.random() < 0.5:
                number = number & 0xFFFFFFFF | (draw.choice(numbers) & 0xFFFFFFFF) << 32
            self.words[at] = number & MASK


def _pointer(draw: random.Random) -> int:
    low = draw.randrange(1 << 15)
    if draw.random() < 0.8:
        low &= ~7
    return draw.choice((1, 2, 3)) << 32 | low


class Stream:
    """The random numbers of one state."""

    def __init__(self, seed: int) -> None:
        self._at = seed

    def next(self) -> int:
        """64 bits."""
        self._at = mix(self._at)
        return self._at


def address_of(buffer: bytearray) -> int:
    """Where a buffer lies."""
    return ctypes.addressof(ctypes.c_char.from_buffer(buffer))
