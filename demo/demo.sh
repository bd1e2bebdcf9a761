#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The demo: builds, then shows a claim becoming a volume. DEMO=devapi (default) uses the embedded API server, DEMO=real a
# kube-apiserver built from Debian's sources (some minutes the first time), DEMO=cluster the cluster that KUBECONFIG names.
set -euo pipefail
cd "$(dirname "$0")/.."
[ "$(id -u)" = 0 ] || { echo "the demo mounts a volume: run it as root" >&2; exit 1; }
case ${DEMO:-devapi} in
devapi | real) ;;
cluster) [ -e "${KUBECONFIG:-}" ] || { echo "DEMO=cluster: KUBECONFIG has to name a file" >&2; exit 2; } ;;
*) echo "DEMO is devapi, real or cluster" >&2; exit 2 ;;
esac
log=$(mktemp)
trap 'rm -f "$log"' EXIT
printf 'building '
make --no-print-directory -j"$(nproc)" all >"$log" 2>&1 &
build=$!
trap 'kill $build 2>/dev/null || true; rm -f "$log"' EXIT
while kill -0 $build 2>/dev/null; do
    printf '.'
    sleep 1
done
wait $build || { echo; tail -30 "$log"; exit 1; }
echo " done in $SECONDS s"
rm -f "$log"
trap - EXIT
[ "${DEMO:-devapi}" != real ] || e2e/cluster/setup.sh
exec /usr/bin/python3 demo/demo.py "${DEMO:-devapi}"
