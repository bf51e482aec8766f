#!/usr/bin/env bash
# test: plain timeout=300
# What this proves: on CPUs that have less, the best level that they can run is found, and nothing below it uses an
# instruction that they lack: the kernel tests run under emulated CPUs, where that is a SIGILL. qemu-user emulates no
# AVX-VNNI and no AVX-512: levels above AVX2 run only on machines that have them.
set -u
unset SL_CPU
export SL_TEST_QUICK=1
tests=${BUILD:-build/release}/tests
[[ $(uname -m) == x86_64 ]] || { echo 'skipped: only on x86-64' && exit 77; }
command -v qemu-x86_64 >/dev/null || { echo 'skipped: no qemu-x86_64 (Debian: qemu-user)' && exit 77; }
# TCG has AVX2 since qemu 7.2
version=$(qemu-x86_64 --version | sed -n '1s/.*version \([0-9]*\)\.\([0-9]*\).*/\1 \2/p')
read -r major minor <<<"$version"
[ $((major * 100 + minor)) -ge 702 ] || { echo "skipped: qemu $major.$minor emulates no AVX2" && exit 77; }
bad=0

on() { # CPU COMMAND...; qemu warns of features that it leaves out
    local cpu=$1
    shift
    qemu-x86_64 -cpu "$cpu" "$@" 2> >(grep -v '^qemu-x86_64: warning: ' >&2)
}
check() { # CPU LEVEL TEST...
    local cpu=$1 level=$2 test found
    shift 2
    found=$(on "$cpu" "$tests/kernels_quant" --level)
    [ "$found" = "$level" ] || { echo "$cpu: best level is '$found', not $level" && bad=1; }
    for test in "$@"; do
        on "$cpu" "$tests/$test" >"${TMPDIR:-/tmp}/levels.out" 2>&1 && continue
        echo "$cpu: $test: exit $?"
        tail -n 20 "${TMPDIR:-/tmp}/levels.out"
        bad=1
    done
}

check Nehalem scalar kernels_quant
check Haswell avx2 kernels_quant kernels_float kernels_attention kernels_workers
exit $bad
