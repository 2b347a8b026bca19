# SPDX-License-Identifier: Apache-2.0 OR MIT
# Writes the environment that the kernel's top Makefile hands to the makefiles below it.
# Everything that later reads the build description starts from this environment instead of
# evaluating the top Makefile (a second each time) again.
include Makefile

xk-environment:
	@env -0 > $(XK_OUT)
