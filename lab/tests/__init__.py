# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Tests of the lab. `test_guest` boots machines; the others boot none and are fast."""
