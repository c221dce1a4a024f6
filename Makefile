# Everything is built from Go modules: Go and make are all that most targets need. Tools and the control plane for tests
# are built once into the cache directory and reused.

VERSION ?= dev
# The release that the documentation and the comments of the manifests name. "make release" builds no other one.
RELEASE := v0.1.0
# Names of the two images, in the archives of "make images" and in the manifest of "make install-manifest".
MANAGER_IMAGE ?= localhost/storageclient/manager:$(VERSION)
AGENT_IMAGE ?= localhost/storageclient/node-agent:$(VERSION)
KUBECTL ?= kubectl
# Components of config/components that the manifest and every object of the chart get, e.g. arm64.
COMPONENTS ?=
# Further flags for "go test", or for the tests themselves: TESTFLAGS="-race -v", TESTFLAGS="-ginkgo.focus=fight". They
# come last, for go test hands on what it does not know only behind the packages.
TESTFLAGS ?=
# Duration of "make fuzz" for each target.
FUZZTIME ?= 60s
# Number of power cuts of "make powercut".
CUTS ?= 50

XDG_CACHE_HOME ?= $(HOME)/.cache
export XDG_CACHE_HOME
CACHE := $(XDG_CACHE_HOME)/storage-client-operator
# Each set of tools has a directory of its own, see hack/tools.sh.
SETS := $(or $(SCO_SETS),$(CACHE)/sets)
CONTROLLER_GEN := $(SETS)/controller-gen/controller-gen
CRD_REF_DOCS := $(SETS)/crd-ref-docs/crd-ref-docs
KUSTOMIZE := $(SETS)/kustomize/kustomize
GOLANGCI_LINT := $(SETS)/golangci-lint/golangci-lint
HELM := $(SETS)/helm/helm
VALE := $(SETS)/vale/vale

# The same flags for tools, linters, tests and programs: Go compiles each package once for all of them. A C compiler makes no difference,
# and neither does the directory of the tree. Debug information, which no step reads, would take a tenth of the compiler's time.
export CGO_ENABLED := 0
BUILD_FLAGS := -trimpath -gcflags=all=-dwarf=false
export GOFLAGS := $(strip $(filter-out $(BUILD_FLAGS),$(GOFLAGS)) $(BUILD_FLAGS))
GOBUILD := go build -ldflags "-s -w"
# Programs that only run with tests need no smaller binary.
DEVBUILD := hack/progress.sh compile programs go build -v -o bin/
# go test; with SCO_TIMES=DIR the times of tests and specs are written there, see hack/slowest.sh.
GOTEST := $(CURDIR)/hack/gotest.sh
specs = $(if $(SCO_TIMES),-ginkgo.json-report=$(SCO_TIMES)/$(1).specs)

.DEFAULT_GOAL := help

##@ General

.PHONY: help
help: ## Show this help
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z0-9-]+:.*## / {printf "  %-18s %s\n", $$1, $$2}' Makefile

.PHONY: clean
clean: ## Remove bin and dist
	rm -rf bin dist

##@ Development

.PHONY: generate
generate: tool-controller-gen tool-crd-ref-docs ## Generate deep copies, docs/api.md, docs/reference.md, docs/knowledge.md and docs/drivers.md
	$(CONTROLLER_GEN) object:headerFile=hack/boilerplate.go.txt paths=./api/...
	go run ./hack/reference
	$(CRD_REF_DOCS) --source-path=api/v1alpha1 --config=hack/reference/api/config.yaml --templates-dir=hack/reference/api \
	  --renderer=markdown --log-level=ERROR --output-path=docs/api.md

.PHONY: manifests
manifests: tool-controller-gen ## Generate CustomResourceDefinitions and the manager's and the agent's roles
	$(CONTROLLER_GEN) crd paths=./api/... output:crd:dir=config/crd/bases
	$(CONTROLLER_GEN) rbac:roleName=storage-client-manager paths=./controllers/... paths=./cmd/manager output:rbac:dir=config/rbac
	$(CONTROLLER_GEN) rbac:roleName=storage-client-node-agent paths=./agent/... output:rbac:dir=config/agent

.PHONY: fmt
fmt: ## Format the code
	gofmt -s -w agent api cmd controllers hack test tuning

