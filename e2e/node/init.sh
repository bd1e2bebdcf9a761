#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# usage: init.sh DIR [IMAGE_ARCHIVE...]     (started by node.sh, as the first process of its own namespaces)
#        init.sh restart-kubelet DIR        (in these namespaces) kills kubelet and starts it anew

set -euo pipefail
# shellcheck source=common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
restart=
if [[ $1 == restart-kubelet ]]; then
    restart=1
    shift
fi
dir=$1
shift
export PATH=$KUBERNETES_BIN:$NODE_ROOT/usr/bin:$NODE_ROOT/usr/sbin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export KUBECONFIG=$dir/cluster/kubeconfig
containerd_socket=/run/containerd/containerd.sock
# The binder is what berth-controller stands in for; the others have nothing to do on one node without a cloud.
controllers='*,-persistentvolume-binder,-ttl,-nodeipam,-route,-service,-cloud-node-lifecycle,-bootstrapsigner,-tokencleaner'
[[ -z ${BERTH_NODE_WITH_BINDER:-} ]] || controllers=${controllers/-persistentvolume-binder,/}

say() {
    local ms=$(($(date +%s%N) / 1000000 - begin))
    printf '%5d.%d s  %s\n' $((ms / 1000)) $((ms % 1000 / 100)) "$*"
}
begin=$(($(date +%s%N) / 1000000))

# start NAME COMMAND...
start() {
    local name=$1
    shift
    setsid "$@" >>"$dir/log/$name.log" 2>&1 </dev/null &
    echo $! >"$dir/log/$name.pid" # in this pid namespace
}

prepare_file_systems() {
    local place
    # Pods that propagate their mounts need a shared tree; it is shared in this mount namespace only.
    mount --make-rshared /
    # Fixed places that kubelet, containerd and CNI write to: the machine's own stay as they are.
    for place in /etc /var/lib /var/log /run /opt; do
        mkdir -p "$dir/overlay$place"/{upper,work}
        mount -t overlay overlay -o "lowerdir=$place,upperdir=$dir/overlay$place/upper,workdir=$dir/overlay$place/work" "$place"
    done
    # An overlay cannot be the upper layer of another one, and sockets want a plain file system.
    for place in /var/lib/kubelet /var/lib/containerd /var/lib/cni /var/lib/berth /run/containerd /run/netns /var/log/pods; do
        mkdir -p "$place" "$dir/fs$place"
        mount --bind "$dir/fs$place" "$place"
    done
    mkdir -p /var/log/containers /etc/cni/net.d
}

