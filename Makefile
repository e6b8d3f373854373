# Needs Python 3.11 or newer with venv, on Linux; sets up everything else itself.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

.DEFAULT_GOAL := help
.PHONY: help demo sandbox test check bench seeds stubs clean

help: ## what can be made here
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

demo: $(VENV)/run.stamp ## the main job, told step by step on an embedded cluster
	@$(BIN)/ascend-sandbox demo

sandbox: $(VENV)/run.stamp ## the same cluster, left running for you to try
	@$(BIN)/ascend-sandbox up

test: check ## everything that CI checks: format, lint, types, contracts, stubs, tests
	@$(BIN)/python -m pytest -q

check: $(VENV)/dev.stamp ## the checks without the tests
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python tests/stubs.py --check

bench: $(VENV)/dev.stamp ## the figures of docs/performance.md, measured on this machine
	@$(BIN)/python -m benchmarks

seeds: $(VENV)/dev.stamp ## which test carries which point of the seed documents
	@$(BIN)/python tests/seeds.py

stubs: $(VENV)/dev.stamp ## generate kubelet_api/ from proto/ again
	@$(BIN)/python tests/stubs.py --write

clean: ## remove everything that make made
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis mutants
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
