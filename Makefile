# sluice. "make help" lists the targets.
.DEFAULT_GOAL := all
BUILD ?= build/release
V ?=
Q := $(if $(V),,@)
say = $(if $(V),,@printf '  %-6s %s\n' '$(1)' '$(2)')

CC ?= cc
OPT ?= -O2 -g
# -ffp-contract=off: a fused multiply-add happens where the source says so and nowhere else (docs/architecture.md, "One answer").
SL_CFLAGS := -std=c11 -D_GNU_SOURCE $(OPT) -ffp-contract=off -fno-math-errno -pthread -MMD -MP \
	-Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith -Wcast-qual -Wwrite-strings \
	-Wvla -Wformat=2 -Wundef -Wno-unused-parameter $(if $(CI),-Werror) $(SAN)
LIBS := -luring -lzstd -lcjson -lpcre2-8 -lutf8proc -lm -pthread
ARCH := $(shell $(CC) -dumpmachine | cut -d- -f1)

LAYERS := kernels stream models runtime
$(foreach l,$(LAYERS),$(eval $(l)_SRC := $(sort $(wildcard $(l)/*.c))))
ifneq ($(ARCH),x86_64)
kernels_SRC := $(filter-out kernels/avx%,$(kernels_SRC))
endif
runtime_LIB_SRC := $(filter-out runtime/main.c,$(runtime_SRC))
objects = $(patsubst %.c,$(BUILD)/%.o,$(1))
kernels_A := $(BUILD)/libkernels.a
stream_A := $(BUILD)/libstream.a
models_A := $(BUILD)/libmodels.a
runtime_A := $(BUILD)/libruntime.a

# Each level's files, and only they, may use its instructions.
$(BUILD)/kernels/avx2_%.o: LEVEL_FLAGS := -mavx2 -mfma -mf16c

# Test programs are named after the highest layer they link: kernels*.c stream*.c models*.c runtime*.c
TEST_SRC := $(sort $(wildcard tests/*.c))
TEST_BIN := $(patsubst tests/%.c,$(BUILD)/tests/%,$(filter-out tests/lib_%,$(TEST_SRC)))
TEST_LIB := $(call objects,$(filter tests/lib_%,$(TEST_SRC)))

all: sluice ## build ./sluice (the default)

sluice: $(BUILD)/sluice
	$(Q)cp -f $< $@

$(BUILD)/sluice: $(BUILD)/runtime/main.o $(runtime_A) $(models_A) $(stream_A) $(kernels_A)
	$(call say,LD,$@)
	$(Q)$(CC) $(SL_CFLAGS) $(LDFLAGS) -o $@ $^ $(LIBS)

$(kernels_A): $(call objects,$(kernels_SRC))
$(stream_A): $(call objects,$(stream_SRC))
$(models_A): $(call objects,$(models_SRC))
$(runtime_A): $(call objects,$(runtime_LIB_SRC))
$(BUILD)/lib%.a:
	$(call say,AR,$@)
	$(Q)rm -f $@; ar rcs $@ $^

$(BUILD)/%.o: %.c
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) $(SL_CFLAGS) $(CFLAGS) $(LEVEL_FLAGS) -c -o $@ $<

$(BUILD)/tests/kernels%: $(BUILD)/tests/kernels%.o $(TEST_LIB) $(kernels_A)
	$(call say,LD,$@)
	$(Q)$(CC) $(SL_CFLAGS) $(LDFLAGS) -o $@ $^ $(LIBS)
$(BUILD)/tests/stream%: $(BUILD)/tests/stream%.o $(TEST_LIB) $(stream_A)
	$(call say,LD,$@)
	$(Q)$(CC) $(SL_CFLAGS) $(LDFLAGS) -o $@ $^ $(LIBS)
$(BUILD)/tests/models%: $(BUILD)/tests/models%.o $(TEST_LIB) $(models_A) $(stream_A) $(kernels_A)
	$(call say,LD,$@)
	$(Q)$(CC) $(SL_CFLAGS) $(LDFLAGS) -o $@ $^ $(LIBS)
$(BUILD)/tests/runtime%: $(BUILD)/tests/runtime%.o $(TEST_LIB) $(runtime_A) $(models_A) $(stream_A) $(kernels_A)
	$(call say,LD,$@)
	$(Q)$(CC) $(SL_CFLAGS) $(LDFLAGS) -o $@ $^ $(LIBS)

clean: ## remove what was built
	rm -rf build sluice

-include $(shell find build -name '*.d' 2>/dev/null)
.PHONY: all clean
.SECONDARY:
