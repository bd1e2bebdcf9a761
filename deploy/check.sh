#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# usage: check.sh [BUILD]      (make check-deploy)
#
# Manifests, chart, container file, packages and the kind setup, as far as they can be checked without a container
# engine: every overlay is applied to a real API server with a server-side dry run, the chart's objects are compared with
# kustomize's, the packages are built twice and compared, the kind script is run dry. Prints "N passed, N failed".

set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit
build=${1:-${BUILD:-build}}
# shellcheck source=../e2e/cluster/common.sh
. e2e/cluster/common.sh
e2e/cluster/setup.sh >/dev/null || exit 1
scratch=$(mktemp -d)
# shellcheck disable=SC2317 # called by a trap
finish() {
    e2e/cluster/cluster.sh stop "$scratch/cluster"
    rm -rf "$scratch"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
passed=0 failed=0
kubectl=$KUBERNETES_BIN/kubectl
version=$(<VERSION)

# check NAME COMMAND...
check() {
    local name=$1
    shift
    if "$@" >"$scratch/said" 2>&1; then
        passed=$((passed + 1))
        echo "ok      $name"
    else
        failed=$((failed + 1))
        echo "FAILED  $name"
        sed 's/^/        /' "$scratch/said" | tail -n 20
    fi
}

# ---- manifests

stand_in() { # what the published manifests of a third-party driver have that our patch meets
    cat <<END
apiVersion: apps/v1
kind: $1
metadata: {name: $2, namespace: $3}
spec:
  selector: {matchLabels: {app: x}}
  template:
    metadata: {labels: {app: x}}
    spec:
      containers:
        - {name: csi-provisioner, image: "csi-provisioner:v1", args: [--csi-address=/csi/csi.sock]}
        - {name: driver, image: "driver:v1"}
END
}

third_party() { # OVERLAY FILE KIND NAME NAMESPACE: only the provisioner's image changes
    cp -r "deploy/overlays/$1" "$scratch/$1"
    stand_in "$3" "$4" "$5" >"$scratch/$1/$2"
    "$kubectl" kustomize "$scratch/$1" >"$scratch/$1.yaml" || return 1
    grep -q "image: localhost/berth-provisioner:$version" "$scratch/$1.yaml" &&
        grep -q 'image: driver:v1' "$scratch/$1.yaml" && grep -q -- --csi-address "$scratch/$1.yaml" &&
        [[ $(grep -c image: "$scratch/$1.yaml") == 2 ]]
}

same_objects() { # FILE FILE: the same objects, in any order
    python3 - "$1" "$2" <<'END'
import sys, yaml
def objects(path):
    result = {}
    for o in yaml.safe_load_all(open(path, encoding="utf-8")):
        if o and o["kind"] != "Namespace":
            result[(o["kind"], o["metadata"].get("namespace"), o["metadata"]["name"])] = o
    return result
one, two = objects(sys.argv[1]), objects(sys.argv[2])
different = [k for k in sorted(set(one) | set(two), key=str) if one.get(k) != two.get(k)]
for k in different:
    print("differs:", *k)
print(len(one), "objects")
sys.exit(1 if different or len(one) < 20 else 0)
END
}

chart() { # VALUE...: the chart with these switched on, and kustomize's objects
    deploy/generate.py --render "$@" >"$scratch/chart.yaml"
}

dry_run() { # OVERLAY
    "$kubectl" kustomize "deploy/$1" >"$scratch/overlay.yaml" || return 1
    if grep -q 'apiVersion: policy/v1$' "$scratch/overlay.yaml"; then
        # newer than this server; the same object is in overlays/kubernetes-1.20 with the version that it knows
        sed -i 's#^apiVersion: policy/v1$#apiVersion: policy/v1beta1#' "$scratch/overlay.yaml"
    fi
    "$kubectl" --kubeconfig "$scratch/cluster/kubeconfig" apply --server-side --dry-run=server -f "$scratch/overlay.yaml"
}

prepare_server() {
    e2e/cluster/cluster.sh start "$scratch/cluster" || return 1
    # a dry run makes no namespace for the objects that come after it
    "$kubectl" --kubeconfig "$scratch/cluster/kubeconfig" create namespace berth-system || return 1
    local kind
    for kind in PodMonitor ServiceMonitor PrometheusRule; do
        cat <<END
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: ${kind,,}s.monitoring.coreos.com}
spec:
  group: monitoring.coreos.com
  scope: Namespaced
  names: {kind: $kind, plural: ${kind,,}s, singular: ${kind,,}}
  versions:
    - name: v1
      served: true
      storage: true
      schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
END
    done | "$kubectl" --kubeconfig "$scratch/cluster/kubeconfig" apply -f - &&
        "$kubectl" --kubeconfig "$scratch/cluster/kubeconfig" wait --for=condition=Established crd --all --timeout=30s
}

alert_metrics() { # every metric that alerts and dashboard name exists in the programs' sources
    local metric missing=0
    while read -r metric; do
        [[ $metric != pv_collector_unbound_pvc ]] || metric=pv_collector_unbound_pvc_count
        grep -rqF "\"$metric\"" lib controller provisioner drivers --include='*.c' --include='*.h' || {
            echo "no program has the metric $metric"
            missing=1
        }
    done < <(cat deploy/base/monitoring/alerts.yaml deploy/base/monitoring/dashboard.json |
        grep -oE '\b(berth|pv_collector|controller_persistentvolume|csi_sidecar|workqueue|leader_election|process)_[a-z_]+' |
        sed -E 's/_(bucket|count|sum)$//' | sort -u)
    return "$missing"
}

