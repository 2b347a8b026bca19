# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The order of Debian version strings.

In: a version as the package tools print it (`[epoch:]upstream[-revision]`).
Out: a key that sorts as `dpkg --compare-versions` does.
Refuses: an epoch that is not a number (`ValueError`).
"""

import re
from functools import cmp_to_key
from typing import Any


def _weight(character: str) -> int:
    """Rank inside a non-digit part: `~` before the end, letters before everything else."""
    if character == "~":
        return -1
    if character == "":
        return 0
    return ord(character) if character.isalpha() else ord(character) + 256


def _compare_part(left: str, right: str) -> int:
    """Compare one upstream or revision part: alternating non-digit and digit runs."""
    while left or right:
        text = [re.match(r"\D*", part)[0] for part in (left, right)]  # type: ignore[index]
        for position in range(max(map(len, text))):
            difference = _weight(text[0][position : position + 1]) - _weight(
                text[1][position : position + 1]
            )
            if difference:
                return difference
        left, right = left[len(text[0]) :], right[len(text[1]) :]
        digits = [re.match(r"\d*", part)[0] for part in (left, right)]  # type: ignore[index]
        difference = int(digits[0] or 0) - int(digits[1] or 0)
        if difference:
            return difference
        left, right = left[len(digits[0]) :], right[len(digits[1]) :]
    return 0


def _split(version: str) -> tuple[int, str, str]:
    epoch, colon, rest = version.partition(":")
    if not colon:
        epoch, rest = "0", version
    upstream, _, revision = rest.rpartition("-") if "-" in rest else (rest, "", "")
    return int(epoch), upstream, revision


def compare(left: str, right: str) -> int:
    """Negative, zero or positive as `left` is older than, equal to or newer than `right`."""
    (left_epoch, *left_parts), (right_epoch, *right_parts) = _split(left), _split(right)
    if left_epoch != right_epoch:
        return left_epoch - right_epoch
    for one, other in zip(left_parts, right_parts):
        if result := _compare_part(one, other):
            return result
    return 0


def order(version: str) -> Any:
    """A sort key for `version`."""
    return cmp_to_key(compare)(version)
