#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# conformance.sh [devapi|real|faults|kubectl] [arguments of the Python script]
# The same expectations on berth-devapi (default; DEVAPI names the binary, DEVAPI_ARGS adds flags) or on the real API
# server of e2e/cluster; `faults` tests the fault injection of berth-devapi instead, `kubectl` what kubectl makes of it.
# Last line: "N passed, N failed".

set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
what=devapi
case ${1:-} in devapi | real | faults | kubectl) what=$1 && shift ;; esac
dir=$(mktemp -d)
pid=

finish() {
    local status=$?
    if [[ $what = real ]]; then
        "$root/e2e/cluster/cluster.sh" stop "$dir/cluster" >/dev/null || true
    elif [[ -n $pid ]]; then
        kill "$pid" 2>/dev/null || true
        # a sanitizer tells what it found by the exit status
        wait "$pid" || { status=1 && cat "$dir/log" >&2; }
    fi
    rm -rf "$dir"
    exit "$status"
}
trap finish EXIT

if [[ $what = real ]]; then
    KCM_ARGS=${KCM_ARGS:---concurrent-gc-syncs=5} "$root/e2e/cluster/cluster.sh" start "$dir/cluster" \
        --with-kcm=pvc-protection,pv-protection,namespace,garbagecollector --disable-admission=ServiceAccount >/dev/null
    python3 "$here/conformance.py" --kubeconfig "$dir/cluster/kubeconfig" \
        --compact "'$root/e2e/cluster/cluster.sh' compact '$dir/cluster'" "$@"
else
    # shellcheck disable=SC2086 # several flags
    "${DEVAPI:-$root/build/berth-devapi}" --kubeconfig-out="$dir/kubeconfig" ${DEVAPI_ARGS:-} 2>"$dir/log" &
    pid=$!
    for _ in $(seq 200); do
        [[ -s $dir/kubeconfig ]] && break
        sleep 0.02
    done
    [[ -s $dir/kubeconfig ]] || { cat "$dir/log" >&2 && exit 1; }
    script=conformance.py
    [[ $what = faults ]] && script=faults.py
    if [[ $what = kubectl ]]; then
        # shellcheck source=../../e2e/cluster/common.sh
        . "$root/e2e/cluster/common.sh"
        script=kubectl.py
        set -- --kubectl "$KUBERNETES_BIN/kubectl" "$@"
    fi
    python3 "$here/$script" --kubeconfig "$dir/kubeconfig" "$@"
fi
