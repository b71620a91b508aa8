# "make" lists the targets.

GO ?= go
TESTFLAGS ?= -race -shuffle=on -count=1 -timeout=20m
FUZZTIME ?= 150000x
SOAK ?= 10m
PACKAGES = $$($(GO) list ./... | grep -v '/integration$$')

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-9s %s\n", $$1, $$2 }' Makefile

.PHONY: run
run: ## Serve decisions over HTTP from memory, on 127.0.0.1:8080
	$(GO) run ./cmd/ratelimit serve

.PHONY: test
test: unit ## Run all tests, those on Redis and Valkey containers included
	$(GO) -C integration test $(TESTFLAGS) -parallel=5 # without a package name go shows the summary of the servers

.PHONY: test-all
test-all: unit ## Run the suite in all combinations, at full depth once for each client, and long tests, in an hour or two
	RATELIMIT_FULL=1 $(GO) test $(TESTFLAGS) -run Millions ./backend/memory
	RATELIMIT_FULL=1 $(GO) -C integration test $(TESTFLAGS) -timeout=3h
	RATELIMIT_CONFORMANCE_FULL=1 $(GO) -C integration test -count=1 -timeout=3h -run 'TestConformance/redis:8$$/.*/keys(-cached)?$$'

.PHONY: unit
unit: ## Run the tests that need no server
	$(GO) test $(TESTFLAGS) $(PACKAGES)

.PHONY: lint
lint: ## Check format, vet and lint, also of the benchmarks, and that backend/valkey is written from backend/rueidis
	scripts/twins.sh
	$(GO) tool -modfile=tools/go.mod golangci-lint run ./...
	$(GO) -C benchmarks tool -modfile=../tools/go.mod golangci-lint run ./...

.PHONY: twins
twins: ## Write backend/valkey from backend/rueidis, its twin
	scripts/twins.sh write

.PHONY: fuzz
fuzz: ## Fuzz every target for FUZZTIME (150000x: inputs)
	scripts/fuzz.sh $(FUZZTIME)

.PHONY: soak
soak: ## Make random demands while random things go wrong, for SOAK (10m); check every history, and that planted bugs are caught
	RATELIMIT_SOAK=$(SOAK) $(GO) -C integration test -race -count=1 -v -timeout=3h -run '^TestSoak'

.PHONY: cover
cover: ## Measure coverage with all tests; fail below 90 % of a package
	scripts/cover.sh

.PHONY: bench
bench: ## Run the benchmarks
	$(GO) test -run '^$$' -bench . -benchmem $(PACKAGES)

.PHONY: faults
faults: ## Let faults befall real servers for seven minutes; write the tables of docs/operations.md
	RATELIMIT_FULL=1 RATELIMIT_IMAGES=redis:8,valkey/valkey:8 RATELIMIT_REQUIRE_SERVERS=1 RATELIMIT_FAULTS_MD=../docs/operations.md \
		$(GO) -C integration test -count=1 -timeout=30m -parallel=1 -run '^Test(Faults|FaultsBreaker|ClusterFailover|SentinelFailover|SlotMigration)$$'

.PHONY: compare
compare: ## Measure this module and others side by side, in two minutes
	$(GO) -C benchmarks run . -quick

.PHONY: report
report: ## Measure for ten minutes; write docs/benchmarks.md and the README's comparison
	$(GO) -C benchmarks run . -json ../docs/benchmarks.json -md ../docs/benchmarks.md -readme ../README.md

.PHONY: weight
weight: ## Count the go.sum lines that importing us costs a user
	scripts/weight.sh

.PHONY: images
images: ## Build the Redis and Valkey images where no registry is reached
	scripts/offline-images.sh
