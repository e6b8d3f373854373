# Needs Python 3.11 or newer with venv, on Linux; sets up everything else itself.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

# Of `make image`. BASE has no default: any image with a shell and BASE_PYTHON.
VERSION     := $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
IMAGE       ?= ascend-affinity:$(VERSION)
BASE        ?=
BASE_PYTHON ?= 3.11
ARCH        ?= $(shell uname -m)
BUILDER     ?= buildah
ARCHIVE     ?=

# Of `make test`: most of its time is waiting for processes and sockets.
WORKERS ?= 5
# Of the order of tests and the examples of hypothesis.
SEED_OF_TESTS := $(or $(SEED),$(strip $(shell od -An -N4 -tu4 /dev/urandom)))
PYTEST := $(BIN)/python -m pytest -q -n $(WORKERS) \
  --randomly-seed=$(SEED_OF_TESTS) --hypothesis-seed=$(SEED_OF_TESTS)

# Where nothing compiled is kept, each worker and each program that a test starts
# compiles all modules again: half of the processor time of `make test`.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo sandbox scenarios test check bench seeds stubs image aarch64 clean

help: ## what can be made here
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

demo: $(VENV)/run.stamp ## the main job, told step by step on an embedded cluster
	@$(BIN)/ascend-sandbox demo

sandbox: $(VENV)/run.stamp ## the same cluster, left running for you to try; ARGS="--nodes 5", ARGS=--help
	@$(BIN)/ascend-sandbox up $(ARGS) || [ $$? -eq 130 ] # Ctrl-C is how it ends

