#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Every benchmark in turn: the embedded API server, the hostpath driver's calls, the FUSE backend.
#   bench/run.sh [DIRECTORY OF THE PROGRAMS]
# Root, since volumes are mounted. Figures of a machine that does other work meanwhile mean little.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
build=$(realpath "${1:-build}")
status=0
part() {
    echo "== $1"
    shift
    "$@" || status=1
}
part "embedded API server" env BUILD="$build" bench/devapi.sh
for backend in plain loop fuse; do
    part "hostpath, $backend" env BUILD="$build" bench/hostpath.py --backend "$backend"
done
part "FUSE backend" bench/fuse.sh "$build"
exit "$status"
