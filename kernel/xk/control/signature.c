// SPDX-License-Identifier: GPL-2.0-only
/*
 * With require_signed=1, a table is accepted only with a detached PKCS#7 signature over its bytes,
 * by a trusted key. If a certificate was given when the module was loaded, only its key is trusted;
 * otherwise, the keys that the kernel trusts. The user who loads the module decides this. Under
 * lockdown root is not trusted, so only the kernel's keys are accepted. See docs/signing.md.
 */
#include <linux/cred.h>
#include <linux/err.h>
#include <linux/kernel_read_file.h>
#include <linux/key.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/uaccess.h>
#include <linux/verification.h>
#include <linux/vmalloc.h>
#include <keys/asymmetric-type.h>

#include "control/privilege.h"
#include "control/signature.h"
#include "base/error.h"
#include "uapi/xk.h"

#define MAX_CERTIFICATE 16384

static bool require_signed;
module_param(require_signed, bool, 0444);
MODULE_PARM_DESC(require_signed, "accept tables only if a trusted key has signed them");

static char *signing_key;
module_param(signing_key, charp, 0444);
MODULE_PARM_DESC(signing_key, "file of an X.509 certificate (DER): the only key that is trusted");

/* Contains only the given key; NULL if none was given. */
static struct key *keyring;

bool xk_signed_only(void)
{
	return require_signed;
}

static int verify_table(const void *table, size_t len, const void *signature, size_t signature_len)
{
	int ret;

	if (keyring)
		return verify_pkcs7_signature(table, len, signature, signature_len, keyring,
					      VERIFYING_UNSPECIFIED_SIGNATURE, NULL, NULL);
	ret = verify_pkcs7_signature(table, len, signature, signature_len,
				     VERIFY_USE_SECONDARY_KEYRING,
				     VERIFYING_UNSPECIFIED_SIGNATURE, NULL, NULL);
	/* As for modules, if the kernel has keys of the owner of the machine. */
	if (ret == -ENOKEY)
		ret = verify_pkcs7_signature(table, len, signature, signature_len,
					     VERIFY_USE_PLATFORM_KEYRING,
					     VERIFYING_UNSPECIFIED_SIGNATURE, NULL, NULL);
	return ret;
}

static int refuse_signature(int ret, struct xk_error *error)
{
	switch (ret) {
	case -ENOMEM:
		return ret;
	case -ENOKEY:
		return xk_refuse(error, -EKEYREJECTED,
				 "the table is signed with a key that is not trusted: trusted is %s",
				 keyring ? signing_key : "what the kernel trusts (/proc/keys)");
	default:
		return xk_refuse(error, -EKEYREJECTED,
				 "the table is not what was signed (error %d): sign it again with `xk sign`",
				 ret);
	}
}

/* `table` is a copy that no one else can change. */
int xk_signature_check(const void *table, size_t len, const struct xk_load *load,
		       struct xk_error *error)
{
	void *signature;
	int ret;

	if (!load->signature_len)
		return xk_refuse(error, -EKEYREJECTED,
				 "xk.ko was loaded with require_signed=1, and the table is not signed: sign it with `xk sign`");
	if (load->signature_len > XK_MAX_SIGNATURE)
		return xk_refuse(error, -EINVAL, "a signature of %u bytes; up to %u are possible",
				 load->signature_len, XK_MAX_SIGNATURE);
	signature = vmemdup_user(u64_to_user_ptr(load->signature), load->signature_len);
	if (IS_ERR(signature))
		return xk_refuse(error, PTR_ERR(signature), "the signature cannot be read");
	ret = verify_table(table, len, signature, load->signature_len);
	kvfree(signature);
	return ret ? refuse_signature(ret, error) : 0;
}

static int add_key(const void *certificate, size_t len)
{
	key_ref_t ring, key;
	struct key *made;
	int ret;

	made = keyring_alloc(".xk", GLOBAL_ROOT_UID, GLOBAL_ROOT_GID, current_cred(),
			     KEY_POS_WRITE | KEY_POS_SEARCH | KEY_USR_VIEW,
			     KEY_ALLOC_NOT_IN_QUOTA, NULL, NULL);
	if (IS_ERR(made))
		return PTR_ERR(made);
	ring = make_key_ref(made, true);
	key = key_create_or_update(ring, "asymmetric", NULL, certificate, len,
				   KEY_POS_SEARCH | KEY_USR_VIEW,
				   KEY_ALLOC_NOT_IN_QUOTA | KEY_ALLOC_BYPASS_RESTRICTION);
	if (IS_ERR(key)) {
		key_put(made);
		return PTR_ERR(key);
	}
	key_ref_put(key);
	/* No further key can be added. */
	ret = keyring_restrict(ring, NULL, NULL);
	if (ret)
		key_put(made);
	else
		keyring = made;
	return ret;
}

/* The caller of insmod can only read messages, so report errors there. */
int xk_signature_init(void)
{
	void *certificate = NULL;
	ssize_t len;
	int ret;

	if (!signing_key)
		return 0;
	if (!require_signed) {
		pr_err("xk: signing_key is given without require_signed=1: give both, or none\n");
		return -EINVAL;
	}
	if (xk_locked_down()) {
		pr_err("xk: the kernel is locked down and takes no signing_key: have the kernel trust the key (mokutil --import), and load xk without it\n");
		return -EPERM;
	}
	len = kernel_read_file_from_path(signing_key, 0, &certificate, MAX_CERTIFICATE, NULL,
					 READING_X509_CERTIFICATE);
	if (len < 0) {
		pr_err("xk: signing_key=%s cannot be read (error %zd): name the file of a certificate, in DER\n",
		       signing_key, len);
		return len;
	}
	ret = add_key(certificate, len);
	vfree(certificate);
	if (ret)
		pr_err("xk: signing_key=%s has no usable key (error %d): an X.509 certificate in DER is needed (openssl x509 -outform DER)\n",
		       signing_key, ret);
	return ret;
}

void xk_signature_exit(void)
{
	key_put(keyring);
}