.PHONY: vet
vet: ## Run only go vet, also on tests behind build tags
	go vet -tags attack,chart,e2e,footprint,gitops,kwok,promtool ./...

# Go vet and "make prose" included.
.PHONY: lint
lint: tool-golangci-lint prose ## Run the linters
	$(GOLANGCI_LINT) run --timeout 0
	GOLANGCI_LINT=$(GOLANGCI_LINT) hack/purity.sh

# Vale needs a C compiler.
.PHONY: prose
prose: tool-vale ## Lint the English of documentation, comments of Go and YAML, messages and names
	@VALE=$(VALE) hack/prose.sh

# BASE is the revision to compare with.
.PHONY: check
check: tool-golangci-lint ## Lint and test what changed since BASE (default: uncommitted changes, or the last commit)
	@GOLANGCI_LINT=$(GOLANGCI_LINT) hack/check.sh $(BASE)

.PHONY: verify
verify: tool-controller-gen tool-crd-ref-docs tool-kustomize ## Check that generated files, formatting, modules and manifests are current
	CONTROLLER_GEN=$(CONTROLLER_GEN) KUSTOMIZE=$(KUSTOMIZE) hack/verify.sh

# Written bytecode of the hooks would be an untracked file. Material's warning is known: it is kept up until May 2027, and
# Zensical, its successor, reads the same configuration.
.PHONY: site docs
site docs: export PYTHONDONTWRITEBYTECODE := 1
site docs: export NO_MKDOCS_2_WARNING := 1
# Needs Python 3.11 with venv (Debian: python3-venv). Checks links and anchors.
site: ## Build the documentation's site into dist/site
	@hack/tools.sh site
	$(SETS)/site/mkdocs build --clean --config-file hack/site/mkdocs.yml

docs: site ## The same as "make site"

# Needs promtool (Debian: prometheus), or PROMTOOL=PATH. Each query must use an existing metric.
.PHONY: alerts
alerts: ## Test the alert rules and the queries of the dashboards
	hack/alerts.sh

##@ Tests

.PHONY: test
test: ## Run unit and integration tests, attacks and a short kwok run
	@echo "Tests: unit tests, integration tests and attacks against a real API server, a rollout over twenty simulated nodes"
	@hack/needs.sh integration 20 6
	@$(MAKE) --no-print-directory test-unit test-integration test-attack test-kwok

.PHONY: test-unit
test-unit: ## Run the unit tests
	@[ "$$(id -u)" = 0 ] || echo "SKIPPED because it needs root: TestRunChangesTheRoot in agent/host (host commands in another root)"
	@hack/progress.sh compile_imports ./...
	@hack/progress.sh watch 'unit tests' $(GOTEST) unit $$(go list ./... | grep -v /test/integration) $(TESTFLAGS)
	cd hack/images && $(GOTEST) images ./... $(TESTFLAGS)
	cd test/gitops && $(GOTEST) gitops ./... $(TESTFLAGS)

# The packages that run goroutines (hack/goroutines.sh): the others cannot have races. Only a few schedules of the simulations run: all
# would take many minutes. The tests of the plugin's output run every command hundreds of times more; others run each command, too.
.PHONY: test-race
test-race: ## Run the unit tests of packages with goroutines under the race detector
	CGO_ENABLED=1 $(GOTEST) race -race $$(hack/goroutines.sh ./agent/... ./cmd/... ./controllers/... ./test/memapi | grep -v /controllers/volume$$) -skip '^TestNoCommandPrintsControlCharacters' $(TESTFLAGS)
	CGO_ENABLED=1 $(GOTEST) race-schedules -race ./controllers/volume -schedules=100 $(TESTFLAGS)
	CGO_ENABLED=1 $(GOTEST) race-simulation -race ./test/simulation -schedules=20 $(TESTFLAGS)

# Go fuzzes one target of one package at a time. Findings are stored in testdata/fuzz, and "make test" runs them.
.PHONY: fuzz
fuzz: ## Run every fuzz target for FUZZTIME (default 60s)
	@grep -rHo --include='*_test.go' '^func Fuzz[A-Za-z0-9]*' agent tuning | sed 's|/[^/]*:func | |' | \
	  while read -r package target; do \
	    echo "$$package $$target"; \
	    go test ./$$package -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) < /dev/null || exit 1; \
	  done

