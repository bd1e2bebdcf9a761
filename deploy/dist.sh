#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# usage: dist.sh OUT      OUT/berth-VERSION.tar.gz of the last commit; the same commit gives the same bytes

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
out=$1 version=$(<VERSION)
mkdir -p "$out"
[[ -z $(git status --porcelain --untracked-files=no) ]] ||
    echo "dist.sh: what is not committed is not in the tarball" >&2
git archive --format=tar --prefix="berth-$version/" HEAD | gzip -n -9 >"$out/berth-$version.tar.gz"
ls -l "$out/berth-$version.tar.gz"
