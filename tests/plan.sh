#!/usr/bin/env bash
# What this proves: sluice plan as a user meets it. Terms add up to every limit, more memory is never slower, another
# machine's memory and a trace are answered for, what is kept is used and damage is noticed, and no weight is read.
# test: plain timeout=120
set -u
cd "$(dirname "$0")/.." || exit 2
sluice=${SLUICE:-./sluice}
dense=tests/data/models/llama-Q4_K_M.gguf
moe=tests/data/models/qwen3_moe-Q4_K_M.gguf
demo=demo/demo-Q4_K_M.gguf
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export XDG_CACHE_HOME=$work/cache
mkdir "$XDG_CACHE_HOME"
. tests/lib_cli.bash

json() { # EXPRESSION on d, of the last output
    checks=$((checks + 1))
    command -v python3 >/dev/null || return 0
    python3 -c 'import json, sys; d = json.load(open(sys.argv[1])); sys.exit(0 if eval(sys.argv[2]) else 1)' "$work/out" "$1" ||
        fail "$1 does not hold"
}
sums='all(sum(b["terms"].values()) == b["budget"] for b in d["budgets"])'
rises='all(a["seconds_per_token"] >= b["seconds_per_token"] for a, b in zip(d["budgets"], d["budgets"][1:]))'
bounded='all(b["seconds_per_token"] >= b["bound_s"] * 0.999 or b["streamed_bytes"] == 0 for b in d["budgets"])'

# ---- a dense model, at a rate that makes the disk decide --------------------------------------------
run 0 plan $dense --disk 20M --json
json "$sums"
json "$bounded"
json 'd["floor"] == d["budgets"][0]["budget"] and 0 <= d["floor"] - sum(d["floor_terms"].values()) < 1 << 20'
json 'd["disk_source"] == "given" and d["kernels_token_s"] > 0 and d["kernels_row_s"] > 0 and not d["kernels_kept"]'
json '[b for b in d["budgets"] if b["name"] == "100 %"][0]["streamed_bytes"] == 0'
json 'all(b["hit_rate"] is None and b["prompt_tokens_per_s"] > 0 and b["first_prompt_s"] > 0 for b in d["budgets"])'
json 'abs(d["budgets"][0]["seconds_per_token"] - max(d["budgets"][0]["streamed_bytes"] / (20 << 20), d["budgets"][0]["compute_s"])) < 1e-6'
# A prompt's rows take memory from the weights: with as many everywhere, more memory is never slower.
run 0 plan $dense --disk 20M --chunk 32 --json
json "$rises"
run 0 plan $dense --disk 20M
has out '^disk     20\.0 MiB/s, .*; given$'
has out '^kernels  .*; measured [0-9]{4}-[0-9]{2}-[0-9]{2}$'
has out '^floor [0-9.]+ MiB$'
has out '^  100 % +[0-9.]+ MiB '
has out '^  memory: W weights that stay, R ring,'
has out '^  floor .*[WRKSo]+ '
ok "a line is wider than 80 columns" [ "$(tail -n +8 "$work/out" | awk 'length > 80' | grep -vc '^  memory:')" = 0 ]
run 0 plan $dense --disk 20M --measure --json
json 'not d["kernels_kept"]'
run 0 plan $dense
has out 'assumed: .sluice disk. measures it$'

# ---- one budget, another context, another machine ---------------------------------------------------
run 0 plan $dense --memory 20M --context 1024 --json
json 'len(d["budgets"]) == 1 and d["budgets"][0]["budget"] == 20 << 20 and d["budgets"][0]["context"] == 1024'
json "$sums"
run 0 plan $dense --memory 20M
has out '^budget 20\.0 MiB$'
has out '^  pinned weights '
run 1 plan $dense --memory 2M
has err '^sluice: error: --memory 2\.0 MiB is too little memory; the floor is .* = program '
run 0 plan $moe --simulate-ram 8G --json
json 'd["simulated_ram"] == 8 << 30 and 6 << 30 < d["auto"] < 8 << 30'
json 'any(b["name"] == "auto" and b["budget"] <= d["auto"] for b in d["budgets"])'
run 0 plan $demo --simulate-ram 16M
has out '^machine  one with 16\.0 MiB: --memory auto takes [0-9.]+ MiB of it, less than the floor$'

# ---- experts: usual, kept, traced -------------------------------------------------------------------
run 0 plan $demo --disk 100M --json
json "$sums"
json "$rises"
json 'd["reuse_source"] == "usual" and d["budgets"][0]["hit_rate"] < 0.5'
json 'all(a["hit_rate"] <= b["hit_rate"] for a, b in zip(d["budgets"], d["budgets"][1:])) and d["budgets"][-1]["hit_rate"] == 1'
run 0 run $demo -p 'A fox' -n 40 --temp 0 -c 512 --memory 20M --trace "$work/run.trace"
run 0 plan $demo --disk 100M --json
json 'd["reuse_source"] == "kept"'
json "$rises"
run 0 plan $demo --disk 100M --trace-in "$work/run.trace" --json
json 'd["reuse_source"] == "trace" and d["budgets"][0]["hit_rate"] < d["budgets"][-2]["hit_rate"]'
run 1 plan $moe --trace-in "$work/run.trace"
has err 'run\.trace is a trace of another model: '
run 1 plan $dense --trace-in "$work/run.trace"
has err 'this model has no experts'
head -c 2000 "$work/run.trace" >"$work/short.trace"
run 1 plan $demo --trace-in "$work/short.trace"
has err '^sluice: error: .*short\.trace'

# ---- what is kept -----------------------------------------------------------------------------------
for f in "$XDG_CACHE_HOME"/sluice/speeds/*.json; do echo '{"version": 1' >"$f"; done
run 0 plan $dense --disk 20M --json
json 'not d["kernels_kept"]'
has err '^note: .*; measured anew$'
run 0 plan $dense --disk 20M --json
json 'd["kernels_kept"]'
: >"$work/a-file"
XDG_CACHE_HOME=$work/a-file run 0 plan $dense --disk 20M --json
has err '^note: the speed of the kernels is not kept: '

# ---- no weight is read: what the kernel counts of a cold model --------------------------------------
cp $demo "$work/cold.gguf"
cat >"$work/cold.py" <<'PY'
import os, subprocess, sys
path, sluice = sys.argv[1:3]
f = os.open(path, os.O_RDONLY)
os.fsync(f)
os.posix_fadvise(f, 0, 0, os.POSIX_FADV_DONTNEED)
p = subprocess.Popen([sluice, "plan", path, "--disk", "1G", "--measure", "--json"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
_, status, use = os.wait4(p.pid, 0)
print(use.ru_inblock * 512)
sys.exit(0 if status == 0 and use.ru_inblock * 512 < 4 << 20 else 1)
PY
if command -v python3 >/dev/null; then
    ok "more was read of a cold model than its tables: $(cat "$work/out")" python3 "$work/cold.py" "$work/cold.gguf" "$sluice"
fi
echo "$checks checks, $failed failed"
[ $failed = 0 ]