# KUBEBUILDER_ASSETS, if set, is a directory with etcd, kube-apiserver and kubectl to use instead of the built ones.
.PHONY: test-integration test-attack
ifdef KUBEBUILDER_ASSETS
test-integration test-attack: export KUSTOMIZE := $(KUSTOMIZE)
test-integration test-attack: tool-kustomize
else
test-integration test-attack: export KUSTOMIZE := $(SETS)/integration/kustomize
test-integration test-attack: export KUBEBUILDER_ASSETS := $(SETS)/integration
test-integration test-attack: tool-integration
endif
test-integration: ## Run the integration tests against a real API server
	@hack/progress.sh compile_imports ./test/integration
	@hack/progress.sh watch 'integration tests' $(GOTEST) integration -v -count=1 ./test/integration $(call specs,integration) $(TESTFLAGS)

# TESTFLAGS=-update writes the results into docs/security-reference.md.
test-attack: ## Run attacks with real credentials against a real API server
	@hack/progress.sh watch 'attacks' $(GOTEST) attack -tags attack -v -count=1 ./test/attack $(TESTFLAGS)

.PHONY: test-chart
test-chart: ## Compare the Helm chart with the kustomize manifests, and install it on a real API server
	@hack/tools.sh chart
	SCO_BINARIES=$(SETS)/chart $(GOTEST) chart -tags chart -count=1 ./hack/chart $(TESTFLAGS)

.PHONY: test-kwok
test-kwok: tool-sandbox ## Run a rollout over twenty simulated nodes on a real control plane
	@$(DEVBUILD) ./cmd/manager
	SCO_BINARIES=$(SETS)/sandbox SCO_MANAGER=$(CURDIR)/bin/manager $(GOTEST) kwok -tags kwok -count=1 -v -run 'TwentyNodes|SimulatedServer' ./test/cluster ./test/cluster/alone

.PHONY: test-uninstall
test-uninstall: ## Remove the operator from simulated nodes, about three minutes
	@hack/tools.sh uninstall
	@$(DEVBUILD) ./cmd/manager
	SCO_BINARIES=$(SETS)/uninstall SCO_MANAGER=$(CURDIR)/bin/manager $(GOTEST) uninstall -tags kwok -count=1 -v -run Uninstall ./test/cluster

# source prints the directory of a module's source, which has the CustomResourceDefinitions of an engine.
source = $$(go -C hack/tools/$(1) mod download -json $(2) | sed -n 's/^.*"Dir": "\(.*\)",$$/\1/p')

# The commits that Argo CD upgrades: the first one with the manifests of a user, and the last one with a policy that was removed since.
FORMERS := 682a90a a2b2bbac

# Needs git and redis-server (Debian packages). TESTFLAGS=-soak=1h.
.PHONY: test-gitops
test-gitops: ## Run Argo CD and Flux with the manager and a Git repository, about ten minutes
	@for program in git redis-server ip unshare; do command -v $$program >/dev/null || { echo "make test-gitops needs $$program: run apt-get install git redis-server iproute2 util-linux" >&2; exit 1; }; done
	@hack/tools.sh gitops
	@$(DEVBUILD) ./cmd/manager ./cmd/kubectl-storageclient
	formers=$$(hack/former.sh $(FORMERS)) && SCO_FORMERS=$$formers SCO_CHART=$(CURDIR)/$$(go run ./hack/chart -kustomize $(SETS)/gitops/kustomize) SCO_BINARIES=$(SETS)/gitops SCO_MANAGER=$(CURDIR)/bin/manager SCO_PLUGIN=$(CURDIR)/bin/kubectl-storageclient \
	  SCO_ARGOCD=$(call source,argocd,github.com/argoproj/argo-cd/v3) SCO_FLUX=$(call source,kustomize-controller,github.com/fluxcd/kustomize-controller) \
	  $(GOTEST) gitops-engines -tags gitops -count=1 -v -timeout 2h ./test/cluster/gitops $(TESTFLAGS)

# SCO_SEED repeats the kills of an earlier run.
.PHONY: test-rollout
test-rollout: tool-sandbox ## Run a rollout over two hundred simulated nodes while managers are killed, about five minutes
	@$(DEVBUILD) ./cmd/manager
	SCO_BINARIES=$(SETS)/sandbox SCO_MANAGER=$(CURDIR)/bin/manager $(GOTEST) rollout -tags kwok -count=1 -v -run TwoHundredNodes ./test/cluster

.PHONY: demo
demo: ## Show the main job on simulated nodes (KEEP=1 leaves them running)
	@hack/needs.sh sandbox 15 2
	@hack/tools.sh sandbox
	@$(DEVBUILD) ./cmd/manager ./test/demo
	@bin/demo -binaries $(SETS)/sandbox -manager bin/manager

# Needs Linux, and root or a user with access to QEMU.
.PHONY: e2e
e2e: images install-manifest ## Run the end-to-end test on virtual nodes
	@hack/tools.sh e2e
	$(KUSTOMIZE) build test/e2e/operator -o dist/e2e.yaml
	SCO_CACHE=$(CACHE) SCO_BINARIES=$(SETS)/e2e test/e2e/run.sh

.PHONY: test-e2e
test-e2e: e2e ## The same as "make e2e"

.PHONY: e2e-all
e2e-all: ## Run "make e2e" with its long specs, two to three hours more
	SCO_E2E_LABELS= $(MAKE) --no-print-directory e2e

# Runs 20,000 schedules of the manager's code first, and writes docs/mutations.md. ONLY selects rows by decision, invariant, or package.Func.
.PHONY: mutate
mutate: ## Remove each decision of hack/mutate/mutations.yaml and expect a failing test (ONLY=REGEXP selects)
	@$(if $(ONLY),,go test ./test/simulation -schedules=20000 -timeout=60m)
	@go run ./hack/mutate $(if $(ONLY),-only '$(ONLY)') -page docs/mutations.md

# It is no part of "make test": it needs QEMU and takes about ten minutes.
# For each of DISKS. Needs Linux, QEMU, e2fsprogs, xfsprogs, dosfstools and mtools.
.PHONY: powercut
powercut: ## Cut the power of a virtual machine CUTS times (default 50) while settings change
	SCO_CACHE=$(CACHE) CUTS=$(CUTS) test/powercut/run.sh

# It is no part of "make test": it needs root, QEMU and mmdebstrap, and takes about three minutes for each label without KVM.
# BOOTS names labels of test/boots. Needs root, Linux, QEMU and mmdebstrap.
.PHONY: boots
boots: ## Boot a virtual machine of each boot loader of BOOTS (default all), and try, keep and undo kernel arguments
	SCO_CACHE=$(CACHE) test/boots/run.sh $(BOOTS)

# It is no part of "make test": it needs root, QEMU and mmdebstrap, and one boot for each kernel.
# Compares them with the registry. KERNELS names kernels. Needs root, Linux, QEMU and mmdebstrap.
.PHONY: known-bad
known-bad: ## Reproduce known problems with real kernels and NFS servers
	SCO_CACHE=$(CACHE) test/knownbad/run.sh

# It is no part of "make test": it downloads packages. Directories with releases can also come from other distributions.
# Writes agent/host/tuned/testdata/started.txt. Needs python3, and curl and dpkg-deb for the default.
.PHONY: record-tuned
record-tuned: ## Record how releases of tuned start random profiles (TUNED=DIR:DIR, default: those of Debian's suites)
	hack/tuned.sh $(TUNED)

.PHONY: bench
bench: ## Run the benchmarks
	go test -run '^$$' -bench . -benchmem $$(go list ./... | grep -v /test/integration)
	@$(MAKE) --no-print-directory bench-footprint

# Checks the limits of the image and of its memory.
.PHONY: bench-footprint
bench-footprint: ## Measure the node agent next to sysctl and tuned, about two minutes
	@hack/tools.sh footprint
	@mkdir -p bin && $(GOBUILD) -o bin/ ./cmd/node-agent
	SCO_BINARIES=$(SETS)/footprint SCO_AGENT=$(CURDIR)/bin/node-agent go test -tags footprint -count=1 -v ./test/footprint

# BENCH_ROLLOUT names the measurements: -run=NODES/BUDGET, and -boot=DURATION and -zones=NUMBER before it.
BENCH_ROLLOUT ?= -run=100/50 -run=1000/100

