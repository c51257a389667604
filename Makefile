# Fleetloop. `make help` lists the targets.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

BINARIES := fleetloop fleetloop-up fleet-api console sentinel cluster-worker execution-controller node-fault-controller adapter-runner action-runner
TOOLS    := $(CURDIR)/.cache/tools

# Node is here if the system's is missing or too old.
export PATH := $(TOOLS)/node/bin:$(PATH)

# Pinned; each is built through the Go module proxy at its first use.
GOLANGCI_LINT_VERSION  := v2.13.2
SQLC_VERSION           := v1.31.1
GREMLINS_VERSION       := v0.6.0
CONTROLLER_GEN_VERSION := v0.22.0
GOVULNCHECK_VERSION    := v1.9.0
ACTIONLINT_VERSION     := v1.7.12

GOLANGCI_LINT  := $(TOOLS)/golangci-lint-$(GOLANGCI_LINT_VERSION)
SQLC           := $(TOOLS)/sqlc-$(SQLC_VERSION)
GREMLINS       := $(TOOLS)/gremlins-$(GREMLINS_VERSION)
CONTROLLER_GEN := $(TOOLS)/controller-gen-$(CONTROLLER_GEN_VERSION)
GOVULNCHECK    := $(TOOLS)/govulncheck-$(GOVULNCHECK_VERSION)
ACTIONLINT     := $(TOOLS)/actionlint-$(ACTIONLINT_VERSION)

export GOLANGCI_LINT
# The go command takes no path with a space.
TOOLEXEC := $(if $(word 2,$(CURDIR)),,-toolexec=$(CURDIR)/tools/toolexec)
# One package more at a time than there are cores: many tests wait for servers. "make check" runs vet.
GO_TEST := xargs -r env GOFLAGS='$(strip $(GOFLAGS) $(TOOLEXEC))' CGO_ENABLED=1 go test -race -vet=off -timeout 30m -p $(shell echo $$(($$(getconf _NPROCESSORS_ONLN) + 1)))
# Tests that start nothing: the go command repeats a result while nothing that they read has changed.
TEST_PURE    := $(TOOLS)/dev packages pure ./... | $(GO_TEST)
TEST_OTHERS  := $(TOOLS)/dev packages programs,servers ./... | $(GO_TEST) -shuffle=on
TEST_PROGRAMS := $(TOOLS)/dev packages programs ./... | $(GO_TEST) -shuffle=on -short

# Without the race detector everything is built as the binaries are, so that the compiler runs once for each package.
# Without the tag, gRPC has debug pages, for which the linker keeps all exported methods.
export CGO_ENABLED := 0
export GOFLAGS := $(strip $(GOFLAGS) -trimpath -tags=grpcnotrace $(TOOLEXEC))

# The tests of what is shipped beside the binaries have a module of their own,
# because Helm, Kustomize and Prometheus are needed nowhere else.
DEPLOY_TESTS := test/deploy
MODULES      := . $(DEPLOY_TESTS)

# The npm packages of the console's page. npm writes this file after all others.
PAGE_PACKAGES := console/node_modules/.package-lock.json

.PHONY: help
help: ## list all targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

## ---- run

.PHONY: up
up: up-check setup-up build ## run all components on this machine with a demo fleet until Ctrl-C (KUBE=embedded, UP_ARGS="--exit-when-ready")
	@bin/fleetloop up --demo $(if $(KUBE),--kube=$(KUBE)) $(UP_ARGS)

# Before anything is built: are the addresses free, and how long will it take?
.PHONY: up-check
up-check:
	@go run ./tools/dev ports $(UP_ARGS)
	@[ "$(KUBE)" != embedded ] || echo "make up: KUBE=embedded needs Kubernetes binaries; the first build takes about ten minutes ('make kubebed' builds them in advance)" >&2

# As tools/release does.
.PHONY: build
build: ## build all binaries into bin/
	@mkdir -p bin
	@for b in $(BINARIES); do echo "build bin/$$b" >&2; go build -buildvcs=auto -ldflags='-s -w' -o bin/$$b ./cmd/$$b; done

.PHONY: console
console: $(PAGE_PACKAGES) ## check the console's page and build it into internal/console/dist (needs the npm registry)
	@cd console && npm run check && npm test && npm run build
	@go run ./tools/dev page

$(PAGE_PACKAGES): console/package-lock.json
	@tools/setup node
	@cd console && npm ci --no-audit --no-fund >&2

.PHONY: images
images: ## build container images as OCI layouts in bin/images/ (no daemon needed), and their manifests in bin/deploy/ (ARCH=amd64)
	@go run ./tools/release -out bin/images -deploy bin/deploy $(if $(ARCH),-arch $(ARCH)) $(BINARIES)

