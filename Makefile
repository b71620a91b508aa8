# "make" lists the targets.

GO ?= go
RACE := $(if $(shell command -v "$$($(GO) env CC)"),-race)
TESTFLAGS ?= $(RACE) -vet=off -shuffle=on -count=1 -timeout=40m # "make vet" vets
FUZZTIME ?= 150000x
SOAK ?= 10m
ROUNDS ?= 4

# SHOWN are the benchmarks whose figures docs/benchmarks.md and README.md show. BENCH=. are all.
SHOWN = Exactness|Memory/hot/admitted|Memory/100k-keys/uniform|Keys/1M-keys|Bytes/limit=10+$$|$\
	Command/admitted/limit=100$$|Load/10k-keys/callers=64|Load/hot-key|Load/refused-key|$\
	Linger/processes=[0-9]+/rate=5000

# ALONE are the packages whose tests mostly have one goroutine, and the suite, whose tests have stores
# that are broken on purpose. They run without the race detector.
ALONE = ./algorithm ./conformance ./internal/testkit/budgetmodel ./internal/testkit/exhaustive

# MANYKEYS is the case of the suite that makes most calls. It runs without the race detector, too.
MANYKEYS = Conformance$$/identity$$/many-keys$$|Conformance$$/./identity$$/many-keys$$

# SOLO are packages with that case, or with files that have the build tag !race, whose tests are
# SOLOTESTS.
SOLO = ./layer ./backend/internal/denycache ./backend/memory ./backend/transactional \
	./conformance/linear
