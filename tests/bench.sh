#!/usr/bin/env bash
# What this proves: sluice bench of a model. Every form of its report is well-formed and agrees with itself; sets take
# turns forwards and backwards; a wrong option names its set; an output that differs is an error; a run that was not
# cold is not called so; Ctrl-C prints what is complete; runs are the same as if each were alone.
# test: plain timeout=240
set -u
cd "$(dirname "$0")/.." || exit 2
sluice=${SLUICE:-./sluice}
moe=tests/data/models/qwen3_moe-Q4_K_M.gguf
dense=tests/data/models/llama-Q4_K_M.gguf
short=(--prompt-tokens 8 -n 4 --disk 2G)
work=$(mktemp -d)
export XDG_CACHE_HOME=$work/cache # nothing kept of this disk
trap 'rm -rf "$work" "${shm:-}"' EXIT
subcommand=bench
. tests/lib_cli.bash

python() { # CODE: with rows (CSV) or d (JSON) of $work/out; an assertion that fails is a failure
    checks=$((checks + 1))
    python3 - "$work/out" <<PY || fail "$1"
import csv, json, sys
text = open(sys.argv[1]).read()
if text.startswith("{"):
    d = json.loads(text)
elif text.startswith("run,"):
    rows = list(csv.DictReader(text.splitlines(), strict=True))
$1
PY
}

# ---- forms of the report --------------------------------------------------------------------------
vs=(--vs '--predict off' --vs '--io pread -t 1')
run 0 $moe "${short[@]}" -r 3 --memory 16M,14500K "${vs[@]}" --csv
python '
assert all(None not in r and None not in r.values() for r in rows), "a line has another number of fields"
assert len(rows) == 2 * 3 * 3 * 4
order = sorted({(int(r["run"]), r["set"], r["budget_bytes"]) for r in rows})
assert [r[0] for r in order] == list(range(1, 19))
assert "".join(r[1] for r in order) == "ABCABC" "CBACBA" "ABCABC", "sets do not take turns"
assert {r["options"] for r in rows} == {"", "--predict off", "--io pread -t 1"}
assert {int(r["budget_bytes"]) for r in rows} == {16 << 20, 14500 << 10}
assert len({r["output"] for r in rows}) == 1
for r in rows:
    assert int(r["tokens"]) == (8 if "prefill" in r["phase"] else 4)
    assert abs(float(r["tokens_per_s"]) * float(r["seconds"]) / int(r["tokens"]) - 1) < 1e-6
    assert 0 < float(r["bound_share"]) and abs(float(r["bound_s"]) / float(r["seconds"]) / float(r["bound_share"]) - 1) < 1e-6
    assert int(r["missed_bytes"]) <= int(r["bytes_read"]) and 0 <= float(r["hit_rate"]) <= 1
    assert r["set"] != "B" or r["guesses_right"] == ""
assert any(r["guesses_right"] for r in rows if r["set"] == "A")
for budget, phase in {(r["budget_bytes"], r["phase"]) for r in rows}:
    same = {r["hit_rate"] for r in rows if (r["set"], r["budget_bytes"], r["phase"]) == ("B", budget, phase)}
    assert len(same) == 1, "a run without guesses depends on those before it"
cold = [r for r in rows if r["phase"] == "cold_prefill"]
assert all(int(r["bytes_read"]) > 400 << 10 for r in cold), "a cold run did not read the weights"
'
run 0 $dense "${short[@]}" -r 2 --memory floor,1G "${vs[@]:2}" --json
python '
assert [s["options"] for s in d["sets"]] == ["", "--io pread -t 1"] and all(s["same_output"] for s in d["sets"])
assert d["disk_bytes_per_s"] == 2 << 30 and d["disk_source"] == "given" and not d["interrupted"] and d["experts_bytes"] == 0
small, large = d["budgets"]
assert large["budget"] == 1 << 30 and small["budget"] == small["sets"][0]["memory"]["floor"]
for b in d["budgets"]:
    a, other = b["sets"]
    assert (a["threads"] >= 1 and other["threads"] == 1 and other["mode"] == "pread")
    for phase in ("cold_prefill", "cold_decode", "warm_prefill", "warm_decode"):
        for s in (a, other):
            t = s[phase]["tokens_per_s"]
            assert len(s[phase]["runs"]) == 2 and t["lowest"] <= t["median"] <= t["highest"]
        assert a[phase]["ratio"]["lowest"] == a[phase]["ratio"]["highest"] == 1
        rates = [[r["tokens"] / r["seconds"] for r in s[phase]["runs"]] for s in (a, other)]
        ratios = sorted(y / x for x, y in zip(*rates))
        assert abs(other[phase]["ratio"]["lowest"] / ratios[0] - 1) < 1e-6, "ratios are not of paired runs"