.PHONY: release
release: ## build a release of the tag v$VERSION for all platforms into bin/release (VERSION=1.2.0)
	@[ -n '$(VERSION)' ] || { echo "make release: set the version, such as 'make release VERSION=1.2.0'" >&2; exit 2; }
	@go run ./tools/release -release '$(VERSION)' -out bin/release $(if $(PLATFORMS),-platforms $(PLATFORMS)) $(BINARIES)

.PHONY: release-check
release-check: ## build a release of this source twice for all platforms and compare the files (PLATFORMS=linux/amd64)
	@go test -count=1 -timeout 2h -run '^TestRelease' ./tools/release -release-platforms='$(or $(PLATFORMS),linux/amd64,linux/arm64,darwin/amd64,darwin/arm64)'

.PHONY: picture
picture: setup-up build ## draw docs/images/demo.svg from a run of the demo (needs script from util-linux)
	@go run ./tools/dev picture -out docs/images/demo.svg -- bin/fleetloop up --demo --exit-when-ready $(UP_ARGS)

.PHONY: screenshots
screenshots: setup-test ## take the pictures in docs/images/console/ from a run of the demo
	@go test -count=1 -run '^TestConsole$$/^(Views|SignIn)$$' ./test/console -screenshots $(CURDIR)/docs/images/console

## ---- verify

.PHONY: test
test: setup-test $(GOLANGCI_LINT) ## run all tests in both modules: unit, property, fault and end-to-end tests with real servers
	@go build -o $(TOOLS)/dev ./tools/dev
	@tools/test-modules '$(MODULES)' "$(TEST_PURE)" "$(TEST_OTHERS)"

.PHONY: check
check: setup-check fmt lint vet generated unit tidy words sleeps ## run the fast checks: format, lint, vet, race tests without servers, generated code, words

.PHONY: bench
bench: setup-test ## run benchmarks that print ratios against a baseline, one per line (ONLY=sentinel. selects by prefix)
	@go run ./devstack/bench -only '$(ONLY)'

.PHONY: timing
timing: ## measure how long a new clone waits for the demo, the tests and CI (ONLY=demo,test,ci; default: demo)
	@go run ./tools/dev timing -only '$(or $(ONLY),demo)'

.PHONY: scale
scale: kubebed ## measure what a fleet of CLUSTERS=100000 costs, with one replica of each component (REAL_GARDEN=1 DIR=)
	@tools/setup compiler postgresql
	@go build -o $(TOOLS)/proof ./devstack/proof
	@exec $(TOOLS)/proof -scale -clusters '$(or $(CLUSTERS),100000)' $(if $(REAL_GARDEN),-real-garden) -dir '$(DIR)'

.PHONY: proof
proof: kubebed ## run the whole product under load and faults, and check its promises (MINUTES=5 CLUSTERS=2000 SEED= FAULTS=kill,freeze BROKER=nats DIR=)
	@tools/setup compiler postgresql $(filter rabbitmq,$(BROKER))
	@go build -o $(TOOLS)/proof ./devstack/proof
	@exec $(TOOLS)/proof -minutes '$(or $(MINUTES),5)' -clusters '$(or $(CLUSTERS),2000)' -seed '$(or $(SEED),0)' -faults '$(FAULTS)' -broker '$(or $(BROKER),nats)' -dir '$(DIR)'

.PHONY: mutate
mutate: $(GREMLINS) ## run mutation tests on the decision package; fail if a mutant survives
	@tools/mutate $(GREMLINS)

.PHONY: vuln
vuln: $(GOVULNCHECK) ## check the code and its dependencies against the Go vulnerability database (requires internet access)
	@tools/test-modules '$(MODULES)' '$(GOVULNCHECK) ./...'

.PHONY: fmt
fmt: $(GOLANGCI_LINT)
	@echo "check: format" >&2
	@out=$$($(GOLANGCI_LINT) fmt --diff 2>&1) || { echo "$$out"; echo "not formatted: run 'make format'" >&2; exit 1; }

.PHONY: format
format: $(GOLANGCI_LINT) ## format the code
	@$(GOLANGCI_LINT) fmt

.PHONY: lint
lint: $(GOLANGCI_LINT) $(ACTIONLINT)
	@echo "check: lint" >&2
	@$(ACTIONLINT)
	@$(GOLANGCI_LINT) run ./...
	@cd $(DEPLOY_TESTS) && $(GOLANGCI_LINT) run ./... 2> >(sed '/runner.exclusion_rules/d' >&2)

.PHONY: vet
vet:
	@echo "check: vet" >&2
	@go vet ./...
	@cd $(DEPLOY_TESTS) && go vet ./...

