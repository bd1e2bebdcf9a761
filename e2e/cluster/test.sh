#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Self-test of this directory, and an example of its use. About 20 s once setup.sh has built everything.

set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=common.sh
. "$here/common.sh"

scratch=$(mktemp -d)
dir=$scratch/cluster
failures=0

# shellcheck disable=SC2317 # called by a trap
clean_up() {
    "$here/cluster.sh" stop "$dir"
    "$here/cluster.sh" stop "$scratch/half"
    rm -rf "$scratch"
}
trap clean_up EXIT

# check WHAT COMMAND...
check() {
    local what=$1 status
    shift
    set +e # a subshell in a condition would ignore its own `set -e`
    (set -e && "$@") >"$scratch/output" 2>&1
    status=$?
    set -e
    if ((status == 0)); then
        printf 'ok - %s\n' "$what"
    else
        printf 'not ok - %s\n' "$what"
        sed 's/^/# /' "$scratch/output"
        failures=$((failures + 1))
    fi
}

cluster() { "$here/cluster.sh" "$1" "$dir" "${@:2}"; }
kubectl() { "$KUBERNETES_BIN/kubectl" --kubeconfig="$dir/kubeconfig" "$@"; }

# as KUBECONFIG VERB URL_PATH: prints the HTTP status that the owner of KUBECONFIG gets, 200 for success
as() {
    "$KUBERNETES_BIN/kubectl" --kubeconfig="$1" "$2" --raw "$3" -v=6 2>&1 >/dev/null |
        sed -n 's/.* \([1-5][0-9][0-9]\) [A-Z].* in [0-9]* milliseconds$/\1/p'
}
gets() { [[ $(as "$1" get "$2") == "$3" ]]; }

is_rejected() { ! "$@"; }
exit_status() { # exit_status N COMMAND...
    local status=0
    "${@:2}" || status=$?
    ((status == $1))
}

# From the environment of every process, so that nothing which lost its pid file is missed.
nothing_left() {
    ! grep -lzF "BERTH_CLUSTER_PROCESS=$scratch/" /proc/[0-9]*/environ 2>/dev/null
}

make_service_account() {
    kubectl create serviceaccount reader
    kubectl create clusterrole class-reader --verb=get,list,watch --resource=storageclasses.storage.k8s.io
    kubectl create clusterrolebinding class-reader --clusterrole=class-reader --serviceaccount=default:reader
}

watch_expires() { # watch_expires RESOURCE_VERSION
    kubectl get --raw "/api/v1/namespaces?watch=1&timeoutSeconds=1&resourceVersion=$1" >"$scratch/watch"
    grep -q '"type":"ERROR".*"reason":"Expired".*"code":410' "$scratch/watch"
}

old_list_expires() {
    local token
    token=$(<"$scratch/continue")
    gets "$dir/kubeconfig" "/apis/rbac.authorization.k8s.io/v1/clusterroles?limit=1&continue=$token" 410
}

claim_is_protected() {
    local i
    kubectl apply -f - <<'END'
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: kept}
spec: {accessModes: [ReadWriteOnce], storageClassName: none, resources: {requests: {storage: 1Gi}}}
END
    [[ $(kubectl get pvc kept -o 'jsonpath={.metadata.finalizers}') == *kubernetes.io/pvc-protection* ]]
    kubectl delete pvc kept --wait=false
    for ((i = 0; i < 100; i++)); do # kube-controller-manager takes the finalizer away
        kubectl get pvc kept || return 0
        sleep 0.1
    done
    return 1
}

half_failed_start() {
    is_rejected "$here/cluster.sh" start "$scratch/half" --disable-admission=NoSuchPlugin
    nothing_left
}

interrupted_start() {
    local starter
    "$here/cluster.sh" start "$scratch/half" &
    starter=$!
    until [[ -s $scratch/half/kube-apiserver.pid ]]; do sleep 0.05; done
    kill -KILL "$starter"
    "$here/cluster.sh" stop "$scratch/half"
    nothing_left
}

"$here/setup.sh"

check "stop without a cluster is fine" cluster stop
check "a start that fails leaves nothing running" half_failed_start
check "stop ends what a killed start has left" interrupted_start

check "start" cluster start --audit --with-kcm --disable-admission=ServiceAccount
check "status says that all runs" cluster status
check "a second start is refused" is_rejected cluster start
check "the administrator lists namespaces" kubectl get ns kube-system

check "create a ServiceAccount with a ClusterRole" make_service_account
check "sa-kubeconfig" cluster sa-kubeconfig default reader "$scratch/reader"
check "the ServiceAccount may list storage classes (200)" gets "$scratch/reader" /apis/storage.k8s.io/v1/storageclasses 200
check "the ServiceAccount may not list secrets (403)" gets "$scratch/reader" /api/v1/secrets 403
check "sa-kubeconfig without that ServiceAccount fails" is_rejected cluster sa-kubeconfig default nobody "$scratch/nobody"

cluster kubeconfig jane >"$scratch/jane"
cluster kubeconfig root system:masters >"$scratch/root"
check "a user without rights is forbidden (403)" gets "$scratch/jane" /api/v1/nodes 403
check "a user in system:masters is allowed (200)" gets "$scratch/root" /api/v1/nodes 200

check "pvc-protection adds and removes its finalizer" claim_is_protected
check "CSIStorageCapacity v1alpha1 is served" gets "$dir/kubeconfig" /apis/storage.k8s.io/v1alpha1/csistoragecapacities 200
check "the audit log has the claim's deletion" grep -q '"verb":"delete".*"name":"kept"' "$dir/audit.log"

check "kill kube-apiserver" cluster kill kube-apiserver
check "status says that not all runs" exit_status 1 cluster status
check "restart apiserver" cluster restart apiserver
check "the same address, certificates and objects" kubectl get clusterrole class-reader
check "kill etcd" cluster kill etcd
check "restart etcd" cluster restart etcd
check "the objects are still there" kubectl get clusterrole class-reader

version=$(kubectl get --raw '/api/v1/namespaces' | sed -n 's/.*"metadata":{"resourceVersion":"\([0-9]*\)"},"items".*/\1/p')
kubectl get --raw '/apis/rbac.authorization.k8s.io/v1/clusterroles?limit=1' |
    sed -n 's/.*"continue":"\([^"]*\)".*/\1/p' >"$scratch/continue"
check "a watch from this version is fine" is_rejected watch_expires "$version"
check "compact" cluster compact
check "a watch from an old version expires (410)" watch_expires "$version"
check "a list continued from an old version expires (410)" old_list_expires

check "stop" cluster stop
check "stop again" cluster stop
check "status says that nothing runs" exit_status 3 cluster status
check "no process is left" nothing_left

((failures == 0)) || die "$failures checks failed"
