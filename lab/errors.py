# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The one error of the lab: what happened, and what to do about it, in one line."""


class LabError(Exception):
    """A failure of the lab. The message names the cause and the remedy."""
