#!/usr/bin/env bash
# What this proves: a profile adds up. Its categories are the wall clock, its bytes those of the stream and of
# the block layer, its units and parts the whole; a run is the same with it as without; a trace says
# what the run said; trace events are what the viewer reads; and whatever cannot be read or written is one line.
# test: plain timeout=120
set -u
cd "$(dirname "$0")/.." || exit 2
sluice=${SLUICE:-./sluice}
demo=demo/demo-Q4_K_M.gguf
llama=tests/data/models/llama
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export XDG_CACHE_HOME=$work/cache XDG_CONFIG_HOME=$work/config
command -v python3 >/dev/null || { echo "needs python3"; exit 77; }
. tests/lib_cli.bash

one_line() { # PATTERN: stderr is one line, an error that matches
    checks=$((checks + 1))
    [ "$(wc -l <"$work/err")" = 1 ] && grep -qE "^sluice: error: .*$1" "$work/err" || fail "not one line with '$1'"
}
holds() { # FILE EXPRESSION over d; near(a, b): within 1 %
    checks=$((checks + 1))
    python3 - "$work/$1" "$2" <<'PY' || fail "$1: $2"
import json, sys
d = json.load(open(sys.argv[1]))
def near(a, b): return abs(a - b) <= 0.01 * max(abs(a), abs(b)) + 1e-9
sys.exit(0 if eval(sys.argv[2]) else 1)
PY
}
adds_up() { # FILE
    checks=$((checks + 1))
    python3 - "$work/$1" <<'PY' || fail "$1 does not add up"
import json, sys
d = json.load(open(sys.argv[1]))
def near(a, b, what):
    assert abs(a - b) <= 0.01 * max(abs(a), abs(b)) + 1e-6, (what, a, b)
assert d["sluice_profile"] == 1
io, units, t = d["io"], d["units"], d["timeline"]
for name in "startup attention delta_net mlp experts head sampling wait other".split():
    assert d["categories"][name] >= 0
near(sum(d["categories"].values()), d["wall_s"], "categories")
near(sum(d["waits"].values()), d["categories"]["wait"], "waits")
for p in d["phases"]:
    near(sum(p["categories"].values()), p["seconds"], "phase")
    near(p["wait_s"] + p["compute_s"], p["seconds"], "phase's halves")
    assert p["bound_s"] <= p["seconds"] * 1.01 + 1e-4, p
near(sum(u["wait_s"] for u in units), d["categories"]["wait"], "units' waits")
for member, whole in (("bytes", "bytes_read"), ("reads", "reads"), ("read_s", "busy_s"), ("overlap_s", "overlap_s")):
    near(sum(u[member] for u in units), io[whole], member)
for member, whole in (("bytes", "bytes_read"), ("reads", "reads"), ("busy_s", "busy_s")):
    near(sum(c[member] for c in io["by_class"].values()), io[whole], "classes' " + member)
for u in units:
    assert u["needs"] == u["hits"] + u["misses"] + u["late"] and u["in_time"] <= u["hits"], u
    assert u["overlap_s"] <= u["read_s"] + 1e-9 and u["kind"] in t["kinds"], u
    for share in (u["precision"], u["recall"]):
        assert share is None or 0 <= share <= 1, u
for part, unit, needs, hits, size, _ in d["parts"]:
    assert 0 <= hits <= needs and size >= 0 and units[unit]["needs"] >= needs
for unit in {row[1] for row in d["parts"]}:
    rows = [row for row in d["parts"] if row[1] == unit]
    assert sum(r[2] for r in rows) <= units[unit]["needs"]
    assert sum(r[3] for r in rows) <= units[unit]["hits"]
if t["complete"]:
    passes = sum(p["passes"] for p in d["phases"])
    assert len(t["passes"]) == passes == len(d["series"])
    assert len(t["reads"]) == io["reads"] and sum(r[2] for r in t["reads"]) == io["bytes_read"]
    near(sum(w[1] for w in t["waits"]), d["categories"]["wait"], "timeline's waits")
    # What the recording itself took is in no row.
    computed = d["wall_s"] - d["categories"]["wait"] - d["categories"]["startup"]
    assert computed - d["categories"]["other"] - 1e-4 <= sum(c[1] for c in t["compute"]) <= computed + 1e-4
    # What is read ahead for a pass that never comes belongs to none, and is no more than the ring.
    ahead = io["bytes_read"] - sum(s["bytes"] for s in d["series"])
    assert 0 <= ahead <= max(d["budget"]["weights"]["ring"], 0.01 * io["bytes_read"]), ahead
    # The pass is always at one thing: computing and waits neither overlap nor leave a hole in a pass.
    rows = sorted([r[:2] for r in t["compute"]] + [r[:2] for r in t["waits"]])
    for (a, n), (b, _) in zip(rows, rows[1:]):
        assert b >= a + n - 2e-6, (a, n, b)
for start, end, *_ in t["passes"] + t["reads"]:
    assert 0 <= start <= end <= d["wall_s"] + 1e-5
PY
}
events_are_valid() { # FILE
    checks=$((checks + 1))
    python3 - "$work/$1" <<'PY' || fail "$1 is no trace for a viewer"
import json, sys
events = json.load(open(sys.argv[1]))["traceEvents"]
kinds, threads, named = {}, {}, set()
for e in events:
    kinds[e["ph"]] = kinds.get(e["ph"], 0) + 1
    assert e["pid"] == 1 and isinstance(e["name"], str)
    if e["ph"] == "X":
        assert e["ts"] >= 0 and e["dur"] >= 0 and isinstance(e["tid"], int), e
        threads.setdefault(e["tid"], []).append((e["ts"], e["dur"]))
    elif e["ph"] == "C":
        assert e["ts"] >= 0 and all(isinstance(v, (int, float)) for v in e["args"].values()), e
    else:
        assert e["ph"] == "M" and (e["name"] == "process_name" or "tid" in e), e
        named.add(e.get("tid"))
assert set(kinds) == {"X", "M", "C"} and set(threads) <= named and len(threads) > 3, (kinds, named)
for rows in threads.values(): # none overlaps another on its thread
    rows.sort()
    for (a, n), (b, _) in zip(rows, rows[1:]):
        assert b >= a + n - 0.01, (a, n, b)
PY
}

