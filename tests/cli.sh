#!/usr/bin/env bash
# What this proves: the program as a user meets it. Stdout, stderr and exit status of every command; streams
# that close or fill up; signals; faults of the disk; nothing half-written; and that no option of memory, I/O,
# threads or CPU changes what is printed.
# test: timeout=240
set -u
cd "$(dirname "$0")/.." || exit 2
sluice=${SLUICE:-./sluice}
data=tests/data/models
llama=$data/llama
gguf=$data/llama-Q4_K_M.gguf
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
. tests/lib_cli.bash

out_is() { # TEXT: all of stdout
    checks=$((checks + 1))
    [ "$(cat "$work/out")" = "$1" ] || fail "stdout is not '$1'"
}
err_is() {
    checks=$((checks + 1))
    [ "$(cat "$work/err")" = "$1" ] || fail "stderr is not '$1'"
}
json() { # EXPRESSION on d, of $work/FILE
    checks=$((checks + 1))
    command -v python3 >/dev/null || return 0
    python3 - "$1" "$2" <<'PY' || fail "$2 of $1 does not hold"
import json, sys
d = json.load(open(sys.argv[1]))
sys.exit(0 if eval(sys.argv[2]) else 1)
PY
}

# ---- help and usage -------------------------------------------------------------------------------
run 2
has err '^Usage: sluice COMMAND'
run 0 --version
has out '^sluice [0-9]+\.[0-9]+\.[0-9]+$'
run 0 help
for command in run eval tokenize inspect verify plan simulate disk; do
    run 0 help
    has out "^  $command "
    run 0 $command -h
    has out "^Usage: sluice $command "
    has out '^Example$'
    cp "$work/out" "$work/short"
    run 0 help $command
    ok "the long help of $command holds no more" [ "$(wc -l <"$work/out")" -gt "$(wc -l <"$work/short")" ]
    cp "$work/out" "$work/long"
    run 0 $command --help
    ok "help $command and $command --help differ" cmp -s "$work/out" "$work/long"
    ok "a line of the help of $command is too long" [ "$(awk 'length > 100' "$work/out" | wc -l)" = 0 ]
done
run 2 rum
err_is "sluice: error: unknown command 'rum'; did you mean 'run'?"
run 2 --temp 1
has err "a command comes first"
run 2 run
err_is "sluice: error: run: MODEL is missing; 'sluice run -h' shows how it is used"
run 2 run m --tmp 1
err_is "sluice: error: run: unknown option '--tmp'; did you mean '--temp'?"
run 2 run m --temp hot
err_is "sluice: error: --temp: 'hot' is not accepted; a number from 0 to 100 is"
run 2 eval m --temp 1
err_is "sluice: error: eval does not take '--temp'; it is an option of: run"
run 2 run m -p a -f b
has err "only one of"
run 2 run m -p a --print-ids --stop x
run 2 eval m
err_is "sluice: error: eval: give either --text FILE or --ids FILE"
run 2 eval m --text a --ids b
run 2 eval m --ids a --hidden
run 2 tokenize m --decode --add-special
run 1 run "$work/absent.gguf" -p x
has err '^sluice: error: .*absent\.gguf.*No such file'
run 1 run /dev/null -p x
has err '^sluice: error: '
run 1 run "$gguf" -p x -c 5000
err_is "sluice: error: --ctx: '5000' is not accepted; this model takes 1 to 4096"

# ---- run ------------------------------------------------------------------------------------------
few="--temp 0 -n 8 --ignore-eos"
# shellcheck disable=SC2086
run 0 run "$gguf" --ids <(echo '2, 5 [9]') --print-ids $few
has out '^([0-9]+ ){7}[0-9]+$'
has err '^memory: .* \(auto\), of which .* are used = program .* weights and I/O '
has err '^io: '
has err '^prefill: 3 tokens'
has err '^decode: 7 tokens'
greedy=$(cat "$work/out")
# shellcheck disable=SC2086
for option in '--memory floor' '--memory 128M' '--memory 64M' '--io pread' '--io direct' '--io mapped' '-t 1' '-t 3' \
    '--chunk 1' '--chunk 2' '--cpu-level scalar' '--piece 64K --in-flight 256K' '-c 11' \
    '--part 64K --memory floor' '--part 4M --ring 9M --memory 128M'; do
    run 0 run "$gguf" --ids <(echo 2 5 9) --print-ids $few $option
    out_is "$greedy"
