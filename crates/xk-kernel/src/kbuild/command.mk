# SPDX-License-Identifier: Apache-2.0 OR MIT
# The kernel's own per-folder makefile, with one change: where it would compile a unit it prints
# the command. Prerequisites (generated headers and sources) are still built.
include $(srctree)/scripts/Makefile.build
build := -f $(XK_MK) obj
cmd_objtool :=

define rule_cc_o_c
	$(info xk-command $@ $< $(cmd_cc_o_c))@:
endef

define rule_as_o_S
	$(info xk-command $@ $< $(cmd_as_o_S))@:
endef
