# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Which reports fail a run and which do not, on excerpts of real logs."""

import unittest

from lab.splats import find

WARN = """\
[    5.100000] before
[    5.123456] ------------[ cut here ]------------
[    5.123457] provoked by the lab's tests
[    5.123458] WARNING: CPU: 0 PID: 200 at /src/provoke.c:21 provoke_init+0x2f/0xff0 [provoke]
[    5.123459] Modules linked in: provoke(OE+) overlay
[    5.123460] CPU: 0 UID: 0 PID: 200 Comm: insmod Tainted: G           OE      6.12.117+deb12-amd64
[    5.123461] RIP: 0010:provoke_init+0x2f/0xff0 [provoke]
[    5.123462] Call Trace:
[    5.123463]  <TASK>
[    5.123464]  do_one_initcall+0x5a/0x320
[    5.123465]  </TASK>
[    5.123466] ---[ end trace 0000000000000000 ]---
[    5.200000] after
"""

OOPS = """\
[    9.000001] BUG: kernel NULL pointer dereference, address: 0000000000000000
[    9.000002] #PF: supervisor write access in kernel mode
[    9.000003] Oops: Oops: 0002 [#1] PREEMPT SMP NOPTI
[    9.000004] CPU: 1 UID: 0 PID: 77 Comm: sh Not tainted 6.12.117+deb12-amd64 #1
[    9.000005] Call Trace:
[    9.000006]  <TASK>
[    9.000007]  vfs_write+0xf8/0x450
[    9.000008]  </TASK>
[    9.000009] ---[ end trace 0000000000000000 ]---
[    9.000010] Kernel panic - not syncing: Fatal exception
[    9.000011] Kernel Offset: 0x1c00000 from 0xffffffff81000000
[    9.000012] ---[ end Kernel panic - not syncing: Fatal exception ]---
"""

STALL = """\
[   80.000000] rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:
[   80.000001] rcu: \t1-...!: (1 GPs behind) idle=2a8c/0/0x0 softirq=9/9 fqs=0
[   80.000002] NMI backtrace for cpu 1
[   80.000003] Call Trace:
[   80.000004]  <TASK>
[   80.000005]  default_idle+0xf/0x20
[   80.000006]  </TASK>
"""

OOM = """\
[   25.949348] workload invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0
[   25.949362] CPU: 0 UID: 0 PID: 237 Comm: workload Tainted: G           OE      6.12.117+deb12-amd64 #1
[   25.949373] Tainted: [O]=OOT_MODULE, [E]=UNSIGNED_MODULE
[   25.949376] Hardware name: QEMU Standard PC (Q35 + ICH9, 2009), BIOS 1.16.2-debian-1.16.2-1 04/01/2014
[   25.949380] Call Trace:
[   25.949382]  <TASK>
[   25.949385]  dump_stack_lvl+0x64/0x80
[   25.949390]  </TASK>
[   25.950278] oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),task=workload,pid=237,uid=0
[   25.950314] Memory cgroup out of memory: Killed process 237 (workload) total-vm:17524kB
"""

# Failed allocations of every kind: the message, and the stack of the caller.
NO_MEMORY = [
    "[    9.1] sh: page allocation failure: order:0, mode:0x820(GFP_ATOMIC), nodemask=(null)",
    "[    9.1] xtask: vmalloc error: size 8192, failed to allocate pages, mode:0xcc2, nodemask=(null)",
]

