##@ Build

# Flags of the playground, such as RUNFLAGS='--nodes 2 --kubeconfig other.kubeconfig'.
RUNFLAGS ?=

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

# Files that `make generate` writes and `make verify` compares.
API := api/v1alpha1
DEEPCOPY := $(API)/zz_generated.deepcopy.go
CRDS := $(API)/crd
CHART := charts/daybreak
REFERENCE := docs/reference
CODES := internal/manager/dashboard/assets/strings/codes.js

# $(call controller-gen,FOLDER OF THE DEEP COPIES,FOLDER OF THE CRDS)
controller-gen = $(TOOL) controller-gen paths=./$(API) \
	object:headerFile=hack/boilerplate.go.txt output:object:dir=$(1) \
	crd output:crd:dir=$(2)

.PHONY: generate
generate: ## Write the generated files: deep copies, the CRD, what the chart takes from the sources, and the reference
	$(call controller-gen,$(API),$(CRDS))
	$(AS_BUILT) $(GO) run ./hack/chart $(CHART)
	$(AS_BUILT) $(GO) run ./hack/reference $(REFERENCE) $(CODES)

.PHONY: clean
clean: ## Remove what the other targets leave behind
	rm -rf $(BIN) $(DIST) bench.json bench-compat.json bench-peers.json coverage.out coverage.html playground.kubeconfig playground.kubeconfig.lock playground.files
