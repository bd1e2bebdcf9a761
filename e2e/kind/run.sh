#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# usage: run.sh [--dry-run] [SUITE_OPTION...]      (make e2e-kind)
#
# The suite on kind clusters, for machines with docker or podman: create, load the images, run, collect logs when
# something failed, delete. KUBERNETES names the versions, one cluster after the other:
#   KUBERNETES="v1.27.16 v1.31.0" make e2e-kind
# ENGINE is docker (default) or podman; KEEP=1 leaves the cluster; LOGS is where logs go (default build/kind-logs).
# --dry-run prints every command instead of running it.

set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
versions=${KUBERNETES:-v1.31.0}
engine=${ENGINE:-docker}
logs=${LOGS:-$root/build/kind-logs}
version=$(<"$root/VERSION")
images=(berth-controller berth-provisioner berth-hostpath berth-nfs berth-suite)
dry=
if [[ ${1:-} == --dry-run ]]; then
    dry=1
    shift
fi

do_it() {
    if [[ -n $dry ]]; then
        printf '%q ' "$@"
        echo
    else
        "$@"
    fi
}

# The binder's name in --controllers: it got the suffix in 1.28.
binder_of() {
    local minor=${1#v1.}
    minor=${minor%%.*}
    if ((minor >= 28)); then echo persistentvolume-binder-controller; else echo persistentvolume-binder; fi
}

overlay_of() {
    local minor=${1#v1.}
    minor=${minor%%.*}
    if ((minor >= 21)); then echo "$root/deploy/overlays/all"; else echo "$root/deploy/overlays/kubernetes-1.20"; fi
}

build_images() {
    local image target=()
    for image in "${images[@]}"; do
        target=("localhost/$image:$version")
        [[ $image != berth-suite ]] || target=(localhost/berth-suite:1)
        do_it "$engine" build --build-arg "VERSION=$version" --target "$image" --tag "${target[0]}" \
            --file "$root/deploy/Containerfile" "$root"
        do_it "$engine" save --output "$scratch/$image.tar" "${target[0]}"
    done
}

# run_version VERSION SUITE_OPTION...
run_version() {
    local kubernetes=$1 name image status=0
    shift
    name=berth-${kubernetes//[^0-9]/-}
    name=${name//--/-}
    sed "s/BINDER/$(binder_of "$kubernetes")/" "$here/cluster.yaml" >"$scratch/cluster.yaml"
    clusters+=("$name")
    do_it kind create cluster --name "$name" --image "kindest/node:$kubernetes" --config "$scratch/cluster.yaml" \
        --kubeconfig "$scratch/kubeconfig" --wait 180s
    for image in "${images[@]}"; do
        do_it kind load image-archive --name "$name" "$scratch/$image.tar"
    done
    do_it "$root/e2e/suite/run.py" --kubeconfig "$scratch/kubeconfig" --manifests "$(overlay_of "$kubernetes")" \
        "$@" || status=$?
    if ((status != 0)); then
        mkdir -p "$logs/$name"
        do_it kind export logs --name "$name" "$logs/$name" || true
        echo "logs are in $logs/$name"
    fi
    [[ ${KEEP:-0} == 1 ]] || delete "$name"
    return "$status"
}

delete() {
    do_it kind delete cluster --name "$1" --kubeconfig "$scratch/kubeconfig"
    local left=() cluster
    for cluster in "${clusters[@]}"; do [[ $cluster == "$1" ]] || left+=("$cluster"); done
    clusters=("${left[@]}")
}

clusters=()
scratch=$(mktemp -d)
# shellcheck disable=SC2317 # called by a trap
finish() {
    local cluster
    if [[ ${KEEP:-0} == 1 ]]; then
        echo "kept: ${clusters[*]}; the kubeconfig is $scratch/kubeconfig"
        return
    fi
    for cluster in "${clusters[@]}"; do delete "$cluster" || true; done
    rm -rf "$scratch"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

if [[ -z $dry ]]; then
    for tool in kind kubectl python3 "$engine"; do
        command -v "$tool" >/dev/null || {
            echo "run.sh: no $tool here; make e2e-node needs neither kind nor $engine" >&2
            exit 2
        }
    done
fi
[[ $engine != podman ]] || export KIND_EXPERIMENTAL_PROVIDER=podman
build_images
failed=0
for kubernetes in $versions; do
    echo "---- Kubernetes $kubernetes"
    run_version "$kubernetes" "$@" || failed=1
done
exit "$failed"
