// SPDX-License-Identifier: GPL-2.0-only
/*
 * The table of a load request. It is one piece of memory without pointers. Addresses in vmlinux do
 * not depend on the boot, so the table can be signed. It is copied once. The signature is verified
 * over the copy, and all other code reads the copy.
 */
#include <linux/mm.h>
#include <linux/overflow.h>
#include <linux/printk.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/uaccess.h>

#include "base/error.h"
#include "control/read_table.h"
#include "control/signature.h"
#include "core/table.h"

static int check_head(const struct xk_table *table, struct xk_error *error)
{
	if (memcmp(table->magic, XK_TABLE_MAGIC, sizeof(table->magic)))
		return xk_refuse(error, -EINVAL, "not a scope table: it does not begin with %s",
				 XK_TABLE_MAGIC);
	if (table->abi != XK_ABI_VERSION)
		return xk_refuse(error, -EPROTO,
				 "the table is of interface version %u, xk.ko of %u: install both from one release and sign again",
				 table->abi, XK_ABI_VERSION);
	if (!table->nr_sites || table->nr_sites > XK_MAX_SITES)
		return xk_refuse(error, -EINVAL, "%u sites; 1 to %u are possible",
				 table->nr_sites, XK_MAX_SITES);
	if (table->nr_scopes > XK_MAX_SCOPES)
		return xk_refuse(error, -EINVAL, "%u scopes; up to %u are possible",
				 table->nr_scopes, XK_MAX_SCOPES);
	if (table->nr_values > XK_MAX_VALUES)
		return xk_refuse(error, -EINVAL, "%u values; up to %u are possible",
				 table->nr_values, XK_MAX_VALUES);
	if (table->mode > XK_MODE_GLOBAL || table->flags & ~XK_TABLE_IN_PLACE)
		return xk_refuse(error, -EINVAL, "mode %u or flags %#x are not known",
				 table->mode, table->flags);
	return 0;
}

/* The arrays follow the head in this order. */
static int find_arrays(struct xk_request *request, struct xk_error *error)
{
	const struct xk_table *table = request->table;
	u64 values = sizeof(*table);
	u64 sites = values + table->nr_values * sizeof(*request->values);
	u64 scopes = sites + table->nr_sites * sizeof(*request->sites);
	u64 end = scopes + table->nr_scopes * sizeof(*request->scopes);

	if (end > request->len)
		return xk_refuse(error, -EINVAL, "the table ends at %zu, its arrays at %llu",
				 request->len, end);
	request->values = (void *)request->table + values;
	request->sites = (void *)request->table + sites;
	request->scopes = (void *)request->table + scopes;
	return 0;
}

/*
 * The kernel as a whole is at another address after every boot. So an address in it is stored as
 * the distance from a function that modules can name. Only an unsigned table may contain the
 * address of a function in a module. With a signed table it is found by name and bytes.
 */
static int relocate(const struct xk_request *request, u64 *address, const char *module,
		    struct xk_error *error)
{
	if (!module[0])
		*address += (unsigned long)_printk;
	else if (request->is_signed && *address)
		return xk_refuse(error, -EINVAL,
				 "a signed table must not give the address of a function in module %.*s",
				 XK_MODULE_LEN, module);
	return 0;
}

static int relocate_all(const struct xk_request *request, struct xk_error *error)
{
	unsigned int i;
	int ret = 0;

	for (i = 0; i < request->table->nr_sites && !ret; i++)
		ret = relocate(request, &request->sites[i].address, request->sites[i].module,
			       error);
	for (i = 0; i < request->table->nr_scopes && !ret; i++)
		ret = relocate(request, &request->scopes[i].address,
			       request->scopes[i].module, error);
	return ret;
}

static int check_request(struct xk_request *request, const struct xk_load *load,
			 struct xk_error *error)
{
	int ret = 0;

	/* The signature is verified before any other part of the table is used. */
	request->is_signed = xk_signed_only();
	if (request->is_signed)
		ret = xk_signature_check(request->table, request->len, load, error);
	if (!ret)
		ret = check_head(request->table, error);
	if (!ret)
		ret = find_arrays(request, error);
	if (!ret && request->table->flags & XK_TABLE_IN_PLACE &&
	    !(request->flags & XK_LOAD_PATCH_ONLY))
		ret = xk_refuse(error, -EINVAL,
				"other CPUs could see a partial update: only the backend patch can set this value");
	return ret ?: relocate_all(request, error);
}

int xk_request_read(struct xk_request *request, const struct xk_load *load,
		    struct xk_error *error)
{
	void *copy;

	if (load->table_len < sizeof(*request->table) || load->table_len > XK_MAX_TABLE)
		return xk_refuse(error, -EINVAL, "a table of %u bytes; %zu to %u are possible",
				 load->table_len, sizeof(*request->table), XK_MAX_TABLE);
	copy = vmemdup_user(u64_to_user_ptr(load->table), load->table_len);
	if (IS_ERR(copy))
		return xk_refuse(error, PTR_ERR(copy), "the table cannot be read");
	request->table = copy;
	request->len = load->table_len;
	request->flags = load->flags;
	return check_request(request, load, error);
}

void xk_request_free(struct xk_request *request)
{
	kvfree(request->table);
}
