#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deps.sh check          says which Debian packages the build misses and the one command that installs them
# deps.sh install [test|suites] installs them (root; only when something is missing), with `test` also what tests and demo
#                               need, with `suites` what single test suites do
set -euo pipefail
cd "$(dirname "$0")"

missing=()
has_pkg_config=$(command -v pkg-config || true)
while read -r probe package _; do
    case $probe in
    '' | '#'*) continue ;;
    -/*) compgen -G "${probe#-}" >/dev/null ;;
    -*) command -v "${probe#-}" >/dev/null ;;
    *) [ -n "$has_pkg_config" ] && pkg-config --exists "$probe" ;;
    esac || missing+=("$package")
done < <(cat packages.txt ${2:+packages-$2.txt})

[ ${#missing[@]} -gt 0 ] || exit 0
case ${1:-check} in
check)
    echo "missing Debian packages: ${missing[*]}" >&2
    echo "install them with:  apt-get install -y ${missing[*]}" >&2
    exit 1
    ;;
install)
    [ "$(id -u)" = 0 ] || { echo "installing packages needs root: apt-get install -y ${missing[*]}" >&2; exit 1; }
    echo "installing: ${missing[*]}"
    log=$(mktemp)
    trap 'rm -f "$log"' EXIT
    # the tests start servers (NFS) themselves: installing them starts none, unless this machine has a policy of its own
    policy=/usr/sbin/policy-rc.d
    if [ ! -e "$policy" ]; then
        trap 'rm -f "$log" "$policy"' EXIT
        printf '#!/bin/sh\nexit 101\n' >"$policy"
        chmod 0755 "$policy"
    fi
    export DEBIAN_FRONTEND=noninteractive
    { apt-get update && apt-get install -y --no-install-recommends "${missing[@]}"; } >"$log" 2>&1 || {
        tail -20 "$log" >&2
        exit 1
    }
    ;;
*)
    echo "usage: deps.sh check|install" >&2
    exit 2
    ;;
esac
