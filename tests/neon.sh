#!/usr/bin/env bash
# test: slow, plain, timeout=400
# What this proves: the kernels and their tests build for aarch64 without a warning, and every NEON slot gives the
# scalar level's bits there, under qemu.
set -u
for need in make "${NEON_CC:-aarch64-linux-gnu-gcc}" qemu-aarch64; do
    command -v "$need" >/dev/null 2>&1 || {
        echo "skipped: no $need (scripts/setup neon installs it)"
        exit 77
    }
done
unset MAKEFLAGS MFLAGS CC CFLAGS LDFLAGS SAN # of the make that runs the tests
CI=1 make -j"$(nproc)" check-neon
