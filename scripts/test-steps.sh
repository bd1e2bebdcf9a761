# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# The steps of `make test`, in order; sourced by test.sh. step NAME SECONDS COMMAND...
make=(make --no-print-directory -j"$(nproc)")

step build 900 "${make[@]}" all
step unit-address-sanitizer 1800 "${make[@]}" unit SAN=address
