#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# fuzz.sh SECONDS: builds the targets in tests/fuzz with clang's fuzzer, address and undefined behaviour sanitizers, and
# gives each that long. What breaks one is left in build-fuzz/. Prints "N passed, N failed".
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
seconds=${1:-60} out=build-fuzz passed=0 failed=0
has_fuzzer() { [ -e "$(clang -print-file-name="libclang_rt.fuzzer-$(uname -m).a" 2>/dev/null)" ]; }
has_fuzzer || DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends clang libclang-rt-dev >/dev/null ||
    exit 1
mkdir -p "$out"
make --no-print-directory -j"$(nproc)" fuzz-build O=$out CC=clang SAN=address CFLAGS='-g -fsanitize=fuzzer-no-link' \
    >"$out/build.log" 2>&1 || { tail -20 "$out/build.log"; exit 1; }
tests/fuzz/seeds.py "$out/seeds" || exit 1
for target in "$out"/tests/fuzz/fuzz_*; do
    [ -x "$target" ] || continue
    name=$(basename "$target")
    mkdir -p "$out/corpus/$name"
    if "$target" -max_total_time="$seconds" -max_len=65536 -artifact_prefix="$out/$name-" -print_final_stats=1 \
        "$out/corpus/$name" "$out/seeds/$name" >"$out/$name.log" 2>&1; then
        passed=$((passed + 1))
        echo "ok      $name, $(sed -n 's/^stat::number_of_executed_units: *//p' "$out/$name.log") inputs"
    else
        failed=$((failed + 1))
        echo "FAILED  $name"
        tail -40 "$out/$name.log"
    fi
done
echo "fuzz: $passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
