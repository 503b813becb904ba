##@ Verify

# Where known vulnerabilities are looked up: https://vuln.go.dev, a mirror, or a
# folder as file:///FOLDER. Empty: they are not.
VULNDB ?=

# The tools come from the module proxy like every other dependency, at the
# versions that hack/modules/tools/go.mod and go.sum pin.
TOOL := $(GO) tool -modfile=hack/modules/tools/go.mod

# Cheapest first. `make -k verify` goes on after a failure.
.PHONY: verify
verify: verify-format verify-workflows verify-docs verify-modules verify-generated verify-vulnerabilities lint ## Check format, workflows, docs, vet, modules, generated files and lint; known vulnerabilities with VULNDB=URL

.PHONY: verify-format
verify-format:
	@files="$$("$$($(GO) env GOROOT)/bin/gofmt" -l .)"; \
	if [ -n "$$files" ]; then echo "make verify: run gofmt -w on" $$files >&2; exit 1; fi

# What else would be found depends on the machine: shellcheck and pyflakes.
.PHONY: verify-workflows
verify-workflows:
	$(GO) tool -modfile=hack/images/go.mod actionlint -shellcheck= -pyflakes=

# What can be said of the pages without running them: links, languages, fences.
.PHONY: verify-docs
verify-docs:
	$(AS_BUILT) $(GO) test -count 1 -skip '^TestPages$$' ./test/docs

# Not the modules of `make compat`: tidying would download whole Kubernetes trees.
.PHONY: verify-modules
verify-modules:
	$(GO) mod tidy -diff
	@for module in $$(find hack \( -name 'kubernetes-*' -o -name koordinator -o -name kueue \) -prune -o -name go.mod -printf '%h\n' | sort); do echo "$(GO) -C $$module mod tidy -diff"; $(GO) -C $$module mod tidy -diff; done

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
		$(AS_BUILT) $(TOOL) govulncheck -db '$(VULNDB)' ./cmd/...; \
	fi

# With all analyzers of go vet.
.PHONY: lint
lint: ## Run golangci-lint (.golangci.yaml)
	$(AS_BUILT) $(TOOL) golangci-lint run --allow-parallel-runners ./...
