#!/usr/bin/env bash
# What this proves: every option about speed is documented. Each one that the help of a command lists under "Speed"
# has its section in docs/tuning.md, with how to see its effect, and is in docs/cli.md; no section is about an option
# that there is not; and the settings in --stats carry the same names.
set -u
cd "$(dirname "$0")/.." || exit 2
sluice=${SLUICE:-./sluice}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
checks=0 failed=0

check() { # WHAT COMMAND...
    local what=$1
    shift
    checks=$((checks + 1))
    "$@" || {
        echo "$what"
        failed=$((failed + 1))
    }
}
speed() { # COMMAND: its options under "Speed", without the dashes
    "$sluice" help "$1" | sed -n '/^Speed$/,/^$/s/^  .\{4\}--\([a-z-]*\).*/\1/p'
}
section() { # NAME: its text in docs/tuning.md
    sed -n "/^### --$1\$/,/^##/p" docs/tuning.md
}

for command in run eval bench plan simulate; do
    speed $command
done | sort -u >"$work/options"
check "the help lists no options about speed" [ "$(wc -l <"$work/options")" -ge 12 ]
while read -r name; do
    check "docs/tuning.md has no section '### --$name'" [ -n "$(section "$name")" ]
    check "docs/cli.md does not mention --$name" grep -qE -- "--$name([^a-z-]|\$)" docs/cli.md
done <"$work/options"
sed -n 's/^### --//p' docs/tuning.md | while read -r name; do
    check "docs/tuning.md: '$name' is no option of run" grep -qE -- "--$name " <("$sluice" help run)
    echo "$failed" >"$work/failed"
done
[ ! -s "$work/failed" ] || [ "$(cat "$work/failed")" = 0 ] || failed=$((failed + 1))

model=tests/data/models/qwen3_moe-Q4_K_M.gguf
"$sluice" run $model --ids <(echo 2 5 9) --print-ids -n 2 --ignore-eos --no-warm-start --stats "$work/stats" -q >"$work/out" ||
    exit 1
for name in threads chunk part ring pool predict hints io in-flight piece policy half-life; do
    check "'$name' is not one of the options" grep -qx -- "$name" "$work/options"
    check "docs/tuning.md does not say how to see --$name" grep -q '^\*See it:\*' <(section $name)
    check "--stats has no setting '$name'" grep -qE "\"$name\":[[:space:]]*[0-9\"]" <(sed -n '/"settings"/,/}/p' "$work/stats")
done
echo "$checks checks, $failed failed"
[ $failed = 0 ]
