#!/usr/bin/env bash
# What this proves: the budget holds. In a memory cgroup of the budget and 8 MiB, a real model that is larger
# than the budget runs to its end, cold, with either engine; the peak of everything charged stays under
# the limit without the kernel having to force anything out; and the text is the one that a run with
# all the memory it wants gives.
# test: slow serial plain timeout=300
set -u
cd "$(dirname "$0")/.." || exit 2
model=$(scripts/get-demo-model --path) || {
    echo "skipped: no demo model (scripts/get-demo-model)"
    exit 77
}
sluice=${SLUICE:-./sluice}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
budget=64 slack=8
limit=$(((budget + slack) << 20))
failed=0

generate() { # OPTION...: 32 tokens of the most probable text
    "${under[@]}" "$sluice" run "$model" -p 'Water flows downhill because' -n 32 --temp 0 --ignore-eos -c 512 "$@"
}
check() { # WHAT CONDITION
    [ "$2" -ne 0 ] || {
        echo "$io: $1"
        failed=1
    }
}

under=()
generate --memory 512M >"$work/free" 2>"$work/free.err" || {
    cat "$work/free.err"
    exit 1
}
for io in direct mapped; do
    under=(scripts/cgroup-run --cold --timeout 120 --report "$work/report" $limit)
    generate --memory ${budget}M --io $io --stats "$work/stats" >"$work/$io" 2>"$work/err"
    code=$?
    if [ $code = 77 ]; then
        echo "skipped: $(tail -n 1 "$work/err")"
        exit 77
    fi
    peak_bytes=0 limit_hits=0 oom_kills=0 wall_s=0
    # shellcheck disable=SC1091
    . "$work/report"
    echo "$io: exit $code, peak $((peak_bytes >> 10)) KiB of $((limit >> 10)), limit hit $limit_hits times, $wall_s s"
    [ $code = 0 ] || cat "$work/err"
    check "exit $code" $((code == 0))
    check "killed for memory" $((oom_kills == 0))
    check "peak $peak_bytes is not below the limit $limit" $((peak_bytes < limit))
    check "the kernel had to reclaim $limit_hits times" $((limit_hits == 0))
    check "the text differs from the run with 512 MiB" "$(cmp -s "$work/free" "$work/$io" && echo 1 || echo 0)"
done
exit $failed
