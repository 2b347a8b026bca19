# SPDX-License-Identifier: Apache-2.0 OR MIT
# shellcheck shell=bash
# Sourced by the other scripts: where things are, and how they speak.

export XK_CACHE=${XK_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/xk}
export PATH=$HOME/.cargo/bin:$PATH:/usr/sbin:/sbin
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit

# say MESSAGE: progress; standard output is for results.
say() { echo "${0##*/}: $*" >&2; }

# die MESSAGE: what happened and what to do, in one line.
die() {
	say "$*"
	exit 1
}
