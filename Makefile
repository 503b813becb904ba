# Everything a contributor or CI runs. `make help` lists the targets; the text
# after "##" on a target's line is what it prints.

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
BIN ?= bin

# Flags of the playground, such as RUNFLAGS='--nodes 2 --kubeconfig other.kubeconfig'.
RUNFLAGS ?=

# What is tested, and for how long. TESTFLAGS is passed to go test as it is,
# for example TESTFLAGS='-run TestFit -v'.
PACKAGES ?= ./...
TESTFLAGS ?=
TEST_TIMEOUT ?= 20m
FUZZTIME ?= 60s
E2EFLAGS ?=
E2E_TIMEOUT ?= 15m
# The long form of the chaos suite; a run prints its seed.
CHAOS_SEED ?= 1
CHAOS_FAULTS ?= 1080
CHAOS_PODS ?= 5400
# What `make skew` upgrades from: a release, or any other commit.
OLD ?= 2c541d8

# The servers of `make compat`: minor versions of hack/compat, and the tree's own.
SERVERS ?= 1.23 1.25 1.28 1.30 1.32 1.34 own
COMPAT_PARTS := kube-apiserver kube-controller-manager kube-scheduler

# Where known vulnerabilities are looked up: https://vuln.go.dev, a mirror, or a
# folder as file:///FOLDER. Empty: they are not.
VULNDB ?=

GO ?= go
# The tools come from the module proxy like every other dependency, at the
# versions that hack/tools/go.mod and go.sum pin.
TOOL := $(GO) tool -modfile=hack/tools/go.mod
GOLANGCI_LINT := $(TOOL) golangci-lint
CONTROLLER_GEN := $(TOOL) controller-gen
GOVULNCHECK := $(TOOL) govulncheck
CONTAINERD := containerd containerd-shim-runc-v2 ctr
CONTAINERD_TAGS := no_btrfs no_zfs no_devmapper no_aufs

# Files that `make generate` writes and `make verify` compares.
API := api/v1alpha1
DEEPCOPY := $(API)/zz_generated.deepcopy.go
CRDS := $(API)/crd
CHART := charts/daybreak
REFERENCE := docs/reference
CODES := internal/manager/dashboard/assets/strings/codes.js

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

# A workspace around a clone must not change what is built, and -modfile is
# refused inside one.
export GOWORK := off

# Whatever looks at code that links Kubernetes does so with the flags of `make
# build`, so that nothing of it is compiled twice. Tests do not run go vet, which takes
# minutes for Kubernetes: `make lint` finds all that it does.
AS_BUILT := CGO_ENABLED=0 GOFLAGS='$(BUILDFLAGS) -vet=off'

##@ Build

.PHONY: build
build: ## Build bin/daybreak (also as a plugin of kubectl), bin/playground and bin/kubectl
	@mkdir -p $(BIN)
	@if [ ! -x $(BIN)/playground ]; then echo "make build: the first build compiles Kubernetes, etcd and kubectl; progress follows" >&2; fi
	@$(AS_BUILT) GO='$(GO)' $(GO) run ./hack/build -ldflags '$(LDFLAGS)' -o $(BIN)/ ./cmd/daybreak ./cmd/playground k8s.io/kubernetes/cmd/kubectl
	@ln -sf daybreak $(BIN)/kubectl-daybreak
	@ln -sf daybreak $(BIN)/kubectl_complete-daybreak

.PHONY: run
run: build ## Run the playground in the foreground, with RUNFLAGS: a real control plane with simulated MetaX nodes
	@exec $(BIN)/playground $(RUNFLAGS)

.PHONY: generate
generate: ## Write the generated files: deep copies, the CRD, what the chart takes from the sources, and the reference
	$(call controller-gen,$(API),$(CRDS))
	$(AS_BUILT) $(GO) run ./hack/chart $(CHART)
	$(AS_BUILT) $(GO) run ./hack/reference $(REFERENCE) $(CODES)

