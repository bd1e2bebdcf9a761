# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154 # variables of test.sh
# The steps of `make test`, in order; sourced by test.sh. step|live NAME SECONDS COMMAND...
make=(make --no-print-directory -j"$(nproc)")

# the real API server is built from source the first time: beside everything that does not need it
e2e/cluster/setup.sh >"$logs/kubernetes-build.log" 2>&1 </dev/null &
kubernetes_build=$!

step build 900 "${make[@]}" all
step lint 1500 scripts/lint.sh
step flags 60 scripts/docs.sh check
step unit 900 "${make[@]}" unit
step unit-clang 1200 "${make[@]}" unit CC=clang
step unit-address 1800 "${make[@]}" unit SAN=address
step fuzz 900 scripts/fuzz.sh 10
step unit-thread 1800 "${make[@]}" unit-thread SAN=thread

live devapi-conformance 300 tests/devapi/conformance.sh devapi
live devapi-faults 300 tests/devapi/conformance.sh faults
live first-light-devapi 300 e2e/first_light.py --server devapi
live demo 300 demo/test.py
live controller-behaviour 600 e2e/controller/behaviour.py
live provisioner 1200 e2e/provisioner.py
live cases-1.36 1200 e2e/cases/run.sh 1.36
live sanity-hostpath 600 tests/sanity/sanity.py --driver hostpath
live hostpath 600 tests/hostpath/features.py
live hostpath-crash 600 tests/hostpath/crash.py --rounds 2 --seed 1
live fuse 900 /usr/bin/python3 tests/fuse/run.py
live nfs 900 /usr/bin/python3 tests/nfs/run.py
live sanity-nfs 400 tests/sanity/sanity.py --driver nfs

wait "$kubernetes_build" || tail -20 "$logs/kubernetes-build.log"
step kubernetes 1800 e2e/cluster/setup.sh
live cluster 300 e2e/cluster/test.sh
live kubectl 120 tests/devapi/conformance.sh kubectl
live conformance-real 300 tests/devapi/conformance.sh real
live first-light-real 900 e2e/first_light.py --server real
live cases-1.20 1500 e2e/cases/run.sh 1.20
live oracle 1200 e2e/oracle/oracle.py --sequences 300
live two-binders 300 e2e/oracle/two_binders.py
live deploy 900 deploy/check.sh
live e2e-node 1800 e2e/node/run.sh
