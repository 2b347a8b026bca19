# SPDX-License-Identifier: Apache-2.0 OR MIT
# The kernel's own per-folder makefile, with one change: where it would compile a unit it prints
# the command. Prerequisites (generated headers and sources) are still built.
include $(srctree)/scripts/Makefile.build
build := -f $(XK_MK) obj
cmd_objtool :=

# A pattern rule compiles any source file of a folder, deployed or not, and a file that belongs to
# another folder's composite gets the wrong flags here. Only what this folder really builds counts.
xk-deployed := $(if $(need-builtin),$(real-obj-y) $(extra-y)) $(real-obj-m) \
	$(if $(filter $(obj)/,$(ARCH_LIB)),$(lib-y))
xk-print = $(info $(if $(filter $@,$(xk-deployed)),xk-command $@ $< $(1),xk-not-deployed $@))

define rule_cc_o_c
	$(call xk-print,$(cmd_cc_o_c))@:
endef

define rule_as_o_S
	$(call xk-print,$(cmd_as_o_S))@:
endef
