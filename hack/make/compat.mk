##@ Other versions and other projects

# The clone may be another user's.
SKEW_GIT := git -c safe.directory='*'
# What `make skew` upgrades from: the last release, or any other commit. Until there
# is a release, the commit that is checked out.
OLD ?= $(or $(shell $(SKEW_GIT) describe --tags --abbrev=0 2>/dev/null),HEAD)

# Checked before anything is compiled.
.PHONY: skew-commit
skew-commit:
	@$(SKEW_GIT) rev-parse --quiet --verify '$(OLD)^{commit}' >/dev/null || { \
		echo "make skew: this clone has no commit $(OLD): fetch it with git fetch --unshallow --tags, or name another with OLD=COMMIT" >&2; exit 2; }

# Nothing of the earlier commit is left but its binary and its chart: other targets
# look at every Go file below this folder.
.PHONY: skew
skew: skew-commit build $(BIN)/helm chaos-compiler ## Upgrade from OLD, the last release or else HEAD, and roll back in every order of the parts, while pods run and arrive (as root); about seven minutes
	@commit="$$($(SKEW_GIT) rev-parse --short '$(OLD)^{commit}')"; old="$(abspath $(BIN))/skew-$$commit"; \
	if [ ! -x "$$old/daybreak" ]; then \
		echo "make skew: compiling $$commit" >&2; \
		source="$$(mktemp -d)"; trap 'rm -rf "$$source"' EXIT; \
		$(SKEW_GIT) archive "$$commit" | tar -x -C "$$source"; \
		mkdir -p "$$old/charts"; cp -R "$$source/charts/daybreak" "$$old/charts/"; \
		$(AS_BUILT) $(GO) -C "$$source" build -ldflags "-s -w -X main.version=$$commit" -o "$$old/" ./cmd/daybreak; \
	fi; \
	$(AS_BUILT) SKEW_BIN='$(abspath $(BIN))' SKEW_OLD="$$old" $(GO) test -count 1 -v -timeout $(TEST_TIMEOUT) ./test/skew $$TESTFLAGS

# The servers of `make compat`: versions of Kubernetes in hack/modules, and the tree's own.
SERVERS ?= 1.23 1.25 1.28 1.30 1.32 1.34 own
COMPAT_PARTS := kube-apiserver kube-controller-manager kube-scheduler

# $(call compat-test,SERVERS,PACKAGES)
compat-test = $(AS_BUILT) COMPAT_BIN='$(abspath $(BIN))' COMPAT_SERVERS='$(1)' \
	$(GO) test -p 1 -count 1 -v -timeout 1h $(2) $$TESTFLAGS

.PHONY: compat
compat: build $(BIN)/helm chaos-compiler $(BIN)/compat/koordinator/koord-scheduler $(BIN)/compat/kueue/kueue $(foreach v,$(filter-out own,$(SERVERS)),$(COMPAT_PARTS:%=$(BIN)/compat/$(v)/%)) ## Install, place, forge, fail over and audit on real servers of SERVERS='1.23 1.25 …' (as root); compiles them the first time
	$(call compat-test,$(SERVERS),./test/compat/...)
	@$(MAKE) --no-print-directory compat-node

# A part of `make compat`.
.PHONY: compat-koordinator
compat-koordinator: build $(BIN)/compat/koordinator/koord-scheduler
	$(AS_BUILT) COMPAT_BIN='$(abspath $(BIN))' $(GO) test -count 1 -v -timeout $(TEST_TIMEOUT) $$TESTFLAGS ./test/compat/koordinator

# With the folder of the release that has its definitions, rights and configuration.
$(BIN)/compat/koordinator/koord-scheduler: hack/modules/koordinator/go.mod
	@mkdir -p $(@D)
	@echo "make: compiling Koordinator's scheduler; the first time takes about five minutes on two cores" >&2
	$(AS_BUILT) $(GO) -C $(<D) build -ldflags '-s -w' -o $(abspath $@) github.com/koordinator-sh/koordinator/cmd/koord-scheduler
	@rm -rf $(@D)/config
	@cp -R "$$($(GO) -C $(<D) list -m -f '{{.Dir}}' github.com/koordinator-sh/koordinator)/config" $(@D)/ && chmod -R u+w $(@D)/config

