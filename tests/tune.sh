#!/usr/bin/env bash
# What this proves: sluice tune as a user meets it. On an emulated slow disk, where a small ring is certain to be
# better, it finds that, keeps it, and run, eval and bench use it and print the same; options given win. What is kept
# for another budget, machine or model, or is damaged, is told in one line and not used. A setting that would change
# the output, a folder that cannot be written and a full disk end it with nothing half-written. Ctrl-C keeps what is
# certain.
# test: serial slow plain timeout=200
set -u
cd "$(dirname "$0")/.." || exit 2
sluice=${SLUICE:-./sluice}
work=$(mktemp -d)
mounted=
cleanup() {
    [ -z "$mounted" ] || umount "$work/full" 2>/dev/null
    chmod -R u+w "$work"
    rm -rf "$work"
}
trap cleanup EXIT
export XDG_CONFIG_HOME=$work/config XDG_CACHE_HOME=$work/cache TMPDIR=$work
. tests/lib_cli.bash


model=$work/m.gguf
cp tests/data/models/qwen3_5-Q4_K_M.gguf "$model"
run 1 bench "$model" -c 64 -M 1M --prompt-tokens 8 -n 8
floor=$(sed -n 's/.*--memory \([0-9]*\)M is the least.*/\1/p' "$work/err")
memory=$((floor * 1024 + 1088))K # half of the weights stay
less=$((floor * 1024 - 1024))K # run has no parent process to pay for
short="-c 64 -M $memory --disk-limit 200M --prompt-tokens 8 -n 8"

# ---- usage ----------------------------------------------------------------------------------------
run 2 tune
run 2 tune "$model" --show --reset
has err 'only one of --show and --reset'
run 2 tune "$model" --io null
run 2 tune "$model" -n 0
run 2 tune "$model" --for soon
has err "^sluice: error: --for: 'soon' is not accepted"
run 0 tune "$model" --show
has out '^nothing is kept for .*m\.gguf$'
run 0 tune "$model" --reset
has out '^nothing is kept for '
run 1 tune "$work/absent.gguf"
# shellcheck disable=SC2086
run 1 tune "$model" $short --ids /dev/null
has err 'there are none'
run 1 tune "$model" -c 64 --prompt-tokens 64 -n 8
has err 'the context holds 64$'
run 1 tune "$model" -c 64 -M 1M --for 1s
has err '^sluice: error: --memory 1\.0 MiB is too little memory; the floor is '

# ---- found, kept, used ----------------------------------------------------------------------------
run 0 run "$model" -c 64 -M "$less" -p hi -n 5 --temp 0 -q
cp "$work/out" "$work/before"
# shellcheck disable=SC2086
run 0 tune "$model" $short --for 12s --ring 700K
has err '^simulated [0-9]+ settings in '
has err '^ +the defaults [0-9.]+ s, the best [0-9.]+ s: --ring [0-9]+K'
has err '^ 0:0[0-9] .* tokens/s  --ring 700K$'
has out '^best      --ring [0-9]+K'
has out 'faster in [0-9]+ of [0-9]+ pairs$'
has out '^kept in   .*/config/sluice/tuned/m\.gguf-[0-9a-f]{8}\.json$'
kept=$(find "$XDG_CONFIG_HOME" -name '*.json')
ok "one file, and nothing beside it" [ "$(find "$XDG_CONFIG_HOME" -type f)" = "$kept" ]
ok "a trace is left behind" [ -z "$(find "$work" -name 'sluice-tune-*')" ]
cp "$kept" "$work/kept.json"
run 0 tune "$model" --show
has out '^--ring [0-9]+K'
has out 'used from two thirds of it'
run 0 run "$model" -c 64 -M "$less" -p hi -n 5 --temp 0
has err '^note: settings kept by sluice tune on 2[0-9-]+: --ring .* \(\+[0-9]+ %\); --no-kept ignores them$'
ok "the text differs" cmp -s "$work/out" "$work/before"
run 0 eval "$model" -c 64 -M "$less" --ids <(echo 2 5 9)
has err '^note: settings kept by '
# shellcheck disable=SC2086
run 0 bench "$model" $short -r 1
has err '^note: settings kept by '
run 0 run "$model" -c 64 -M "$less" -p hi -n 1 --no-kept
lacks err 'kept'
run 0 run "$model" -c 64 -M "$less" -p hi -n 1 --ring 500K
lacks err 'kept by.*--ring'
has err 'through a ring of 500 KiB'
run 0 run "$model" -c 64 -M 64M -p hi -n 1
has err '^note: settings kept by sluice tune are not used: they are for a budget of .*, this is 64\.0 MiB$'
run 0 plan "$model" -M "$less"
lacks err 'kept'