# ---- a run, its trace, and both without it ----------------------------------------------------------
run 0 run $demo -p 'Once upon a time' -n 40 --temp 0 --memory 26M -c 128 --no-warm-start
cp "$work/out" "$work/plain"
run 0 run $demo -p 'Once upon a time' -n 40 --temp 0 --memory 26M -c 128 --no-warm-start \
    --profile="$work/run.json" --trace "$work/run.trace" --stats "$work/stats.json" --trace-events "$work/events.json"
checks=$((checks + 1))
cmp -s "$work/out" "$work/plain" || fail 'a profile changes the output'
has err '^(disk-bound|compute and disk|compute-bound): '
has err '^  experts .* %'
adds_up run.json
events_are_valid events.json
holds run.json 'd["command"] == "run" and d["model"] == "demo-Q4_K_M.gguf" and d["machine"]["threads"] > 0'
holds run.json 'sum(d["budget"]["terms"].values()) <= d["budget"]["limit"] == 26 << 20'
holds run.json 'd["categories"]["experts"] > 0 and d["categories"]["delta_net"] > 0 and d["categories"]["head"] > 0'
holds run.json '[p["rows"] for p in d["phases"]] == [4, 39]'
cp "$work/stats.json" "$work/s.json"
checks=$((checks + 1))
python3 - "$work" <<'PY' || fail 'the profile and --stats disagree'
import json, sys
d, s = (json.load(open(f"{sys.argv[1]}/{name}.json")) for name in ("run", "stats"))
assert 0 <= d["io"]["bytes_read"] - s["io"]["bytes_read"] <= 1 << 20 # a little later
assert abs(d["categories"]["wait"] - s["io"]["wait_s"]) < 1e-6
for phase, name in zip(d["phases"], ("prefill", "decode")):
    assert phase["passes"] == s[name]["passes"] and abs(phase["wait_s"] - s[name]["wait_s"]) < 1e-6
needs = sum(s[p]["experts"]["needs"] for p in ("prefill", "decode"))
hits = sum(s[p]["experts"]["hits"] for p in ("prefill", "decode"))
assert needs == sum(row[2] for row in d["parts"]) and hits == sum(row[3] for row in d["parts"])
right, of = s["decode"]["experts"]["guesses_right"], s["decode"]["experts"]["guesses"]
units = [u for u in d["units"] if u["precision"] is not None]
assert units and min(u["precision"] for u in units) <= right / of <= max(u["precision"] for u in units)
PY
run 0 profile "$work/run.trace" --json "$work/trace.json"
has out '^(disk-bound|compute and disk|compute-bound): '
adds_up trace.json
checks=$((checks + 1))
python3 - "$work" <<'PY' || fail 'the trace says something else than the run'
import json, sys
d, t = (json.load(open(f"{sys.argv[1]}/{name}.json")) for name in ("run", "trace"))
for member in ("wall_s", "categories", "waits", "phases", "units", "parts", "timeline", "series", "verdict", "what_if"):
    assert d[member] == t[member], member
