#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# usage: deb.sh BUILD      BUILD/berth_VERSION_ARCH.deb of the programs in BUILD, with manual pages and manifests

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build=$1 version=$(<VERSION) arch=$(dpkg --print-architecture)
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-0}
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
chmod 755 "$tree"
mkdir -p "$tree"/usr/{bin,share/man/man1,share/doc/berth,share/berth} "$tree/DEBIAN"

programs=()
for program in berth-controller berth-provisioner berth-hostpath berth-holder berth-fuse berth-nfs; do
    [[ -x $build/$program ]] || continue
    programs+=("$build/$program")
    strip --strip-unneeded -o "$tree/usr/bin/$program" "$build/$program"
    chmod 755 "$tree/usr/bin/$program"
    # berth-fuse is started by berth-holder only
    [[ $program == berth-fuse ]] || deploy/man.py "$build/$program" | gzip -n -9 >"$tree/usr/share/man/man1/$program.1.gz"
done
((${#programs[@]} > 0)) || {
    echo "deb.sh: nothing built in $build" >&2
    exit 1
}
cp LICENSE "$tree/usr/share/doc/berth/copyright"
cp README.md docs/*.md "$tree/usr/share/doc/berth/"
cp -r deploy/base deploy/overlays deploy/rbac deploy/helm deploy/kustomization.yaml "$tree/usr/share/berth/"

# The packages that the libraries are from. /lib may be a link to /usr/lib, and dpkg knows one of the two names.
depends=$(for program in "${programs[@]}"; do
    objdump -p "$program" | sed -n 's/^ *NEEDED *//p'
done | sort -u | while read -r library; do
    path=$(ldconfig -p | awk -v l="$library" '$1 == l { print $NF; exit }')
    { dpkg-query -S "$path" || dpkg-query -S "$(realpath "$path")" || dpkg-query -S "${path#/usr}"; } 2>/dev/null |
        head -n 1 | cut -d: -f1
done | sort -u | paste -sd, | sed 's/,/, /g')

cat >"$tree/DEBIAN/control" <<END
Package: berth
Version: $version
Architecture: $arch
Maintainer: berth developers <berth@localhost>
Section: admin
Priority: optional
Depends: $depends
Recommends: e2fsprogs
Suggests: nfs-common
Installed-Size: $(du -sk --apparent-size "$tree/usr" | cut -f1)
Description: Kubernetes persistent storage control
 The volume binder of kube-controller-manager, the csi-provisioner sidecar and two CSI
 drivers, as small programs in C that take the same flags and write the same objects.
END
find "$tree" -newermt "@$SOURCE_DATE_EPOCH" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
find "$tree/usr" -type d -exec chmod 755 {} + -o -type f ! -perm -111 -exec chmod 644 {} +
dpkg-deb --root-owner-group --build "$tree" "$build/berth_${version}_$arch.deb"
