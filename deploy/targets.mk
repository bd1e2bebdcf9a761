# SPDX-License-Identifier: Apache-2.0
# Images, packages, manifests and the tests on real nodes. Included by the Makefile.
IMAGE_PREFIX ?= localhost/
ENGINE ?= $(firstword $(foreach e,podman docker buildah,$(if $(shell command -v $(e)),$(e))) docker)
ARCH ?= $(shell dpkg --print-architecture 2>/dev/null || echo amd64)
# berth-suite, what the tests' pods run, is built by e2e/kind
IMAGES := $(shell sed -n 's/^\(berth-[a-z]*\) .*/\1/p' deploy/image/programs.txt)
# the same sources give the same bytes
export SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null || echo 0)

.PHONY: images image-archives dist deb manifests check-deploy e2e-node e2e-kind

images: ## with docker, podman or buildah (ENGINE=)
	$(Q)deploy/image/build.sh "$(ENGINE)" "$(IMAGE_PREFIX)" "$(ARCH)" $(IMAGES)
image-archives: all ## without any of them: build/images/*.tar
	$(Q)e2e/node/setup.sh && e2e/node/images.sh $(O) $(O)/images
dist: ## a tarball of the sources
	$(Q)deploy/dist.sh $(O)
deb: all ## a Debian package
	$(Q)deploy/deb.sh $(O)
manifests: ## what is generated from the kustomize bases: deploy/rbac, deploy/helm
	$(Q)deploy/generate.py
check-deploy:
	$(Q)deploy/check.sh
e2e-node: all ## the suite on a real node, made here (root)
	$(Q)BUILD=$(O) e2e/node/run.sh
e2e-kind: ## the suite on kind clusters (docker or podman)
	$(Q)e2e/kind/run.sh
