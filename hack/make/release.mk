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
