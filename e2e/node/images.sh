#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# usage: images.sh BUILD OUT
#
# Makes image archives of the programs in the build directory BUILD, of what the tests' pods run (berth-suite:
# busybox) and of the pause process, in the directory OUT. Nothing is pulled. An archive that is newer than what is in
# it is left alone.

set -euo pipefail
# shellcheck source=common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
(($# == 2)) || die "usage: images.sh BUILD OUT"
build=$1 out=$2
version=$(<"$root/VERSION")
revision=$(git -C "$root" rev-parse --short=12 HEAD 2>/dev/null || echo unknown)
arch=$(dpkg --print-architecture)
mkdir -p "$out"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# image NAME ROOTFS OPTION...
image() {
    local name=$1 rootfs=$2
    shift 2
    "$root/deploy/image/mkimage.py" --rootfs "$rootfs" --output "$out/$name.tar.new" --arch "$arch" \
        --label "org.opencontainers.image.title=$name" "$@"
    mv "$out/$name.tar.new" "$out/$name.tar"
}

program_image() {
    local name=$1 user=$2 entry=$3 file files=() newest=''
    shift 3
    for file in "$entry" "$@"; do
        if [[ $file != berth-* ]]; then
            files+=("$file")
        elif [[ -x $build/$file ]]; then
            files+=("$build/$file")
            [[ -n $newest && $newest -nt $build/$file ]] || newest=$build/$file
        elif [[ $file == "$entry" ]]; then
            echo "no $build/$file: no image $name"
            return 0
        fi
    done
    [[ -e $out/$name.tar && $out/$name.tar -nt $newest ]] && return
    "$root/deploy/image/rootfs.sh" "$scratch/$name" "${files[@]}"
    image "$name" "$scratch/$name" --name "localhost/$name:$version" --user "$user" --entrypoint "/usr/bin/$entry" \
        --label "org.opencontainers.image.version=$version" --label "org.opencontainers.image.revision=$revision"
}

suite_image() {
    local applet
    [[ ! -e $out/berth-suite.tar ]] || return 0
    mkdir -p "$scratch/suite"/{bin,tmp,etc,root}
    chmod 1777 "$scratch/suite/tmp"
    cp "$NODE_ROOT/bin/busybox" "$scratch/suite/bin/busybox"
    for applet in $("$NODE_ROOT/bin/busybox" --list); do
        [[ $applet == busybox ]] || ln -s busybox "$scratch/suite/bin/$applet"
    done
    printf 'root:x:0:0:root:/root:/bin/sh\n' >"$scratch/suite/etc/passwd"
    printf 'root:x:0:\n' >"$scratch/suite/etc/group"
    image berth-suite "$scratch/suite" --name localhost/berth-suite:1 --env PATH=/bin
}

pause_image() {
    [[ ! -e $out/pause.tar ]] || return 0
    mkdir "$scratch/pause"
    cc -Os -static -s -o "$scratch/pause/pause" "$node_here/pause.c"
    image pause "$scratch/pause" --name localhost/berth-pause:1 --entrypoint /pause
}

while read -r name user entry rest; do
    [[ -n $name && $name != '#'* ]] || continue
    read -ra more <<<"$rest"
    program_image "$name" "$user" "$entry" "${more[@]}"
done <"$root/deploy/image/programs.txt"
suite_image
pause_image
