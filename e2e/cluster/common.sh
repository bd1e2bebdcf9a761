# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
#
# What setup.sh, cluster.sh and test.sh agree on: which Kubernetes, and where its binaries are kept.
# To be sourced.

KUBERNETES_VERSION=1.20.2

# Outside any repository, so that a fresh clone finds what an older one built.
KUBERNETES_HOME=${BERTH_CACHE:-/var/cache/berth}/kubernetes-$KUBERNETES_VERSION
# shellcheck disable=SC2034 # for those who source this file
KUBERNETES_BIN=$KUBERNETES_HOME/bin

die() {
    printf '%s: %s\n' "${0##*/}" "$*" >&2
    exit 1
}