done
# shellcheck disable=SC2086
for refuse in io_uring o_direct huge_pages memlock io_uring,o_direct,huge_pages,memlock; do
    SL_REFUSE=$refuse run 0 run "$gguf" --ids <(echo 2 5 9) --print-ids $few --memory floor --io direct
    out_is "$greedy"
done
# shellcheck disable=SC2086
run 0 run "$gguf" --ids <(echo 2 5 9) --print-ids $few --quiet
err_is ''
out_is "$greedy"
run 0 run "$gguf" -p 'the cat' --temp 0 -n 6 --quiet
text=$(cat "$work/out")
run 0 run "$gguf" -f <(printf 'the cat') --temp 0 -n 6 --quiet
out_is "$text"
checks=$((checks + 1))
[ "$(printf 'the cat' | "$sluice" run "$gguf" --temp 0 -n 6 -q)" = "$text" ] || fail "a prompt from stdin differs"
run 0 run "$gguf" -p 'the cat' --temp 0 -n 6 --quiet --stop "${text:2:3}"
out_is "${text:0:2}"
run 0 run "$gguf" -p 'the cat' -n 0
out_is ''
has err '^prefill: '
run 0 run "$gguf" -p 'the cat' --seed 7 -n 20 -q --temp 1.5
one=$(cat "$work/out")
run 0 run "$gguf" -p 'the cat' --seed 7 -n 20 -q --temp 1.5 --memory floor
out_is "$one"
run 0 run "$gguf" -p 'the cat' --seed 8 -n 20 -q --temp 1.5
checks=$((checks + 1))
[ "$(cat "$work/out")" != "$one" ] || fail "another seed gives the same text"
run 0 run "$gguf" --ids <(echo 2 5) --print-ids --ignore-eos --temp 0 -c 8
has err '^note: the context of 8 tokens is full'
ok "context of 8" [ "$(wc -w <"$work/out")" = 7 ]
run 0 run "$gguf" --ids <(echo 2 5) --print-ids --ignore-eos --temp 0 -n 3 --kv q8_0
has err '^note: --kv q8_0 is lossy'
run 1 run "$gguf" --ids <(echo 2 5 9) --print-ids -c 2
err_is "sluice: error: the prompt has 3 tokens, the context holds 2; -c N makes it larger"
run 1 run "$gguf" --ids <(echo 2 x9) --print-ids
has err "at byte 2: 'x9' is not a token id"
run 1 run "$gguf" --ids <(echo 2 512) --print-ids
has err '^sluice: error: .*512'
run 1 run "$gguf" --ids /dev/null --print-ids
has err 'the prompt is empty'

# the budget, and a refusal that can be followed
run 1 run "$gguf" -p x --memory 1M
has err '^sluice: error: --memory 1.0 MiB is too little memory; the floor is [0-9.]+ MiB = program .* \+ model tables .* \+ tokenizer .* \+ KV cache .* \+ scratch .* \+ thread stacks .* \+ weights and I/O .*; --memory [0-9]+M is the least that works'
floor=$(sed -n 's/.*--memory \([0-9]*\)M is the least.*/\1/p' "$work/err")
run 0 run "$gguf" -p x -n 2 --memory "${floor}M"
run 1 run "$gguf" -p x --memory "$((floor - 2))M"

