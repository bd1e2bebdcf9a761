#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Formatting, static analysis and shell checks over everything that is tracked. Prints "N passed, N failed".
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
passed=0 failed=0
check() {
    local name=$1
    shift
    if "$@"; then
        passed=$((passed + 1))
        echo "ok      $name"
    else
        failed=$((failed + 1))
        echo "FAILED  $name"
    fi
}
need=()
# clang itself is for the tests that follow
for tool in clang clang-format clang-tidy cppcheck shellcheck; do
    command -v "$tool" >/dev/null || need+=("$tool")
done
if [ ${#need[@]} -gt 0 ]; then
    DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${need[@]}" >/dev/null || exit 1
fi
mapfile -t sources < <(git ls-files '*.c' '*.h')
mapfile -t units < <(git ls-files '*.c' | grep -v '^tests/fuzz/')
mapfile -t scripts < <(git ls-files '*.sh' .ci/run)

tidy() {
    make --no-print-directory lib O=build >/dev/null || return 1 # generated headers
    printf '%s\n' "${units[@]}" | xargs -P "$(nproc)" -n 4 bash -c \
        'clang-tidy --quiet "$@" -- -std=gnu17 -D_GNU_SOURCE -D_FILE_OFFSET_BITS=64 -DFUSE_USE_VERSION=312 -I. -Ibuild/gen \
            -DBERTH_VERSION="\"0\"" -DBERTH_REVISION="\"0\"" 2>/dev/null' _
}
no_paths() {
    # the repository speaks of the project alone: no absolute paths of a build machine
    ! git grep -nIE '(^|[^A-Za-z0-9_./-])/(work|home|root)/[a-z]' -- . ':!scripts/lint.sh'
}
check clang-format clang-format --dry-run -Werror "${sources[@]}"
check cppcheck cppcheck --enable=warning,performance,portability --inline-suppr --error-exitcode=1 --quiet \
    --suppress=missingIncludeSystem --suppress=unknownMacro --std=c11 -D_GNU_SOURCE -I. -j "$(nproc)" "${units[@]}"
check shellcheck shellcheck -x -P SCRIPTDIR -S warning -e SC2034 "${scripts[@]}"
check paths no_paths
check clang-tidy tidy
echo "lint: $passed passed, $failed failed"
[ "$failed" -eq 0 ]