assert t["machine"] is None and t["command"] == "run"
PY

# ---- the command, cold: the block layer read what the stream did --------------------------------------
cp $demo "$work/cold.gguf" && sync "$work/cold.gguf"
python3 -c 'import os, sys; os.posix_fadvise(os.open(sys.argv[1], 0), 0, 0, os.POSIX_FADV_DONTNEED)' "$work/cold.gguf"
run 0 profile "$work/cold.gguf" --memory 20M --json "$work/cold.json" --html "$work/page.html" -n 24
has out '^time '
has out '^  blk\.[0-9]+\.ffn\.experts '
has out '^disk-bound: '
checks=$((checks + 1))
wide=$(awk 'length > 80' "$work/out")
[ -z "$wide" ] || fail "wider than 80 columns: $wide"
adds_up cold.json
holds cold.json 'd["what_if"] and d["what_if"][0]["more_bytes"] > 0'
holds cold.json '"O_DIRECT" not in d["machine"]["engine"] or not d["io"]["block_bytes"] or (
    0.99 * d["io"]["bytes_read"] <= d["io"]["block_bytes"] <= 1.01 * d["io"]["bytes_read"] + (4 << 20))'
checks=$((checks + 1))
grep -q '"sluice_profile":1' "$work/page.html" || fail 'the page does not hold the document'

# ---- eval; a dense model; standard output -------------------------------------------------------------
echo 10 20 30 40 50 60 70 80 >"$work/ids"
run 0 eval $llama --ids "$work/ids" --memory floor --profile="$work/eval.json"
adds_up eval.json
holds eval.json 'd["command"] == "eval" and [p["kind"] for p in d["phases"]] == ["prefill"] and d["parts"] == []'
run 0 profile $llama --ids "$work/ids" -n 3 --memory floor --json -
cp "$work/out" "$work/stdout.json"
has err '^time '
adds_up stdout.json
run 0 profile $llama --ids "$work/ids" -n 0 --memory floor
: >"$work/none"
run 1 profile $llama --ids "$work/none"
one_line 'the prompt is empty'
run 0 profile $llama --ids "$work/ids" -n 0 --memory floor
has out ' of the prompt '

# ---- what cannot be -----------------------------------------------------------------------------------
size=$(stat -c %s "$work/run.trace")
for n in 0 7 11 500 $((size - 1)); do
    head -c "$n" "$work/run.trace" >"$work/cut.trace"
    run 1 profile "$work/cut.trace"
    one_line 'cut.trace: .*cut short'
done
run 1 profile tests/data/fuzz/trace/moe
one_line 'a trace of version 1'
echo no >"$work/no.trace"
run 1 profile "$work/no.trace"
one_line 'is not a trace'
run 2 profile "$work/run.trace" --memory 1G
one_line '--memory is about running a MODEL'
run 2 profile "$work/run.trace" --csv
run 1 profile "$work/run.trace" --json /dev/full
one_line '/dev/full: cannot write: No space left on device'
run 1 profile "$work/run.trace" --json - --trace-events -
one_line 'only one document'
run 1 profile $llama --ids "$work/ids" -n 2 --html /no/such/folder/x.html
one_line '/no/such/folder/x.html'
# The folder for the timeline: without one, all but the timeline is there.
TMPDIR=/no/such/folder "$sluice" profile $llama --ids "$work/ids" -n 3 --memory floor --json "$work/blind.json" \
    >"$work/out" 2>"$work/err" || fail 'no folder for temporary files'
has err '^note: /no/such/folder/.*the profile will have no timeline'
adds_up blind.json
holds blind.json 'not d["timeline"]["complete"] and d["timeline"]["reads"] == [] and d["io"]["bytes_read"] > 0'
checks=$((checks + 1))
mkdir "$work/tmp" && TMPDIR=$work/tmp "$sluice" profile $llama --ids "$work/ids" -n 3 >/dev/null 2>&1 || fail 'TMPDIR'
[ -z "$(ls "$work/tmp")" ] || fail 'a temporary trace is left'

echo "$checks checks, $failed failed"
[ $failed = 0 ]
