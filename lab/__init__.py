# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Throwaway virtual machines on stock kernels: fetch, boot, run, collect."""