# statistics
run 0 run "$gguf" --ids <(echo 2 5 9) --print-ids --ignore-eos --temp 0 -n 4 --memory floor --disk 1G --stats "$work/stats.json"
json "$work/stats.json" 'd["prefill"]["tokens"] == 3 and d["decode"]["tokens"] == 3 and d["generated"] == 4 and d["ended"] == "length"'
json "$work/stats.json" 'all(k in d[p] for p in ("prefill", "decode") for k in ("tokens", "seconds", "bytes_read", "wait_s", "compute_s"))'
json "$work/stats.json" 'd["memory"]["budget"] >= sum(d["memory"]["terms"].values()) and d["memory"]["peak"] > 0'
json "$work/stats.json" '"engine" in d["io"] and "refused" in d["io"] and d["bound"]["share"] > 0'
run 1 run "$gguf" -p x -n 2 --stats "$work/no/such/folder"
has err '^sluice: error: .*no/such/folder'
lacks err '^prefill'
out_is ''
ok "files are left behind" [ -z "$(find "$work" -name '*.part-*')" ]

# a disk that fails, a pipe that closes, a disk that is full
SL_FAULT_READ=3:5 run 1 run "$gguf" -p x -n 2 --io direct --memory floor
has err '^sluice: error: .*llama-Q4_K_M.gguf.*offset.*Input/output error'
checks=$((checks + 1))
"$sluice" run "$gguf" -p x -n 2 >/dev/full 2>"$work/err"
[ $? = 1 ] || fail "a full disk is not an error"
has err '^sluice: error: cannot write to standard output: No space left on device$'
checks=$((checks + 1))
"$sluice" run "$gguf" -p x -n 3000 --ignore-eos 2>"$work/err" | head -c 1 >/dev/null
[ "${PIPESTATUS[0]}" = 141 ] || fail "a closed pipe: exit ${PIPESTATUS[0]}"
lacks err 'error'
"$sluice" run "$gguf" -p x --ignore-eos --disk-limit 1M --io direct --memory floor --stats "$work/int.json" >"$work/out" 2>"$work/err" &
sleep 1
kill -INT $!
wait $!
code=$?
checks=$((checks + 1))
# A background job of a script starts with SIGINT ignored; sluice catches it all the same.
[ $code = 130 ] || fail "Ctrl-C: exit $code"
has err '^prefill: '
json "$work/int.json" 'd["ended"] == "interrupted"'

# ---- eval -----------------------------------------------------------------------------------------
run 0 eval "$gguf" --ids <(echo 2 5 9 30 31 32) --logits "$work/a.safetensors" --hidden
has out '^perplexity [0-9.]+ over 5 tokens$'
ppl=$(cat "$work/out")
run 0 eval "$gguf" --ids <(echo 2 5 9 30 31 32) --logits "$work/b.safetensors" --hidden --memory floor --chunk 4 -t 1 --cpu-level scalar -q
out_is "$ppl"
ok "logits differ" cmp -s "$work/a.safetensors" "$work/b.safetensors"
run 0 eval "$gguf" --text $data/ppl.txt -c 64 --json
json "$work/out" 'd["tokens"] == 64 and d["predicted"] == 63 and d["perplexity"] > 1'
has err '^note: [0-9]+ tokens, of which the first 64'
run 1 eval "$gguf" --ids <(echo 2 5) --logits "$work/no/such/folder"
run 1 eval "$gguf" --ids <(echo 2 5) --logits "$work"
has err 'is a folder'
SL_FAULT_READ=9:5 run 1 eval "$gguf" --ids <(echo 2 5) --logits "$work/c.safetensors" --io direct --memory floor
ok "a failed eval leaves a file" [ -z "$(find "$work" -name 'c.safetensors*')" ]
ln -s a.safetensors "$work/link"
run 0 eval "$gguf" --ids <(echo 2 5) --logits "$work/link"
ok "the link was replaced" [ -L "$work/link" ]