.PHONY: clean
clean: ## Remove what the other targets leave behind
	rm -rf $(BIN) $(DIST) bench.json bench-compat.json bench-peers.json coverage.out coverage.html playground.kubeconfig playground.kubeconfig.lock playground.files

##@ Test

# The race detector slows a whole Kubernetes control plane down too much, so a
# package whose test links it, which its feature gates show, is tested without
# the detector. So is
# everything where there is no C compiler, which the detector needs. The chaos
# suite, which measures how long things take, has a target of its own.
.PHONY: test
test: build ## Run all tests, with the race detector where it is affordable
	@listing="$$($(GO) list -test -f '{{.ImportPath}} {{join .Deps " "}}' $(PACKAGES))"; \
	tests="$$(awk '$$1 ~ /\.test$$/ && $$1 !~ /\/test\/chaos\.test$$/ { sub(/\.test$$/, "", $$1); print }' <<<"$$listing")"; \
	racy="$$(awk '!/ k8s\.io\/kubernetes\/pkg\/features/ { print $$1 }' <<<"$$tests")"; \
	plain="$$(awk '/ k8s\.io\/kubernetes\/pkg\/features/ { print $$1 }' <<<"$$tests")"; \
	if [ -z "$$tests" ]; then echo "make test: no tests in $(PACKAGES)" >&2; exit 0; fi; \
	cc="$$($(GO) env CC)"; status=0; \
	if ! command -v "$${cc%% *}" >/dev/null; then \
		echo "make test: no C compiler ($$cc), testing without the race detector" >&2; \
		plain="$$racy $$plain"; racy=; export CGO_ENABLED=0; \
	fi; \
	if [ -n "$$racy" ]; then CGO_ENABLED=1 $(GO) test -race -vet=off -timeout $(TEST_TIMEOUT) $(TESTFLAGS) $$racy || status=1; fi; \
	if [ -n "$${plain// /}" ]; then $(AS_BUILT) $(GO) test -timeout $(TEST_TIMEOUT) $(TESTFLAGS) $$plain || status=1; fi; \
	exit $$status

# go test fuzzes one target at a time; a failure does not keep the others from
# their turn. The input that failed is left in the package's testdata/fuzz.
# Go would spend most of the time making interesting inputs smaller.
.PHONY: fuzz
fuzz: ## Fuzz every target in turn, FUZZTIME=60s each
	@targets="$$(grep -rnoE --include='*_test.go' '^func Fuzz[A-Za-z0-9_]*\(' . | sed -E 's|^(.*)/[^/]*:[0-9]+:func (Fuzz[A-Za-z0-9_]*)\($$|\1 \2|' | sort || true)"; \
	if [ -z "$$targets" ]; then echo "make fuzz: there are no fuzz targets" >&2; exit 0; fi; \
	log="$$(mktemp)"; trap 'rm -f "$$log"' EXIT; failed=; \
	while read -r folder name; do \
		echo "$$folder $$name"; \
		if $(GO) test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 10x "$$folder" </dev/null >"$$log" 2>&1; then \
			{ grep 'execs:' "$$log" || cat "$$log"; } | tail -n 1; \
		else \
			cat "$$log"; failed="$$failed $$folder:$$name"; \
		fi; \
	done <<<"$$targets"; \
	if [ -n "$$failed" ]; then echo "make fuzz: failed:$$failed" >&2; exit 1; fi

# Compiles the scheduler's tests once for each bug.
.PHONY: planted
planted: ## Plant known bugs in the scheduler and the agent one by one, and see that simulated histories and random walks find each
	$(AS_BUILT) $(GO) test -count 1 -v -timeout 0 ./internal/scheduler -run '^TestPlanted$$' -args -history.planted
	$(AS_BUILT) $(GO) test -count 1 -v -timeout 0 ./internal/agent/deviceplugin -run '^TestPlanted$$' -args -walk.planted

