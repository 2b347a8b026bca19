/* SPDX-License-Identifier: GPL-2.0-only */
/* Sets of cores, of which there are at most 64. */
#ifndef _XK_USER_CPUMASK_H
#define _XK_USER_CPUMASK_H

struct cpumask {
	unsigned long bits;
};

extern unsigned int nr_cpu_ids;
extern struct cpumask xk_user_possible, xk_user_online;

#define cpu_possible_mask ((const struct cpumask *)&xk_user_possible)
#define cpu_online_mask ((const struct cpumask *)&xk_user_online)
#define cpumask_bits(mask) (&(mask)->bits)

static inline bool cpumask_test_cpu(int core, const struct cpumask *mask)
{
	return mask->bits & (1UL << core);
}

static inline unsigned int cpumask_weight(const struct cpumask *mask)
{
	return __builtin_popcountl(mask->bits);
}

static inline void cpumask_copy(struct cpumask *to, const struct cpumask *from)
{
	*to = *from;
}

static inline bool cpumask_equal(const struct cpumask *a, const struct cpumask *b)
{
	return a->bits == b->bits;
}

static inline bool cpumask_intersects(const struct cpumask *a, const struct cpumask *b)
{
	return a->bits & b->bits;
}

static inline bool cpumask_and(struct cpumask *to, const struct cpumask *a, const struct cpumask *b)
{
	to->bits = a->bits & b->bits;
	return to->bits;
}

#define cpumask_set_cpu(core, mask) ((void)((mask)->bits |= 1UL << (core)))
#define cpumask_clear_cpu(core, mask) ((void)((mask)->bits &= ~(1UL << (core))))
#define cpumask_size() sizeof(struct cpumask)

/* The core with this number among those of the set, or 64. */
static inline unsigned int cpumask_nth(unsigned int nr, const struct cpumask *mask)
{
	unsigned int core;

	for (core = 0; core < 64; core++)
		if (cpumask_test_cpu(core, mask) && !nr--)
			break;
	return core;
}

/* One that both have, another one each time; 64: there is none. */
static inline unsigned int cpumask_any_and_distribute(const struct cpumask *a,
						      const struct cpumask *b)
{
	const struct cpumask both = { .bits = a->bits & b->bits };
	static unsigned int turn;

	return both.bits ? cpumask_nth(turn++ % cpumask_weight(&both), &both) : 64;
}

/* The first core from this one on, or 64. */
static inline unsigned int xk_user_next(unsigned int core, const struct cpumask *mask)
{
	while (core < 64 && !cpumask_test_cpu(core, mask))
		core++;
	return core;
}

#define cpu_possible(core) cpumask_test_cpu(core, cpu_possible_mask)
#define cpu_online(core) cpumask_test_cpu(core, cpu_online_mask)
#define num_online_cpus() cpumask_weight(cpu_online_mask)
#define num_possible_cpus() cpumask_weight(cpu_possible_mask)
#define cpumask_first(mask) xk_user_next(0, mask)

#define for_each_cpu(core, mask)						\
	for ((core) = xk_user_next(0, mask); (core) < 64;			\
	     (core) = xk_user_next((core) + 1, mask))
#define for_each_possible_cpu(core) for_each_cpu(core, cpu_possible_mask)
#define for_each_online_cpu(core) for_each_cpu(core, cpu_online_mask)
/* All of them, beginning with `start`. */
#define for_each_cpu_wrap(core, mask, start)					\
	for (unsigned int turn_ = 0; turn_ < 64; turn_++)			\
		if ((core) = ((start) + turn_) % 64, cpumask_test_cpu(core, mask))

#endif /* _XK_USER_CPUMASK_H */
