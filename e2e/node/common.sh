# shellcheck shell=bash disable=SC2034
# SPDX-License-Identifier: Apache-2.0
#
# What the scripts here agree on. To be sourced.

node_here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$node_here/../.." && pwd)
# shellcheck source=../cluster/common.sh
. "$root/e2e/cluster/common.sh"

# containerd, runc, the CNI plugins and busybox as Debian ships them, unpacked
NODE_ROOT=${BERTH_CACHE:-/var/cache/berth}/node-1
cluster=$root/e2e/cluster/cluster.sh

node_name=node1
node_address=10.120.0.1
# In the node's namespaces only, so no address of the machine is in the way.
pod_network=10.121.0.0/24