# A part of `make compat`.
.PHONY: compat-kueue
compat-kueue: build $(BIN)/compat/kueue/kueue
	$(AS_BUILT) COMPAT_BIN='$(abspath $(BIN))' $(GO) test -count 1 -v -timeout $(TEST_TIMEOUT) $$TESTFLAGS ./test/compat/kueue

# With the folder of the release that has its definitions, rights and webhooks.
$(BIN)/compat/kueue/kueue: hack/modules/kueue/go.mod
	@mkdir -p $(@D)
	@echo "make: compiling Kueue; the first time takes about five minutes on two cores" >&2
	$(AS_BUILT) $(GO) -C $(<D) build -ldflags '-s -w' -o $(abspath $@) sigs.k8s.io/kueue/cmd/kueue
	@rm -rf $(@D)/config
	@cp -R "$$($(GO) -C $(<D) list -m -f '{{.Dir}}' sigs.k8s.io/kueue)/config" $(@D)/ && chmod -R u+w $(@D)/config

# Those tests of `make e2e` that older versions of the API server, kubelet and containerd
# could fail.
COMPAT_NODE_TESTS := TestVersions|TestCDIOff|TestThreeOnOneCard|TestContainerRestarts|TestInitContainer|TestRestricted|TestKubeletRestarts|TestContainerdRestarts|TestCheck

.PHONY: compat-node
compat-node: build $(addprefix $(BIN)/compat/1.28/,$(COMPAT_PARTS) kubelet) $(BIN)/compat/containerd-1.7/containerd ## Test on an older node: Kubernetes 1.28, kubelet and servers, on containerd 1.7 (as root)
	@hack/node-packages.sh
	$(AS_BUILT) E2E_BIN='$(abspath $(BIN))' E2E_SERVERS='$(abspath $(BIN))/compat/1.28' E2E_CONTAINERD='$(abspath $(BIN))/compat/containerd-1.7' \
		$(GO) test -count 1 -v -timeout $(E2E_TIMEOUT) -run '^($(COMPAT_NODE_TESTS))$$' ./test/e2e

# The container runtime of an older node.
$(BIN)/compat/containerd-1.7/containerd: hack/modules/containerd-1.7/go.mod
	@mkdir -p $(@D)
	@echo "make compat: compiling containerd 1.7; the first time takes about two minutes on two cores" >&2
	$(AS_BUILT) $(GO) -C hack/modules/containerd-1.7 build -tags '$(CONTAINERD_TAGS)' -ldflags '-s -w' -o $(abspath $(@D))/ $(CONTAINERD:%=github.com/containerd/containerd/cmd/%)

# Parts of other versions of Kubernetes, such as bin/compat/1.28/kube-apiserver.
# What in-tree cloud providers need is left out. Up to 1.25 /version is client-go's.
.SECONDEXPANSION:
$(BIN)/compat/%: hack/modules/kubernetes-$$(*D)/go.mod
	@mkdir -p $(@D)
	@echo "make compat: compiling $(*F) $(*D); the first time takes about four minutes on two cores" >&2
	@tree="$$(mktemp -d)"; trap 'rm -rf "$$tree"' EXIT; \
	version="$$($(GO) -C $(<D) list -m -f '{{.Version}}' k8s.io/kubernetes)"; \
	modfile=; if grep -q openapi-gen $<; then modfile="-modfile=$$(hack/modules/openapi.sh $(*D) $(@D) "$$tree")"; fi; \
	$(AS_BUILT) $(GO) -C $(<D) build -tags providerless $$modfile -o $(abspath $@) \
		-ldflags "-s -w $$(for package in component-base/version client-go/pkg/version; do \
			echo "-X k8s.io/$$package.gitVersion=$$version -X k8s.io/$$package.gitMajor=1 -X k8s.io/$$package.gitMinor=$(*D:1.%=%)"; done | paste -sd' ')" \
		k8s.io/kubernetes/cmd/$(*F)
