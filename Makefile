# SPDX-License-Identifier: Apache-2.0
# One non-recursive makefile. A module is a directory: its .c files are found, nothing is listed twice.
#   make                build everything into build/      make V=1          show the commands
#   make SAN=address    address+undefined sanitizer       make SAN=thread   thread sanitizer
#   make CC=clang       another compiler                  make O=dir        another output directory
.DEFAULT_GOAL := all
.SUFFIXES:
.DELETE_ON_ERROR:
SHELL := /bin/bash

VERSION := $(shell cat VERSION)
REVISION := $(shell git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)
SAN ?=
V ?= 0
ifeq ($(origin CC),default)
CC := gcc
endif
O ?= build$(if $(SAN),-$(SAN))$(if $(filter clang%,$(notdir $(CC))),-clang)
Q := $(if $(filter 1,$(V)),,@)
say = $(if $(filter 1,$(V)),,@printf '  %-8s %s\n' '$(1)' '$(patsubst $(O)/%,%,$@)';)

WARN := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wconversion -Werror
comma := ,
SAN_FLAGS := $(if $(filter address,$(SAN)),-fsanitize=address$(comma)undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer)$(if $(filter thread,$(SAN)),-fsanitize=thread)
HARDEN := $(if $(SAN),-O1,-O2 -D_FORTIFY_SOURCE=2) -fstack-protector-strong -fPIE $(if $(filter gcc%,$(notdir $(CC))),-fstack-clash-protection)
CFLAGS ?= -g
ALL_CFLAGS := -std=gnu17 -D_GNU_SOURCE -D_FILE_OFFSET_BITS=64 -DFUSE_USE_VERSION=312 $(WARN) $(HARDEN) $(SAN_FLAGS) -ffile-prefix-map=$(CURDIR)/= \
	-I. -I$(O)/gen $(CFLAGS)
LDFLAGS += -pie -Wl,-z,relro,-z,now -Wl,--as-needed $(SAN_FLAGS)

# ---- libraries of this repository, from the bottom up, and what each links -------------------------------------------
LIBS := base observe kube csi
LDLIBS_base := -lcrypto -lpthread
LDLIBS_observe := -lmicrohttpd -lgnutls
LDLIBS_kube := -lcurl -lssl -ljansson -lyaml
LDLIBS_csi := -lprotobuf-c -lgrpc_unsecure -lgpr
NEEDS_base := base
NEEDS_observe := observe base
NEEDS_kube := kube base
NEEDS_csi := csi base

