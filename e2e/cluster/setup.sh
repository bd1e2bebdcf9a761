#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# usage: setup.sh [kube-apiserver|kube-controller-manager|kubectl|kube-scheduler|kubelet|kube-proxy]...
#
# Makes sure that etcd, etcdctl and the named Kubernetes binaries (default: kube-apiserver,
# kube-controller-manager, kubectl) are in the cache, building them from Debian's own packages.
# Nothing is installed into the system but missing standard tools; everything else, the Go tool chain
# included, is unpacked into the cache. See README.md.
#
# BERTH_CACHE       where to keep things (default /var/cache/berth)
# BERTH_KEEP_BUILD  1: keep sources, tool chain and Go's build cache (2.7 GB) after the build

set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=common.sh
. "$here/common.sh"

known=(kubectl kube-apiserver kube-controller-manager kube-scheduler kubelet kube-proxy)
downloads=$KUBERNETES_HOME/downloads # packages and source archives as Debian ships them
build=$KUBERNETES_HOME/build         # only needed while building
log=$KUBERNETES_HOME/setup.log
goroot=$build/toolchain/usr/lib/go-1.19
tree=$build/gopath/src/k8s.io/kubernetes
job= # process group of the running step

# ---------------------------------------------------------------------------------------------------
# progress: one line when a step begins, one every ten seconds, one when it ends

say() { printf '[%4d s] %s\n' "$SECONDS" "$*"; }

# run_step LABEL COMMAND...: COMMAND's output goes to the log only. Sets log_mark for `compiled`.
run_step() {
    local label=$1 begin=$SECONDS status=0
    shift
    say "$label …"
    printf '\n### %s: %s\n' "$(date '+%F %T')" "$label" >>"$log"
    log_mark=$(stat -c %s "$log")
    # A process group of its own, so that all of an interrupted step can be ended.
    set -m
    (set -e && "$@") >>"$log" 2>&1 </dev/null &
    job=$!
    set +m
    while kill -0 "$job" 2>/dev/null; do
        for _ in {1..50}; do
            sleep 0.2
            kill -0 "$job" 2>/dev/null || break 2
        done
        say "$label … $((SECONDS - begin)) s$(compiled)"
    done
    wait "$job" || status=$?
    job=
    if ((status != 0)); then
        {
            printf '\nfailed: %s (exit status %d). The end of %s:\n\n' "$label" "$status" "$log"
            tail -n 25 "$log"
        } >&2
        exit 1
    fi
    say "$label: done in $((SECONDS - begin)) s"
}

# `go build -v` writes one line for every package it compiles.
compiled() {
    local n
    n=$(tail -c "+$((log_mark + 1))" "$log" | grep -cE '^[a-z][A-Za-z0-9_./-]+$' || true)
    ((n == 0)) || printf ', %d packages compiled' "$n"
}

# shellcheck disable=SC2317 # called by a trap
end_step() {
    [[ -z $job ]] || kill -- "-$job" 2>/dev/null || true
}

# ---------------------------------------------------------------------------------------------------
# steps

# apt's lock on the package lists, unlike dpkg's, cannot be waited for with an option.
update_package_lists() {
    local i
    for i in {1..60}; do
        # A broken third-party list is not our concern: what we need is checked where we need it.
        apt-get update && return
        ((i < 60)) && sleep 2
    done
}

install_tools() {
    DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=600 install -y --no-install-recommends "$@"
}

# Source packages come from where this system gets its Debian packages, however its lists are written.
# A second, private apt state keeps the system's lists as they are.
private_apt() {
    local tool=$1
    shift
    "$tool" -o Dir::Etc::sourcelist="$downloads.tmp/apt/sources.list" -o Dir::Etc::sourceparts=/dev/null \
        -o Dir::State::lists="$downloads.tmp/apt/lists" -o Dir::Cache="$downloads.tmp/apt/cache" \
        -o APT::Sandbox::User=root "$@"
}

download() {
    local version
    rm -rf "$downloads.tmp"
    mkdir -p "$downloads.tmp"/apt/{lists,cache}/partial "$downloads.tmp/apt/cache/archives/partial"
    cd "$downloads.tmp"

    apt-get -o APT::Sandbox::User=root download etcd-server etcd-client golang-1.19-go golang-1.19-src \
        golang-github-modern-go-reflect2-dev

    # shellcheck disable=SC2016 # apt's own variables
    apt-get indextargets --format 'deb-src $(REPO_URI) $(RELEASE) $(COMPONENT)' \
        'Created-By: Packages' 'Origin: Debian' | sort -u >apt/sources.list
    [[ -s apt/sources.list ]] || die "apt knows no Debian package list"
    private_apt apt-get update
    version=$(private_apt apt-cache showsrc kubernetes | sed -n 's/^Version: //p' |
        grep -F "really$KUBERNETES_VERSION-" | sort -V | tail -n 1) ||
        die "this Debian has no source of Kubernetes $KUBERNETES_VERSION (Debian 12 has)"
    private_apt apt-get source --download-only "kubernetes=$version"

    rm -rf apt
    mv "$downloads.tmp" "$downloads"
}

