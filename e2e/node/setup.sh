#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# usage: setup.sh        (root)
#
# Makes sure that all a node needs is there: the Kubernetes binaries (see ../cluster/setup.sh), and containerd, runc,
# the CNI plugins and busybox from Debian's packages, unpacked into the cache, so that a container engine which this
# machine may have is left alone. Only iptables and conntrack are installed, when they are missing.

set -euo pipefail
# shellcheck source=common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

packages=(containerd runc containernetworking-plugins busybox-static)
tools=(iptables:iptables conntrack:conntrack ip:iproute2 openssl:openssl curl:curl python3:python3 cc:gcc strip:binutils
    /usr/lib/python3/dist-packages/yaml/__init__.py:python3-yaml losetup:mount mke2fs:e2fsprogs
    ganesha.nfsd:nfs-ganesha ganesha.nfsd:nfs-ganesha-vfs)

install_tools() {
    local entry missing=()
    PATH=$PATH:/usr/sbin:/sbin
    for entry in "${tools[@]}"; do
        [[ -e ${entry%%:*} ]] || command -v "${entry%%:*}" >/dev/null || missing+=("${entry##*:}")
    done
    ((${#missing[@]} == 0)) && return
    echo "installing ${missing[*]}"
    DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=600 install -y --no-install-recommends \
        "${missing[@]}" >"$NODE_ROOT.log" 2>&1 || {
        apt-get update >>"$NODE_ROOT.log" 2>&1
        DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=600 install -y --no-install-recommends \
            "${missing[@]}" >>"$NODE_ROOT.log" 2>&1
    } || die "apt-get failed; see $NODE_ROOT.log"
}

unpack() {
    local scratch package
    scratch=$(mktemp -d "$NODE_ROOT.XXXXXXXX")
    # shellcheck disable=SC2064 # this directory
    trap "rm -rf '$scratch'" EXIT
    (cd "$scratch" && apt-get -o APT::Sandbox::User=root download "${packages[@]}") >>"$NODE_ROOT.log" 2>&1 ||
        die "cannot download ${packages[*]}; see $NODE_ROOT.log (apt-get update?)"
    for package in "$scratch"/*.deb; do
        dpkg-deb -x "$package" "$scratch/root"
    done
    "$scratch/root/usr/bin/containerd" --version >>"$NODE_ROOT.log"
    # runc needs libseccomp, which every Debian has
    "$scratch/root/usr/sbin/runc" --version >>"$NODE_ROOT.log" || die "runc does not run; see $NODE_ROOT.log"
    "$scratch/root/bin/busybox" true
    mv "$scratch/root" "$NODE_ROOT"
}

mkdir -p "${NODE_ROOT%/*}"
exec 9>"$NODE_ROOT.lock"
flock 9
"$root/e2e/cluster/setup.sh" kubectl kube-apiserver kube-controller-manager kube-scheduler kubelet kube-proxy
install_tools
[[ -d $NODE_ROOT ]] || unpack
