##@ Test on a real node

E2E_TIMEOUT ?= 15m
CONTAINERD := containerd containerd-shim-runc-v2 ctr
CONTAINERD_TAGS := no_btrfs no_zfs no_devmapper no_aufs

.PHONY: e2e
e2e: build node images $(BIN)/helm ## Test on a real node: kubelet, containerd and runc start real containers (as root)
	@hack/node-packages.sh
	$(AS_BUILT) E2E_BIN='$(abspath $(BIN))' $(GO) test -count 1 -v -timeout $(E2E_TIMEOUT) -skip '^TestInstall$$' $$E2EFLAGS ./test/e2e
	$(AS_BUILT) E2E_BIN='$(abspath $(BIN))' $(GO) test -count 1 -v -timeout $(E2E_TIMEOUT) -run '^TestInstall$$' ./test/e2e
	@$(MAKE) --no-print-directory e2e-browser

NODE := ./test/e2e/kubelet ./test/e2e/proxy k8s.io/kubernetes/cmd/kube-scheduler

# Parts of containerd that need C or are of no use to the tests are left out.
.PHONY: node
node: ## Build bin/kubelet, bin/containerd and the like, of which `make e2e` makes a node
	@mkdir -p $(BIN)
	@if [ ! -x $(BIN)/containerd ]; then echo "make node: compiling kubelet and containerd; the first time takes about five minutes on two cores" >&2; fi
	$(AS_BUILT) $(GO) build -ldflags '$(LDFLAGS)' -o $(BIN)/ $(NODE)
	$(AS_BUILT) $(GO) -C hack/modules/containerd build -tags '$(CONTAINERD_TAGS)' -ldflags '-s -w' -o $(abspath $(BIN))/ $(CONTAINERD:%=github.com/containerd/containerd/v2/cmd/%)

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
		$(GO) test -count 1 -v -timeout 25m $$E2EFLAGS ./test/browser
