# sluice. "make help" lists the targets.
.DEFAULT_GOAL := all
BUILD ?= build/release
V ?=
Q := $(if $(V),,@)
say = $(if $(V),,@printf '  %-6s %s\n' '$(1)' '$(2)')

CC ?= cc
OPT ?= -O2 -g
# Sanitizers make compilers warn of what is not there: their builds only print warnings.
# -ffp-contract=off: a fused multiply-add happens where the source says so and nowhere else (docs/architecture.md, "One answer").
SL_CFLAGS := -std=c11 -D_GNU_SOURCE $(OPT) -ffp-contract=off -fno-math-errno -pthread -MMD -MP \
	-Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith -Wcast-qual -Wwrite-strings \
	-Wvla -Wformat=2 -Wundef -Wno-unused-parameter $(if $(CI),$(if $(SAN),,-Werror)) $(SAN)
LIBS := -luring -lzstd -lcjson -lpcre2-8 -lutf8proc -lm -pthread
ARCH := $(shell $(CC) -dumpmachine 2>/dev/null | cut -d- -f1)

LAYERS := kernels stream models runtime
$(foreach l,$(LAYERS),$(eval $(l)_SRC := $(sort $(wildcard $(l)/*.c))))
ifneq ($(ARCH),x86_64)
kernels_SRC := $(filter-out kernels/avx%,$(kernels_SRC))
endif
ifneq ($(ARCH),aarch64)
kernels_SRC := $(filter-out kernels/neon%,$(kernels_SRC))
endif
runtime_LIB_SRC := $(filter-out runtime/main.c,$(runtime_SRC))
objects = $(patsubst %.c,$(BUILD)/%.o,$(1))
kernels_A := $(BUILD)/libkernels.a
stream_A := $(BUILD)/libstream.a
models_A := $(BUILD)/libmodels.a
runtime_A := $(BUILD)/libruntime.a
ALL_A := $(runtime_A) $(models_A) $(stream_A) $(kernels_A)

# Each level's files, and only they, may use its instructions.
$(BUILD)/kernels/avx2_%.o: LEVEL_FLAGS := -mavx2 -mfma -mf16c
$(BUILD)/kernels/avx2vnni_%.o: LEVEL_FLAGS := -mavx2 -mfma -mf16c -mavxvnni
$(BUILD)/kernels/avx512_%.o: LEVEL_FLAGS := -mavx2 -mfma -mf16c -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni
$(BUILD)/kernels/neon_%.o: LEVEL_FLAGS := -march=armv8.2-a+dotprod
$(BUILD)/kernels/neoni8mm_%.o: LEVEL_FLAGS := -march=armv8.2-a+dotprod+i8mm

# Fuzz targets are parsers: instrumented kernels would only take minutes to compile.
$(BUILD)/kernels/%.o: KERNEL_SAN := $(if $(FUZZ),-fno-sanitize=all)

# Test programs are named after the highest layer they link: kernels*.c stream*.c models*.c runtime*.c.
# fuzz_*.c hold one LLVMFuzzerTestOneInput each and link everything; lib_*.c are shared by the tests.
TEST_SRC := $(sort $(wildcard tests/*.c))
TEST_BIN := $(patsubst tests/%.c,$(BUILD)/tests/%,$(filter-out tests/lib_%,$(TEST_SRC)))
TEST_LIB := $(call objects,$(filter-out tests/lib_fuzz_main.c,$(filter tests/lib_%,$(TEST_SRC))))
# A plain build replays files through the fuzz targets; FUZZ=1 links libFuzzer's own main.
FUZZ_MAIN := $(if $(FUZZ),,$(BUILD)/tests/lib_fuzz_main.o)
FUZZ_LINK := $(if $(FUZZ),-fsanitize=fuzzer)
TEST_SH := $(sort $(wildcard tests/*.sh))

# The sluice in the tree's root is the release build; other builds stay in their folders.
all: $(if $(filter build/release,$(BUILD)),sluice,$(BUILD)/sluice) ## build ./sluice (the default)

sluice: $(BUILD)/sluice
	$(Q)cp -f $< $@

$(BUILD)/sluice: $(BUILD)/runtime/main.o $(ALL_A)
	$(call say,LD,$@)
	$(Q)$(CC) $(SL_CFLAGS) $(LDFLAGS) -o $@ $^ $(LIBS)

$(kernels_A): $(call objects,$(kernels_SRC))
$(stream_A): $(call objects,$(stream_SRC))
$(models_A): $(call objects,$(models_SRC))
$(runtime_A): $(call objects,$(runtime_LIB_SRC))
$(BUILD)/lib%.a:
	$(call say,AR,$@)
	$(Q)rm -f $@; ar rcs $@ $^

# The pages that this file takes in are none of the headers that the compiler tells of.
$(BUILD)/runtime/profile_html.o: $(wildcard runtime/web/*)

# Rewritten only when the compiler or its flags change, so that objects of two kinds never mix.
FLAGS_NOW := $(CC) $(filter-out -Werror,$(SL_CFLAGS)) $(CFLAGS)
$(BUILD)/flags: FORCE
	@mkdir -p $(@D)
	@echo '$(FLAGS_NOW)' | cmp -s - $@ || echo '$(FLAGS_NOW)' > $@
FORCE:

$(BUILD)/%.o: %.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) $(SL_CFLAGS) $(CFLAGS) $(LEVEL_FLAGS) $(KERNEL_SAN) -c -o $@ $<

$(BUILD)/tests/kernels%: $(BUILD)/tests/kernels%.o $(TEST_LIB) $(kernels_A)
	$(call say,LD,$@)
	$(Q)$(CC) $(SL_CFLAGS) $(LDFLAGS) -o $@ $^ $(LIBS)
$(BUILD)/tests/stream%: $(BUILD)/tests/stream%.o $(TEST_LIB) $(stream_A)
	$(call say,LD,$@)
	$(Q)$(CC) $(SL_CFLAGS) $(LDFLAGS) -o $@ $^ $(LIBS)
$(BUILD)/tests/models%: $(BUILD)/tests/models%.o $(TEST_LIB) $(models_A) $(stream_A) $(kernels_A)
	$(call say,LD,$@)
	$(Q)$(CC) $(SL_CFLAGS) $(LDFLAGS) -o $@ $^ $(LIBS)
$(BUILD)/tests/runtime%: $(BUILD)/tests/runtime%.o $(TEST_LIB) $(ALL_A)
	$(call say,LD,$@)
	$(Q)$(CC) $(SL_CFLAGS) $(LDFLAGS) -o $@ $^ $(LIBS)
$(BUILD)/tests/fuzz_%: $(BUILD)/tests/fuzz_%.o $(TEST_LIB) $(FUZZ_MAIN) $(ALL_A)
	$(call say,LD,$@)
	$(Q)$(CC) $(SL_CFLAGS) $(FUZZ_LINK) $(LDFLAGS) -o $@ $^ $(LIBS)

# ---- tests ------------------------------------------------------------------------------------
tests: $(TEST_BIN) $(BUILD)/sluice

check: all tests ## the fast tests (T=pattern picks some)
	$(Q)scripts/run-tests --build $(BUILD) $(if $(T),--only '$(T)') $(TEST_BIN) $(TEST_SH)

test-kernels: all tests ## every kernel at every level of this CPU, against the scalar ones
	$(Q)scripts/run-tests --build $(BUILD) $(filter $(BUILD)/tests/kernels_%,$(TEST_BIN))

# Set-up comes first and make starts afresh behind it: a bare machine has no compiler to ask yet.
test: ## install what is missing, build, run every test
	$(Q)scripts/setup build demo
	$(Q)scripts/get-demo-model --optional
	$(Q)$(MAKE) --no-print-directory -j$$(nproc) all tests
	$(Q)$(MAKE) --no-print-directory test-all

test-all: all tests
	$(Q)scripts/run-tests --build $(BUILD) --slow $(if $(T),--only '$(T)') $(TEST_BIN) $(TEST_SH)

demo: ## install what is missing, build, run a small trained model in less memory than it needs (MODEL=smollm2: fetch that one)
	$(Q)scripts/setup build $(if $(MODEL),demo)
	$(Q)$(MAKE) --no-print-directory -j$$(nproc) all
	$(Q)$(if $(MODEL),scripts/get-demo-model)
	$(Q)scripts/demo $(MODEL)

SANITIZED = $(MAKE) --no-print-directory OPT="-O1 -g -fno-omit-frame-pointer"
asan: ## check under the address and undefined-behaviour sanitizers
	$(Q)$(SANITIZED) BUILD=build/asan SAN="-fsanitize=address,undefined -fno-sanitize-recover=undefined" check
ubsan: ## check under the undefined-behaviour sanitizer alone
	$(Q)$(SANITIZED) BUILD=build/ubsan SAN="-fsanitize=undefined -fno-sanitize-recover=undefined" check
# Tests in which threads meet; in the others the thread sanitizer has nothing to see.
THREADED := kernels_workers stream_io stream_faults stream_pool stream_shrink stream_trace stream_profile models_golden models_one_answer runtime_elastic
tsan: ## the threaded tests under the thread sanitizer
	$(Q)$(SANITIZED) BUILD=build/tsan SAN="-fsanitize=thread" T="$(or $(T),$(THREADED))" check

# The kernels and their tests need no library but libc, so they cross-build; qemu runs them, slowly. NEON_TESTS picks some.
NEON_CC ?= aarch64-linux-gnu-gcc
NEON_BUILD := build/neon
NEON_TESTS ?= kernels_quant kernels_layouts kernels_float kernels_attention kernels_delta kernels_route
QEMU ?= qemu-aarch64 -cpu max
check-neon: ## the kernel tests built for aarch64, under qemu
	$(Q)$(MAKE) --no-print-directory CC=$(NEON_CC) BUILD=$(NEON_BUILD) LIBS='-lm -pthread' LDFLAGS=-static \
		$(NEON_TESTS:%=$(NEON_BUILD)/tests/%)
	$(Q)printf '%s\n' $(NEON_TESTS) | SL_TEST_QUICK=1 xargs -P "$$(nproc)" -I T $(QEMU) $(NEON_BUILD)/tests/T

TIME ?= 60
fuzz: ## fuzz one parser with libFuzzer: make fuzz T=gguf [TIME=seconds]
	$(Q)scripts/fuzz '$(T)' '$(TIME)' '$(MAKE)'

# The variables that name models are in scripts/bench-tables.
bench: all tests ## the tables of docs/benchmarks.md, or one (bench-dense, ...); FILE=model.gguf: cold runs of that one (root)
	$(Q)$(if $(FILE),scripts/bench-stream,scripts/bench-tables)
bench-%: all tests
	$(Q)scripts/bench-tables $*

# ---- the source -------------------------------------------------------------------------------
lint: all ## rules of the house: layers, names, banned calls, headers, formatting, links
	$(Q)scripts/lint --build $(BUILD)

format: ## clang-format every source file
	$(Q)clang-format -i $(foreach l,$(LAYERS) tests,$(wildcard $(l)/*.c $(l)/*.h))

# ---- the rest ---------------------------------------------------------------------------------
PREFIX ?= /usr/local
install: all ## copy to $(DESTDIR)$(PREFIX)
	$(Q)install -d '$(DESTDIR)$(PREFIX)/bin' '$(DESTDIR)$(PREFIX)/share/doc/sluice/docs/images'
	$(Q)install -m 755 sluice '$(DESTDIR)$(PREFIX)/bin/sluice'
	$(Q)install -m 644 README.md CONTRIBUTING.md CHANGELOG.md LICENSE '$(DESTDIR)$(PREFIX)/share/doc/sluice'
	$(Q)install -m 644 docs/*.md '$(DESTDIR)$(PREFIX)/share/doc/sluice/docs'
	$(Q)install -m 644 docs/images/* '$(DESTDIR)$(PREFIX)/share/doc/sluice/docs/images'

clean: ## remove what was built
	$(Q)rm -rf build sluice

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 16
	@echo '  V=1 shows commands; CC=clang, OPT, CFLAGS, LDFLAGS, BUILD=folder as usual; CI=1 makes warnings errors'

-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)
.PHONY: all tests check test test-all test-kernels demo asan ubsan tsan check-neon fuzz bench lint format install clean help FORCE
.SECONDARY:
