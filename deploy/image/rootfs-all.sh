#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# usage: rootfs-all.sh BUILD OUT       the root file systems of all images in programs.txt, and of berth-suite

set -eu
here=$(dirname "$0")
build=$1 out=$2
while read -r name _ entry rest; do
    case $name in '' | '#'*) continue ;; esac
    set -- "$build/$entry"
    for file in $rest; do
        case $file in
        berth-*) set -- "$@" "$build/$file" ;;
        *) set -- "$@" "$file" ;;
        esac
    done
    "$here/rootfs.sh" "$out/$name" "$@"
    du -sh "$out/$name"
done <"$here/programs.txt"

mkdir -p "$out/berth-suite/bin" "$out/berth-suite/tmp" "$out/berth-suite/etc"
chmod 1777 "$out/berth-suite/tmp"
cp "$(command -v busybox)" "$out/berth-suite/bin/busybox"
for applet in $(busybox --list); do
    [ "$applet" = busybox ] || ln -sf busybox "$out/berth-suite/bin/$applet"
done
printf 'root:x:0:0:root:/root:/bin/sh\n' >"$out/berth-suite/etc/passwd"
