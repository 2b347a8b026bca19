# SPDX-License-Identifier: Apache-2.0 OR MIT
# The front door. Every target does its own set-up, skips what is there, and is safe to repeat.

.DEFAULT_GOAL := help
.PHONY: demo demo-tune demo-flex check test test-all fuzz shell bench selftests selftests-sched suites deb install package-test lint help

demo: ## retune Debian's stock kernel live, in a throwaway machine
	@scripts/demo

demo-tune: ## let the tuner keep a PostgreSQL tuned, through kills and a reboot, in a throwaway machine
	@scripts/demo-tune

demo-flex: ## answer Redis' requests in the kernel, beside redis-server, and kill the server in the middle
	@scripts/demo-flex

check: ## what can be checked without a guest: format, clippy, style, unit tests
	@scripts/check

test: ## run the tests (KERNELS=debian13,debug: those of the modules, on these kernels)
	@scripts/test

test-all: ## run the tests, and those that take long
	@XK_TEST_ALL=1 scripts/test

fuzz: ## damaged bytes for every parser (FUZZ_SECONDS=60 for each, FUZZ_TARGET=object, FUZZ_SEED=1)
	@scripts/fuzz

shell: ## a prompt inside a throwaway machine with xk ready (KERNEL=debug for another kernel)
	@scripts/shell

bench: ## measure
	@scripts/bench

selftests: ## the kernel's own selftests of livepatch, ftrace and eBPF, beside tunes and probes
	@scripts/selftests

selftests-sched: ## the kernel's own selftests of sched_ext, before and after policies scheduled loads (KERNEL=debug: on it)
	@scripts/selftests-sched

suites: ## Redis' and memcached's own tests against what is served in the kernel, beside the servers
	@scripts/suites

deb: ## make Debian packages of the command, the modules and tables (TABLES=folder) in target/deb
	@scripts/deb

install: ## install the command and its units (DESTDIR=folder), after a release build
	@scripts/install

package-test: ## install, use, upgrade and purge the packages in a minimal Debian 12
	@scripts/package-test

lint: ## every static check
	@scripts/lint

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' Makefile
