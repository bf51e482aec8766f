# What tests of the program share: they run it, and look at what it said. Sourced; the caller has set
# work to a folder of its own, and sluice to the program. subcommand: of all runs; none if not set.
checks=0 failed=0

fail() {
    echo "line ${BASH_LINENO[1]}: $1"
    sed 's/^/  stdout: /' "$work/out" | head -n 12
    sed 's/^/  stderr: /' "$work/err" | head -n 10
    failed=$((failed + 1))
}
run() { # STATUS ARGUMENT...: keeps out and err
    local wanted=$1 got
    shift
    checks=$((checks + 1))
    "$sluice" ${subcommand:+"$subcommand"} "$@" >"$work/out" 2>"$work/err" </dev/null
    got=$?
    [ $got = "$wanted" ] || fail "sluice ${subcommand:+$subcommand }$*: exit $got, expected $wanted"
}
has() { # FILE PATTERN: a line of out or err matches
    checks=$((checks + 1))
    grep -qE -- "$2" "$work/$1" || fail "$1 has no '$2'"
}
lacks() { # FILE PATTERN
    checks=$((checks + 1))
    ! grep -qE -- "$2" "$work/$1" || fail "$1 has '$2'"
}
ok() { # WHAT COMMAND...
    local what=$1
    shift
    checks=$((checks + 1))
    "$@" || fail "$what"
}
