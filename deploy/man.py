#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""man.py PROGRAM: a manual page, made of what PROGRAM --help says, on standard output."""
import os
import re
import subprocess
import sys
import time


def roff(text):
    return re.sub(r"^([.'])", r"\\&\1", text.replace("\\", "\\e").replace("-", "\\-"))


def page(program):
    name = os.path.basename(program)
    said = subprocess.run([program, "--help"], capture_output=True, text=True, check=True).stdout
    summary, _, rest = said.partition("\n\n")
    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout.split()
    date = time.strftime("%Y-%m-%d", time.gmtime(int(os.environ.get("SOURCE_DATE_EPOCH", "0"))))
    out = [f'.TH {name.upper()} 1 "{date}" "berth {" ".join(version[1:2])}" "berth"', ".SH NAME",
           f"{name} \\- {roff(summary.strip().rstrip('.'))}", ".SH SYNOPSIS"]
    for line in rest.split("\n"):
        section = re.match(r"^(\S.*):$", line)
        option = re.match(r"^ {2,6}(-\S.*)$", line)
        if section:
            if section.group(1) != "Usage":
                out.append(f".SH {roff(section.group(1).upper())}")
        elif option:
            out += [".TP", f"\\fB{roff(option.group(1))}\\fR"]
        elif line.strip():
            out.append(roff(line.strip()))
    out += [".SH SEE ALSO", ".BR berth\\-controller (1),", ".BR berth\\-provisioner (1),", ".BR berth\\-hostpath (1),",
            ".BR berth\\-nfs (1)"]
    return "\n".join(out) + "\n"


if __name__ == "__main__":
    sys.stdout.write(page(sys.argv[1]))
