# Everything a developer runs. Each recipe works from a bare checkout with Go, cargo, git, bash, coreutils and flock.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help

# Port of kube-apiserver for 'make up' and 'make run'; empty for a free one.
PORT ?=
# Arguments for 'make bench', after cargo's own.
BENCH_ARGS ?=
# For 'make fuzz': seconds or inputs for each target, and which; empty for ten minutes of all.
FUZZ_SECONDS ?=
FUZZ_RUNS ?=
FUZZ_TARGETS ?=
export FUZZ_SECONDS FUZZ_RUNS

control_plane := .tools/bin/control-plane
kubectl := KUBECONFIG=.run/kubeconfig .tools/bin/kubectl
programs := $(or $(CARGO_TARGET_DIR),target)/debug

# $(call timed,what,command): runs the command and says how long it took.
define timed
began=$$SECONDS; $(2); echo "== $(1): $$((SECONDS - began)) s"
endef

.PHONY: help demo test test-rust test-tools fuzz fuzz-keep fuzz-replay up down run bench bench-admission generate lint tools clean check-cargo

help: ## what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo
	@echo "PORT=6443 sets the port for up and run; BENCH_ARGS=… goes to the benchmark; NUMAFLOW_MANIFESTS=DIR, a folder with"
	@echo "Numaflow's own manifests, has the tests use them as well. FUZZ_SECONDS or FUZZ_RUNS is how long or how often fuzz tries"
	@echo "each target, FUZZ_TARGETS which. The first run builds Kubernetes: some ten minutes, once."

demo: check-cargo tools ## see the operator at work on a local control plane
	@tools/demo.sh

test: check-cargo ## everything that has to hold before a change is handed in: tools, lint, all tests
	@$(call timed,tools,$(MAKE) tools)
	@$(call timed,lint,$(MAKE) lint)
	@$(call timed,fuzz,$(MAKE) fuzz-replay)
	@$(call timed,tests of the control plane's own program,$(MAKE) test-tools)
	@$(call timed,tests,$(MAKE) test-rust)

# Two hundred pipelines would starve every other story of the one control plane, and half a second is measured where nothing
# else is at work: these stories come last and one by one, with a look of their own at what they leave.
test-rust:
	@cargo test -- --test-threads 8 --skip many:: --skip undisturbed_
	@cargo test --test it -- --test-threads 1 many:: undisturbed_ whole_cluster::

test-tools:
	@cd tools/controlplane && GOTOOLCHAIN=local GOWORK=off go test ./...

fuzz: check-cargo ## look for inputs that make the code panic or think for too long, with an optimised build
	@tools/fuzz.sh run $(FUZZ_TARGETS)

fuzz-keep: check-cargo ## take what that found new into fuzz/corpus
	@tools/fuzz.sh keep $(FUZZ_TARGETS)

fuzz-replay: check-cargo ## the inputs that are kept, and a minute of new ones; needs a C++ compiler
	@tools/fuzz.sh replay $(FUZZ_TARGETS)

up: tools ## start a control plane under .run and leave it running
	@$(control_plane) up --dir .run $(if $(PORT),--port $(PORT))

down: ## end it, and what the demo left running: an operator, its webhook, and the stand-in for Numaflow
	@if [ -x $(control_plane) ]; then $(control_plane) down --dir .run; else echo "nothing runs: the tools were never built"; fi

run: check-cargo up ## run the operator from these sources against it, until Ctrl-C, beside its webhook and a stand-in for Numaflow
	@cargo build --bin numaplane --example numaflow-stand-in
	@$(kubectl) apply --server-side --force-conflicts -f crds/
	@$(kubectl) create namespace numaplane-system --dry-run=client --output yaml | $(kubectl) apply --server-side -f -
	@tools/demo.sh --end-operator
	@STAND_IN=$(programs)/examples/numaflow-stand-in tools/demo.sh --stand-in
	@NUMAPLANE=$(programs)/numaplane tools/demo.sh --webhook
	@KUBECONFIG=$(CURDIR)/.run/kubeconfig-operator $(programs)/numaplane controller --namespace numaplane-system

bench: check-cargo tools ## measure rollouts at scale, with an optimised build
	@cargo bench --bench rollouts -- $(BENCH_ARGS)

bench-admission: check-cargo tools ## measure how long a write takes with the webhook, with another one, and with none
	@cargo bench --bench admission -- $(BENCH_ARGS)

generate: check-cargo ## write crds/ and webhooks/ from the types
	@cargo run --quiet -- manifests --out .

lint: check-cargo ## formatting and everything the compilers can tell
	cargo fmt --check
	cargo clippy --all-targets --features fuzz -- -D warnings
	@if command -v cargo-deny >/dev/null 2>&1; then \
	  echo "cargo deny check"; cargo deny check; \
	else \
	  echo "cargo deny: skipped, cargo-deny is not installed (cargo install cargo-deny)"; \
	fi
	@for script in tools/*.sh .ci/run; do bash -n "$$script"; done
	@cd tools/controlplane && unformatted=$$(gofmt -l .) && { [ -z "$$unformatted" ] || \
	  { echo "gofmt -w is due in tools/controlplane: $$unformatted" >&2; exit 1; }; }
	cd tools/controlplane && GOTOOLCHAIN=local GOWORK=off go vet ./...

tools: ## build the pinned control plane and command line tools into .tools/bin, where that is due
	@tools/build.sh

clean: down ## end everything and remove what was built, but not .tools, which takes long
	@rm -rf .run target
	@echo "kept .tools; remove it by hand to build Kubernetes anew"

check-cargo:
	@tools/check-cargo.sh