# ---- files that do not fit ------------------------------------------------------------------------
with() { # SED PATTERN: what run says of the file with a change
    sed "$1" "$work/kept.json" >"$kept"
    run 0 run "$model" -c 64 -M "$less" -p hi -n 5 --temp 0
    has err "$2"
    ok "the text differs" cmp -s "$work/out" "$work/before"
    ok "more than one line about it" [ "$(grep -c -e kept -e tuned "$work/err")" = 1 ]
}
options() { # JSON: in place of what was found
    echo "/\"options\":/,/}/c\"options\": {$1},"
}
with "$(options '"rinng": "1M"')" '^warning: .*m\.gguf-.*\.json: unknown option .rinng.; its settings are not used$'
with "$(options '"ring": "lots"')" "^warning: .*: --ring: 'lots' is not accepted; .*; its settings are not used$"
with "$(options '"ring": 5')" "^warning: .*: the value of 'ring' is not a text; its settings are not used$"
with "$(options '"io": "null"')" "^warning: .*; its settings are not used$"
with 's/"cpu":.*"/"cpu": "Z80"/' '^note: settings kept by sluice tune are not used: they are for another machine \(Z80, '
with 's/"bytes":.*[0-9]/"bytes": 7/' "^note: settings kept by sluice tune are not used: the model's size or date has changed"
with 's/"sluice_settings":.*1/"sluice_settings": 2/' '^warning: .*: of version 2; this program reads version 1; no kept settings'
with '$d' '^warning: .*m\.gguf-.*\.json:[0-9]+:[0-9]+: .*; no kept settings are used$'
with '1,$d' '^warning: .*; no kept settings are used$'
with '1s/.*/[1]/;2,$d' '^warning: .*: not a file of sluice tune; no kept settings are used$'
# A kept chunk whose scratch a long text leaves no room for is no reason to refuse it.
seq 2 500 >"$work/long"
run 1 eval "$model" -M 1M --ids "$work/long" --no-kept
tight=$(sed -n 's/.*--memory \([0-9]*\)M is the least.*/\1/p' "$work/err")
sed -e "$(options '"chunk": "2048"')" -e "s/\"memory\":.*/\"memory\": $((tight << 20)),/" "$work/kept.json" >"$kept"
run 0 eval "$model" -M "${tight}M" --ids "$work/long"
has err '^note: with these settings the budget is too small for this context; the defaults are used$'
run 0 tune "$model" --reset
has out '^removed .*json$'
ok "it is still there" [ ! -e "$kept" ]
cp "$work/kept.json" "$kept"
touch "$model"
run 0 run "$model" -c 64 -M "$less" -p hi -n 1
has err "the model's size or date has changed"
run 0 tune "$model" --show
has out "not used: the model's size or date has changed"
run 0 tune "$model" --reset

# ---- what ends it ---------------------------------------------------------------------------------
# shellcheck disable=SC2086
SL_FAULT_OUTPUT=4 run 1 tune "$model" $short --for 3s
has err '^sluice: error: the output with .* is not that of the first run .*this is a bug of sluice, and nothing is kept$'
ok "something is kept" [ -z "$(find "$XDG_CONFIG_HOME" -type f)" ]
# shellcheck disable=SC2086
XDG_CONFIG_HOME=/proc/self run 1 tune "$model" $short --for 3s
has err '^sluice: error: /proc/self/sluice: cannot make this folder: '
lacks err 'tokens/s'
# shellcheck disable=SC2086
HOME=x XDG_CONFIG_HOME='' run 1 tune "$model" $short --for 3s
has err 'no place to keep settings in'
# shellcheck disable=SC2086
TMPDIR=$work/absent run 0 tune "$model" $short --for 1s
has err '^warning: .*absent.*; the simulator is left out$'
mkdir "$work/full"
if mount -t tmpfs -o size=16k none "$work/full" 2>/dev/null; then
    mounted=yes
    mkdir -p "$work/full/sluice/tuned"
    head -c 16k /dev/zero >"$work/full/fill" 2>/dev/null
    # shellcheck disable=SC2086
    XDG_CONFIG_HOME=$work/full run 1 tune "$model" $short --for 12s
    has err '^sluice: error: .*m\.gguf-.*: .*No space left on device$'
    ok "half a file is left" [ -z "$(find "$work/full" -name 'm.gguf*')" ]
fi

# ---- Ctrl-C ---------------------------------------------------------------------------------------
# shellcheck disable=SC2086
"$sluice" tune "$model" $short --for 60s >"$work/out" 2>"$work/err" &
sleep 0.7
kill -INT $!
wait $!
code=$?
checks=$((checks + 1))
[ $code = 130 ] || fail "Ctrl-C: exit $code"
has out '^nothing kept: '
lacks err 'error'

echo "$checks checks, $failed failed"
[ $failed = 0 ]
