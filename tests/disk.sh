#!/usr/bin/env bash
# What this proves: sluice disk as a user meets it. A small file gives a whole table and valid JSON; what is kept
# is found again, per disk, and damage is noticed; memory does not pass for a disk; no path, no permission, no
# room, a read that fails and a limit give what they should, and nothing is left behind.
set -u
cd "$(dirname "$0")/.." || exit 2
sluice=${SLUICE:-./sluice}
work=$(mktemp -d)
# Not /tmp itself: it may be in memory.
here=$(mktemp -d "${BUILD:-build}/disk-test-XXXXXX")
mounted=
cleanup() {
    [ -z "$mounted" ] || umount "$work/full" 2>/dev/null
    rm -rf "$work" "$here"
}
trap cleanup EXIT
export XDG_CACHE_HOME=$work/cache
mkdir "$XDG_CACHE_HOME"
subcommand=disk
. tests/lib_cli.bash

json() { # FILE EXPRESSION on d
    checks=$((checks + 1))
    command -v python3 >/dev/null || return 0
    python3 -c 'import json, sys; d = json.load(open(sys.argv[1])); sys.exit(0 if eval(sys.argv[2]) else 1)' "$1" "$2" ||
        fail "$2 does not hold"
}
kept() { find "$XDG_CACHE_HOME" -name '*.json' | wc -l; }

head -c 8M /dev/urandom >"$here/model.bin"
sync "$here/model.bin"

# ---- nothing kept yet; then a file ------------------------------------------------------------------
run 1 "$here/model.bin" --show
has err '^sluice: error: nothing is kept of the disk of .*; .sluice disk .* measures it$'
run 0 "$here/model.bin" --for 0.4s
has out '^disk  '
has out '^file  .*model\.bin, 8\.0 MiB$'
has out '^  64\.0 KiB  +[0-9]'
has out '^   4\.0 MiB  +[0-9]'
has out '24\.0 MiB, scattered '
has out '^ +4\.0 KiB +[0-9.]+ [um]s +[0-9.]+ [um]s'
ok "a line is wider than 80 columns" sh -c "! grep -nE '^.{81}' '$work/out' | grep -v '^[0-9]*:file '"
run 0 "$here/model.bin" --for 0.3s --json
json "$work/out" 'd["version"] == 1 and d["file_bytes"] == 8 << 20 and not d["temporary"]'
json "$work/out" 'len(d["points"]) == 19 and all(p["refused"] or p["bytes_per_s"] > 0 for p in d["points"])'
json "$work/out" '{p["io"] for p in d["points"]} == {"direct", "mapped", "pread"}'
json "$work/out" 'd["bytes_per_s"] > 0 and d["read_bytes"] > 0 and (d["kept"] is not None) == d["proven"]'
# Where the kernel counts, a fresh file is read from its disk.
if grep -q '"proven":.*true' "$work/out" && ! grep -q '"filesystem":.*tmpfs' "$work/out"; then
    ok "not one file is kept" [ "$(kept)" = 1 ]
    run 0 "$here" --show
    has out '^   1\.0 MiB  '
    run 0 "$here/model.bin" --show --json
    json "$work/out" 'len(d["points"]) == 19 and d["file"].endswith("model.bin")'
    echo '{"version": 99}' >"$(find "$XDG_CACHE_HOME" -name '*.json')"
    run 1 "$here" --show
    has err '^note: .*of another version or another disk; not used$'
    printf '{"version": 1, "poi' >"$(find "$XDG_CACHE_HOME" -name '*.json')"
    run 1 "$here" --show
    has err '^note: .*; not used, .sluice disk. measures anew$'
fi

# ---- a rate that is asked for is obeyed, and not kept ------------------------------------------------
rm -rf "$XDG_CACHE_HOME/sluice"
run 0 "$here/model.bin" --for 0.4s --disk-limit 20M --json
json "$work/out" 'd["disk_limit"] == 20 << 20 and d["kept"] is None and d["read_bytes"] < 100 << 20'
ok "figures of a limited disk are kept" [ "$(kept)" = 0 ]

# ---- a temporary file --------------------------------------------------------------------------------
run 0 "$here" --for 0.3s --size 16M --json
json "$work/out" 'd["temporary"] and d["file_bytes"] == 16 << 20'
ok "something was left behind" [ "$(ls -A "$here")" = model.bin ]

# ---- no home, no cache that can be written -----------------------------------------------------------
: >"$work/a-file"
XDG_CACHE_HOME=$work/a-file run 0 "$here/model.bin" --for 0.2s
ok "an error instead of a warning" sh -c "! grep -q '^sluice: error' '$work/err'"

# ---- bad input ---------------------------------------------------------------------------------------
run 2
has err 'PATH is missing'
run 1 "$here/absent"
has err "^sluice: error: cannot open .*/absent: No such file or directory$"
run 1 /dev/null
has err 'is a device'
head -c 1000 /dev/zero >"$here/small"
run 1 "$here/small"
has err 'too small to measure a disk with'
rm "$here/small"
run 2 "$here" --for soon
has err "^sluice: error: --for: 'soon' is not accepted; a time such as 5s"
run 1 "$here" --size 900T
has err '^sluice: error: .*: .* are free, too little for a temporary file of 900 TiB$'
SL_FAULT_READ=40:EIO run 1 "$here/model.bin" --for 0.3s
has err '^sluice: error: .*model\.bin: reading [0-9]+ bytes at offset [0-9]+ failed: Input/output error$'
SL_REFUSE=io_uring run 0 "$here/model.bin" --for 0.3s
has out 'refused'
has out '^direct: io_uring refused'
has out '^reads of 1\.0 MiB, pread'
if [ "$(id -u)" != 0 ]; then
    mkdir -m 555 "$here/closed"
    run 1 "$here/closed" --for 0.2s
    has err '^sluice: error: .*closed: cannot make a temporary file: Permission denied$'
    rmdir "$here/closed"
fi

# ---- memory is no disk, and a disk that is full ------------------------------------------------------
mkdir "$work/full"
if [ "$(id -u)" = 0 ] && mount -t tmpfs -o size=24M tmpfs "$work/full" 2>/dev/null; then
    mounted=1
    run 1 "$work/full" --for 0.2s
    has err '^sluice: error: .*/full: 24\.0 MiB are free; a temporary file of at least 16\.0 MiB, a quarter of it, is needed'
    rm -rf "$XDG_CACHE_HOME/sluice"
    head -c 2M "$here/model.bin" >"$work/full/model.bin"
    run 0 "$work/full/model.bin" --for 0.3s
    has out '^NOT proven'
    has out '\?$'
    ok "figures of memory are kept" [ "$(kept)" = 0 ]
    head -c 64M /dev/zero >"$work/full/rest" 2>/dev/null
    run 1 "$work/full" --for 0.2s --size 16M
    has err 'are free, too little for a temporary file of 16\.0 MiB$'
    XDG_CACHE_HOME=$work/full run 0 "$here/model.bin" --for 0.2s
    has err '^warning: the figures are not kept: '
    ok "half a file is kept" [ -z "$(find "$work/full/sluice" -type f 2>/dev/null)" ]
fi
echo "$checks checks, $failed failed"
[ $failed = 0 ]
