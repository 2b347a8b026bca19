# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The events of one build, kept, and compared with those of the other as they happen.

In: events with memory as it is at each. Out: nothing, or `Differ` at the first event that is another one, or finds
other memory.
"""

from dataclasses import dataclass

from layout import SYMBOLS
from machine import ARENA_BELOW, ARENA_SIZE, Buffer, Machine, memcmp, memmove

# Events of one run.
MOST_EVENTS = 48


class Differ(Exception):
    """The builds differ here."""


@dataclass(frozen=True)
class Event:
    """A call, a trap, or the return."""

    name: str
    values: tuple[int, ...] = ()
    # Objects in the frame that are passed by their addresses.
    frames: tuple[bytes, ...] = ()

    def __str__(self) -> str:
        frames = "".join(f" {frame.hex()}" for frame in self.frames)
        return f"{self.name}({', '.join(f'{value:#x}' for value in self.values)}){frames}"


class Record:
    """Events and memory of the first build."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.snapshots = Buffer(machine.world_size * (MOST_EVENTS + 2))
        self.events: list[Event] = []
        # Names of the events of either build.
        self.names: tuple[list[str], list[str]] = ([], [])
        self.index = 0
        self._comparing = False

    def begin(self, comparing: bool) -> None:
        """A run of the first build, or of the one that is compared with it."""
        self._comparing = comparing
        self.index = 0
        self.names[comparing].clear()
        if not comparing:
            self.events = []
            self.names[1].clear()

    @property
    def full(self) -> bool:
        """Whether no more events are kept."""
        return self.index >= MOST_EVENTS

    def add(self, event: Event) -> None:
        """The next event."""
        self.names[self._comparing].append(event.name)
        if not self._comparing:
            self.events.append(event)
        elif self.index >= len(self.events):
            raise Differ(f"event {self.index}: deployed code: none, compiled code: {event}")
        elif self.events[self.index] != event:
            raise Differ(f"event {self.index}: deployed code: {self.events[self.index]}, compiled code: {event}")
        self._memory(event)
        self.index += 1

    def _memory(self, event: Event) -> None:
        size, world = self.machine.world_size, self.machine.world.address
        kept = self.snapshots.address + self.index * size
        if not self._comparing:
            memmove(kept, world, size)
        elif memcmp(kept, world, size):
            raise Differ(f"event {self.index}, {event}: {self._first()}")

    def _first(self) -> str:
        """The first word of memory that differs."""
        size = self.machine.world_size
        ours = self.snapshots.read(self.index * size, size)
        theirs = self.machine.world.read(0, size)
        at = next(i for i in range(size) if ours[i] != theirs[i]) & ~7
        words = [int.from_bytes(memory[at : at + 8], "little") for memory in (ours, theirs)]
        return f"{self._where(at)} is {words[0]:#x} after deployed code, {words[1]:#x} after compiled code"

    def _where(self, at: int) -> str:
        layout = self.machine.layout
        place = SYMBOLS + (at - ARENA_SIZE) % layout.symbols_size
        below = [(start, name) for name, start in layout.symbols.items() if start <= place]
        if at < ARENA_SIZE or not below:
            return f"arena{at - ARENA_BELOW:+#x}"
        start, name = max(below)
        return f"{name}+{place - start:#x}"