# ---- programs: directory, libraries it needs, further -l -------------------------------------------------------------
PROGRAMS :=
define program # name, directories, libs, ldlibs
PROGRAMS += $(1)
DIRS_$(1) := $(2)
NEEDS_$(1) := $(3)
LDLIBS_$(1) := $(4)
endef
-include $(sort $(wildcard */program.mk */*/program.mk))

PROTOS := $(wildcard lib/csi/*.proto)
GEN_WKT := timestamp wrappers descriptor
GEN_C := $(PROTOS:lib/csi/%.proto=$(O)/gen/lib/csi/%.pb-c.c) $(O)/gen/google/protobuf/timestamp.pb-c.c $(O)/gen/google/protobuf/wrappers.pb-c.c $(O)/gen/google/protobuf/descriptor.pb-c.c
GEN_H := $(GEN_C:.c=.h)

src = $(foreach d,$(1),$(wildcard $(d)/*.c))
obj = $(patsubst %.c,$(O)/%.o,$(call src,$(1)))
GEN_OBJ := $(GEN_C:%.c=%.o)

LIB_FILES := $(LIBS:%=$(O)/lib%.a)
# main.c stays out of a program's archive, so that unit tests can link the rest
program_objs = $(call obj,$(DIRS_$(1)))
libs_of = $(foreach l,$(1),$(O)/lib$(l).a)
ldlibs_of = $(foreach l,$(1),$(LDLIBS_$(l)))

.PHONY: all lib
all: check-deps programs
.PHONY: programs
programs: $(PROGRAMS:%=$(O)/%) $(LIB_FILES)
lib: $(LIB_FILES)

define lib_rule
$(O)/lib$(1).a: $(call obj,lib/$(1)) $(if $(filter csi,$(1)),$(GEN_OBJ))
endef
$(foreach l,$(LIBS),$(eval $(call lib_rule,$(l))))
$(LIB_FILES):
	$(call say,AR)
	$(Q)rm -f $@ && ar rcs $@ $^

define program_rule
$(O)/$(1): $(call program_objs,$(1)) $(call libs_of,$(NEEDS_$(1)))
	$$(call say,LINK)
	$(Q)$(CC) $(LDFLAGS) -o $$@ $(call program_objs,$(1)) -Wl,--start-group $(call libs_of,$(NEEDS_$(1))) -Wl,--end-group $(call ldlibs_of,$(NEEDS_$(1))) $(LDLIBS_$(1))
endef
$(foreach p,$(PROGRAMS),$(eval $(call program_rule,$(p))))

# a generated header is there before anything that may include one is compiled
$(O)/%.o: %.c | check-deps $(GEN_H)
	$(call say,CC)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) -MMD -MP -c -o $@ $<
# generated code: its own warnings are not ours to fix
.SECONDARY: $(GEN_C) $(GEN_H)
$(GEN_OBJ): | $(GEN_H)
$(O)/gen/%.o: $(O)/gen/%.c
	$(call say,CC)
	$(Q)$(CC) -std=gnu17 -D_GNU_SOURCE $(HARDEN) $(SAN_FLAGS) -I$(O)/gen $(CFLAGS) -w -c -o $@ $<
$(O)/gen/lib/csi/%.pb-c.c $(O)/gen/lib/csi/%.pb-c.h: lib/csi/%.proto | check-deps
	$(call say,PROTOC)
	$(Q)mkdir -p $(O)/gen && protoc-c -I. -I/usr/include --c_out=$(O)/gen $<
$(O)/gen/google/protobuf/%.pb-c.c $(O)/gen/google/protobuf/%.pb-c.h: | check-deps
	$(call say,PROTOC)
	$(Q)mkdir -p $(O)/gen && protoc-c -I/usr/include --c_out=$(O)/gen /usr/include/google/protobuf/$*.proto
$(O)/lib/base/version.o: ALL_CFLAGS += -DBERTH_VERSION='"$(VERSION)"' -DBERTH_REVISION='"$(REVISION)"'
$(O)/lib/base/version.o: VERSION

.PHONY: check-deps deps
check-deps:
	@scripts/deps.sh check
deps:
	@scripts/deps.sh install test

# ---- unit tests: every tests/unit/MODULE/test_*.c is a program of its own ---------------------------------------------
# it links the whole module below test (a library, or a program's objects without main.c) and that module's libraries
UNIT_SRC := $(wildcard tests/unit/*/test_*.c)
UNIT_BIN := $(UNIT_SRC:%.c=$(O)/%)
UNIT_HELP := $(filter-out $(UNIT_SRC),$(wildcard tests/unit/*/*.c))
program_of_dir = $(strip $(foreach p,$(PROGRAMS),$(if $(filter $(1),$(notdir $(DIRS_$(p)))),$(p))))
# Usage of the two below: module name = directory below tests/unit
unit_objs = $(if $(filter $(1),$(LIBS)),,$(filter-out %/main.o,$(foreach p,$(firstword $(call program_of_dir,$(1))),$(call program_objs,$(p)))))
unit_libs = $(if $(filter $(1),$(LIBS)),$(NEEDS_$(1)),$(NEEDS_$(firstword $(call program_of_dir,$(1)))))
unit_ld = $(if $(filter $(1),$(LIBS)),,$(LDLIBS_$(firstword $(call program_of_dir,$(1)))))
define unit_rule # test source
$(O)/$(basename $(1)): $(O)/$(basename $(1)).o $(patsubst %.c,$(O)/%.o,$(filter $(dir $(1))%,$(UNIT_HELP))) $(call unit_objs,$(notdir $(patsubst %/,%,$(dir $(1))))) $(call libs_of,$(call unit_libs,$(notdir $(patsubst %/,%,$(dir $(1))))))
	$$(call say,LINK)
	$(Q)$(CC) $(LDFLAGS) -o $$@ $$(filter %.o,$$^) -Wl,--start-group $(call libs_of,$(call unit_libs,$(notdir $(patsubst %/,%,$(dir $(1)))))) -Wl,--end-group $(call ldlibs_of,$(call unit_libs,$(notdir $(patsubst %/,%,$(dir $(1)))))) $(call unit_ld,$(notdir $(patsubst %/,%,$(dir $(1))))) -lcmocka -lssl
endef
$(foreach t,$(UNIT_SRC),$(eval $(call unit_rule,$(t))))
.PHONY: unit unit-build
# the client's test against a live server uses the embedded one of the same build
unit-build: $(UNIT_BIN) $(O)/berth-devapi
unit: unit-build
	@scripts/run-unit.sh $(UNIT_BIN)
# what threads share: the libraries, under SAN=thread
.PHONY: unit-thread
UNIT_THREAD := $(filter $(LIBS:%=$(O)/tests/unit/%/%),$(UNIT_BIN))
unit-thread: $(UNIT_THREAD) $(O)/berth-devapi
	@scripts/run-unit.sh $(UNIT_THREAD)

# ---- fuzzing: FUZZ_SECONDS for each target, in a build of its own; what was found before is not kept ---------------------
FUZZ_BIN := $(patsubst %.c,$(O)/%,$(wildcard tests/fuzz/fuzz_*.c))
$(FUZZ_BIN): %: %.o $(call libs_of,kube base)
	$(call say,LINK)
	$(Q)$(CC) $(LDFLAGS) -fsanitize=fuzzer -o $@ $< -Wl,--start-group $(call libs_of,kube base) -Wl,--end-group $(call ldlibs_of,kube base)
.PHONY: fuzz fuzz-build
fuzz-build: $(FUZZ_BIN)
FUZZ_SECONDS ?= 60
fuzz:
	@scripts/fuzz.sh $(FUZZ_SECONDS)

# ---- the two commands ---------------------------------------------------------------------------------------------------
.PHONY: demo test lint fmt bench oracle install uninstall clean help
demo: deps
	@BUILD=$(abspath $(O)) demo/demo.sh
test: deps
	@scripts/deps.sh install suites
	@scripts/test.sh
lint: deps
	@scripts/lint.sh
fmt:
	clang-format -i $$(git ls-files '*.c' '*.h')
bench: all
	@bench/run.sh $(O)
# upstream's own binder and ours through the same random sequences: N of them, of seed S
oracle: N ?= 300
oracle: S ?= 1
oracle: all $(O)/berth-devapi
	@e2e/cluster/setup.sh kube-controller-manager
	@BERTH_BUILD=$(abspath $(O)) e2e/oracle/oracle.py --sequences $(N) --seed $(S)
PREFIX ?= /usr/local
# what tests and benchmarks are made of stays here
INSTALLED := $(foreach p,$(PROGRAMS),$(if $(filter tests/% bench/%,$(DIRS_$(p))),,$(p)))
install: all
	install -d $(DESTDIR)$(PREFIX)/bin && install -m 0755 $(INSTALLED:%=$(O)/%) $(DESTDIR)$(PREFIX)/bin
uninstall:
	rm -f $(INSTALLED:%=$(DESTDIR)$(PREFIX)/bin/%)
clean:
	rm -rf build build-*
help:
	@echo "make            build all programs into build/"
	@echo "make demo       set up what is missing and watch a claim become a volume (root, Debian 12)"
	@echo "make test       set up what is missing and run all tests (root, Debian 12)"
	@echo "make unit       unit tests only, in seconds"
	@echo "make lint       formatting, cppcheck, clang-tidy, shellcheck"
	@echo "make fmt        format the sources"
	@echo "make bench      benchmarks (root)"
	@echo "make fuzz       the parsers of text from outside, FUZZ_SECONDS=60 each (clang)"
	@echo "make oracle     compare with upstream's binder, N=300 random sequences of seed S=1"
	@echo "make install    into PREFIX=/usr/local (DESTDIR is honoured); make uninstall takes it away"
	@echo "make clean      remove the build directories"
	@echo "make dist       a tarball of the sources;  make deb  a Debian package"
	@echo "make images     container images (ENGINE=podman|docker|buildah); make image-archives  without any of these"
	@echo "make manifests  deploy/rbac and deploy/helm from the kustomize bases; make check-deploy  checks deploy/"
	@echo "make e2e-node   the suite on a real node made here (root); make e2e-kind  on kind clusters"
	@echo "variables       SAN=address|thread CC=clang V=1 O=dir"

-include deploy/targets.mk
-include $(shell find $(O) -name '*.d' 2>/dev/null)
