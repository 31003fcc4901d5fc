# SPDX-License-Identifier: Apache-2.0
# Verbs over Meson. BUILD is a release-like build, BUILD_CHECK has the sanitizers.
BUILD ?= build
BUILD_CHECK ?= build-check
BUILD_FUZZ ?= build-fuzz
MESON ?= meson
# Debian's Python: another one in PATH may lack pytest.
PYTHON ?= /usr/bin/python3
# Seconds for each fuzzer, and further arguments for pytest.
FUZZ_SECONDS ?= 60
PYTEST_ARGS ?=
PYTEST = CULPRIT=$(abspath $(BUILD))/cli/culprit $(PYTHON) -m pytest -p no:cacheprovider -rsfE -q \
	--no-header --durations=10

all: $(BUILD)/build.ninja ## build
	ninja -C $(BUILD)

$(BUILD)/build.ninja:
	$(MESON) setup $(BUILD)

$(BUILD_CHECK)/build.ninja:
	$(MESON) setup $(BUILD_CHECK) -Dtests=enabled -Db_sanitize=address,undefined -Db_lundef=false -Dwerror=true

$(BUILD_FUZZ)/build.ninja:
	CC=clang CXX=clang++ $(MESON) setup $(BUILD_FUZZ) -Dfuzz=true \
		-Db_sanitize=address,undefined -Db_lundef=false

check: $(BUILD_CHECK)/build.ninja ## unit tests under sanitizers, rules, fuzz seeds
	ninja -C $(BUILD_CHECK)
	$(MESON) test -C $(BUILD_CHECK) --print-errorlogs

check-root: all ## live tests: needs root and BPF
	$(PYTEST) tests/live $(PYTEST_ARGS)

check-root-quick: all ## live tests: the core, those that a change concerns, a quarter of the rest by turns
	files=$$(tools/choose-tests tests/live) && $(PYTEST) $$files -m "not slow"

# Long tests (recordings of JVMs, decompression bombs, slow clients) run only with check-server itself.
check-server: all ## the server and its clients (pytest); needs no privilege
	$(PYTEST) tests/server $(PYTEST_ARGS)

check-server-quick: all ## tests of the server, chosen as by check-root-quick, without slow ones
	files=$$(tools/choose-tests tests/server) && $(PYTEST) $$files -m "not slow"

soak: all ## a day of 100 agents against a small store, compressed in time
	$(PYTEST) -s tests/server/test_soak.py $(PYTEST_ARGS)

# RESUME=1 skips tests that this build has passed already.
RESUME ?=
CHECK_RUNTIMES = CULPRIT_RESUME=$(RESUME) $(PYTEST)

check-runtimes: all ## language runtimes, each installed version: needs root and BPF
	$(CHECK_RUNTIMES) tests/runtimes $(PYTEST_ARGS)

# The runtimes, by the names of their tests: test_NAME.py, test_NAME_MORE.py.
RUNTIMES = $(sort $(foreach t,$(wildcard tests/runtimes/test_*.py),$(word 2,$(subst _, ,$(basename $(notdir $t))))))

check-runtimes-each: $(RUNTIMES:%=check-runtimes-%) ## language runtimes; with -j2 -k -O two at a time

$(RUNTIMES:%=check-runtimes-%): check-runtimes-%: all
	$(CHECK_RUNTIMES) $(wildcard tests/runtimes/test_$*.py tests/runtimes/test_$*_*.py) \
		$(PYTEST_ARGS)

bench: all ## the figures of doc/performance.md, against perf (needs root and BPF)
	CULPRIT=$(abspath $(BUILD))/cli/culprit $(PYTHON) tests/bench/run $(BENCH_ARGS)

# Runs the tests and parameters that are marked `sample`: one build of each runtime, the system's if
# there is one.
check-runtimes-quick: all ## language runtimes: one version of each
	$(PYTEST) tests/runtimes -m sample

check-vm: all ## the kernel matrix in QEMU (packages: tools/install test vm)
	tools/vm/matrix --build $(BUILD)
	tools/vm/contexts --build $(BUILD)
	tools/vm/events --build $(BUILD)
	tools/vm/nesting --build $(BUILD)
	tools/vm/traces --build $(BUILD)
	tools/vm/waits --build $(BUILD)
	tools/vm/runtimes --build $(BUILD)

check-vm-quick: all ## one old kernel in QEMU
	tools/vm/matrix --build $(BUILD) --quick
	tools/vm/waits --build $(BUILD) --quick

check-ui: all ## the page in Chromium (package chromium)
	CULPRIT=$(abspath $(BUILD))/cli/culprit node tests/ui/run.mjs

check-ui-quick: all ## the same without slow tests
	CULPRIT=$(abspath $(BUILD))/cli/culprit node tests/ui/run.mjs --quick

check-peers: all ## sample files of other profilers, read by culprit and by their own readers; fetches them
	tests/peers/check $(BUILD)/cli/culprit

readme-picture: all ## takes doc/ui.webp again, on this machine (package chromium; needs root and BPF)
	CULPRIT=$(abspath $(BUILD))/cli/culprit node tests/ui/picture.mjs

fuzz: $(BUILD_FUZZ)/build.ninja ## every fuzzer for FUZZ_SECONDS
	ninja -C $(BUILD_FUZZ)
	tools/fuzz $(BUILD_FUZZ) $(FUZZ_SECONDS)

lint: all ## rules, clang-format, clang-tidy, shellcheck, flake8, eslint
	tools/lint $(BUILD)

lint-quick: all ## lint, with clang-tidy over changed files and a quarter of the rest
	tools/lint $(BUILD) --quick

format: ## clang-format in place
	git ls-files '*.c' '*.h' 'server/*.cc' | xargs clang-format -i

install: all
	$(MESON) install -C $(BUILD)

clean:
	rm -rf $(BUILD) $(BUILD_CHECK) $(BUILD_FUZZ)

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 18

.PHONY: all bench check check-peers check-root check-root-quick check-runtimes check-runtimes-each $(RUNTIMES:%=check-runtimes-%) check-runtimes-quick check-server check-server-quick check-ui check-ui-quick check-vm check-vm-quick fuzz lint lint-quick format install readme-picture soak clean help