unpack() {
    local reflect2=vendor/github.com/modern-go/reflect2
    rm -rf "$build"/{toolchain,reflect2,gopath,source}
    mkdir -p "$build"/{toolchain,gopath/src/k8s.io}
    dpkg -x "$downloads"/golang-1.19-src_*.deb "$build/toolchain"
    dpkg -x "$downloads"/golang-1.19-go_*.deb "$build/toolchain"
    dpkg -x "$downloads"/golang-github-modern-go-reflect2-dev_*.deb "$build/reflect2"
    dpkg-source --no-check -x "$downloads"/kubernetes_*.dsc "$build/source"

    # The vendored reflect2 1.0.1 reads maps in a way that crashes since Go 1.18; Debian's 1.0.2 does not.
    rm -rf "${build:?}/source/$reflect2"
    mkdir "$build/source/$reflect2"
    cp "$build/reflect2/usr/share/gocode/src/${reflect2#vendor/}"/*.{go,s} "$build/source/$reflect2"

    # GOPATH mode wants a real directory in this place; its presence says that all above is complete.
    mv "$build/source" "$tree"
}

# go_build OUTPUT PACKAGE...
go_build() {
    local output=$1 v
    local flags=(-s -w)
    shift
    # In GOPATH mode a vendored package's symbols carry the path of the vendor directory.
    for v in component-base/version client-go/pkg/version; do
        v=k8s.io/kubernetes/vendor/k8s.io/$v
        flags+=(-X "$v.gitVersion=v$KUBERNETES_VERSION" -X "$v.gitMajor=1" -X "$v.gitMinor=20"
            -X "$v.gitTreeState=clean" -X "$v.gitCommit=debian-$KUBERNETES_VERSION")
    done
    rm -rf "$build/tmp" # what a killed build has left
    mkdir "$build/tmp"
    cd "$tree"
    # -mod=vendor fails with this tree on Go 1.19, so GOPATH mode. Without cloud providers the link takes
    # half the memory. No debug information is generated, since -s -w would only drop it again.
    # A compiler process is short and small: fewer garbage collections save a tenth of its time.
    env -u GOFLAGS GOROOT="$goroot" GOPATH="$build/gopath" GO111MODULE=off GOENV=off GOPROXY=off GOSUMDB=off \
        GOCACHE="$build/gocache" GOTMPDIR="$build/tmp" CGO_ENABLED=0 GOGC=300 \
        "$goroot/bin/go" build -v -tags providerless -trimpath -gcflags=all=-dwarf=false \
        -ldflags "${flags[*]}" -o "$output" "$@"
}

# The one generated file that Debian's tree lacks.
generate_openapi() {
    local packages
    cd "$tree"
    # Every package with a k8s:openapi-gen mark. Below vendor/k8s.io are links to staging/, which grep
    # follows only when they are named with a slash at the end.
    packages=$(grep -rl --include='*.go' '^// *+k8s:openapi-gen=' pkg cmd plugin vendor/k8s.io/*/ |
        grep -v -e /code-generator/ -e /sample-apiserver/ | xargs -n 1 dirname | tr -s / | LC_ALL=C sort -u |
        sed 's#^#k8s.io/kubernetes/#' | paste -sd ,)
    env -u GOFLAGS GOROOT="$goroot" GOPATH="$build/gopath" GO111MODULE=off GOENV=off CGO_ENABLED=0 \
        PATH="$goroot/bin:$PATH" "$build/openapi-gen" --logtostderr -i "$packages" \
        -p k8s.io/kubernetes/pkg/generated/openapi -O zz_generated.openapi \
        -h vendor/k8s.io/code-generator/hack/boilerplate.go.txt -r "$build/openapi-violations.report"
    # The list of known rule violations doubles as a check that the same packages were found as upstream.
    diff "$build/openapi-violations.report" api/api-rules/violation_exceptions.list
    touch "$build/openapi-done"
}

# build_and_keep BINARY...: several at once keep both cores busy while one of them is linked.
build_and_keep() {
    local binary
    rm -rf "$build/out"
    mkdir -p "$build/out" "$KUBERNETES_BIN"
    go_build "$build/out/" "${@/#/./cmd/}"
    for binary in "$@"; do
        keep "$build/out/$binary"
    done
}

# What is in bin/ is complete: it gets there by a rename, after it has run and is on disk.
keep() {
    case ${1##*/} in
    kubectl) "$1" version --client --short | grep -F "v$KUBERNETES_VERSION" ;;
    kube*) "$1" --version | grep -F "v$KUBERNETES_VERSION" ;;
    etcdctl) "$1" version ;;
    *) "$1" --version ;;
    esac
    sync "$1"
    mv "$1" "$KUBERNETES_BIN/${1##*/}"
}