streamed = small["sets"][0]["memory"]["weights"]["streamed"]
assert streamed > 0 and large["sets"][0]["memory"]["weights"]["streamed"] == 0
assert abs(small["sets"][0]["warm_decode"]["missed_bytes_per_token"] - streamed) <= 1
assert large["sets"][0]["warm_decode"]["missed_bytes_per_token"] < streamed / 100
first = {}
for b in d["budgets"]:
    for s in b["sets"]:
        assert len({r["peak"] for r in s["runs"]}) >= 1 and max(r["peak"] for r in s["runs"]) == s["peak"] < b["budget"]
        assert len({r["output"] for r in s["runs"]}) == 1
'
run 0 $moe "${short[@]}" -r 2 --memory 14500K "${vs[@]}" --markdown
python '
lines = text.splitlines()
assert len(lines) == 2 + 3 * 4 and len({l.count("|") for l in lines}) == 1, "cells are missing"
assert all(l.startswith("| ") and l.endswith("|") for l in lines[2:]) and set(lines[1]) == {"|", "-"}
'
run 0 $moe --prompt-tokens 8 -n 4 -r 1 --memory 14500K --vs '--predict off'
has out '^a token uses [0-9.]+ KiB: [0-9.]+ KiB always, [0-9.]+ KiB in 3 of 8 experts per layer$'
has out '^disk [0-9.]+ [MG]iB/s \(measured(; .*)?\), memory [0-9.]+ GiB/s$'
has out '^A: [0-9.]+ KiB stay, and [0-9]+ % of the experts; peak [0-9.]+ MiB$'
has out '^output: the same in all 2 runs$'
for phase in 'cold prefill' 'cold decode' 'warm prefill' 'warm decode'; do
    has out "^A $phase +[0-9.]+ +[0-9.]+–[0-9.]+ +[0-9]+ % +[0-9]+ % +[0-9]+ % "
done
python 'assert max(map(len, text.splitlines())) <= 80, max(text.splitlines(), key=len)'

# ---- a prompt of one's own ------------------------------------------------------------------------
echo 2 5 9 11 >"$work/ids"
run 0 $moe --ids "$work/ids" -n 6 -r 1 --disk 2G --memory 15M,20M --csv
python '
assert all(int(r["tokens"]) == (4 if "prefill" in r["phase"] else 6) for r in rows)
assert len({r["output"] for r in rows}) == 1
'
run 1 $moe --ids "$work/ids" --prompt-tokens 5 --disk 2G
has err "ids: holds 4 tokens, --prompt-tokens wants 5$"

# ---- wrong options --------------------------------------------------------------------------------
wrong() { # OPTIONS PATTERN
    run 2 $moe "${short[@]}" --vs '--predict off' --vs "$1"
    has err "^sluice: error: bench: --vs '$1': $2"
}
wrong '--predict of' "--predict: 'of' is not accepted; auto, off or a whole number"
wrong '--predct off' "bench: unknown option '--predct'; did you mean '--predict'"
wrong '-n 9' '--tokens is no setting of memory, I/O or CPU$'
wrong '-n9' '--tokens is no setting'
wrong '--json' '--json is no setting'
wrong 'off' "'off' is no option"
wrong '--memory 4G' '--memory is the same for all sets$'
wrong '--kernels' '--kernels is no setting of memory, I/O or CPU$'
wrong '--disk 3G' '--disk is the same for all sets$'
wrong '-t' '-t needs a value'
run 2 $moe --csv --markdown
has err 'only one of --csv, --json and --markdown$'
run 2 $moe --memory 1G:2G
has err "^sluice: error: --memory: '1G:2G' is not accepted; auto, floor, a size such as 6G, a list"
run 2 $moe --trace "$work/trace" -r 2
has err '--trace keeps one run'
run 0 $moe "${short[@]}" -r 1 --memory 1M,20M --vs '-t 1'
has out '^memory 1\.0 MiB: too little; [0-9.]+ MiB is the least$'
run 1 $moe "${short[@]}" --memory 1M,2M
has err 'none of these budgets is enough$'
SL_FAULT_READ=3:EIO run 1 $moe "${short[@]}" --vs '--predict off'
has err '^sluice: error: A \(as given\): .*read of [0-9]+ bytes at offset [0-9]+: Input/output error$'

