// SPDX-License-Identifier: GPL-2.0-only
/*
 * CPUs watch each other for events that take too long, as interrupts are off in events. A timer
 * on each CPU looks at the others. If one is in an event, it is sent an NMI. Events are short, so
 * this is rare, and nearly always the event has ended when the NMI arrives. If not, the handler
 * asks the next CPU, by an NMI, for another NMI, until the budget is spent and it leaves the event
 * (escape.c).
 *
 * This needs one timer only. Soon, other CPUs wait for the lock of the run queue, with interrupts
 * off, and their timers are silent.
 *
 * A virtual CPU that does not run in the middle of an event looks the same from outside. It
 * receives one NMI when it continues, and the event ends. So an event is left only after several
 * NMIs, and the time is measured from the first of them.
 */
#include <linux/cpu.h>
#include <linux/cpuhotplug.h>
#include <linux/cpumask.h>
#include <linux/delay.h>
#include <linux/hrtimer.h>
#include <linux/kprobes.h>
#include <linux/module.h>
#include <linux/timekeeping.h>
#include <asm/apic.h>
#include <asm/nmi.h>

#include "base/compat.h"
#include "base/error.h"
#include "event/escape.h"
#include "event/watch.h"

static unsigned int budget_ms = 100;
module_param(budget_ms, uint, 0644);
MODULE_PARM_DESC(budget_ms, "how long an event of a policy may take; 0: for ever");

#define PERIOD_NS (5 * NSEC_PER_MSEC)
/* NMIs in one event before it is left. */
#define MIN_HITS 3
/*
 * What the next CPU waits before it sends the NMI that it was asked for: the more, the longer the
 * event has been going on. Nearly all have ended at the first one.
 */
#define MIN_RELAY_US 20
#define MAX_RELAY_US 500u
/* No NMIs are asked for after this time: the event cannot be left. */
#define RELAY_NS (5 * NSEC_PER_SEC)
/* CPUs that a timer looks at. */
#define MAX_WATCHED 8

struct watch {
	struct hrtimer timer;
	u64 asked;		/* the event that others have seen here, and sent an NMI to */
	/* By the handler of NMIs on this CPU. */
	u64 hit;
	u64 first_hit;
	unsigned int nr_hits;
	u64 last_sent;		/* NMIs that come later are not ours */
	bool relay;		/* another CPU has asked this one for an NMI, after this time */
	unsigned int relay_us;
};

static DEFINE_PER_CPU(struct watch, watches);
/* Policies. */
static atomic_t users;
static int hotplug;

/*
 * While an event is recorded, other CPUs may spin until it ends. If they are virtual, its own CPU
 * may not run meanwhile.
 */
unsigned int xk_watch_budget(void)
{
	return READ_ONCE(budget_ms) * (__this_cpu_read(xk_context.recording) ? 20 : 1);
}

static bool is_in_event(int cpu, u64 serial)
{
	const struct xk_context *context = per_cpu_ptr(&xk_context, cpu);

	return READ_ONCE(context->event) != XK_NO_EVENT && READ_ONCE(context->serial) == serial;
}

/* Without interrupts. */
static void send(int cpu, u64 serial)
{
	struct watch *watch = per_cpu_ptr(&watches, cpu);

	WRITE_ONCE(watch->asked, serial);
	WRITE_ONCE(watch->last_sent, ktime_get_mono_fast_ns());
	__apic_send_IPI_mask(cpumask_of(cpu), NMI_VECTOR);
}

/* The interrupted code may be sending an interrupt, which takes two writes without x2APIC. */
static void send_in_nmi(int cpu)
{
	unsigned int tries;
	u32 destination;

	WRITE_ONCE(per_cpu_ptr(&watches, cpu)->last_sent, ktime_get_mono_fast_ns());
	if (x2apic_enabled()) {
		__apic_send_IPI_mask(cpumask_of(cpu), NMI_VECTOR);
		return;
	}
	destination = native_apic_mem_read(APIC_ICR2);
	__apic_send_IPI_mask(cpumask_of(cpu), NMI_VECTOR);
	for (tries = 0; tries < 1000 && native_apic_mem_read(APIC_ICR) & APIC_ICR_BUSY; tries++)
		udelay(1);
	native_apic_mem_write(APIC_ICR2, destination);
}

void xk_watch_look_at(int cpu)
{
	u64 serial = READ_ONCE(per_cpu_ptr(&xk_context, cpu)->serial);

	if (is_in_event(cpu, serial) && READ_ONCE(budget_ms))
		send(cpu, serial);
}

static enum hrtimer_restart tick(struct hrtimer *timer)
{
	int own = smp_processor_id(), cpu, nr = 0;

	if (!atomic_read(&users))
		return HRTIMER_NORESTART;
	for_each_cpu_wrap(cpu, cpu_online_mask, own + 1) {
		if (cpu == own)
			continue;
		xk_watch_look_at(cpu);
		if (++nr == MAX_WATCHED)
			break;
	}
	hrtimer_forward_now(timer, ns_to_ktime(PERIOD_NS));
	return HRTIMER_RESTART;
}

