# SPDX-License-Identifier: Apache-2.0
# Verbs over Meson. BUILD is a release-like build, BUILD_CHECK has the sanitizers.
BUILD ?= build
BUILD_CHECK ?= build-check
MESON ?= meson

all: $(BUILD)/build.ninja
	ninja -C $(BUILD)

$(BUILD)/build.ninja:
	$(MESON) setup $(BUILD)

$(BUILD_CHECK)/build.ninja:
	$(MESON) setup $(BUILD_CHECK) -Db_sanitize=address,undefined -Db_lundef=false -Dwerror=true

check: $(BUILD_CHECK)/build.ninja
	ninja -C $(BUILD_CHECK)
	$(MESON) test -C $(BUILD_CHECK) --print-errorlogs

clean:
	rm -rf $(BUILD) $(BUILD_CHECK)

install: all
	$(MESON) install -C $(BUILD)

.PHONY: all check clean install