# One package, so that go test prints what the test prints as it goes.
CHAOS := $(AS_BUILT) $(GO) test -count 1 -v -timeout 0 ./test/chaos

# The fake driver is compiled; without it there would be nothing to test.
.PHONY: chaos-compiler
chaos-compiler:
	@command -v "$${CC:-cc}" >/dev/null || hack/node-packages.sh

.PHONY: chaos
chaos: build chaos-compiler ## Kill, pause and disturb everything while pods come and go; the short form, a few minutes
	$(CHAOS) $(TESTFLAGS)

.PHONY: chaos-long
chaos-long: build chaos-compiler ## The long form: over a thousand faults and 5 000 pods in one run, then each part killed twenty times alone; about an hour
	$(CHAOS) -run '^TestChaos$$' -args -chaos.seed=$(CHAOS_SEED) -chaos.faults=$(CHAOS_FAULTS) -chaos.pods=$(CHAOS_PODS) -chaos.round=54
	$(CHAOS) -run '^TestRecovery$$' -args -chaos.seed=$(CHAOS_SEED) -chaos.samples=20

# The clone may be another user's.
SKEW_GIT := git -c safe.directory='*'

# Checked before anything is compiled.
.PHONY: skew-commit
skew-commit:
	@$(SKEW_GIT) rev-parse --quiet --verify '$(OLD)^{commit}' >/dev/null || { \
		echo "make skew: this clone has no commit $(OLD): fetch it with git fetch --unshallow --tags, or name another with OLD=COMMIT" >&2; exit 2; }

# Nothing of the earlier commit is left but its binary and its chart: other targets
# look at every Go file below this folder.
.PHONY: skew
skew: skew-commit build $(BIN)/helm chaos-compiler ## Upgrade from OLD=2c541d8 and roll back in every order of the parts, while pods run and arrive (as root); about seven minutes
	@commit="$$($(SKEW_GIT) rev-parse --short '$(OLD)^{commit}')"; old="$(abspath $(BIN))/skew-$$commit"; \
	if [ ! -x "$$old/daybreak" ]; then \
		echo "make skew: compiling $$commit" >&2; \
		source="$$(mktemp -d)"; trap 'rm -rf "$$source"' EXIT; \
		$(SKEW_GIT) archive "$$commit" | tar -x -C "$$source"; \
		mkdir -p "$$old"; cp -R "$$source/charts" "$$old/"; \
		$(AS_BUILT) $(GO) -C "$$source" build -ldflags "-s -w -X main.version=$$commit" -o "$$old/" ./cmd/daybreak; \
	fi; \
	$(AS_BUILT) SKEW_BIN='$(abspath $(BIN))' SKEW_OLD="$$old" $(GO) test -count 1 -v -timeout $(TEST_TIMEOUT) ./test/skew $(TESTFLAGS)

.PHONY: e2e
e2e: build node images $(BIN)/helm ## Test on a real node: kubelet, containerd and runc start real containers (as root)
	@hack/node-packages.sh
	$(AS_BUILT) E2E_BIN='$(abspath $(BIN))' $(GO) test -count 1 -v -timeout $(E2E_TIMEOUT) -skip '^TestInstall$$' $(E2EFLAGS) ./test/e2e
	$(AS_BUILT) E2E_BIN='$(abspath $(BIN))' $(GO) test -count 1 -v -timeout $(E2E_TIMEOUT) -run '^TestInstall$$' ./test/e2e
	@$(MAKE) --no-print-directory e2e-browser

NODE := ./test/e2e/kubelet ./test/e2e/proxy k8s.io/kubernetes/cmd/kube-scheduler