# ---- tokenize -------------------------------------------------------------------------------------
run 0 tokenize $llama -p 'the <|im_start|>'
ids=$(cat "$work/out")
run 0 tokenize $llama/tokenizer.json -p 'the <|im_start|>'
out_is "$ids"
run 0 tokenize "$gguf" -p 'the <|im_start|>'
out_is "$ids"
run 0 tokenize "$gguf" -p 'the <|im_start|>' --special text
ok "text: as many tokens as parse" [ "$(wc -w <"$work/out")" -gt "$(wc -w <<<"$ids")" ]
run 0 tokenize "$gguf" --decode -p "$ids"
out_is 'the <|im_start|>'
run 0 tokenize "$gguf" --jsonl -f <(printf '{"id": 7, "text": "the"}\n\n{"text": "the cat", "id": "b\\u0000"}\n')
ok "two lines of JSON" [ "$(wc -l <"$work/out")" = 2 ]
has out '^\{"id": ?7, ?"ids": ?\[[0-9, ]+\]\}$'
cp "$work/out" "$work/lines"
run 0 tokenize "$gguf" --jsonl --decode -f "$work/lines"
has out '"text": ?"the cat"'
run 1 tokenize "$gguf" --jsonl -f <(printf '{"id": 7, "text": "the"}\n{"id": 8}\n')
has err 'line 2.*there is no "text"'
run 1 tokenize "$gguf" --decode -p '1 2 99999'
has err '^sluice: error: .*99999'
run 1 tokenize "$work/absent" -p x

# ---- inspect, verify, plan ------------------------------------------------------------------------
run 0 inspect "$gguf"
has out '^  family +llama$'
has out '^  blk\.0\.attn_q\.weight +Q4_K +256 x 256 '
has out ' units, .* parts, '
run 0 inspect $llama --json
json "$work/out" 'd["config"]["layers"] == 4 and len(d["tensors"]) == 39 and sum(p["bytes"] for p in d["parts"]) == d["weight_bytes_per_token"]'
run 0 verify "$gguf"
has out ': ok: 40 tensors, '
run 0 verify $llama --json
json "$work/out" 'd["ok"] and d["tensors"] == 39'
cp "$gguf" "$work/bad.gguf"
printf '\377\177' | dd of="$work/bad.gguf" bs=1 seek=$((196672 + 3 * 144)) conv=notrunc status=none
run 1 verify "$work/bad.gguf"
has err '^sluice: error: .*bad\.gguf: tensor blk\.0\.attn_k\.weight, block 3 \(row 3, column 0\) at offset 197104: its scale is not finite$'
run 1 verify "$work/bad.gguf" --json
json "$work/out" 'not d["ok"] and "block 3" in d["error"]'
run 0 plan "$gguf" --disk 2G
has out '^floor [0-9.]+ MiB$'
has out '^  100 % '
run 0 plan "$gguf" --disk 2G --json
json "$work/out" 'd["budgets"][0]["budget"] == d["floor"] and d["budgets"][-1]["streamed_bytes"] == 0'
run 0 plan "$gguf" --memory 128M
has out '^  asked '

# ---- bench ----------------------------------------------------------------------------------------
run 2 bench
has err 'say what to time: a MODEL, or --kernels'
run 2 bench --kernels model.gguf
has err 'kernels takes no file'
run 2 bench "$gguf" --tokens 0
has err 'at least 1'
for form in --quiet --csv --markdown --json; do # what they hold: tests/bench.sh
    run 0 bench "$gguf" --prompt-tokens 8 --tokens 3 -r 2 --disk 2G --memory 1M,1G --vs '-t 1 --piece 64K' $form
done
json "$work/out" 'd["budgets"][0]["sets"][0]["floor"] > 1 << 20 and all(s["same_output"] for s in d["sets"])'

