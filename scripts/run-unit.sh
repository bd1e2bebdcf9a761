#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs cmocka test programs, two at a time, and prints "N passed, N failed, N skipped" over all their test functions.
set -uo pipefail
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
one() {
    local bin=$1 log
    log=$2/$(echo "$bin" | tr / _)
    ASAN_OPTIONS=${ASAN_OPTIONS:-detect_leaks=1:abort_on_error=0} \
        timeout --kill-after=5 300 "$bin" >"$log" 2>&1
    echo "$?" >"$log.rc"
}
export -f one
printf '%s\n' "$@" | xargs -P "$(nproc)" -I{} bash -c 'one "$1" "$2"' _ {} "$out"
# Deadlines in tests are real ones: what failed while two ran side by side gets one more try alone, and is named.
for bin in "$@"; do
    log=$out/$(echo "$bin" | tr / _)
    [ "$(cat "$log.rc")" = 0 ] && continue
    echo "figure: second run of $bin, after: $(grep -aE '^\[ +FAILED +\] [^0-9]|ERROR: |SUMMARY: ' "$log" | sort -u | head -3 | tr '\n' ' ')"
    one "$bin" "$out"
done
passed=0 failed=0 skipped=0
for bin in "$@"; do
    log=$out/$(echo "$bin" | tr / _)
    ok=$(grep -c '^\[       OK \]' "$log")
    # cmocka names these once more in its summary
    bad=$(grep '^\[  FAILED  \] [^0-9]' "$log" | sort -u | wc -l)
    skip=$(grep '^\[  SKIPPED \] [^0-9]' "$log" | sort -u | wc -l)
    rc=$(cat "$log.rc")
    # a crash or a sanitizer report is a failure even when no test function says so
    [ "$rc" = 0 ] || [ "$bad" -gt 0 ] || bad=1
    [ "$rc" = 0 ] && [ $((ok + skip)) -eq 0 ] && { echo "$bin ran no test"; bad=1; }
    if [ "$bad" -gt 0 ]; then
        echo "---- $bin (exit $rc)"
        tail -c 6000 "$log"
    fi
    passed=$((passed + ok)) failed=$((failed + bad)) skipped=$((skipped + skip))
    [ "$skip" -eq 0 ] || grep -m1 '^skipped: ' "$log"
done
echo "unit tests: $passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