.PHONY: bench-rollout
bench-rollout: tool-sandbox ## Measure rollouts over 100 and 1,000 simulated nodes, about forty minutes
	@$(DEVBUILD) ./cmd/manager ./test/cluster/bench
	@bin/bench -binaries $(SETS)/sandbox -manager bin/manager $(BENCH_ROLLOUT)

# BENCH_SCALE are further flags: -sizes=NODES,..., -real=NODES, -volumes=PER_NODE, -profiles=NUMBER.
BENCH_SCALE ?=

# Writes dist/scale.json and dist/scale.md.
.PHONY: bench-scale
bench-scale: tool-sandbox ## Measure CPU, memory, requests and seconds at 500 to 5,000 nodes, about forty minutes
	@$(DEVBUILD) ./cmd/manager ./test/cluster/scale
	@bin/scale -binaries $(SETS)/sandbox -manager bin/manager $(BENCH_SCALE)

# PEERS is a directory with the source trees of peers: kured (github.com/kubereboot/kured) and nodewright (github.com/NVIDIA/nodewright).
# They are no modules of the proxy, so this is no part of ".ci/run".
PEERS ?=
BENCH_PEERS ?=

# Needs Linux and root. Writes dist/peers.json and dist/peers.md.
.PHONY: bench-peers
bench-peers: tool-sandbox ## Compare with kured and nodewright from PEERS=DIR on the same reboots, about an hour
	@[ -d "$(PEERS)/kured" ] && [ -d "$(PEERS)/nodewright" ] || { echo "PEERS=DIR must contain the source trees kured and nodewright" >&2; exit 2; }
	@$(DEVBUILD) ./cmd/manager ./test/cluster/peers
	cd $(PEERS)/kured && go build -o $(CURDIR)/bin/peer-kured ./cmd/kured
	cd $(PEERS)/nodewright/operator && go build -o $(CURDIR)/bin/peer-nodewright ./cmd/manager
	@bin/peers -binaries $(SETS)/sandbox -manager bin/manager -kured $(CURDIR)/bin/peer-kured -nodewright bin/peer-nodewright -nodewright-source $(PEERS)/nodewright $(BENCH_PEERS)

# FORMER is a commit: its manager and the current one play in turn, three times each.
FORMER ?=

# The API server is simulated. BENCH_ALONE="-nodes=1000 -pprof=DIR" sets flags.
.PHONY: bench-alone
bench-alone: ## Measure CPU and memory of only the manager (FORMER=COMMIT compares it with the one of that commit)
	@$(DEVBUILD) ./cmd/manager ./test/cluster/alone
	@former=$(if $(FORMER),$$(SCO_REQUIRE_HOST_TOOLS=1 hack/former.sh $(FORMER))) && \
	  bin/alone -manager bin/manager $${former:+-former "$$former/bin/manager"} $(BENCH_ALONE)

# The page is written by hand around what the measurements leave in dist.
.PHONY: scale-page
scale-page: ## Write the figures of dist/scale.json and dist/peers.json into docs/scale.md
	go run ./test/cluster/page -scale dist/scale.json -peers dist/peers.json -page docs/scale.md -plots docs/scale

##@ Build

.PHONY: build
build: ## Build bin/manager, bin/node-agent and bin/kubectl-storageclient
	$(GOBUILD) -o bin/ ./cmd/...
	install -m 0755 hack/krew/kubectl_complete-storageclient bin/

# Where the archives of a release can be had; the version's name is added.
KREW_URL ?= https://github.com/storageclient/operator/releases/download

.PHONY: krew
krew: ## Build the plugin's archives and krew manifest of VERSION=v1.2.3
	@for platform in $$(go run ./hack/krew -platforms); do \
	  echo "Compiling for $$platform"; \
	  GOOS=$${platform%/*} GOARCH=$${platform#*/} go build -ldflags "-s -w -X main.release=$(VERSION)" -o "bin/krew/$$platform/" ./cmd/kubectl-storageclient || exit 1; \
	done
	go run ./hack/krew -version $(VERSION) -binaries bin/krew -url $(KREW_URL) -output dist/krew

