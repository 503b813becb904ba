# Everything a contributor or CI runs. `make help` lists the targets; the text
# after "##" on a target's line is what it prints. The targets are in hack/make,
# a file for each heading of that list.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

# A workspace around a clone must not change what is built, and -modfile is
# refused inside one.
export GOWORK := off

GO ?= go
BIN ?= bin

# What goes into the binaries. Builds are reproducible: paths are trimmed, no
# timestamps; version and commit are all that is taken from outside the sources.
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
COMMIT ?= $(shell git rev-parse HEAD 2>/dev/null)
# Without the last three the API server would call itself v0.0.0-master.
KUBERNETES = $(shell $(GO) list -m -f '{{.Version}}' k8s.io/kubernetes)
LDFLAGS = -s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT) \
	-X k8s.io/component-base/version.gitVersion=$(KUBERNETES) \
	-X k8s.io/component-base/version.gitMajor=$(word 1,$(subst ., ,$(KUBERNETES:v%=%))) \
	-X k8s.io/component-base/version.gitMinor=$(word 2,$(subst ., ,$(KUBERNETES:v%=%)))
BUILDFLAGS ?= -trimpath -buildvcs=false

# Whatever looks at code that links Kubernetes does so with the flags of `make
# build`, so that nothing of it is compiled twice. Tests do not run go vet, which takes
# minutes for Kubernetes: `make lint` finds all that it does.
AS_BUILT := CGO_ENABLED=0 GOFLAGS='$(BUILDFLAGS) -vet=off'

# Flags of go test for what a target tests, such as TESTFLAGS='-run TestFit|TestRank -v'.
# Recipes take them from the environment, where a shell does not read them.
export TESTFLAGS ?=
export E2EFLAGS ?=
TEST_TIMEOUT ?= 20m

include $(addprefix hack/make/,build.mk test.mk node.mk compat.mk bench.mk release.mk verify.mk ci.mk)

##@ Help

.PHONY: help
help: ## List the targets
	@awk 'BEGIN { FS = ":.*## " } \
		/^##@ / { printf "%s%s\n", (n++ ? "\n" : ""), substr($$0, 5) } \
		/^[a-z0-9-]+:.*## / { printf "  %-13s %s\n", $$1, $$2 }' $(filter %.mk,$(MAKEFILE_LIST)) $(firstword $(MAKEFILE_LIST))
