#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# How fast the embedded API server is: start, writes without and with 50 watches, memory for 100,000 objects.
# The server is one thread; the load runs on another core where there is one. BUILD names the build directory.

set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=${BUILD:-$root/build}
dir=$(mktemp -d)
pid=
trap '[[ -z $pid ]] || kill "$pid" 2>/dev/null || true; rm -rf "$dir"' EXIT

# on CORE COMMAND…: in place of this shell
on() {
    local core=$1
    shift
    if command -v taskset >/dev/null && (($(nproc) > 1)); then exec taskset -c "$core" "$@"; else exec "$@"; fi
}
load() { (on 1 "$build/berth-devapi-load" --port="$port" "$@"); }

start() {
    rm -f "$dir/kubeconfig"
    local begin now
    begin=$(date +%s%N)
    on 0 "$build/berth-devapi" --kubeconfig-out="$dir/kubeconfig" "$@" 2>"$dir/log" &
    pid=$!
    until [[ -s $dir/kubeconfig ]]; do sleep 0.001; done
    now=$(date +%s%N)
    echo "started in $(((now - begin) / 1000000)) ms"
    port=$(sed -n 's/.*server: .*:\([0-9]*\)$/\1/p' "$dir/kubeconfig")
}

stop() {
    local ticks
    ticks=$(awk '{print $14 + $15}' "/proc/$pid/stat")
    echo "server: CPU $((ticks * 1000 / $(getconf CLK_TCK))) ms, $(awk '/VmRSS/ {print int($2 / 1024)}' "/proc/$pid/status") MiB"
    kill "$pid"
    wait "$pid" || true
    pid=
}

start
load --objects=1000 --writes="${WRITES:-50000}"
stop
start
load --objects=1000 --writes="${WRITES:-50000}" --watchers=50
stop
start --watch-history=20000
load --objects=100000 --writes=0
stop
