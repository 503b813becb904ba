##@ CI

# Compiles what the later steps of .ci/run need. Only Go's caches change, so that every
# other target may run at the same time.
.PHONY: ahead
ahead:
	$(AS_BUILT) $(GO) -C hack/modules/helm build -o /dev/null helm.sh/helm/v3/cmd/helm
	$(AS_BUILT) $(GO) build -o /dev/null $(NODE)
	$(AS_BUILT) $(GO) -C hack/modules/containerd build -tags '$(CONTAINERD_TAGS)' -o /dev/null $(CONTAINERD:%=github.com/containerd/containerd/v2/cmd/%)

# What a change seldom breaks, and what takes too long for each: CONTRIBUTING.md has
# what each part protects.
.PHONY: nightly
nightly: nightly-systems nightly-modules nightly-compat planted ## Build for macOS and Windows, test the programs with modules of their own, run `make compat` on 1.28 and `make planted`; about half an hour

# One processor of each system: nothing in the tree depends on it.
.PHONY: nightly-systems
nightly-systems:
	GOOS=darwin GOARCH=arm64 $(AS_BUILT) $(GO) build -o /dev/null ./cmd/daybreak
	GOOS=windows GOARCH=amd64 $(AS_BUILT) $(GO) build -o /dev/null ./cmd/daybreak

# Programs with a go.mod of their own are not among ./... of `make test`.
.PHONY: nightly-modules
nightly-modules:
	$(AS_BUILT) $(GO) -C hack/images test ./...
	$(AS_BUILT) $(GO) -C hack/pictures test ./...

.PHONY: nightly-compat
nightly-compat: build $(BIN)/helm chaos-compiler $(COMPAT_PARTS:%=$(BIN)/compat/1.28/%)
	$(call compat-test,1.28,./test/compat)
