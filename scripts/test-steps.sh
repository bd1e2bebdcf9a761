# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154 # variables of test.sh
# The steps of `make test`, in order; sourced by test.sh. step NAME SECONDS COMMAND...
make=(make --no-print-directory -j"$(nproc)")

# the real API server is built from source the first time: beside everything that does not need it
e2e/cluster/setup.sh >"$logs/kubernetes-build.log" 2>&1 </dev/null &
kubernetes_build=$!

step build 900 "${make[@]}" all
step lint 1200 scripts/lint.sh
step unit 900 "${make[@]}" unit
step unit-clang 1200 "${make[@]}" unit CC=clang
step unit-address 1800 "${make[@]}" unit SAN=address
step unit-thread 1800 "${make[@]}" unit-thread SAN=thread

step devapi-conformance 300 tests/devapi/conformance.sh devapi
step devapi-faults 300 tests/devapi/conformance.sh faults
step first-light-devapi 300 e2e/first_light.py --server devapi
step controller-behaviour 600 e2e/controller/behaviour.py
step provisioner 1200 e2e/provisioner.py
step cases-1.36 1200 e2e/cases/run.sh 1.36

wait "$kubernetes_build" || tail -20 "$logs/kubernetes-build.log"
step kubernetes 1800 e2e/cluster/setup.sh
step cluster 300 e2e/cluster/test.sh
step conformance-real 300 tests/devapi/conformance.sh real
step first-light-real 900 e2e/first_light.py --server real
step cases-1.20 1500 e2e/cases/run.sh 1.20