# Parts of containerd that need C or are of no use to the tests are left out.
.PHONY: node
node: ## Build bin/kubelet, bin/containerd and the like, of which `make e2e` makes a node
	@mkdir -p $(BIN)
	@if [ ! -x $(BIN)/containerd ]; then echo "make node: compiling kubelet and containerd; the first time takes about five minutes on two cores" >&2; fi
	$(AS_BUILT) $(GO) build -ldflags '$(LDFLAGS)' -o $(BIN)/ $(NODE)
	$(AS_BUILT) $(GO) -C hack/containerd build -tags '$(CONTAINERD_TAGS)' -ldflags '-s -w' -o $(abspath $(BIN))/ $(CONTAINERD:%=github.com/containerd/containerd/v2/cmd/%)

# The container runtime of an older node.
$(BIN)/compat/containerd-1.7/containerd: hack/containerd17/go.mod
	@mkdir -p $(@D)
	@echo "make compat: compiling containerd 1.7; the first time takes about two minutes on two cores" >&2
	$(AS_BUILT) $(GO) -C hack/containerd17 build -tags '$(CONTAINERD_TAGS)' -ldflags '-s -w' -o $(abspath $(@D))/ $(CONTAINERD:%=github.com/containerd/containerd/cmd/%)

# Those tests of `make e2e` that older versions of the API server, kubelet and containerd
# could fail.
COMPAT_NODE_TESTS := TestVersions|TestCDIOff|TestThreeOnOneCard|TestContainerRestarts|TestInitContainer|TestRestricted|TestKubeletRestarts|TestContainerdRestarts|TestCheck

.PHONY: compat-node
compat-node: build $(addprefix $(BIN)/compat/1.28/,$(COMPAT_PARTS) kubelet) $(BIN)/compat/containerd-1.7/containerd ## Test on an older node: Kubernetes 1.28, kubelet and servers, on containerd 1.7 (as root)
	@hack/node-packages.sh
	$(AS_BUILT) E2E_BIN='$(abspath $(BIN))' E2E_SERVERS='$(abspath $(BIN))/compat/1.28' E2E_CONTAINERD='$(abspath $(BIN))/compat/containerd-1.7' \
		$(GO) test -count 1 -v -timeout $(E2E_TIMEOUT) -run '^($(COMPAT_NODE_TESTS))$$' ./test/e2e

