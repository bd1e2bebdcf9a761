#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""berth-provisioner against the scripted driver and the embedded API server (which alone can inject the faults).

    e2e/provisioner.py [--only REGEX]
"""
import argparse
import sys

import harness
import provisioner_features
import provisioner_matrix
import provisioner_scale


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default=".")
    options = parser.parse_args()
    tests = provisioner_features.TESTS + provisioner_matrix.TESTS + provisioner_scale.TESTS
    sys.exit(harness.run_tests(tests, "devapi", options.only))


if __name__ == "__main__":
    main()
