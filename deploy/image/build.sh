#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# usage: build.sh ENGINE PREFIX ARCH IMAGE...       (make images)
#
# Builds the images with docker, podman or buildah, and prints their sizes. BUILD_OPTIONS are further options of the
# engine, for instance "--build-arg DEBIAN=localhost/debian:12" for a base image of your own.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
engine=$1 prefix=$2 arch=$3
shift 3
command -v "$engine" >/dev/null || {
    echo "build.sh: no docker, podman or buildah here; make image-archives builds without them" >&2
    exit 1
}
version=$(<VERSION)
revision=$(git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)
read -ra options <<<"${BUILD_OPTIONS:-}"
case ${engine##*/} in
buildah) build=(buildah build --layers) ;;
*) build=("$engine" build) ;;
esac
for image in "$@"; do
    "${build[@]}" --platform "linux/$arch" --build-arg "VERSION=$version" --build-arg "REVISION=$revision" \
        --build-arg "SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-0}" --target "$image" --tag "$prefix$image:$version" \
        "${options[@]}" --file deploy/Containerfile .
done
case ${engine##*/} in
buildah) buildah images ;;
*) "$engine" images --format '{{.Repository}}:{{.Tag}}  {{.Size}}' ;;
esac | grep -E "berth-|REPOSITORY"
