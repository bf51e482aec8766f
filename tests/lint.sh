#!/usr/bin/env bash
# test: plain
# What this proves: every rule of scripts/lint lets a sound little tree pass, and notices what it forbids.
set -u
cc=${CC:-cc}
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
bad=0 n=0

sound() { # a tree that keeps every rule, built
    rm -rf "${tree:?}"/*
    mkdir -p "$tree"/{kernels,stream,models,runtime,tests,docs,scripts,.ci}
    cp .clang-format "$tree"
    echo 'all:' >"$tree/Makefile"
    printf '#ifndef SL_ADD_H\n#define SL_ADD_H\n\nint sl_add(int a, int b);\n\n#endif\n' >"$tree/kernels/add.h"
    printf '#include "add.h"\n\nint sl_add(int a, int b)\n{\n    return a + b;\n}\n' >"$tree/kernels/add.c"
    printf '#include "../kernels/add.h"\n\nint main(void)\n{\n    return sl_add(0, 0);\n}\n' >"$tree/runtime/main.c"
    printf '#!/bin/sh\ntrue\n' >"$tree/scripts/nothing"
    chmod +x "$tree/scripts/nothing"
    printf 'See [the map](docs/map.md), `kernels/add.c` and `sl_add()`.\n' >"$tree/README.md"
    echo '# Map' >"$tree/docs/map.md"
    build kernels/add.c kernels
}
build() { # compiles one file of the tree into a library
    mkdir -p "$tree/out/$(dirname "$1")"
    # shellcheck disable=SC2086
    (cd "$tree" && $cc -O1 ${3:-} -c -o "out/${1%.c}.o" "$1" && ar rcs "out/lib$2.a" "out/${1%.c}.o") || exit 1
}
lint() { scripts/lint --tree "$tree" --build out "$1"; }
notices() { # RULE WHAT: the rule fails, and its output has the word
    local out
    out=$(lint "$1")
    n=$((n + 1))
    if [[ $out == *"skip  $1"* ]]; then
        echo "not tried: $out"
    elif ! [[ $out == *"FAIL  $1"*"$2"* ]]; then
        echo "rule $1 does not notice '$2': $out"
        bad=1
    fi
    sound
}

sound
out=$(scripts/lint --tree "$tree" --build out) || {
    echo "a sound tree does not pass: $out"
    bad=1
}

printf '#include "../stream/base.h"\n' >"$tree/kernels/up.c" && touch "$tree/stream/base.h"
notices layers 'kernels may not include'
printf '#include "../models/m.h"\n' >"$tree/stream/up.c" && touch "$tree/models/m.h"
notices layers 'stream may not include'
printf '#include "../runtime/r.h"\n' >"$tree/models/up.c" && touch "$tree/runtime/r.h"
notices layers 'models may not include'
printf '#include "gone.h"\n' >"$tree/models/up.c"
notices layers 'is not a file'
for call in 'strcpy(a, b)' 'strcat(a, b)' 'sprintf(a, "b")' 'gets(a)' 'atoi(a)' 'strtok(a, b)' 'alloca(9)'; do
    printf 'void f(char *a, char *b)\n{\n    %s;\n}\n' "$call" >"$tree/runtime/f.c"
    notices banned "${call%%(*}"
done
echo 'size_t sl_more(void);' >"$tree/stream/more.h"
notices headers 'size_t'
for name in liburing zstd cjson/cJSON pcre2 utf8proc; do
    echo "#include <$name.h>" | tee "$tree/stream/one.c" >"$tree/models/two.c"
    notices libraries 'more than one'
    echo "#include <$name.h>" >"$tree/stream/one.h"
    notices libraries 'by a header'
done
cp "$tree/kernels/add.c" "$tree/models/add.c"
notices names 'add.c'
echo 'int   x ;' >"$tree/models/x.c"
notices format 'models/x.c'
echo 'CFLAGS += -march=native' >>"$tree/Makefile"
notices flags 'march'
echo 'CFLAGS += -ffast-math' >>"$tree/Makefile"
notices flags 'fast-math'
echo '/* TO''DO: all */' >"$tree/models/x.c"
notices todo 'models/x.c'
printf '#!/bin/sh\nif\n' >"$tree/scripts/nothing"
notices scripts 'nothing'
chmod -x "$tree/scripts/nothing"
notices scripts 'not executable'
echo 'See [this](docs/gone.md).' >>"$tree/README.md"
notices links 'docs/gone.md'
# shellcheck disable=SC2016
echo 'See `kernels/gone.c`.' >>"$tree/README.md"
notices mentions 'kernels/gone.c'
# shellcheck disable=SC2016
echo 'See `sl_gone()`.' >>"$tree/docs/map.md"
notices mentions 'sl_gone()'
echo '# Tour' >"$tree/docs/architecture.md"
notices tour 'kernels/add.c'
echo 'int other(void) { return 1; }' >"$tree/stream/other.c" && build stream/other.c stream
notices symbols 'other'
echo 'int sl_other(void) { return 1; }' >"$tree/stream/other.c" && build stream/other.c stream
notices prototypes 'sl_other'
printf '#include <stdio.h>\nvoid sl_p(void) { puts("x"); }\n' >"$tree/models/p.c" && build models/p.c models
notices quiet 'puts'
printf '#include <stdlib.h>\nvoid sl_p(void) { exit(1); }\n' >"$tree/models/p.c" && build models/p.c models
notices quiet 'exit'
if [[ $($cc -dumpmachine) == x86_64* ]]; then
    wide='typedef float v __attribute__((vector_size(32)));\nvoid sl_w(v *a, v *b)\n{\n    *a += *b;\n}\n'
    # shellcheck disable=SC2059
    printf "$wide" >"$tree/kernels/scalar_w.c" && build kernels/scalar_w.c kernels -mavx
    notices instructions 'scalar_w.o'
    printf 'float sl_f(float a, float b, float c) { return __builtin_fmaf(a, b, c); }\n' >"$tree/kernels/scalar_f.c"
    build kernels/scalar_f.c kernels -mfma
    notices instructions 'scalar_f.o'
    # shellcheck disable=SC2059
    printf "${wide/32/64}" >"$tree/kernels/avx2_w.c" && build kernels/avx2_w.c kernels -mavx512f
    notices instructions 'avx2_w.o'
    # byte dot products: VEX is AVX-VNNI, EVEX is AVX-512
    dots='#include <immintrin.h>\nvoid sl_v(__m256i *a)\n{\n    *a = %s(*a, *a, *a);\n}\n'
    # shellcheck disable=SC2059
    printf "$dots" _mm256_dpbusd_avx_epi32 >"$tree/kernels/avx2_v.c" && build kernels/avx2_v.c kernels -mavxvnni
    notices instructions 'avx2_v.o'
    # shellcheck disable=SC2059
    printf "$dots" _mm256_dpbusd_epi32 >"$tree/kernels/avx2vnni_v.c" &&
        build kernels/avx2vnni_v.c kernels '-mavx512vnni -mavx512vl'
    notices instructions 'avx2vnni_v.o'
    # shellcheck disable=SC2059
    printf "$dots" _mm256_dpbusd_avx_epi32 >"$tree/kernels/avx2vnni_v.c" && build kernels/avx2vnni_v.c kernels -mavxvnni
    lint instructions | grep -q '^pass' || { echo 'AVX-VNNI is not let pass' && bad=1; }
    sound
fi
echo "$n violations tried"
exit $bad