scenarios: $(VENV)/run.stamp ## the scenarios that ship, and one of every fault: five minutes
	@set -e; for file in $(wildcard docs/examples/scenarios/*.yaml) tests/sandbox/scenario/tour.yaml; do $(BIN)/ascend-sandbox run $$file; done

test: check tests ## format, lint, types, contracts, stubs, and all tests without a real cluster

# SEED=… repeats a run, which prints it; ARGS goes to pytest.
.PHONY: tests
tests: $(VENV)/dev.stamp
	@echo "Tests in random order: SEED=$(SEED_OF_TESTS)"
	@[ -d tests/__pycache__ ] || $(BIN)/python -m pytest -q --collect-only >/dev/null # compiles once, not in each worker
	@$(PYTEST) -m "not long" $(ARGS)

.PHONY: everything
everything: $(VENV)/dev.stamp ## all that there is to run, as root, what tells most first: an hour
	@$(BIN)/python -m tests.parts everything

long: $(VENV)/dev.stamp ## the long tests: each outcome of each call of the driver, each order of a boot, …
	@echo "Tests in random order: SEED=$(SEED_OF_TESTS)"
	@$(PYTEST) -m long $(ARGS)

.PHONY: properties
# EXAMPLES=1000
properties: $(VENV)/dev.stamp ## the property tests, each with more examples than in `make test`
	@echo "Tests in random order: SEED=$(SEED_OF_TESTS)"
	@PROPERTY_EXAMPLES=$(or $(EXAMPLES),100) $(PYTEST) -m "hypothesis and not long" $(ARGS)

.PHONY: fuzz
# FUZZ_INPUTS=1000000, FUZZ_SECONDS=60, FUZZ_SEED=1, FUZZ_ONLY=annotation
fuzz: $(VENV)/dev.stamp ## hostile input for every parser of what comes from outside
	@$(BIN)/python -W error -m tests.hostile \
	  $(if $(FUZZ_INPUTS),--inputs $(FUZZ_INPUTS)) $(if $(FUZZ_SECONDS),--seconds $(FUZZ_SECONDS)) \
	  $(if $(FUZZ_SEED),--seed $(FUZZ_SEED)) $(if $(FUZZ_ONLY),--only '$(FUZZ_ONLY)') \
	  $(if $(FUZZ_INPUTS)$(FUZZ_SECONDS),,--seconds 60)

.PHONY: gangs
# EXAMPLES=5000: half an hour
gangs: $(VENV)/dev.stamp ## many jobs by chance: what can be placed is bound in time, nothing is half bound
	@GANG_EXAMPLES='$(or $(EXAMPLES),5000)' $(BIN)/python -m pytest -q -n 3 --timeout 0 \
	  tests/extender/test_jobs_between_nodes_machine.py tests/extender/test_random_elastic_jobs.py \
	  tests/extender/gang/test_size_machine.py

.PHONY: successors
# COUNT=1000
successors: $(VENV)/dev.stamp ## pods of all chips of a node, one after the other: none is rejected
	@SUCCESSORS='$(or $(COUNT),1000)' $(BIN)/python -m pytest -q -p no:xdist tests/agent/test_successors.py

check: $(VENV)/dev.stamp ## the checks without the tests
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy & types=$$!; $(BIN)/lint-imports; contracts=$$?; wait $$types && exit $$contracts
	@$(BIN)/python tests/stubs.py --check
	@$(BIN)/python tests/commits.py

# QUARTER=2; without it, the one of this commit
.PHONY: quarter
quarter: $(VENV)/dev.stamp ## a quarter of what neither `test` nor the core has, as root
	@$(BIN)/python -m tests.parts quarter $(QUARTER)

.PHONY: e2e e2e-core e2e-faults e2e-up e2e-down soak e2e-bare e2e-controllers e2e-operators
e2e-core: $(VENV)/dev.stamp ## of the real cluster one test for each promise, as root
	@$(BIN)/python -m tests.parts core

# ARGS goes to pytest: make e2e ARGS="tests/e2e/test_cluster.py -k frozen"
e2e: $(VENV)/dev.stamp ## the same story on a real cluster, as root; KEEP=1 leaves it up
	@$(BIN)/python -m tests.e2e run -m "not faults and not soak" $(ARGS)

# KUBERNETES=v1.37.2 builds and takes another release; also for the targets beside.
e2e-bare: $(VENV)/dev.stamp ## jobs under a real scheduler without a node, no root; ARGS names other tests
	@$(BIN)/python -m tests.e2e bare $(ARGS)

e2e-controllers: $(VENV)/dev.stamp ## jobs that JobSet, LeaderWorkerSet and Kubernetes' controllers make, no root
	@$(BIN)/python -m tests.e2e controllers $(ARGS)

e2e-operators: $(VENV)/dev.stamp ## jobs that KubeRay and Kubeflow's training operator make, no root
	@$(BIN)/python -m tests.e2e operators $(ARGS)

e2e-faults: $(VENV)/dev.stamp ## every fault, during churn, on a real cluster
	@$(BIN)/python -m tests.e2e run -m faults $(ARGS)

# SEED=… repeats a run; it is printed.
soak: $(VENV)/dev.stamp ## churn and faults by chance, MINUTES=30 of them
	@MINUTES='$(or $(MINUTES),30)' $(if $(SEED),SEED='$(SEED)') $(BIN)/python -m tests.e2e run -s -m soak $(ARGS)

e2e-up: $(VENV)/dev.stamp ## a real cluster, left running for you to try
	@$(BIN)/python -m tests.e2e up

e2e-down: $(VENV)/dev.stamp ## remove it, or what a killed run left
	@$(BIN)/python -m tests.e2e down

bench: $(VENV)/dev.stamp ## the figures of docs/performance.md, measured on this machine
	@$(BIN)/python -m benchmarks

seeds: $(VENV)/dev.stamp ## which test carries which point of the seed documents
	@$(BIN)/python tests/seeds.py

stubs: $(VENV)/dev.stamp ## generate kubelet_api/ from proto/ again
	@$(BIN)/python tests/stubs.py --write

image: $(VENV)/run.stamp ## the container image: make image BASE=… [IMAGE=…] [BASE_PYTHON=3.11] [ARCH=…] [BUILDER=buildah] [ARCHIVE=file.tar]
	@BASE='$(BASE)' IMAGE='$(IMAGE)' BASE_PYTHON='$(BASE_PYTHON)' ARCH='$(ARCH)' BUILDER='$(BUILDER)' ARCHIVE='$(ARCHIVE)' daemonset/build-image

aarch64: $(VENV)/bin/python ## that every pinned dependency has a wheel for arm64, where most Ascend chips are
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --dry-run --no-deps \
	  --target build/aarch64 --only-binary=:all: --implementation cp --python-version $(BASE_PYTHON) \
	  --platform manylinux2014_aarch64 --platform manylinux_2_17_aarch64 --platform manylinux_2_28_aarch64 \
	  -r constraints.txt
	@echo "All $$(grep -c == constraints.txt) pinned dependencies have a wheel for aarch64."

.PHONY: sizes
sizes: $(VENV)/dev.stamp ## modules of more than 300 lines; more than 600 fail in the tests
	@$(BIN)/python tests/modules.py

.PHONY: entered
# ARGS=--list names them
entered: $(VENV)/dev.stamp ## functions and files of ours that one filter call enters
	@$(BIN)/python -m tests.entered $(ARGS)

.PHONY: audit
audit: $(VENV)/dev.stamp ## whether a hole is known in what we ship; says so where nobody can be asked
	@rm -rf build/audit; mkdir -p build/audit
	@$(BIN)/python tests/dependencies.py --list > build/audit/shipped.txt
	@$(PYTHON) -m venv build/audit/venv && build/audit/venv/bin/python -m pip install -q --disable-pip-version-check pip-audit || true
	@build/audit/venv/bin/pip-audit -r build/audit/shipped.txt --no-deps --disable-pip --timeout 10 \
	  --progress-spinner off -f json -o build/audit/report.json >build/audit/log 2>&1 || true
	@$(BIN)/python tests/dependencies.py $$(ls build/audit/report.json 2>/dev/null)

clean: ## remove everything that make made
	@[ ! -e /run/ascend-e2e ] || { echo "a real cluster is up; first: make e2e-down" >&2; exit 1; }
	rm -rf $(VENV) .e2e build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis mutants
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# One sentence for whoever lacks something, before pip prints a hundred lines.
$(VENV)/bin/python:
	@[ "$$(uname -s)" = Linux ] || { echo "This runs on Linux only (unix sockets, /proc); found $$(uname -s)." >&2; exit 1; }
	@command -v $(PYTHON) >/dev/null || { echo "Python 3.11 or newer is needed; $(PYTHON) was not found. Set PYTHON=… if it has another name." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed; found $$($(PYTHON) --version)." >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { echo "Python's venv module is missing; on Debian: apt-get install python3-venv" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV)

$(VENV)/run.stamp: $(VENV)/bin/python pyproject.toml constraints.txt
	@echo "Setting up $(VENV) …"
	@$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e .
	@touch $@

$(VENV)/dev.stamp: $(VENV)/bin/python pyproject.toml constraints.txt
	@echo "Setting up $(VENV) for development …"
	@$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $(VENV)/run.stamp $@