ONE_LINE = {
    "[    1.0] Kernel panic - not syncing: sysrq triggered crash": "panic",
    "[    1.0] watchdog: BUG: soft lockup - CPU#1 stuck for 26s! [sh:12]": "lockup",
    "[    1.0] BUG: workqueue lockup - pool cpus=1 node=0 flags=0x0": "lockup",
    "[    1.0] watchdog: Watchdog detected hard LOCKUP on cpu 0": "lockup",
    "[    1.0] watchdog: CPU0: Watchdog detected hard LOCKUP on cpu 0": "lockup",
    "[    1.0] rcu: INFO: rcu_preempt self-detected stall on CPU": "stall",
    "[    1.0] rcu: INFO: rcu_preempt detected expedited stalls on CPUs/tasks: { 1-... }": "stall",
    "[    1.0] INFO: task kworker/0:1:9 blocked for more than 120 seconds.": "hang",
    "[    1.0] BUG: KASAN: slab-use-after-free in kfree+0x1/0x2": "sanitizer",
    "[    1.0] BUG: KFENCE: out-of-bounds read in f+0x1/0x2": "sanitizer",
    "[    1.0] UBSAN: array-index-out-of-bounds in kernel/a.c:1:2": "sanitizer",
    "[    1.0] BUG: sleeping function called from invalid context at mm/a.c:1": "bug",
    "[    1.0] BUG: scheduling while atomic: sh/12/0x00000002": "bug",
    "[    1.0][   T12] kernel BUG at fs/inode.c:1!": "bug",
    "[    1.0] Oops: general protection fault, probably for non-canonical address 0x1: 0000": "oops",
    "[    1.0] general protection fault, probably for non-canonical address 0x1: 0000 [#1]": "oops",
    "<4>[    1.0] unchecked MSR access error: WRMSR to 0x10 at rIP: 0xffffffff (f+0x1)": "oops",
    "[    1.0] WARNING: CPU: 1 PID: 0 at arch/x86/a.c:350 topology_sane+0x6b/0x80": "warning",
    "[    1.0] WARNING: kernel/a.c:350 at f+0x6b/0x80, CPU#0: sh/12": "warning",
    "[    1.0] WARNING: possible circular locking dependency detected": "warning",
    "[    1.0] WARNING: suspicious RCU usage": "warning",
    "[    1.0] WARNING: SOFTIRQ-safe -> SOFTIRQ-unsafe lock order detected": "warning",
    "[    1.0] WARNING: sh/12 still has locks held!": "warning",
    "[    1.0] [ BUG: Invalid wait context ]": "bug",
    "[    1.0] INFO: trying to register non-static key.": "warning",
    "[    1.0] refcount_t: underflow; use-after-free.": "warning",
    "[    1.0] Call Trace:": "trace",
}

HARMLESS = """\
[    0.000000] Linux version 6.12.117+deb12-amd64 (debian-kernel@lists.debian.org)
[    0.100000] clocksource: timekeeping watchdog on CPU1: Marking clocksource 'tsc' as unstable
[    0.100001] clocksource: 'tsc' skewed 1200000 ns over watchdog 'hpet' interval of 500000 ns
[    0.100002] tsc: Marking TSC unstable due to clocksource watchdog
[    0.200000] rcu: Preemptible hierarchical RCU implementation.
[    0.200001] rcu: RCU calculated value of scheduler-enlistment delay is 25 jiffies.
[    0.300000] Kernel command line: console=ttyS0 oops=panic panic=-1
[    0.400000] hrtimer: interrupt took 3141592 ns
[    0.500000] perf: interrupt took too long (2510 > 2500), lowering sample rate
[    3.000000] xk: loading out-of-tree module taints kernel.
[    3.000001] xk: module verification failed: signature and/or required key missing
[    3.000002] Disabling lock debugging due to kernel taint
[    3.100000] traps: victim[412] general protection fault ip:401136 sp:7ffd error:0 in victim
[    3.100001] traps: victim[413] trap invalid opcode ip:401136 sp:7ffd error:0 in victim
[    3.100002] victim[414]: segfault at 0 ip 0000000000401136 sp 00007ffd error 6 in victim
[    3.200000] Out of memory: Killed process 511 (stress) total-vm:2097152kB
[    3.300000] sched: RT throttling activated
[    3.400000] workqueue: f hogged CPU for >10000us 4 times, consider switching to WQ_UNBOUND
[    3.500000] evm: overlay not supported
[    3.600000] xk-lab: a test prints WARNING: and BUG: in the middle of its message
[    3.700000] systemd[1]: panic is just a word
"""