SOLOTESTS = $(shell sed -n 's/^func \(Test[A-Za-z0-9]*\).*/\1/p' \
	$$(grep -l '^//go:build !race' $(SOLO:=/*_test.go)) | paste -sd'|')

# The pattern "work" names the packages of the modules in go.work, which are published. These other
# modules replace them by their folders, and each is a workspace of its own, so that its versions do
# not raise those with which the published modules are compiled. caddylimit is published too.
OUTSIDE = integration benchmarks examples caddylimit

# RELEASED compiles as a release does, so that tools share what that compiles.
RELEASED = CGO_ENABLED=0 GOFLAGS=-trimpath

# At the end of a process package leak waits for goroutines, so the race detector need not wait
# for a second.
export GORACE ?= atexit_sleep_ms=50

export RATELIMIT_BEGAN := $(shell date +%s)
SAY = @s=$$(($$(date +%s) - RATELIMIT_BEGAN)); printf '%d:%02d %s\n' $$((s / 60)) $$((s % 60))

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-9s %s\n", $$1, $$2 }' Makefile

.PHONY: run
run: ## Serve decisions over HTTP from memory, on 127.0.0.1:8080
	$(GO) run ./cmd/ratelimit serve

.PHONY: test
test: ## Run the tests, also on the newest Redis and Valkey, which it gets itself
	@$(MAKE) --no-print-directory -j2 unit servers # the tests on servers mostly wait

.PHONY: servers
servers: ## Run the tests on Redis and Valkey servers, which it gets itself
	$(SAY) "tests on servers: compiling"
	@GOGC=400 GO=$(GO) scripts/servers.sh usual $(TESTFLAGS)

.PHONY: test-rest
test-rest: ## Run the tests on other versions, and of the image, which CI runs too
	@GOGC=400 GO=$(GO) scripts/servers.sh rest $(TESTFLAGS)

.PHONY: test-all
test-all: ## Run the tests at full depth, in some hours
	@RATELIMIT_FULL=1 $(MAKE) --no-print-directory unit TESTFLAGS='$(TESTFLAGS) -timeout=3h'
	RATELIMIT_FULL=1 $(GO) test $(TESTFLAGS) -timeout=3h ./conformance
	RATELIMIT_FULL=1 GO=$(GO) scripts/servers.sh usual $(TESTFLAGS) -timeout=3h
	RATELIMIT_FULL=1 GO=$(GO) scripts/servers.sh rest $(TESTFLAGS) -timeout=3h
	RATELIMIT_CONFORMANCE_FULL=1 $(GO) -C integration/conformance test -count=1 -timeout=3h \
		-run 'TestConformance/redis:8$$/.*/keys$$'

.PHONY: unit
unit: ## Run the tests that need no server
	$(SAY) "tests without servers$(if $(RACE),,, without the race detector: no C compiler)"
	@GOGC=400 $(GO) test $(TESTFLAGS) $(if $(RATELIMIT_FULL),,-skip '$(MANYKEYS)') \
		./cmd/ratelimit/command ./layer \
		$$($(GO) list work | grep -vxF "$$($(GO) list $(ALONE))")
	@GOGC=400 $(GO) test $(TESTFLAGS) -run '^Test(Naive|Remote)Passes$$' ./conformance
	@GOGC=400 $(GO) test $(filter-out -race,$(TESTFLAGS)) $(ALONE)
	@GOGC=400 $(GO) test $(filter-out -race,$(TESTFLAGS)) \
		-run '^($(SOLOTESTS))$$|$(MANYKEYS)' $(SOLO)

.PHONY: unit-386
unit-386: ## Run them for 32 bits, on an x86 processor
	$(SAY) "tests without servers, for 32 bits"
	@CGO_ENABLED=0 GOARCH=386 $(GO) test -shuffle=on -count=1 -timeout=40m work

# Vet and lint need all dependencies compiled. With the race detector, the tests need the same.
.PHONY: vet
vet: ## Compile and vet all modules with their tests
	$(GO) vet $(RACE) work
	$(GO) list -m all >/dev/null && git diff --exit-code go.work.sum # complete, so that no command changes it
	for module in $(OUTSIDE); do $(GO) -C $$module vet $(RACE) ./... || exit; done

.PHONY: lint
lint: ## Lint all modules and workflows, and check that backend/valkey is a twin of backend/rueidis
	scripts/twins.sh
	$(RELEASED) $(GO) run github.com/rhysd/actionlint/cmd/actionlint@v1.7.12 -shellcheck= -pyflakes=
	linter=$$(GOWORK=off $(RELEASED) $(GO) -C tools tool -n golangci-lint) && export GOFLAGS=$(RACE) && \
	for module in $$($(GO) list -m -f '{{.Dir}}') $(OUTSIDE); do (cd $$module && "$$linter" run ./...) || exit; done

.PHONY: twins
twins: ## Write backend/valkey from backend/rueidis, its twin
	scripts/twins.sh write

.PHONY: conduct
conduct: ## Test that all adapters have the same conduct
	$(GO) test $(TESTFLAGS) -run '^TestConduct$$' ./httplimit ./grpclimit ./connectlimit/... ./mcplimit
	for module in examples caddylimit; do $(GO) -C $$module test $(TESTFLAGS) -run '^TestConduct$$' ./... || exit; done

.PHONY: fuzz
fuzz: ## Fuzz every target for FUZZTIME (150000x, a number of inputs)
	scripts/fuzz.sh $(FUZZTIME)

.PHONY: soak
soak: ## Make random demands during random faults, for SOAK (10m), and check every history
	RATELIMIT_SOAK=$(SOAK) \
		$(GO) -C integration/soak test -race -count=1 -v -timeout=3h -run '^TestSoak'

.PHONY: cover
cover: ## Measure coverage with all but the slowest tests; fail below 90 % of a package
	GOGC=400 scripts/cover.sh

.PHONY: bench
bench: ## Run the benchmarks
	$(GO) test -run '^$$' -bench . -benchmem work

.PHONY: faults
faults: ## Cause faults on real servers for seven minutes; write what docs/faults.md shows
	RATELIMIT_FULL=1 RATELIMIT_IMAGES=redis:8,valkey/valkey:9 RATELIMIT_REQUIRE_SERVERS=1 \
		RATELIMIT_FAULTS_DIR=../../docs \
		$(GO) -C integration/faults test -count=1 -timeout=30m -parallel=1 \
		-run '^Test(Faults|FaultsHolds|FaultsBreaker|ClusterFailover|SentinelFailover|SlotMigration)$$'

.PHONY: compare
compare: ## Measure this module and others in ROUNDS (4); write docs/benchmarks.txt, or show BENCH
	@for round in $$(seq $(ROUNDS)); do \
		$(GO) -C benchmarks test -run '^$$' -bench '$(or $(BENCH),$(SHOWN))' \
			-benchtime 0.5s $(FLAGS); \
	done | tee benchmarks/rounds.txt
	@tables=$$($(GO) -C benchmarks run . <benchmarks/rounds.txt) && \
	if [ -n '$(BENCH)' ]; then echo "$$tables"; else \
		echo "$$tables" >docs/benchmarks.txt && $(GO) -C benchmarks run . -draw; fi

.PHONY: exactness
exactness: ## Run the same traces on every store; write the table of docs/choosing.md
	RATELIMIT_FULL=1 RATELIMIT_REQUIRE_SERVERS=1 RATELIMIT_EXACTNESS_MD=../../docs/choosing.md \
		$(GO) -C integration/conformance test -count=1 -timeout=30m -run '^TestExactness$$'

.PHONY: replays
replays: ## Replay access logs of 1 GB, in a minute; write the table of docs/replay.md
	RATELIMIT_FULL=1 RATELIMIT_REPLAY_MD=../../docs/replay.md \
		$(GO) -C integration/commands test -count=1 -timeout=30m -run '^TestReplayLargeLog$$'

.PHONY: pictures
pictures: ## Take the pictures of the page for the docs, after a load of 14 minutes
	RATELIMIT_PAGE_LOAD=14m RATELIMIT_PAGE_PNG=../../docs/dashboard RATELIMIT_REQUIRE_SERVERS=1 \
		$(GO) -C integration/dashboard test -count=1 -v -timeout=30m .

.PHONY: weight
weight: ## Show what users would get of a release now: the commands, requirements, go.sum lines
	$(RELEASED) $(GO) -C integration run ./release
