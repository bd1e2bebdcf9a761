#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Figures of the FUSE backend: against the bare directory and a loop image, memory of 100 volumes, pause of a take-over.
#   bench/fuse.sh [PROGRAMS-DIRECTORY] [DIRECTORY-FOR-VOLUMES]
# Root; in a mount namespace of its own, so that nothing is left behind.
set -euo pipefail
cd "$(dirname "$0")"
if [ "$(id -u)" != 0 ] || [ ! -e /dev/fuse ]; then
    echo "skipped: needs root and /dev/fuse"
    exit 0
fi
exec unshare --mount --propagation private python3 fuse.py --programs "${1:-../build}" ${2:+--base "$2"}