.PHONY: images
images: ## Build dist/images/manager.tar and dist/images/node-agent.tar for linux/amd64
	mkdir -p dist/images bin/linux_amd64
	GOOS=linux GOARCH=amd64 $(GOBUILD) -o bin/linux_amd64/ ./cmd/manager ./cmd/node-agent
	cd hack/images && go run . -binary ../../bin/linux_amd64/manager -output ../../dist/images/manager.tar \
	  -image $(MANAGER_IMAGE) -version $(VERSION) -user 65532
	cd hack/images && go run . -binary ../../bin/linux_amd64/node-agent -output ../../dist/images/node-agent.tar \
	  -image $(AGENT_IMAGE) -version $(VERSION) -user 0

.PHONY: install-manifest
install-manifest: tool-kustomize ## Write dist/install.yaml
	@mkdir -p dist/overlay
	@printf 'resources: [../../config/default]\ncomponents: [%s]\n' '$(foreach c,$(COMPONENTS),../../config/components/$(c),)' > dist/overlay/kustomization.yaml
	$(KUSTOMIZE) build dist/overlay -o dist/install.yaml
	sed -i -e 's|localhost/storageclient/manager:dev|$(MANAGER_IMAGE)|' -e 's|localhost/storageclient/node-agent:dev|$(AGENT_IMAGE)|' dist/install.yaml

.PHONY: chart
chart: tool-kustomize tool-helm ## Write the Helm chart into dist/chart
	$(HELM) lint --strict $$(go run ./hack/chart -kustomize $(KUSTOMIZE) -version $(VERSION) -manager-image $(MANAGER_IMAGE) -agent-image $(AGENT_IMAGE) -components '$(COMPONENTS)')

# What the names of a release's images begin with, such as registry.example.com/storageclient. It has no default: the owner of an account
# that the project does not have would own the nodes of all users.
REGISTRY ?=

# Fails if the database is unreachable.
.PHONY: vulnerabilities
vulnerabilities: tool-govulncheck ## Write dist/vulnerabilities.txt, and fail if the programs reach a known vulnerability
	@mkdir -p dist
	GOVULNCHECK=$(SETS)/govulncheck/govulncheck hack/vulnerabilities.sh dist/vulnerabilities.txt

# Images for amd64 and arm64, plugin, manifest and chart. The commit must have the tag.
.PHONY: release
release: tool-govulncheck ## Write dist/release/VERSION for the tag VERSION=v1.2.3, signed with KEY=cosign.key
	@GOVULNCHECK=$(SETS)/govulncheck/govulncheck VERSION="$(VERSION)" RELEASE="$(RELEASE)" KEY="$(KEY)" REGISTRY="$(REGISTRY)" hack/release.sh

.PHONY: docker-build
docker-build: images ## The same as "make images", without Docker

.PHONY: build-installer
build-installer: install-manifest ## The same as "make install-manifest"

##@ Cluster

.PHONY: install
install: tool-kustomize ## Apply the CustomResourceDefinitions to the current cluster
	$(KUSTOMIZE) build config/crd | $(KUBECTL) apply --server-side -f -

# Needs "make install".
.PHONY: run
run: ## Run the manager on this machine against the current cluster, without webhooks
	go run ./cmd/manager --webhook-port=0 --kubeconfig="$(or $(KUBECONFIG),$(HOME)/.kube/config)"

# The images must be in a registry that the nodes can pull from.
.PHONY: deploy
deploy: install-manifest ## Apply the complete manifest, with MANAGER_IMAGE and AGENT_IMAGE, to the current cluster
	$(KUBECTL) apply --server-side -f dist/install.yaml

.PHONY: undeploy
undeploy: uninstall ## The same as "make uninstall"

.PHONY: uninstall
uninstall: install-manifest ## Restore everything, then remove the operator from the current cluster
	KUBECTL="$(KUBECTL)" hack/uninstall.sh dist/install.yaml

##@ Tools

.PHONY: tool-controller-gen tool-crd-ref-docs tool-kustomize tool-golangci-lint tool-govulncheck tool-helm tool-gotestsum tool-integration tool-sandbox
tool-controller-gen tool-crd-ref-docs tool-kustomize tool-golangci-lint tool-govulncheck tool-helm tool-gotestsum tool-vale tool-integration tool-sandbox: tool-%: ## Build a tool into the cache
	@hack/tools.sh $*
