# SPDX-License-Identifier: Apache-2.0 OR MIT
# shellcheck shell=bash
# Sourced by the other scripts: sets paths, and defines how scripts print messages.

export XK_CACHE=${XK_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/xk}
export PATH=$HOME/.cargo/bin:$PATH:/usr/sbin:/sbin
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit

# say MESSAGE: prints progress to standard error; standard output is for results.
say() { echo "${0##*/}: $*" >&2; }

# die MESSAGE: prints what happened and what to do, in one line, and exits.
die() {
	say "$*"
	exit 1
}
