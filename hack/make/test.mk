##@ Test

# What is tested.
PACKAGES ?= ./...
FUZZTIME ?= 60s

# Where goroutines share memory. The detector makes tests several times slower and
# compiles all that they link once more (four CPU minutes for these packages), so
# everything else is tested without it; of the scheduler, only what is about
# goroutines: the rest decides about one pod after another.
RACE := ./internal/agent/... ./internal/manager/... ./internal/cluster ./internal/scheduler/nodelock
RACE_SCHEDULER := ^Test(BindsAtOnce|BindLimit.*|BindTakesTheLock|DropIsWhole|QuotaLine|QuotaHints|IndexOfManyNodes|BestOfAllNodes|SearchOvertaken|FirstBindingAfterOpening|TheFirstDecisionSeesWhatTheOldLeaderDid|TheFenceWaitsForTheCache|ADoubtIsReported|DevicesWatch|Histories|KnownHistories)$$

# The longest first, which mostly waits: the others run beside it. The chaos suite,
# which measures how long things take, has a target of its own. The detector needs
# a C compiler; the tables of what hostile objects cost would take minutes with it.
LONGEST := /(test/integration|internal/scheduler)$$
.PHONY: test
test: build ## Run all tests, with the race detector where goroutines share memory
	@tested() { $(GO) list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' "$$@" | grep -v '/test/chaos$$' | sort || true; }; \
	all="$$(tested $(PACKAGES))"; \
	if [ -z "$$all" ]; then echo "make test: no tests in $(PACKAGES)" >&2; exit 0; fi; \
	race="$$(comm -12 <(echo "$$all") <(tested $(RACE)))"; scheduler="$$(grep '/internal/scheduler$$' <<<"$$all" || true)"; \
	cc="$$($(GO) env CC)"; \
	if ! command -v "$${cc%% *}" >/dev/null; then \
		echo "make test: no C compiler ($$cc), testing without the race detector" >&2; \
		race=; scheduler=; \
	fi; \
	plain="$$(comm -23 <(echo "$$all") <(echo "$$race"))"; \
	plain="$$(grep -E '$(LONGEST)' <<<"$$plain" | sort -r || true) $$(grep -vE '$(LONGEST)' <<<"$$plain" || true)"; \
	counted="$$([ -z "$$race" ] || $(GO) list -f '{{range .TestGoFiles}}{{if eq . "cost_test.go"}}{{$$.ImportPath}}{{end}}{{end}}{{range .XTestGoFiles}}{{if eq . "cost_test.go"}}{{$$.ImportPath}}{{end}}{{end}}' $$race)"; \
	status=0; set -f; \
	if [ -n "$${plain// /}" ]; then $(AS_BUILT) $(GO) test -timeout $(TEST_TIMEOUT) $$TESTFLAGS $$plain || status=1; fi; \
	if [ -n "$$counted" ]; then $(AS_BUILT) $(GO) test -timeout $(TEST_TIMEOUT) -run '^TestCost$$' $$TESTFLAGS $$counted || status=1; fi; \
	if [ -n "$$race" ]; then CGO_ENABLED=1 $(GO) test -race -vet=off -timeout $(TEST_TIMEOUT) $$TESTFLAGS $$race || status=1; fi; \
	if [ -n "$$scheduler" ]; then CGO_ENABLED=1 $(GO) test -race -vet=off -timeout $(TEST_TIMEOUT) -run '$(RACE_SCHEDULER)' $$TESTFLAGS $$scheduler -args -history.n=300 || status=1; fi; \
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

# The long form of the chaos suite; a run prints its seed.
CHAOS_SEED ?= 1
CHAOS_FAULTS ?= 1080
CHAOS_PODS ?= 5400
# One package, so that go test prints what the test prints as it goes.
CHAOS := $(AS_BUILT) $(GO) test -count 1 -v -timeout 0 ./test/chaos

# The fake driver is compiled; without it there would be nothing to test.
.PHONY: chaos-compiler
chaos-compiler:
	@command -v "$${CC:-cc}" >/dev/null || hack/node-packages.sh

.PHONY: chaos
chaos: build chaos-compiler ## Kill, pause and disturb everything while pods come and go; the short form, a few minutes
	$(CHAOS) $$TESTFLAGS

.PHONY: chaos-long
chaos-long: build chaos-compiler ## The long form: over a thousand faults and 5 000 pods in one run, then each part killed twenty times alone; about an hour
	$(CHAOS) -run '^TestChaos$$' -args -chaos.seed=$(CHAOS_SEED) -chaos.faults=$(CHAOS_FAULTS) -chaos.pods=$(CHAOS_PODS) -chaos.round=54
	$(CHAOS) -run '^TestRecovery$$' -args -chaos.seed=$(CHAOS_SEED) -chaos.samples=20

.PHONY: chart
chart: build $(BIN)/helm $(BIN)/promtool ## Lint, render and test the Helm chart, and apply it to a real API server
	$(BIN)/helm lint --strict --kube-version $(KUBERNETES) --set image.repository=registry.example/daybreak --set image.tag=v1 $(CHART)
	$(AS_BUILT) CHART_BIN='$(abspath $(BIN))' $(GO) test -count 1 -timeout $(TEST_TIMEOUT) $$TESTFLAGS ./test/chart
	$(BIN)/helm package --destination $(BIN) --app-version $(VERSION) $(CHART)

# What a page says to type is typed on a playground.
.PHONY: docs
docs: build $(BIN)/helm ## Do what the documentation says, and compare what it says comes of it
	$(AS_BUILT) DOCS_BIN='$(abspath $(BIN))' $(GO) test -count 1 -v -timeout $(TEST_TIMEOUT) $$TESTFLAGS ./test/docs

# Prometheus' own checker of rules, from Debian's package: nothing is installed.
$(BIN)/promtool:
	@command -v apt-get >/dev/null || { echo "make chart: put Prometheus' promtool into $(BIN) first" >&2; exit 2; }
	@mkdir -p $(BIN); tmp="$$(mktemp -d)"; trap 'rm -rf "$$tmp"' EXIT; chmod 755 "$$tmp"; cd "$$tmp"; \
	download() { apt-get download -qq prometheus 2>/dev/null; }; \
	download || { apt-get update -qq && download; }; \
	dpkg-deb -x prometheus_*.deb . && cp usr/bin/promtool '$(abspath $(BIN))/'

$(BIN)/helm: hack/modules/helm/go.mod
	@mkdir -p $(BIN)
	@echo "make chart: compiling Helm; the first time takes about two minutes on two cores" >&2
	$(AS_BUILT) $(GO) -C hack/modules/helm build -ldflags '-s -w' -o $(abspath $(BIN))/ helm.sh/helm/v3/cmd/helm