# Chromium and npm are Debian's; axe-core, which looks at accessibility, comes
# from npm at the version and with the checksum of package-lock.json.
.PHONY: e2e-browser
e2e-browser: build ## Test the dashboard in Chromium; PICTURES=docs/images takes the pictures of the docs again
	@missing=; for name in chromium npm; do command -v $$name >/dev/null || missing="$$missing $$name"; done; \
	if [ -n "$$missing" ]; then \
		if [ "$$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then echo "make e2e-browser: install$$missing first" >&2; exit 2; fi; \
		install() { apt-get install -qq -y --no-install-recommends $$missing fonts-noto-cjk >/dev/null; }; \
		install || { apt-get update -qq && install; }; \
	fi
	npm ci --prefix test/browser --ignore-scripts --no-audit --no-fund
	$(AS_BUILT) E2E_BIN='$(abspath $(BIN))' E2E_PICTURES='$(if $(PICTURES),$(abspath $(PICTURES)))' \
		$(GO) test -count 1 -v -timeout 25m $(E2EFLAGS) ./test/browser

# Real etcd and API server, and two schedulers that take turns. Nothing else
# should use the machine meanwhile; docs/performance.md shows the results.
.PHONY: bench
bench: build ## Measure scheduling against plain Kubernetes, at most 20 minutes; writes bench.json
	@$(AS_BUILT) $(GO) run ./test/perf -plan test/perf/bench.yaml -out bench.json

.PHONY: bench-full
bench-full: build ## Measure everything, three to five hours; writes bench.json
	@$(AS_BUILT) $(GO) run ./test/perf -plan test/perf/bench-full.yaml -out bench.json

.PHONY: bench-peers
bench-peers: build $(BIN)/compat/koordinator/koord-scheduler ## Measure Koordinator's scheduler, plain kube-scheduler and Daybreak in turn; writes bench-peers.json
	$(if $(HAMI_SRC),CGO_ENABLED=0 $(GO) -C $(HAMI_SRC) build -o $(abspath $(BIN))/compat/hami/ ./cmd/scheduler)
	@$(AS_BUILT) HAMI_SRC='$(HAMI_SRC)' $(GO) run ./test/perf -plan test/perf/bench-peers.yaml -peers $(BIN)/compat -out bench-peers.json

# A part of `make compat`.
.PHONY: compat-koordinator
compat-koordinator: build $(BIN)/compat/koordinator/koord-scheduler
	$(AS_BUILT) COMPAT_BIN='$(abspath $(BIN))' $(GO) test -count 1 -v -timeout $(TEST_TIMEOUT) $(TESTFLAGS) ./test/compat/koordinator

# With the folder of the release that has its definitions, rights and configuration.
$(BIN)/compat/koordinator/koord-scheduler: hack/compat/koordinator/go.mod
	@mkdir -p $(@D)
	@echo "make: compiling Koordinator's scheduler; the first time takes about five minutes on two cores" >&2
	$(AS_BUILT) $(GO) -C $(<D) build -ldflags '-s -w' -o $(abspath $@) github.com/koordinator-sh/koordinator/cmd/koord-scheduler
	@rm -rf $(@D)/config
	@cp -R "$$($(GO) -C $(<D) list -m -f '{{.Dir}}' github.com/koordinator-sh/koordinator)/config" $(@D)/ && chmod -R u+w $(@D)/config

# A part of `make compat`.
.PHONY: compat-kueue
compat-kueue: build $(BIN)/compat/kueue/kueue
	$(AS_BUILT) COMPAT_BIN='$(abspath $(BIN))' $(GO) test -count 1 -v -timeout $(TEST_TIMEOUT) $(TESTFLAGS) ./test/compat/kueue

# With the folder of the release that has its definitions, rights and webhooks.
$(BIN)/compat/kueue/kueue: hack/compat/kueue/go.mod
	@mkdir -p $(@D)
	@echo "make: compiling Kueue; the first time takes about five minutes on two cores" >&2
	$(AS_BUILT) $(GO) -C $(<D) build -ldflags '-s -w' -o $(abspath $@) sigs.k8s.io/kueue/cmd/kueue
	@rm -rf $(@D)/config
	@cp -R "$$($(GO) -C $(<D) list -m -f '{{.Dir}}' sigs.k8s.io/kueue)/config" $(@D)/ && chmod -R u+w $(@D)/config

# The charts in docs/images are checked in; the pages name the commands whose
# results they show.
.PHONY: pictures
pictures: ## Draw the charts of the docs from results of simulate and of bench-full: TRACE=FILE CHURN=FILE BENCH=FILE
	$(GO) -C hack/pictures run . -out $(abspath docs/images) \
		$(if $(TRACE),-trace $(abspath $(TRACE))) $(if $(CHURN),-churn $(abspath $(CHURN))) $(if $(BENCH),-bench $(abspath $(BENCH)))

.PHONY: chart
chart: build $(BIN)/helm $(BIN)/promtool ## Lint, render and test the Helm chart, and apply it to a real API server
	$(BIN)/helm lint --strict --kube-version $(KUBERNETES) --set image.repository=registry.example/daybreak --set image.tag=v1 $(CHART)
	$(AS_BUILT) CHART_BIN='$(abspath $(BIN))' $(GO) test -count 1 -timeout $(TEST_TIMEOUT) $(TESTFLAGS) ./test/chart
	$(BIN)/helm package --destination $(BIN) --app-version $(VERSION) $(CHART)

# What a page says to type is typed on a playground.
.PHONY: docs
docs: build $(BIN)/helm ## Do what the documentation says, and compare what it says comes of it
	$(AS_BUILT) DOCS_BIN='$(abspath $(BIN))' $(GO) test -count 1 -v -timeout $(TEST_TIMEOUT) $(TESTFLAGS) ./test/docs

# Prometheus' own checker of rules, from Debian's package: nothing is installed.
$(BIN)/promtool:
	@command -v apt-get >/dev/null || { echo "make chart: put Prometheus' promtool into $(BIN) first" >&2; exit 2; }
	@mkdir -p $(BIN); tmp="$$(mktemp -d)"; trap 'rm -rf "$$tmp"' EXIT; chmod 755 "$$tmp"; cd "$$tmp"; \
	download() { apt-get download -qq prometheus 2>/dev/null; }; \
	download || { apt-get update -qq && download; }; \
	dpkg-deb -x prometheus_*.deb . && cp usr/bin/promtool '$(abspath $(BIN))/'

$(BIN)/helm: hack/helm/go.mod
	@mkdir -p $(BIN)
	@echo "make chart: compiling Helm; the first time takes about two minutes on two cores" >&2
	$(AS_BUILT) $(GO) -C hack/helm build -ldflags '-s -w' -o $(abspath $(BIN))/ helm.sh/helm/v3/cmd/helm

# $(call compat-test,SERVERS,PACKAGES)
compat-test = $(AS_BUILT) COMPAT_BIN='$(abspath $(BIN))' COMPAT_SERVERS='$(1)' \
	$(GO) test -p 1 -count 1 -v -timeout 1h $(2) $(TESTFLAGS)

.PHONY: compat
compat: build $(BIN)/helm chaos-compiler $(BIN)/compat/koordinator/koord-scheduler $(BIN)/compat/kueue/kueue $(foreach v,$(filter-out own,$(SERVERS)),$(COMPAT_PARTS:%=$(BIN)/compat/$(v)/%)) ## Install, place, forge, fail over and audit on real servers of SERVERS='1.23 1.25 …' (as root); compiles them the first time
	$(call compat-test,$(SERVERS),./test/compat/...)
	@$(MAKE) --no-print-directory compat-node

# What CI can afford: one old server.
.PHONY: compat-ci
compat-ci: build $(BIN)/helm chaos-compiler $(COMPAT_PARTS:%=$(BIN)/compat/1.28/%)
	$(call compat-test,1.28,./test/compat)

# Daybreak against that version's own plain kube-scheduler.
.PHONY: compat-bench
compat-bench: build $(COMPAT_PARTS:%=$(BIN)/compat/1.28/%) ## Measure scheduling against plain Kubernetes 1.28 with 500 nodes, about ten minutes; writes bench-compat.json
	@$(AS_BUILT) $(GO) run ./test/perf -plan test/perf/bench.yaml -run '^500/(slices|mix|ordinary)$$' -kubernetes $(BIN)/compat/1.28 -out bench-compat.json

# Parts of other versions of Kubernetes, such as bin/compat/1.28/kube-apiserver.
# What in-tree cloud providers need is left out. Up to 1.25 /version is client-go's.
.SECONDEXPANSION:
$(BIN)/compat/%: hack/compat/v$$(*D)/go.mod
	@mkdir -p $(@D)
	@echo "make compat: compiling $(*F) $(*D); the first time takes about four minutes on two cores" >&2
	@tree="$$(mktemp -d)"; trap 'rm -rf "$$tree"' EXIT; \
	version="$$($(GO) -C $(<D) list -m -f '{{.Version}}' k8s.io/kubernetes)"; \
	modfile=; if grep -q openapi-gen $<; then modfile="-modfile=$$(hack/compat/openapi.sh v$(*D) $(@D) "$$tree")"; fi; \
	$(AS_BUILT) $(GO) -C $(<D) build -tags providerless $$modfile -o $(abspath $@) \
		-ldflags "-s -w $$(for package in component-base/version client-go/pkg/version; do \
			echo "-X k8s.io/$$package.gitVersion=$$version -X k8s.io/$$package.gitMajor=1 -X k8s.io/$$package.gitMinor=$(*D:1.%=%)"; done | paste -sd' ')" \
		k8s.io/kubernetes/cmd/$(*F)

# Compiles what the later steps of CI need. Only Go's caches change, so that every other
# target may run at the same time.
.PHONY: ahead
ahead:
	$(AS_BUILT) $(GO) -C hack/helm build -o /dev/null helm.sh/helm/v3/cmd/helm
	$(AS_BUILT) $(GO) -C hack/compat/v1.28 build -tags providerless -o /dev/null $(COMPAT_PARTS:%=k8s.io/kubernetes/cmd/%)
	$(AS_BUILT) $(GO) build -o /dev/null $(NODE)
	$(AS_BUILT) $(GO) -C hack/containerd build -tags '$(CONTAINERD_TAGS)' -o /dev/null $(CONTAINERD:%=github.com/containerd/containerd/v2/cmd/%)

##@ Release

.PHONY: images
images: build ## Write the container image as an OCI layout, bin/image, and as an archive, bin/image.tar
	$(AS_BUILT) $(GO) -C hack/images run . --binary $(abspath $(BIN))/daybreak --version $(VERSION) --out $(abspath $(BIN))/image

# Where `make release` writes.
DIST ?= dist
# What makes the draft of a release; GH='echo gh' shows the command.
GH ?= gh

.PHONY: release
release: ## Write dist/, everything that is published of VERSION=v0.2.0: binaries, chart, image, SBOMs, krew's manifest, notes and checksums
	@$(AS_BUILT) $(GO) run ./hack/release --version '$(VERSION)' --ldflags '$(LDFLAGS)' --out '$(DIST)'

# The second time in a clone elsewhere, so that no file depends on where it was
# built. With GOCACHE of an empty folder everything is compiled again as well.
.PHONY: release-check
release-check: release ## Build the release of VERSION=v0.2.0 again in another folder, compare all files, and run the binary for this machine
	@(cd '$(DIST)' && sha256sum --check --quiet SHA256SUMS)
	@clone="$$(mktemp -d)"; trap 'rm -rf "$$clone"' EXIT; \
	git -c safe.directory='*' clone --quiet --shared . "$$clone/daybreak"; \
	$(MAKE) --no-print-directory -C "$$clone/daybreak" release VERSION='$(VERSION)' DIST=dist; \
	diff -r '$(DIST)' "$$clone/daybreak/dist"; \
	echo "make release-check: $$(wc -l <'$(DIST)/SHA256SUMS') files are equal in both folders"
	$(AS_BUILT) RELEASE_DIST='$(abspath $(DIST))' $(GO) test -count 1 -run '^TestDist$$' ./hack/release

# A person looks at the draft before it is published. Needs the tag on GitHub.
.PHONY: release-draft
release-draft: ## Draft the release of VERSION=v0.2.0 on GitHub from dist/
	@(cd '$(DIST)' && sha256sum --check --quiet SHA256SUMS)
	$(GH) release create '$(VERSION)' --draft --verify-tag --title '$(VERSION)' $(if $(findstring -,$(VERSION)),--prerelease) --notes-file '$(DIST)/release-notes.md' '$(DIST)'/*

##@ Verify

# Cheapest first. `make -k verify` goes on after a failure.
.PHONY: verify
verify: verify-format verify-workflows verify-docs verify-modules verify-own-modules verify-client verify-generated verify-vulnerabilities lint ## Check format, workflows, docs, vet, modules, other systems, generated files and lint; known vulnerabilities with VULNDB=URL

.PHONY: verify-format
verify-format:
	@files="$$("$$($(GO) env GOROOT)/bin/gofmt" -l .)"; \
	if [ -n "$$files" ]; then echo "make verify: run gofmt -w on" $$files >&2; exit 1; fi

# What else would be found depends on the machine: shellcheck and pyflakes.
.PHONY: verify-workflows
verify-workflows:
	$(GO) tool -modfile=hack/release/tools/go.mod actionlint -shellcheck= -pyflakes=

# What can be said of the pages without running them: links, languages, fences.
.PHONY: verify-docs
verify-docs:
	$(AS_BUILT) $(GO) test -count 1 -skip '^TestPages$$' ./test/docs

# Not the modules of `make compat`: tidying would download whole Kubernetes trees.
.PHONY: verify-modules
verify-modules:
	$(GO) mod tidy -diff
	@for module in $$(find hack -path hack/compat -prune -o -name go.mod -printf '%h\n' | sort); do echo "$(GO) -C $$module mod tidy -diff"; $(GO) -C $$module mod tidy -diff; done

# Programs with a go.mod of their own are not among ./... of `make test`.
.PHONY: verify-own-modules
verify-own-modules:
	$(AS_BUILT) $(GO) -C hack/images test ./...
	$(AS_BUILT) $(GO) -C hack/pictures test ./...

# One processor of each system: nothing in the tree depends on it.
.PHONY: verify-client
verify-client:
	GOOS=darwin GOARCH=arm64 $(AS_BUILT) $(GO) build -o /dev/null ./cmd/daybreak
	GOOS=windows GOARCH=amd64 $(AS_BUILT) $(GO) build -o /dev/null ./cmd/daybreak

.PHONY: verify-generated
verify-generated:
	@tmp="$$(mktemp -d)"; trap 'rm -rf "$$tmp"' EXIT; \
	$(call controller-gen,$$tmp,$$tmp/crd); \
	stale=; \
	diff -u $(DEEPCOPY) "$$tmp/$(notdir $(DEEPCOPY))" || stale=yes; \
	diff -ru -x embed.go $(CRDS) "$$tmp/crd" || stale=yes; \
	$(AS_BUILT) $(GO) run ./hack/chart "$$tmp/chart"; \
	for file in templates/policies.yaml files/device.yaml; do diff -u $(CHART)/$$file "$$tmp/chart/$$file" || stale=yes; done; \
	$(AS_BUILT) $(GO) run ./hack/reference "$$tmp/reference" "$$tmp/codes.js"; \
	diff -u $(CODES) "$$tmp/codes.js" || stale=yes; \
	diff -ru -x README.md $(REFERENCE) "$$tmp/reference" || stale=yes; \
	if [ -n "$$stale" ]; then echo "make verify: generated files are out of date, run make generate" >&2; exit 1; fi

# Of the code that is built into the two binaries, not of what tests need.
.PHONY: verify-vulnerabilities
verify-vulnerabilities:
	@if [ -z '$(VULNDB)' ]; then \
		echo "make verify: known vulnerabilities are left out: VULNDB names no database, such as https://vuln.go.dev" >&2; \
	else \
		$(AS_BUILT) $(GOVULNCHECK) -db '$(VULNDB)' ./cmd/...; \
	fi

# With all analyzers of go vet.
.PHONY: lint
lint: ## Run golangci-lint (.golangci.yaml)
	$(AS_BUILT) $(GOLANGCI_LINT) run ./...

# $(call controller-gen,FOLDER OF THE DEEP COPIES,FOLDER OF THE CRDS)
controller-gen = $(CONTROLLER_GEN) paths=./$(API) \
	object:headerFile=hack/boilerplate.go.txt output:object:dir=$(1) \
	crd output:crd:dir=$(2)

##@ Help

.PHONY: help
help: ## List the targets
	@awk 'BEGIN { FS = ":.*## " } \
		/^##@ / { printf "%s%s\n", (n++ ? "\n" : ""), substr($$0, 5) } \
		/^[a-z0-9-]+:.*## / { printf "  %-13s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))
