#include <stdio.h>
#include <xk_flex.h>
#include "flex/list.h"
#include "flex/lock.h"

int main(void)
{
	struct xk_flex *one = xk_flex_open("one");
	struct xk_list **list = one ? xk_flex_variable(one, "list", sizeof(*list)) : NULL;
	struct xk_lock **lock = list ? xk_flex_variable(one, "lock", sizeof(*lock)) : NULL;
	struct xk_flex_guard *guard = lock ? xk_flex_lock(one, *lock, 1000000000) : NULL;

	if (!guard)
		return fprintf(stderr, "%s\n", xk_flex_error()), 1;
	for (struct xk_item *item = (*list)->first; item; item = item->next)
		printf("%llu is %llu\n", item->key, item->value);
	xk_flex_unlock(guard);
	xk_flex_close(one);
	return 0;
}
