#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# run.sh 1.20|1.36 [--only REGEX] [further arguments of run.py]
#   Runs the recorded cases against berth-controller, in several shards side by side, each with an API server of its own:
#   a real one for 1.20, the embedded one for 1.36.
# Environment: BERTH_BUILD (default build), SHARDS (default 4), WORK (default: a temporary directory, removed when all is well)
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
version=${1:-}
case $version in
1.20 | 1.36) shift ;;
*)
    sed -n '3,6s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac
build=${BERTH_BUILD:-build}
[[ $build == /* ]] || build=$root/$build
shards=${SHARDS:-4}
controller=$build/berth-controller
[[ -x $controller ]] || { echo "$controller is missing: make it first" >&2; exit 2; }
if [[ -n ${WORK:-} ]]; then
    work=$WORK
    mkdir -p "$work"
else
    work=$(mktemp -d "${TMPDIR:-/tmp}/berth-cases.XXXXXX")
fi
servers=()
runners=()

clean_up() {
    local pid i
    for pid in "${runners[@]}" "${servers[@]}"; do
        kill "$pid" 2>/dev/null || true
    done
    [[ ${#runners[@]} -eq 0 ]] || wait "${runners[@]}" 2>/dev/null || true
    if [[ $version == 1.20 ]]; then
        for ((i = 1; i <= shards; i++)); do
            [[ ! -d $work/server-$i ]] || "$root/e2e/cluster/cluster.sh" stop "$work/server-$i" >/dev/null 2>&1 || true
        done
    fi
}
trap clean_up EXIT

start_real() { # shard
    local dir=$work/server-$1
    "$root/e2e/cluster/cluster.sh" start "$dir" --no-rbac \
        --disable-admission=StorageObjectInUseProtection,ServiceAccount >"$work/server-$1.log" 2>&1
    # shellcheck source=/dev/null
    connection=(--server "https://127.0.0.1:$(. "$dir/env" && echo "$API_PORT")" --ca "$dir/pki/ca.crt"
        --cert "$dir/pki/admin.crt" --key "$dir/pki/admin.key")
}

start_embedded() { # shard
    local config=$work/server-$1.kubeconfig
    rm -f "$config"
    "$build/berth-devapi" --serve=1.36 --protection=false --kubeconfig-out="$config" >"$work/server-$1.log" 2>&1 &
    servers+=($!)
    for _ in $(seq 100); do
        [[ ! -s $config ]] || break
        sleep 0.1
    done
    connection=(--server "$(grep -o 'http://[^" ]*' "$config" | head -n 1)")
}

for ((i = 1; i <= shards; i++)); do
    if [[ $version == 1.20 ]]; then start_real "$i"; else start_embedded "$i"; fi
    python3 "$here/run.py" "${connection[@]}" --scenarios "$here/scenarios" --check "$here/golden-$version.json" --wipe \
        --shard "$i/$shards" --work "$work/run-$i" \
        --controller "$controller --kubeconfig={kubeconfig} --leader-elect=false --kube-api-qps=0 --pvclaimbinder-sync-period=500ms --enable-hostpath-provisioner=true -v=4" \
        "$@" >"$work/result-$i.txt" 2>&1 &
    runners+=($!)
done
status=0
for pid in "${runners[@]}"; do
    wait "$pid" || status=1
done
runners=()
grep -hv '^ok\|^skip\|^# \|^[0-9]* passed' "$work"/result-*.txt || true
echo "by area (passed, failed):"
cat "$work"/result-*.txt | awk '$1 == "ok" || $1 == "DIFF" { split($2, part, "/"); seen[part[1]] = 1; count[part[1], $1]++ }
    END { for (area in seen) printf "  %-12s %3d %3d\n", area, count[area, "ok"], count[area, "DIFF"] }' | sort
awk '$2 == "passed," { passed += $1; failed += $3 } $1 == "skip" { skipped++ }
    END { printf "%d passed, %d failed, %d left out (other versions)\n", passed, failed, skipped }' "$work"/result-*.txt
if [[ $status -eq 0 && -z ${WORK:-} ]]; then
    clean_up
    trap - EXIT
    rm -rf "$work"
elif [[ $status -ne 0 ]]; then
    echo "logs are in $work"
fi
exit $status
