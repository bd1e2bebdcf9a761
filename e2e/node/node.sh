#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# One real Kubernetes node with its control plane, in private pid, mount, network, ipc and uts namespaces: whatever it
# does (mounts, bridges, iptables rules, processes) goes away with its first process. See README.md.

set -euo pipefail
# shellcheck source=common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

usage() {
    cat <<'END'
usage: node.sh up DIR [IMAGE_ARCHIVE...]   start, load the images, return when the node is Ready
       node.sh down DIR                    end everything; DIR keeps the logs. Always safe
       node.sh exec DIR COMMAND...         run a command in the node's namespaces
       node.sh kubectl DIR ARGUMENT...     kubectl as administrator (inside: give absolute paths)
       node.sh cgroup DIR                  print the name of its control groups
       node.sh load DIR IMAGE_ARCHIVE...   load images into the running node
END
}

# The first process of the namespaces, seen from outside: the child of the unshare that we started. It is only
# signalled or entered while its environment has our tag.
tag() { printf 'BERTH_NODE_PROCESS=%s' "$dir"; }
running() {
    init=$(cat "$dir/init.pid" 2>/dev/null) || return 1
    [[ $init =~ ^[0-9]+$ ]] && grep -zqxF "$(tag)" "/proc/$init/environ" 2>/dev/null
}

# Control groups are not namespaced.
cgroup_name() { printf 'berth-node-%s' "$(printf '%s' "$dir" | sha256sum | cut -c1-12)"; }

remove_cgroups() {
    local group
    for group in /sys/fs/cgroup/*/"$(cgroup_name)"; do
        [[ -d $group ]] || continue
        for _ in {1..50}; do
            find "$group" -depth -type d -exec rmdir {} \; 2>/dev/null || true
            [[ -d $group ]] || break
            sleep 0.1 # a process that was killed is not quite gone
        done
        [[ ! -d $group ]] || echo "node.sh: cannot remove $group" >&2
    done
}

end_node() {
    if running; then
        kill -KILL "$init" 2>/dev/null || true
        for _ in {1..500}; do
            running || break
            sleep 0.02
        done
        ! running || die "the node's first process $init does not end"
    fi
    rm -f "$dir"/init.pid "$dir"/ready
    "$cluster" stop "$dir/cluster" # its processes are gone; what is left is etcd's directory
    remove_cgroups
    # what was below bind mounts and overlays; the mounts went with the namespace
    rm -rf "$dir/fs" "$dir/overlay"
}

# find_init: sets init to the child of `parent` that is process 1 of its own namespace
find_init() {
    while kill -0 "$parent" 2>/dev/null; do
        for init in $(pgrep -P "$parent"); do
            grep -qE '^NSpid:.*[^0-9]1$' "/proc/$init/status" 2>/dev/null && return
        done
        sleep 0.05
    done
    init=
    return 1
}

# shellcheck disable=SC2317 # called by a trap
abandon() {
    [[ -z $parent ]] || kill -KILL "$parent" 2>/dev/null || true # and with it, its child
    end_node
}

up() {
    local parent=
    [[ $(id -u) == 0 ]] || die "a node needs root"
    [[ -d /sys/fs/cgroup/memory ]] ||
        die "this kubelet needs cgroup v1 (the memory controller at /sys/fs/cgroup/memory); use e2e/kind instead"
    [[ -d $NODE_ROOT ]] || die "no $NODE_ROOT; run $node_here/setup.sh first"
    ! running || die "the node of $dir runs already"
    case $dir/ in /etc/* | /run/* | /opt/* | /var/lib/* | /var/log/*) die "$dir is hidden from the node" ;; esac
    mkdir -p "$dir/log"
    end_node
    trap abandon EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
    env "$(tag)" BERTH_CGROUP="$(cgroup_name)" setsid unshare --mount --net --pid --ipc --uts --fork --kill-child \
        --mount-proc --propagation private "$node_here/init.sh" "$dir" "$@" >"$dir/log/init.log" 2>&1 </dev/null &
    parent=$!
    disown
    find_init || die "unshare failed: $(<"$dir/log/init.log")"
    echo "$init" >"$dir/init.pid"
    until [[ -e $dir/ready ]]; do
        kill -0 "$init" 2>/dev/null || {
            tail -n 30 "$dir/log/init.log" >&2
            die "the node did not start"
        }
        sleep 0.1
    done
    trap - EXIT INT TERM
    cat "$dir/log/init.log"
}

inside() {
    running || die "no node runs in $dir"
    exec nsenter --target "$init" --mount --net --pid --ipc --uts --wd="$PWD" \
        env "PATH=$KUBERNETES_BIN:$NODE_ROOT/usr/bin:$NODE_ROOT/usr/sbin:$PATH:/usr/sbin:/sbin" \
        "KUBECONFIG=$dir/cluster/kubeconfig" "$@"
}

(($# >= 2)) || {
    usage >&2
    exit 2
}
verb=$1
dir=$(realpath -m -- "$2")
shift 2
init=
case $verb in
up) up "$@" ;;
down) [[ ! -d $dir ]] || end_node ;;
exec) inside "$@" ;;
kubectl) inside kubectl "$@" ;;
cgroup) cgroup_name ;;
load)
    for archive in "$@"; do
        (inside ctr --address /run/containerd/containerd.sock -n k8s.io images import "$(realpath "$archive")")
    done
    ;;
*)
    usage >&2
    exit 2
    ;;
esac
