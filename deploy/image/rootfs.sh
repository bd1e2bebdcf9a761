#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# usage: rootfs.sh DEST PROGRAM|TOOL...
#
# Fills DEST with the root file system of an image: each PROGRAM (a path; stripped) and each TOOL (a name, looked up in
# PATH; with a ? before it, it may be missing) in /usr/bin, with exactly the shared libraries they need. No shell, no package manager. The Containerfile and
# the tests' own image builder both use this, so that an image holds the same wherever it was built.

set -eu
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
dest=$1
shift

mkdir -p "$dest/usr/bin" "$dest/usr/lib" "$dest/usr/lib64" "$dest/etc" "$dest/tmp" "$dest/var" "$dest/run"
chmod 1777 "$dest/tmp"
for link in bin lib lib64; do
    ln -sfn "usr/$link" "$dest/$link"
done
ln -sfn usr/bin "$dest/sbin"
ln -sfn bin "$dest/usr/sbin"
ln -sfn ../run "$dest/var/run"
printf 'root:x:0:0:root:/:/nonexistent\nnonroot:x:65532:65532:nonroot:/:/nonexistent\n' >"$dest/etc/passwd"
printf 'root:x:0:\nnonroot:x:65532:\n' >"$dest/etc/group"
# names before DNS, as everywhere; glibc has both built in
printf 'passwd: files\ngroup: files\nhosts: files dns\n' >"$dest/etc/nsswitch.conf"

# libraries FILE: the paths of what the dynamic loader would load, the loader itself included
libraries() {
    found=$(ldd "$1" 2>/dev/null) || return 0 # statically linked
    case $found in
    *'not found'*)
        echo "rootfs.sh: $1: a library is missing:" >&2
        echo "$found" | grep 'not found' >&2
        exit 1
        ;;
    esac
    echo "$found" | sed -n -e 's/.*=> \(\/[^ ]*\) (0x.*/\1/p' -e 's/^[[:space:]]*\(\/[^ ]*\) (0x.*/\1/p'
}

for program in "$@"; do
    case $program in
    */*)
        source=$program
        target=$dest/usr/bin/${program##*/}
        strip --strip-unneeded -o "$target" "$source"
        ;;
    *)
        tool=${program#[?]}
        source=$(command -v "$tool") || {
            [ "$tool" = "$program" ] || continue
            echo "rootfs.sh: no tool $program" >&2
            exit 1
        }
        program=$tool
        target=$dest/usr/bin/$program
        cp -L "$source" "$target"
        ;;
    esac
    chmod 755 "$target"
    libraries "$source" | while read -r library; do
        case $library in
        /usr/*) place=$dest$library ;;
        *) place=$dest/usr$library ;;
        esac
        [ ! -e "$place" ] || continue
        mkdir -p "${place%/*}"
        cp -L "$library" "$place"
        chmod 755 "$place"
    done
    case $program in
    mke2fs) [ ! -f /etc/mke2fs.conf ] || cp /etc/mke2fs.conf "$dest/etc/mke2fs.conf" ;;
    */berth-provisioner) ln -sfn usr/bin/berth-provisioner "$dest/csi-provisioner" ;; # upstream's entry point
    esac
done