/* A CPU has asked this one for an NMI. Each that is in an event for too long gets one. */
static bool relay(struct watch *own)
{
	int self = smp_processor_id(), cpu;

	if (!xchg(&own->relay, false))
		return false;
	udelay(min(READ_ONCE(own->relay_us), MAX_RELAY_US));
	for_each_online_cpu(cpu)
		if (cpu != self && is_in_event(cpu, READ_ONCE(per_cpu_ptr(&watches, cpu)->asked)))
			send_in_nmi(cpu);
	return true;
}

static void ask_for_another(int own, unsigned int nr)
{
	unsigned int next = cpumask_next(own, cpu_online_mask);
	struct watch *watch;

	if (next >= nr_cpu_ids)
		next = cpumask_first(cpu_online_mask);
	if (next == own)
		return;
	watch = per_cpu_ptr(&watches, next);
	WRITE_ONCE(watch->relay_us, nr * MIN_RELAY_US);
	WRITE_ONCE(watch->relay, true);
	send_in_nmi(next);
}

/* What the processor pushes when it is interrupted, and returns to. */
struct frame {
	unsigned long ip, cs, flags, sp, ss;
};

/*
 * Without FRED, an NMI in the kernel returns by a copy of the registers that the handler sees: the
 * entry code keeps it right above them.
 */
static bool leave(struct pt_regs *regs)
{
	struct frame *frame = (struct frame *)(regs + 1);
	bool has_copy = !cpu_feature_enabled(X86_FEATURE_FRED);

	if (user_mode(regs) || (has_copy && memcmp(frame, &regs->ip, sizeof(*frame))))
		return false;
	if (!xk_escape(regs, XK_LEFT_LATE))
		return false;
	if (has_copy)
		memcpy(frame, &regs->ip, sizeof(*frame));
	return true;
}

/* This CPU is in an event that others have seen for too long. */
static void hit(struct watch *own, struct pt_regs *regs, u64 serial)
{
	u64 now = ktime_get_mono_fast_ns(), spent;

	if (own->hit != serial) {
		own->hit = serial;
		own->first_hit = now;
		own->nr_hits = 0;
	}
	spent = now - own->first_hit;
	if (++own->nr_hits >= MIN_HITS && spent >= (u64)xk_watch_budget() * NSEC_PER_MSEC &&
	    leave(regs))
		return;
	if (spent < RELAY_NS)
		ask_for_another(smp_processor_id(), own->nr_hits);
}

static int in_nmi_handler(unsigned int type, struct pt_regs *regs)
{
	struct watch *own = this_cpu_ptr(&watches);
	u64 asked = READ_ONCE(own->asked);
	bool is_ours = relay(own);

	if (asked && is_in_event(smp_processor_id(), asked)) {
		hit(own, regs, asked);
		is_ours = true;
	}
	/* One that was sent to an event that has ended; two may arrive as one. */
	if (!is_ours && own->last_sent)
		is_ours = ktime_get_mono_fast_ns() - own->last_sent < NSEC_PER_SEC;
	return is_ours ? NMI_HANDLED : NMI_DONE;
}

NOKPROBE_SYMBOL(in_nmi_handler);

/* On the CPU. */
static void start(void *unused)
{
	struct hrtimer *timer = &this_cpu_ptr(&watches)->timer;
	/* Not all CPUs at once. */
	u64 first = PERIOD_NS * (1 + smp_processor_id() % MAX_WATCHED) / MAX_WATCHED;

	hrtimer_start(timer, ns_to_ktime(first), HRTIMER_MODE_REL_PINNED_HARD);
}

static int online(unsigned int cpu)
{
	unsigned long flags;

	local_irq_save(flags);
	if (atomic_read(&users))
		start(NULL);
	local_irq_restore(flags);
	return 0;
}

static int offline(unsigned int cpu)
{
	hrtimer_cancel(&per_cpu_ptr(&watches, cpu)->timer);
	return 0;
}

void xk_watch_start(void)
{
	atomic_inc(&users);
	on_each_cpu(start, NULL, true);
}

/* The timers end by themselves. */
void xk_watch_stop(void)
{
	atomic_dec(&users);
}

int xk_watch_init(struct xk_error *error)
{
	int cpu, ret;

	for_each_possible_cpu(cpu)
		hrtimer_setup(&per_cpu_ptr(&watches, cpu)->timer, tick, CLOCK_MONOTONIC,
			      HRTIMER_MODE_REL_PINNED_HARD);
	ret = register_nmi_handler(NMI_LOCAL, in_nmi_handler, 0, "xk_sched");
	if (ret)
		return xk_refuse(error, ret, "NMIs cannot be handled (%d)", ret);
	ret = cpuhp_setup_state(CPUHP_AP_ONLINE_DYN, "xk_sched:watch", online, offline);
	if (ret < 0) {
		unregister_nmi_handler(NMI_LOCAL, "xk_sched");
		return ret;
	}
	hotplug = ret;
	return 0;
}

void xk_watch_exit(void)
{
	int cpu;

	cpuhp_remove_state(hotplug);
	/* The timer of a CPU that was going offline may have moved. */
	for_each_possible_cpu(cpu)
		hrtimer_cancel(&per_cpu_ptr(&watches, cpu)->timer);
	unregister_nmi_handler(NMI_LOCAL, "xk_sched");
}
