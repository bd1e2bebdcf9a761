#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# docs.sh write  writes docs/flags.md from the programs' flag tables
# docs.sh check  fails when the file in the repository is not what the programs say
set -euo pipefail
cd "$(dirname "$0")/.." || exit 1
build=${BUILD:-build}
generate() {
    echo '# Flags'
    echo
    echo 'Generated from the tables in the code by `scripts/docs.sh write`.'
    local program
    for program in controller provisioner hostpath nfs fuse holder; do
        [ -x "$build/berth-$program" ] || continue
        echo
        "$build/berth-$program" --help-markdown
    done
}
case ${1:-} in
write) generate >docs/flags.md ;;
check) diff -u docs/flags.md <(generate) ;;
*)
    echo "usage: docs.sh write|check" >&2
    exit 2
    ;;
esac
