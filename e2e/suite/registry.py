# SPDX-License-Identifier: Apache-2.0
"""The list of cases. @case(NAME, flavours=…, alone=…): `flavours` is "all", names, or a feature that a flavour must have;
without it the case runs once. A case that is `alone` disturbs others (it kills or drains), so it runs by itself."""

CASES = []


class Case:
    def __init__(self, name, function, flavours, alone):
        self.name, self.function, self.flavours, self.alone = name, function, flavours, alone

    def wanted_flavours(self, available):
        if not self.flavours:
            return [None]
        words = self.flavours.split()
        return [f for f in available if "all" in words or f.name in words or any(f.can(w) for w in words)]


def case(name, flavours=None, alone=False):
    def register(function):
        CASES.append(Case(name, function, flavours, alone))
        return function
    return register
