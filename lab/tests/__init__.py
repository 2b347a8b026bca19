# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Tests of the lab. `test_guest` boots machines; the others are pure and fast."""