versions_agree() {
    ! grep -rnE 'image: .*berth-[a-z]+:' deploy/base deploy/overlays | grep -v ":$version\$"
}

# ---- images and packages

container_file() { # one target a line of programs.txt, with its user and entry point
    local name user entry
    while read -r name user entry _; do
        [[ -n $name && $name != '#'* ]] || continue
        grep -A4 "^FROM labelled AS $name\$" deploy/Containerfile >"$scratch/target" || {
            echo "no target $name"
            return 1
        }
        if ! grep -qx "USER $user" "$scratch/target" ||
            ! grep -qx "ENTRYPOINT \[\"/usr/bin/$entry\"\]" "$scratch/target"; then
            echo "target $name: user or entry point is not that of programs.txt"
            return 1
        fi
    done <deploy/image/programs.txt
}

image_twice() { # the same files give the same image
    local n
    mkdir -p "$scratch/rootfs"
    deploy/image/rootfs.sh "$scratch/rootfs/x" "$build/berth-controller" &&
        [[ ! -e $scratch/rootfs/x/bin/sh ]] &&
        chroot "$scratch/rootfs/x" /usr/bin/berth-controller --version || return 1
    for n in 1 2; do
        touch "$scratch/rootfs/x/usr/bin/berth-controller"
        deploy/image/mkimage.py --name "localhost/x:1" --rootfs "$scratch/rootfs/x" --output "$scratch/$n.tar" || return 1
    done
    cmp "$scratch/1.tar" "$scratch/2.tar"
}

package_twice() {
    local n
    for n in 1 2; do
        deploy/deb.sh "$build" && mv "$build"/berth_*.deb "$scratch/$n.deb" || return 1
    done
    cmp "$scratch/1.deb" "$scratch/2.deb" && dpkg-deb -x "$scratch/1.deb" "$scratch/deb" &&
        "$scratch/deb/usr/bin/berth-provisioner" --version &&
        gzip -dc "$scratch/deb/usr/share/man/man1/berth-controller.1.gz" | grep -q '^\.SH LEADER ELECTION'
}

tarball_twice() {
    deploy/dist.sh "$scratch/1" && deploy/dist.sh "$scratch/2" &&
        cmp "$scratch"/[12]/berth-"$version".tar.gz &&
        tar -tzf "$scratch/1/berth-$version.tar.gz" "berth-$version/Makefile"
}

# ---- kind

kind_dry_run() { # every command it would run exists as far as it is ours, and it deletes what it creates
    KUBERNETES="v1.27.16 v1.31.0" e2e/kind/run.sh --dry-run >"$scratch/kind" || return 1
    [[ $(grep -c '^kind create cluster' "$scratch/kind") == 2 && $(grep -c '^kind delete cluster' "$scratch/kind") == 2 ]] &&
        grep -o -- '--manifests [^ ]*' "$scratch/kind" | sort -u | while read -r _ overlay; do
            "$kubectl" kustomize "$overlay" >/dev/null || exit 1
        done &&
        grep -oE -- '--target [a-z-]+' "$scratch/kind" | sort -u | while read -r _ target; do
            grep -q "AS $target\$" deploy/Containerfile || exit 1
        done
}

yaml_files() {
    python3 - e2e/kind/cluster.yaml .github/workflows/*.yaml <<'END'
import sys, yaml
for path in sys.argv[1:]:
    document = yaml.safe_load(open(path, encoding="utf-8"))
    if "kubeadmConfigPatches" in document:
        assert document["apiVersion"] == "kind.x-k8s.io/v1alpha4" and document["kind"] == "Cluster"
        assert [n["role"] for n in document["nodes"]].count("worker") == 2
        patch = yaml.safe_load(document["kubeadmConfigPatches"][0])
        assert patch["controllerManager"]["extraArgs"]["controllers"].endswith("-BINDER")
    else:
        for job in document["jobs"].values():
            assert job["runs-on"] and all("uses" in s or "run" in s for s in job["steps"])
END
}

check "what is generated is up to date" deploy/generate.py --check
check "image tags are the version" versions_agree
check "metrics of alerts and dashboard exist" alert_metrics
check "third-party overlay: csi-driver-nfs" \
    third_party third-party-nfs csi-nfs-controller.yaml Deployment csi-nfs-controller kube-system
check "third-party overlay: csi-driver-host-path" \
    third_party third-party-hostpath csi-hostpath-plugin.yaml DaemonSet csi-hostpathplugin default
"$kubectl" kustomize deploy/overlays/all >"$scratch/all.yaml"
"$kubectl" kustomize deploy/overlays/monitoring >"$scratch/monitoring.yaml"
chart
check "the chart's objects are kustomize's" same_objects "$scratch/chart.yaml" "$scratch/all.yaml"
chart monitoring
check "the chart's objects with monitoring" same_objects "$scratch/chart.yaml" "$scratch/monitoring.yaml"
check "API server for dry runs" prepare_server
for overlay in deploy/overlays/*/; do
    overlay=${overlay#deploy/}
    [[ $overlay == overlays/third-party-* ]] || check "server-side dry run: ${overlay%/}" dry_run "${overlay%/}"
done
check "container file" container_file
check "image: same bytes, no shell, and it runs" image_twice
check "Debian package: same bytes, and it runs" package_twice
check "tarball: same bytes" tarball_twice
check "kind: dry run" kind_dry_run
check "kind: configuration and workflow" yaml_files
if command -v helm >/dev/null; then check "helm lint" helm lint deploy/helm/berth; fi
echo "deploy: $passed passed, $failed failed"
((failed == 0))