# ---- outputs that differ --------------------------------------------------------------------------
SL_FAULT_OUTPUT=3 run 1 $moe "${short[@]}" -r 2 --memory 20M --vs '--predict off'
has out '^output: that of B differs$'
has err '^sluice: error: the output of B differs from that of the first run'
run 0 $moe "${short[@]}" -r 1 --memory 20M --vs '--kv q8_0'
has out '^output: that of B differs, as --kv and --io null may$'

# ---- cold or not ----------------------------------------------------------------------------------
SL_FAULT_CACHE=before run 0 $moe "${short[@]}" -r 1 --memory 20M
has out '^cold: not proven \(1020 KiB of the files stayed in the page cache\)$'
SL_FAULT_CACHE=after run 0 $moe "${short[@]}" -r 1 --memory 20M --io mapped
has out '^cold: not proven \(read [0-9.]+ MiB, the block layer only [0-9.]+ K?i?B\)$'
if [ -w /dev/shm ] && [ "$(stat -f -c %T /dev/shm)" = tmpfs ]; then
    shm=$(mktemp -d /dev/shm/sluice.XXXXXX)
    cp $moe "$shm/model.gguf"
    run 0 "$shm/model.gguf" "${short[@]}" -r 1 --memory 20M --markdown
    has out '\| cold prefill \(not proven\) \|'
fi
# What holds on a disk with a counter: this one has both unless the tree is on tmpfs, an overlay or a network.
if [[ $(stat -f -c %T $moe) == ext* || $(stat -f -c %T $moe) == xfs ]]; then
    run 0 $moe "${short[@]}" -r 1 --memory 20M
    has out '^cold: proven \(none cached before; read [0-9.]+ MiB, the block layer [0-9.]+ MiB\)$'
fi

# ---- Ctrl-C ---------------------------------------------------------------------------------------
# How long until the first run is complete depends on the machine: before that there is nothing to print.
for wait in 1 3 9 27; do
    "$sluice" bench $dense "${short[@]}" -r 900 --memory floor --disk-limit 20M --json >"$work/out" 2>"$work/err" &
    pid=$!
    sleep $wait
    kill -INT $pid
    wait $pid
    code=$?
    checks=$((checks + 1))
    [ $code = 130 ] || fail "exit $code after Ctrl-C"
    [ -s "$work/out" ] && break
done
python 'assert d["interrupted"] and 0 < len(d["budgets"][0]["sets"][0]["runs"]) < 900'

# ---- make bench: the commands are those of the page ------------------------------------------------
DENSE=d8-q4_k_m.gguf EXPERTS=moe30.gguf SMOLLM2=SmolLM2-135M-Instruct.Q4_1.gguf RESIDENT='q06-x.gguf SmolLM2-135M-Instruct.Q4_1.gguf' ROUNDS=3 \
    scripts/bench-tables --dry-run >"$work/out" 2>"$work/err"
grep -oE '^    .*(scripts/bench-|sluice bench).*' docs/benchmarks.md | sed -E 's/^ *(LLAMA_[A-Z]+=[^ ]+ )?(chrt -f 10 )?(\.\/)?//; s/--rounds 1 /--rounds 3 /; s/ --cpu-level .*//; s/q06-[*]/q06-x/; / MODEL /d' >"$work/page"
checks=$((checks + 2))
[ "$(wc -l <"$work/page")" -ge 4 ] || fail "docs/benchmarks.md has lost its commands"
while read -r command; do
    sed 's|^ *\./||; s|^ *||' "$work/out" | grep -qxF -- "$command" || fail "make bench does not run: $command"
done <"$work/page"
checks=$((checks + 1))
DENSE=/nowhere scripts/bench-tables dense >"$work/out" 2>"$work/err" || fail "a model that is not there is an error"
has out '^skipped: /nowhere is not there; DENSE=FILE names another$'

echo "$checks checks, $failed failed"
[ $failed = 0 ]