prepare_network() {
    hostname "$node_name"
    ip link set lo up
    # No link to the outside: the node's address is on a bridge of its own.
    ip link add node0 type bridge
    ip address add "$node_address/24" dev node0
    ip link set node0 up
    ip route add default dev node0
    sysctl -qw net.ipv4.ip_forward=1
    sysctl -qw net.bridge.bridge-nf-call-iptables=1 2>/dev/null || true
    cat >/etc/cni/net.d/10-pods.conflist <<END
{"cniVersion": "0.4.0", "name": "pods", "plugins": [
 {"type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": true, "hairpinMode": true,
  "ipam": {"type": "host-local", "ranges": [[{"subnet": "$pod_network"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
 {"type": "portmap", "capabilities": {"portMappings": true}}]}
END
}

start_control_plane() {
    local pki=$dir/cluster/pki user
    # Everything on the node uses the loopback address, pods the `kubernetes` Service; so the server listens on all.
    export APISERVER_ARGS="--bind-address=0.0.0.0 --advertise-address=$node_address --endpoint-reconciler-type=lease
        --kubelet-client-certificate=$pki/admin.crt --kubelet-client-key=$pki/admin.key
        --enable-admission-plugins=NodeRestriction --kubelet-preferred-address-types=InternalIP,Hostname
        --audit-log-maxsize=1000"
    APISERVER_ARGS=${APISERVER_ARGS//$'\n'/ }
    export KCM_ARGS="--cluster-signing-cert-file= --node-monitor-period=2s"
    export AUDIT_POLICY=$node_here/audit-policy.yaml
    "$cluster" start "$dir/cluster" --with-kcm="$controllers"
    for user in system:kube-scheduler system:kube-proxy; do
        "$cluster" kubeconfig "$dir/cluster" "$user" >"$dir/${user#system:}.kubeconfig"
    done
    "$cluster" kubeconfig "$dir/cluster" "system:node:$node_name" system:nodes >"$dir/kubelet.kubeconfig"
    start kube-scheduler kube-scheduler --kubeconfig="$dir/kube-scheduler.kubeconfig" --leader-elect=false \
        --bind-address=127.0.0.1 --port=0 --feature-gates=CSIStorageCapacity=true
}

start_containerd() {
    cat >"$dir/containerd.toml" <<END
version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.aufs", "io.containerd.internal.v1.opt"]
[grpc]
  address = "$containerd_socket"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/berth-pause:1"
  disable_apparmor = true
  # without CAP_SYS_RESOURCE nobody may lower a process's OOM score
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
        BinaryName = "$NODE_ROOT/usr/sbin/runc"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "$NODE_ROOT/usr/lib/cni"
    conf_dir = "/etc/cni/net.d"
END
    start containerd containerd --config "$dir/containerd.toml"
    until ctr --address "$containerd_socket" version >/dev/null 2>&1; do sleep 0.1; done
}

load_images() {
    local archive
    for archive in "$@"; do
        ctr --address "$containerd_socket" -n k8s.io images import "$archive" >>"$dir/log/images.log" 2>&1
    done
}

prepare_cgroups() {
    local controller
    for controller in /sys/fs/cgroup/{cpu,cpuacct,cpuset,memory,devices,freezer,blkio,pids,systemd,hugetlb}; do
        [[ ! -d $controller ]] || mkdir -p "$controller/$BERTH_CGROUP"
    done
    # a new cpuset group has nothing in it
    for controller in cpus mems; do
        cat "/sys/fs/cgroup/cpuset/cpuset.$controller" >"/sys/fs/cgroup/cpuset/$BERTH_CGROUP/cpuset.$controller"
    done
}

configure_kubelet() {
    : >"$dir/resolv.conf"
    cat >"$dir/kubelet.yaml" <<END
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: $node_address
healthzBindAddress: 127.0.0.1
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
  x509: {clientCAFile: $dir/cluster/pki/ca.crt}
authorization: {mode: Webhook}
cgroupDriver: cgroupfs
cgroupRoot: /$BERTH_CGROUP
enforceNodeAllocatable: [pods]
failSwapOn: false
resolvConf: $dir/resolv.conf
clusterDomain: cluster.local
clusterDNS: [10.96.0.10]
maxPods: 250
kubeAPIQPS: 50
kubeAPIBurst: 100
evictionHard: {memory.available: 50Mi, nodefs.available: "0%", nodefs.inodesFree: "0%", imagefs.available: "0%"}
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
nodeStatusUpdateFrequency: 5s
syncFrequency: 10s
volumeStatsAggPeriod: 5s
END
}

run_kubelet() {
    # It would ask a cloud's metadata address, and wait, before it starts.
    AWS_EC2_METADATA_DISABLED=true start kubelet kubelet --config="$dir/kubelet.yaml" \
        --kubeconfig="$dir/kubelet.kubeconfig" --container-runtime=remote \
        --container-runtime-endpoint="unix://$containerd_socket" --hostname-override="$node_name" \
        --node-ip="$node_address" --root-dir=/var/lib/kubelet --cert-dir="$dir/kubelet-pki" \
        --pod-infra-container-image=localhost/berth-pause:1 --v=2
}

start_proxy() {
    start kube-proxy kube-proxy --kubeconfig="$dir/kube-proxy.kubeconfig" --hostname-override="$node_name" \
        --proxy-mode=iptables --cluster-cidr="$pod_network" --conntrack-max-per-core=0 \
        --conntrack-tcp-timeout-established=0 --conntrack-tcp-timeout-close-wait=0 --healthz-bind-address=127.0.0.1:10256
}

wait_ready() {
    local status
    until status=$(kubectl get node "$node_name" \
        -o 'jsonpath={.status.conditions[?(@.type=="Ready")].status}' 2>/dev/null) && [[ $status == True ]]; do
        (($(date +%s%N) / 1000000 - begin < 240000)) || {
            tail -n 20 "$dir/log/kubelet.log"
            exit 1
        }
        sleep 0.2
    done
}

if [[ -n $restart ]]; then
    pid=$(<"$dir/log/kubelet.pid")
    kill -KILL "$pid"
    while kill -0 "$pid" 2>/dev/null; do sleep 0.05; done
    run_kubelet
    exit
fi
prepare_file_systems
prepare_network
start_control_plane
say "control plane without the binder"
start_containerd
load_images "$@"
say "containerd, $# images"
prepare_cgroups
configure_kubelet
run_kubelet
start_proxy
wait_ready
say "node is Ready"
: >"$dir/ready"
while :; do
    sleep 1000 &
    wait $! || true
done