KASAN = f"""\
[    9.1] {"=" * 66}
[    9.1] BUG: KASAN: slab-use-after-free in f+0x1/0x2 [xk]
[    9.1] Call Trace:
[    9.1]  <TASK>
[    9.1]  f+0x1/0x2 [xk]
[    9.1]  </TASK>
[    9.2] Freed by task 12:
[    9.2]  kfree+0x1/0x2
[    9.2] {"=" * 66}
[    9.3] after
"""

LOCKS = """\
[    9.1] ======================================================
[    9.1] WARNING: possible circular locking dependency detected
[    9.1] ------------------------------------------------------
[    9.1] stack backtrace:
[    9.1] Call Trace:
[    9.1]  <TASK>
[    9.1]  f+0x1/0x2 [xk]
[    9.1]  </TASK>
[    9.3] after
"""


class Find(unittest.TestCase):
    def test_warning_is_one_splat_with_its_whole_text(self) -> None:
        (splat,) = find(WARN)
        self.assertEqual(splat.kind, "warning")
        self.assertTrue(splat.line.startswith("WARNING: CPU: 0 PID: 200 at /src/provoke.c:21"))
        excerpt = splat.excerpt.splitlines()
        self.assertIn("cut here", excerpt[0])
        self.assertIn("end trace", excerpt[-1])
        self.assertNotIn("after", splat.excerpt)

    def test_two_warnings_are_two(self) -> None:
        self.assertEqual([one.kind for one in find(WARN + WARN)], ["warning", "warning"])

    def test_oops_then_panic(self) -> None:
        self.assertEqual([one.kind for one in find(OOPS)], ["bug", "panic"])

    def test_stall_includes_its_trace(self) -> None:
        (splat,) = find(STALL)
        self.assertEqual(splat.kind, "stall")
        self.assertIn("default_idle", splat.excerpt)

    def test_a_report_of_kasan_says_who_freed(self) -> None:
        (splat,) = find(KASAN)
        self.assertIn("Freed by task", splat.excerpt)
        self.assertNotIn("] after", splat.excerpt)

    def test_one_report_does_not_hide_the_next(self) -> None:
        (splat,) = find(LOCKS)
        self.assertIn("f+0x1/0x2", splat.excerpt)
        self.assertEqual([one.kind for one in find(LOCKS + KASAN + OOPS)], ["warning", "sanitizer", "bug", "panic"])

    def test_memory_that_is_used_up_is_no_fault_of_the_kernel(self) -> None:
        self.assertEqual(find(OOM), [])
        # A fault within the report, or after it, counts.
        for line in NO_MEMORY:
            self.assertEqual(find(OOM.replace(OOM.splitlines()[0], line)), [])
        self.assertEqual([one.kind for one in find(OOM + WARN)], ["warning"])
        self.assertEqual([one.kind for one in find(OOM + STALL)], ["stall"])
        lines = OOM.splitlines()
        lines.insert(2, "[   25.949370] BUG: Bad page state in process workload")
        self.assertEqual([one.kind for one in find("\n".join(lines))], ["bug"])

    def test_every_kind(self) -> None:
        for line, kind in ONE_LINE.items():
            with self.subTest(line):
                self.assertEqual([one.kind for one in find(f"{line}\n")], [kind])

    def test_serial_line_ends(self) -> None:
        self.assertEqual(find(WARN.replace("\n", "\r\n"))[0].excerpt, find(WARN)[0].excerpt)

    def test_a_log_cut_short_by_a_crash(self) -> None:
        for length in range(len(OOPS) // 4, len(OOPS)):
            self.assertTrue(find(OOPS[:length]))

    def test_harmless_lines_one_by_one(self) -> None:
        for line in HARMLESS.splitlines():
            with self.subTest(line):
                self.assertEqual(find(line), [])


if __name__ == "__main__":
    unittest.main()
