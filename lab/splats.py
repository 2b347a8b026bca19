# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Finds the reports in a kernel log that must make a test fail.

In: the text of a log. Out: `Splat`s in order: kind, first line, excerpt.
Refuses nothing: unknown text is not a splat.

A splat is a report of the kernel about a fault of its own. These are not splats: the taint by an
out-of-tree module, a clock that drifts because of an emulator, a fault of a user program, and a shortage
of memory.
"""

import re
from dataclasses import dataclass

# The report of a circular lock dependency has a stack for each lock.
_EXCERPT_LINES = 240
_LINES_ABOVE = 4

# Matched at the start of a message. The first pattern that fits names the kind.
_KINDS = [
    ("panic", r"Kernel panic - not syncing"),
    ("lockup", r"(watchdog: )?BUG: (soft lockup|workqueue lockup)"),
    ("lockup", r"(watchdog: |NMI watchdog: )?Watchdog detected hard LOCKUP"),
    ("lockup", r"watchdog: CPU\d+: Watchdog detected hard LOCKUP"),
    ("stall", r"(rcu: )?INFO: rcu\S* (self-)?detected (expedited )?stalls?"),
    ("stall", r"rcu: INFO: rcu\S* detected expedited stalls"),
    ("hang", r"INFO: task .* blocked (in I/O wait )?for more than \d+ seconds"),
    ("sanitizer", r"BUG: K[A-Z]?[A-Z]SAN:|BUG: KFENCE:|UBSAN: "),
    ("bug", r"BUG: |\[ BUG: |kernel BUG at |BUG at "),
    ("oops", r"Oops: |Oops\[|Internal error: "),
    ("oops", r"(general protection fault|stack segment|double fault|invalid opcode|divide error)\b"),
    ("oops", r"(Unable to handle kernel|unchecked MSR access error|traps: PANIC: double fault)"),
    ("warning", r"WARNING: (CPU: \d+ PID: \d+ at |\S+:\d+ at )"),
    ("warning", r"WARNING: (possible|suspicious|inconsistent|bad unlock|held lock|lock held|chain)"),
    ("warning", r"WARNING: (\S+-safe -> \S+-unsafe lock order|[Nn]ested lock|.* still has locks held)"),
    ("warning", r"INFO: (trying to register non-static key|lockdep is turned off)"),
    ("warning", r"WARNING: (kernel stack|stack recursion|can't access registers|.*unwind)"),
    ("warning", r"(list_(add|del) corruption|refcount_t: |kobject: .* tried to init)"),
    ("trace", r"Call Trace:"),
]
_PATTERNS = [(kind, re.compile(pattern)) for kind, pattern in _KINDS]
_PREFIX = re.compile(r"^(<\d+>)?\[\s*\d+\.\d+\](\[\s*[TC]\d+\])? ?")
_CUT = "------------[ cut here ]------------"
_END = "---[ end "
# The last line of a KASAN report, after the stacks that allocated and freed the memory.
_RULE = "=" * 66
# A failed allocation, because of a shortage or an injected fault. The stack follows after a few lines.
_OUT_OF_MEMORY = re.compile(r" invoked oom-killer: |: page allocation failure: order:|: vmalloc error: size ")
_OUT_OF_MEMORY_LINES = 8


@dataclass(frozen=True)
class Splat:
    """One report of a fault inside the kernel."""

    kind: str
    line: str
    excerpt: str


def message(line: str) -> str:
    """A log line without timestamp and caller."""
    return _PREFIX.sub("", line.rstrip("\r\n"), count=1)


def kind_of(text: str) -> str | None:
    """The kind of splat that starts with this message, if one does."""
    return next((kind for kind, pattern in _PATTERNS if pattern.match(text)), None)


def find(log: str) -> list[Splat]:
    """Every splat in `log`. The call trace of a splat is part of it."""
    lines = [line.rstrip("\r") for line in log.split("\n")]
    found: list[Splat] = []
    position = 0
    while position < len(lines):
        kind = kind_of(message(lines[position]))
        if kind is None:
            position += 1
            continue
        end = _end(lines, position)
        if kind == "trace" and _is_of_memory(lines, position):
            position = end
            continue
        excerpt = "\n".join(lines[_start(lines, position) : end])
        found.append(Splat(kind, message(lines[position]), excerpt))
        position = end
    return found


def _is_of_memory(lines: list[str], position: int) -> bool:
    """Whether the stack belongs to a failed allocation."""
    above = lines[max(position - _OUT_OF_MEMORY_LINES, 0) : position]
    return any(_OUT_OF_MEMORY.search(line) for line in above)


def _start(lines: list[str], position: int) -> int:
    """The cut mark above a splat, if there is one: the text of a WARN is between the two."""
    for above in range(position - 1, max(position - _LINES_ABOVE, 0) - 1, -1):
        if _CUT in lines[above]:
            return above
    return position


def _end(lines: list[str], start: int) -> int:
    """One past the last line of the splat: its end mark, else the end of its stack, else its line."""
    after_stack = None
    for position in range(start + 1, min(start + _EXCERPT_LINES, len(lines))):
        if _CUT in lines[position]:
            break
        if _END in lines[position] or message(lines[position]) == _RULE:
            return position + 1
        if after_stack and kind_of(message(lines[position])):
            break
        if "</TASK>" in lines[position] and after_stack is None:
            after_stack = position + 1
    return after_stack or start + 1
