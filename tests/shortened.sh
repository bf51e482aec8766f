#!/usr/bin/env bash
# Proves: a model file that is cut short, or vanishes, while it is being used ends the run with one clear error (cut) or does not
# matter (unlinked: the descriptor keeps it), for every engine.
set -u
work=$(mktemp -d "${TMPDIR:-/tmp}/shortened.XXXXXX")
trap 'rm -rf "$work"' EXIT
checks=0 failed=0
check() { # WHAT CONDITION...
    checks=$((checks + 1))
    "${@:2}" && return
    failed=$((failed + 1))
    echo "failed: $1"
    sed 's/^/    /' "$work/err"
}
# Runs on a copy of the model; does the given thing to it once text is coming; leaves out, err and status.
while_running() { # ENGINE COMMAND...
    cp tests/data/models/llama-Q4_K_M.gguf "$work/model.gguf"
    rm -f "$work/out" # of the run before: not yet emptied when the look for text begins
    "${SLUICE:-./sluice}" run "$work/model.gguf" --ids <(echo 2 59 265) --print-ids -n 60 --temp 0 -c 512 --io "$1" \
        --memory floor --disk-limit 32M >"$work/out" 2>"$work/err" &
    for _ in $(seq 400); do
        [ -s "$work/out" ] && break
        sleep 0.025
    done
    "${@:2}"
    wait $!
    status=$?
}
for io in direct mapped pread; do
    while_running $io truncate -s 300K "$work/model.gguf"
    check "$io, cut: exit 1, not $status" [ "$status" = 1 ]
    check "$io, cut: one error" [ "$(grep -c '^sluice: error: ' "$work/err")" = 1 ]
    check "$io, cut: names the file" grep -q '^sluice: error: .*model\.gguf.*shorter' "$work/err"
    while_running $io rm "$work/model.gguf"
    check "$io, unlinked: exit 0, not $status" [ "$status" = 0 ]
    check "$io, unlinked: all tokens" [ "$(wc -w <"$work/out")" = 60 ]
done
echo "$checks checks, $failed failed"
[ $failed = 0 ]