# The packages whose tests start no server.
.PHONY: unit
unit: $(GOLANGCI_LINT)
	@echo "check: race tests without servers" >&2
	@go build -o $(TOOLS)/dev ./tools/dev
	@tools/test-modules '$(MODULES)' "$(TEST_PURE)" "$(TEST_PROGRAMS)"

.PHONY: generate
generate: $(SQLC) $(CONTROLLER_GEN) ## regenerate code, CRDs, roles, reference docs and dependency lists
	@cd internal/fleetapi/pgstore && $(SQLC) generate
	@cd internal/clusterworker/pgstore && $(SQLC) generate
	@cd internal/execution/audit && $(SQLC) generate
	@go run ./tools/dev protos internal/nodefault/intake/datamodels/health_event.proto
	@$(CONTROLLER_GEN) object crd paths=./api/... output:crd:dir=deploy/crds
	@go generate ./api/fleet/v1 >/dev/null
	@go run ./tools/generate $(BINARIES)
	@cd $(DEPLOY_TESTS) && go test -count=1 -run '^TestGenerated' . -update >/dev/null && go test -count=1 -run '^TestGenerated' . -update # what the chart has, then what is rendered of it

.PHONY: generated
generated: generate
	@echo "check: generated code up to date" >&2
	@out=$$(git status --porcelain -- internal/fleetapi/pgstore internal/clusterworker/pgstore internal/execution/audit/db internal/nodefault/intake/datamodels api deploy docs/adr/README.md docs/reference docs/schema tools/deps); \
	  [ -z "$$out" ] || { echo "$$out"; echo "generated files are out of date: run 'make generate' and commit the result" >&2; exit 1; }

.PHONY: tidy
tidy:
	@echo "check: go.mod is tidy" >&2
	@go mod tidy -diff
	@cd $(DEPLOY_TESTS) && go mod tidy -diff
	@go mod verify >/dev/null

# Phrases that a reader has to translate, in pages and in the program's texts.
.PHONY: words
words: ## measure the private idiom in Markdown, messages and comments; more than 10 per 10,000 words fail
	@echo "check: plain English" >&2
	@go run ./tools/dev words

# A test that sleeps outside a synctest bubble waits for real time.
.PHONY: sleeps
sleeps:
	@echo "check: no test sleeps for real" >&2
	@out=$$(git grep -l 'time\.Sleep(' -- '*_test.go' | xargs -r grep -L 'testing/synctest' || true); \
	  [ -z "$$out" ] || { echo "$$out"; echo "these tests sleep outside testing/synctest" >&2; exit 1; }

## ---- set up

.PHONY: setup
setup: ## install the system packages for tests and 'make up' (requires root)
	@tools/setup compiler postgresql pgbouncer rabbitmq containerd node chromium

.PHONY: setup-up
setup-up:
	@[ -n "$${DATABASE_URL:-}" ] || tools/setup postgresql || echo "make up: 'fleetloop up' downloads PostgreSQL instead" >&2

.PHONY: setup-check
setup-check:
	@tools/setup compiler

.PHONY: setup-test
setup-test: kubebed $(PAGE_PACKAGES)
	@tools/setup compiler postgresql pgbouncer rabbitmq containerd node chromium

# The first time it takes minutes, and says how far it is.
.PHONY: kubebed
kubebed: ## download or build the Kubernetes and Gardener binaries for tests, and print their directories
	@go run ./devstack/cmd/kubebed assets --garden

# Without cgo, so that a C parser in sqlc is not compiled for minutes.
define go-tool
	@mkdir -p $(TOOLS)
	@echo "build $(1)@$(2)" >&2
	@GOBIN=$(TOOLS) go install $(1)@$(2) && mv $(TOOLS)/$(3) $@
endef

$(GOLANGCI_LINT):
	$(call go-tool,github.com/golangci/golangci-lint/v2/cmd/golangci-lint,$(GOLANGCI_LINT_VERSION),golangci-lint)

$(SQLC):
	$(call go-tool,github.com/sqlc-dev/sqlc/cmd/sqlc,$(SQLC_VERSION),sqlc)

$(CONTROLLER_GEN):
	$(call go-tool,sigs.k8s.io/controller-tools/cmd/controller-gen,$(CONTROLLER_GEN_VERSION),controller-gen)

$(GOVULNCHECK):
	$(call go-tool,golang.org/x/vuln/cmd/govulncheck,$(GOVULNCHECK_VERSION),govulncheck)

$(ACTIONLINT):
	$(call go-tool,github.com/rhysd/actionlint/cmd/actionlint,$(ACTIONLINT_VERSION),actionlint)

$(GREMLINS):
	$(call go-tool,github.com/go-gremlins/gremlins/cmd/gremlins,$(GREMLINS_VERSION),gremlins)

.PHONY: clean
clean: ## remove build output
	@rm -rf bin .cache
