##@ Measure

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

# Daybreak against that version's own plain kube-scheduler.
.PHONY: compat-bench
compat-bench: build $(COMPAT_PARTS:%=$(BIN)/compat/1.28/%) ## Measure scheduling against plain Kubernetes 1.28 with 500 nodes, about ten minutes; writes bench-compat.json
	@$(AS_BUILT) $(GO) run ./test/perf -plan test/perf/bench.yaml -run '^500/(slices|mix|ordinary)$$' -kubernetes $(BIN)/compat/1.28 -out bench-compat.json

# The charts in docs/images are checked in; the pages name the commands whose
# results they show.
.PHONY: pictures
pictures: ## Draw the charts of the docs from results of simulate and of bench-full: TRACE=FILE CHURN=FILE BENCH=FILE
	$(GO) -C hack/pictures run . -out $(abspath docs/images) \
		$(if $(TRACE),-trace $(abspath $(TRACE))) $(if $(CHURN),-churn $(abspath $(CHURN))) $(if $(BENCH),-bench $(abspath $(BENCH)))