unpack_etcd() {
    rm -rf "$build/etcd"
    mkdir -p "$build/etcd" "$KUBERNETES_BIN"
    dpkg -x "$downloads"/etcd-server_*.deb "$build/etcd"
    dpkg -x "$downloads"/etcd-client_*.deb "$build/etcd"
    keep "$build/etcd/usr/bin/etcd"
    keep "$build/etcd/usr/bin/etcdctl"
}

# kubectl needs nothing generated, so it is compiled while the generator runs.
generate_openapi_and_build_kubectl() {
    local generator
    generate_openapi &
    generator=$!
    build_and_keep kubectl
    wait "$generator"
}

# ---------------------------------------------------------------------------------------------------

# missing_binaries NAME...: those of NAME that are not in bin/
missing_binaries() {
    local name
    for name in "$@"; do
        [[ -x $KUBERNETES_BIN/$name ]] || printf '%s\n' "$name"
    done
}

# missing_tools: the Debian packages of standard tools that this machine lacks
missing_tools() {
    local entry
    for entry in curl:curl openssl:openssl "$@"; do
        command -v "${entry%%:*}" >/dev/null || printf '%s\n' "${entry##*:}"
    done
}

# lock: other setups of the same version wait; they find everything done when their turn comes.
# A step inherits the lock, so nobody builds in the same place while one outlives a killed setup.
lock() {
    local begin=$SECONDS
    exec 9>"$KUBERNETES_HOME/lock"
    until flock -w 10 9; do
        say "waiting for another setup.sh … $((SECONDS - begin)) s (its log: $log)"
    done
}

main() {
    local wanted=() missing tools name
    for name in "$@"; do
        [[ " ${known[*]} " == *" $name "* ]] || die "unknown binary $name (known: ${known[*]})"
    done
    (($# > 0)) || set -- kube-apiserver kube-controller-manager kubectl
    # In the order of `known`: what is needed by all comes first.
    for name in "${known[@]}"; do
        [[ " $* " != *" $name "* ]] || wanted+=("$name")
    done

    if [[ -z $(missing_tools)$(missing_binaries etcd etcdctl "${wanted[@]}") ]]; then
        say "Kubernetes $KUBERNETES_VERSION is ready in $KUBERNETES_BIN"
        return
    fi

    ((EUID == 0)) || die "must be root to build (binaries missing in $KUBERNETES_BIN)"
    mkdir -p "$KUBERNETES_HOME"
    lock
    trap end_step EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP

    mapfile -t missing < <(missing_binaries etcd etcdctl "${wanted[@]}")
    mapfile -t tools < <(missing_tools)
    if ((${#missing[@]} + ${#tools[@]} > 0)); then
        : >"$log" # not before we know that there is something to do: another setup's log may be in it
    fi
    if ((${#missing[@]} > 0)); then
        mapfile -t tools < <(missing_tools dpkg-source:dpkg-dev patch:patch xz:xz-utils)
    fi
    if ((${#tools[@]} > 0)) || { ((${#missing[@]} > 0)) && [[ ! -d $downloads ]]; }; then
        run_step "updating package lists" update_package_lists
    fi
    ((${#tools[@]} == 0)) || run_step "installing ${tools[*]}" install_tools "${tools[@]}"
    ((${#missing[@]} == 0)) || provide "${missing[@]}"
    say "Kubernetes $KUBERNETES_VERSION is ready in $KUBERNETES_BIN"
}

# provide BINARY...
provide() {
    local binaries=()
    [[ -d $downloads ]] || run_step "downloading packages and the source of Kubernetes" download
    if [[ " $* " == *" etcd"* ]]; then
        run_step "unpacking etcd" unpack_etcd
    fi
    mapfile -t binaries < <(missing_binaries "$@")
    if ((${#binaries[@]} > 0)); then
        [[ -d $tree ]] || run_step "unpacking sources and the Go tool chain" unpack
        if [[ ! -e $build/openapi-done ]]; then
            run_step "building the OpenAPI generator" \
                go_build "$build/openapi-gen" ./vendor/k8s.io/kube-openapi/cmd/openapi-gen
            if [[ ${binaries[0]} == kubectl ]]; then
                run_step "building kubectl, generating OpenAPI definitions" generate_openapi_and_build_kubectl
            else
                run_step "generating OpenAPI definitions" generate_openapi
            fi
            mapfile -t binaries < <(missing_binaries "$@")
        fi
        ((${#binaries[@]} == 0)) || run_step "building ${binaries[*]}" build_and_keep "${binaries[@]}"
    fi
    if [[ ${BERTH_KEEP_BUILD:-0} != 1 ]]; then
        run_step "removing what only the build needed" rm -rf "$build"
    fi
}

main "$@"
