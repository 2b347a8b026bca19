/* SPDX-License-Identifier: GPL-2.0-only */
/* What the cache has done, in memcached's words. */
#ifndef _XK_MEMCACHED_STATS_H
#define _XK_MEMCACHED_STATS_H

#include "store.h"

/* The sum of a word over all shards, while others may change them. */
__noinline __u64 mc_sum(__u64 offset)
{
	struct mc_store __heap *store = mc_store;
	__u64 shard, sum = 0, number;

	XK_USE_HEAP();
	if (!store)
		return 0;
	sv_turns (number, MC_SHARDS) {
		shard = *(volatile __u64 __heap *)&store->shards[number];
		if (shard)
			sum += *(volatile __u64 __heap *)(shard + offset);
	}
	return sum;
}

/* One line. There is room for all of them in a reply that has nothing else. */
__noinline int mc_say_stat(__u32 name, __u64 number)
{
	struct mc_work *work = mc_work();

	if (!work || !mc_fits_reply(work, 64))
		return 0;
	mc_say(name);
	mc_say_number(number);
	mc_say_bytes(work, SV_WORD("\r\n"), 2);
	return 0;
}

/* stats */
__noinline int mc_stats(void)
{
	__u64 gets = mc_sum(__builtin_offsetof(struct mc_shard, gets));
	__u64 hits = mc_sum(__builtin_offsetof(struct mc_shard, hits));

	mc_say_stat(MC_STAT_ITEMS, mc_sum(__builtin_offsetof(struct mc_shard, items)));
	mc_say_stat(MC_STAT_GETS, gets);
	mc_say_stat(MC_STAT_SETS, mc_sum(__builtin_offsetof(struct mc_shard, sets)));
	mc_say_stat(MC_STAT_HITS, hits);
	mc_say_stat(MC_STAT_MISSES, gets - hits);
	mc_say_stat(MC_STAT_EVICTED, mc_sum(__builtin_offsetof(struct mc_shard, evicted)));
	return 0;
}

#endif
