#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# usage: run.sh [SUITE_OPTION...]      (root; `make e2e-node`)
#
# From nothing: a real node, our images, our manifests, the suite; then nothing is left. BUILD names the build directory
# (default build), KEEP=1 leaves the node running for a look (node.sh kubectl DIR …; node.sh down DIR).

set -euo pipefail
# shellcheck source=common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
build=$(realpath "${BUILD:-$root/build}")
dir=$(mktemp -d "${TMPDIR:-/tmp}/berth-node.XXXXXX")
status=1

# shellcheck disable=SC2317 # called by a trap
finish() {
    if [[ ${KEEP:-0} == 1 ]]; then
        echo "the node still runs: $node_here/node.sh kubectl $dir get pods -A; $node_here/node.sh down $dir"
        return
    fi
    "$node_here/node.sh" down "$dir" || status=1
    rm -rf "$dir"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# A server of NFS version 4 beside the node; ends with the namespaces.
start_nfs_server() {
    mkdir -p "$dir/nfs/recovery"
    cat >"$dir/nfs/ganesha.conf" <<END
NFS_CORE_PARAM { Protocols = 4; NFS_Port = 2049; Enable_NLM = false; Enable_RQUOTA = false; Enable_UDP = false; }
NFSV4 { Graceless = true; RecoveryBackend = fs; RecoveryRoot = $dir/nfs/recovery; Allow_Numeric_Owners = true;
        Only_Numeric_Owners = true; Delegations = false; }
EXPORT { Export_Id = 1; Path = /var/lib/berth/export; Pseudo = /var/lib/berth/export; Access_Type = RW;
         Squash = No_Root_Squash; SecType = sys; Transports = TCP; Protocols = 4; FSAL { Name = VFS; } }
LOG { Default_Log_Level = WARN; }
END
    # shellcheck disable=SC2016 # expanded inside
    "$node_here/node.sh" exec "$dir" bash -c 'mkdir -p /var/lib/berth/export && chmod 777 /var/lib/berth/export &&
        setsid ganesha.nfsd -F -f "$0/nfs/ganesha.conf" -L "$0/log/ganesha.log" -p "$0/nfs/pid" </dev/null >/dev/null 2>&1 &
        for i in {1..200}; do (: >/dev/tcp/127.0.0.1/2049) 2>/dev/null && exit 0; sleep 0.1; done; exit 1' "$dir" || {
        tail -n 20 "$dir/log/ganesha.log" >&2
        die "the NFS server does not answer"
    }
}

# What one would look at after a failure.
show_logs() {
    local pod
    echo "---- pods"
    "$node_here/node.sh" kubectl "$dir" get pods -A -o wide || true
    for pod in $("$node_here/node.sh" kubectl "$dir" -n berth-system get pods -o name || true); do
        echo "---- $pod"
        "$node_here/node.sh" kubectl "$dir" -n berth-system logs --all-containers --tail=15 "$pod" || true
    done
}

"$node_here/setup.sh"
"$node_here/images.sh" "$build" "$dir/images"
"$node_here/node.sh" up "$dir" "$dir"/images/*.tar
start_nfs_server
# Control groups are the machine's, so the holder gets one that goes away with this node's.
unified=/sys/fs/cgroup/unified/$("$node_here/node.sh" cgroup "$dir")
"$KUBERNETES_BIN/kubectl" kustomize "$node_here/manifests" |
    sed "s#--cgroup=/sys/fs/cgroup/berth-holder#--cgroup=$unified#" >"$dir/manifests.yaml"
status=0
"$node_here/node.sh" exec "$dir" "$root/e2e/suite/run.py" --manifests "$dir/manifests.yaml" --on-node \
    --csi-call "$build/csi-call" --audit-log "$dir/cluster/audit.log" --recycler \
    --restart-kubelet "$node_here/init.sh restart-kubelet $dir" "$@" || status=$?
((status == 0)) || show_logs
exit "$status"
