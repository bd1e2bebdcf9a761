#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs every test of the project and prints one line a step, the log of what failed, and last "N passed, N failed".
#   scripts/test.sh [--only REGEX]     steps whose name matches
# A step's own last "N passed, N failed" line counts; a step without one counts as one test by its exit status.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
only=${2:-.}
logs=${TEST_LOGS:-build/test-logs}
mkdir -p "$logs"
passed=0 failed=0 skipped=0
children=()
cleanup() {
    local pid
    for pid in "${children[@]}"; do
        kill -- "-$pid" 2>/dev/null
    done
}
trap cleanup EXIT
trap 'exit 130' INT TERM

# attempt NAME SECONDS COMMAND... : sets rc, p, f, s and log
attempt() {
    local name=$1 limit=$2 line
    shift 2
    log=$logs/$name.log
    # a session of its own, so that everything the step started can be ended with it
    setsid timeout --kill-after=30 "$limit" "$@" >"$log" 2>&1 </dev/null &
    children+=($!)
    wait $!
    rc=$?
    unset 'children[-1]'
    line=$(grep -aE '^([a-z0-9 .-]+: )?[0-9]+ passed, [0-9]+ failed' "$log" | tail -1)
    p=0 f=0 s=0
    if [[ $line =~ ([0-9]+)\ passed,\ ([0-9]+)\ failed ]]; then
        p=${BASH_REMATCH[1]} f=${BASH_REMATCH[2]}
        [[ $line =~ ([0-9]+)\ skipped ]] && s=${BASH_REMATCH[1]}
        [ "$rc" = 0 ] || [ "$f" -gt 0 ] || f=1
    elif [ "$rc" = 0 ]; then
        p=1
    else
        f=1
    fi
}

# step NAME SECONDS COMMAND... ; live NAME SECONDS COMMAND... is the same for suites of many live programs, whose deadlines
# are real ones: a failed run is shown and made once more, and the second one counts.
step() {
    [[ $1 =~ $only ]] || return 0
    local start=$SECONDS
    attempt "$@"
    report "$1" "$start" "$2"
}
live() {
    [[ $1 =~ $only ]] || return 0
    local start=$SECONDS
    attempt "$@"
    if [ "$f" -gt 0 ]; then
        echo "$1: $p passed, $f failed, once more; of the first run:"
        grep -aE '^(FAILED|not ok|DIFF|failed)' "$log" | head -20 | sed 's/^/    /'
        cp "$log" "$log.first"
        attempt "$@"
    fi
    report "$1" "$start" "$2"
}
report() {
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
    printf '%-28s %5d passed %4d failed  %4d s\n' "$1" "$p" "$f" $((SECONDS - $2))
    grep -aE '^(figure|skipped): ' "$log" | sed 's/^/    /'
    if [ "$f" -gt 0 ]; then
        [ "$rc" = 124 ] && echo "    stopped after its limit of $3 s"
        echo "---- last lines of $log"
        tail -n "${TEST_TAIL:-80}" "$log"
        echo "----"
    fi
}

started=$SECONDS
. scripts/test-steps.sh
echo "took $(((SECONDS - started) / 60)) min $(((SECONDS - started) % 60)) s${skipped:+, $skipped skipped}"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