# ---- traces and simulate --------------------------------------------------------------------------
# shellcheck disable=SC2086
run 0 run "$gguf" --ids <(echo 2 5 9) --print-ids $few --memory floor --trace "$work/run.trace" --io direct
out_is "$greedy"
has err '^memory: .* \+ recording 4\.0 MiB '
run 0 simulate "$work/run.trace"
has out '^llama-Q4_K_M\.gguf: 3 tokens of prefill, 7 decoded; as it ran, '
has out '^disk: 2\.00 GiB/s, 80 us, 32 at a time$'
cp "$work/out" "$work/once"
run 0 simulate "$work/run.trace"
ok "a simulation differs from itself" cmp -s "$work/out" "$work/once"
run 0 simulate "$work/run.trace" --memory 12M:132M:40M --disk 1G,100,16,500M --predict off --policy lru --ring 512K --hints 1M --pool 1M --json
json "$work/out" 'len(d["budgets"]) == 4 and d["disk_depth"] == 16 and d["disk_alone_bytes_per_s"] == 500 << 20 and d["run"]["decode_tokens"] == 7'
json "$work/out" '"decode_s" not in d["budgets"][0] and d["budgets"][3]["decode_tokens_per_s"] > 0 and d["budgets"][3]["streamed_bytes"] == 0'
run 0 simulate "$work/run.trace" --memory 100M --csv
has out '^budget_bytes,floor_bytes,prefill_s,'
has out '^104857600,[0-9]+,[0-9.e-]+,'
ok "two lines of CSV" [ "$(wc -l <"$work/out")" = 2 ]
run 0 eval "$gguf" --ids <(echo 2 5 9) --trace "$work/eval.trace" --policy lfu --half-life 3
run 0 simulate "$work/eval.trace"
run 0 bench "$gguf" --prompt-tokens 8 --tokens 3 --trace "$work/bench.trace"
run 0 simulate "$work/bench.trace" --json
json "$work/out" 'd["run"]["prefill_tokens"] == 16 and d["run"]["decode_tokens"] == 6'
run 0 run $data/qwen3_moe-Q4_K_M.gguf --ids <(echo 2 5 9) --print-ids --ignore-eos -n 40 --memory floor --predict 2 \
    --no-warm-start --trace "$work/moe.trace" --stats "$work/moe.stats"
json "$work/moe.stats" 'sum(u["needs"] for u in d["experts_by_unit"]) == d["prefill"]["experts"]["needs"] + d["decode"]["experts"]["needs"] > 0'
for predict in auto off 1; do
    run 0 simulate "$work/moe.trace" --predict $predict --policy lfu --json
    json "$work/out" 'all(0 < b["hits"] <= b["needs"] and 0 < b["optimal_hit_rate"] < 1 for b in d["budgets"])'
    json "$work/out" "(d['budgets'][0]['guesses'] > 0) == ('$predict' != 'off')"
done
run 0 simulate tests/data/fuzz/trace/dense # of version 1
run 1 simulate "$work/run.trace" --memory 1M
has err '^sluice: error: --memory 1\.0 MiB is too little memory; for the parts of this trace [0-9.]+ MiB is the least'
run 2 simulate "$work/run.trace" --memory 8M:4M:1M
has err "^sluice: error: --memory: '8M:4M:1M' is not accepted; a size such as 6G, a list \(4G,6G\) or a range FROM:TO:STEP is"
run 0 simulate "$work/run.trace" --memory 60M,100M:140M:20M --csv
ok "budgets of a list" [ "$(sed '1d;s/,.*//' "$work/out" | tr '\n' ' ')" = "62914560 104857600 125829120 146800640 " ]
run 2 simulate "$work/run.trace" --disk 1G,100,16,5
has err "^sluice: error: --disk: '1G,100,16,5' is not accepted; RATE"
run 2 simulate "$work/run.trace" --disk fast
has err "^sluice: error: --disk: 'fast' is not accepted; RATE"
run 2 simulate "$work/run.trace" --csv --json
run 2 simulate
run 1 simulate "$gguf"
has err '^sluice: error: .*\.gguf: is not a trace'
head -c 700 "$work/run.trace" >"$work/cut.trace"
run 1 simulate "$work/cut.trace"
has err 'cut\.trace: the trace is cut short: it ends at offset 700$'
run 1 run "$gguf" -p x -n 2 --trace "$work/no/such/folder"
has err '^sluice: error: .*no/such/folder'
run 0 run "$gguf" -p x -n 2 --trace /dev/full
has err '^warning: /dev/full: cannot write: No space left on device; the run goes on without a trace$'

echo "$checks checks, $failed failed"
[ $failed = 0 ]
