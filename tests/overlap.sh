#!/usr/bin/env bash
# What this proves: on a disk slow enough to decide the speed, a decode pass takes no longer than reading what
# must be read (and a tenth), and reads for the next pass go out before this one has ended: the head and
# the sampler cost nothing. A disk is made slow with --disk-limit, so that only the order of reads is measured.
# test: slow serial plain timeout=120
set -u
cd "$(dirname "$0")/.." || exit 2
sluice=${SLUICE:-./sluice}
data=${SL_TEST_DATA:-tests/data}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
echo 10 20 30 40 50 60 70 80 >"$work/ids"

for model in "$data/models/llama" "$data/models/qwen3-Q4_K_M.gguf"; do
    for io in direct mapped pread; do
        "$sluice" run "$model" --ids "$work/ids" --print-ids -n 12 --temp 0 --ignore-eos -c 64 --memory floor \
            --io $io --disk-limit 4M --stats "$work/stats" >/dev/null 2>"$work/err" || {
            cat "$work/err"
            exit 1
        }
        python3 - "$work/stats" "$(basename "$model"), $io" <<'PY' || failed=1
import json, sys
stats, name = json.load(open(sys.argv[1])), sys.argv[2]
d, streamed = stats["decode"], stats["memory"]["weights"]["streamed"]
limit = stats["io"]["disk_limit"]
least = streamed / limit
each = d["seconds"] / d["passes"]
print(f"{name} ({stats['io']['mode']}): {streamed} bytes streamed, {each:.3f} s per pass, {each / least:.3f} of the least;"
      f" {d['ahead_parts']} parts ahead in {d['passes']} passes")
bad = []
if not streamed:
    bad.append("nothing is streamed")
if each > 1.1 * least:
    bad.append("a pass takes more than 1.1 times the reading")
if each < 0.9 * least:
    bad.append("a pass is faster than the limit allows: the limit does not hold")
# Every pass but the last is followed by one whose first parts it reads ahead.
if d["ahead_parts"] < d["passes"] - 1:
    bad.append("passes without a read ahead")
for b in bad:
    print(f"{name}: {b}")
sys.exit(bool(bad))
PY
    done
done
exit $failed
