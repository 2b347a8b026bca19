# SPDX-License-Identifier: Apache-2.0 OR MIT
# The kernel's own per-folder makefile, with one change: instead of building, each folder writes
# the objects it contributes to the image and to modules into a file of its own (parallel makes
# would interleave their output) and descends.
include $(srctree)/scripts/Makefile.build
build := -f $(XK_MK) obj
.DEFAULT_GOAL := xk-units

xk-lines := $(if $(need-builtin),\
		xk-builtin $(filter-out %/built-in.a,$(real-obj-y)) $(filter %.o,$(extra-y)) xk-end)
xk-lines += $(if $(filter $(obj)/,$(ARCH_LIB)),xk-builtin $(lib-y) xk-end)
xk-lines += $(foreach m,$(filter %.o,$(obj-m)),\
		xk-module $m $(if $(filter $m,$(multi-obj-m)),\
			$(addprefix $(if $(filter .,$(obj)),,$(obj)/),\
				$(call suffix-search,$(m:$(obj)/%=%),.o,-objs -y -m)),\
			$m) xk-end)

ifneq ($(strip $(xk-lines)),)
$(file >$(XK_OUT)/units-$(subst /,!,$(obj)),$(xk-lines))
endif

xk-units: $(subdir-ym)
	@:
