# Everything needs Python 3.11 to 3.13 and make, and sets up .venv/ by itself. `make help` lists it.

PYTHON ?= python3
# How many processes run the tests, and what further arguments they get: make test ARGS="-k gang"
JOBS ?= 2
ARGS ?=
# The least coverage, branches counted, that all the tests together must reach.
FLOOR ?= 85
BENCH ?=
IMAGE ?= batchsched:0.1.0
# How long and how large the soak is.
KILLS ?= 200
STORM ?= 600
SECONDS ?= 3600
NODES ?= 5000
PODS ?= 50000

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PIP := PIP_DISABLE_PIP_VERSION_CHECK=1 $(BIN)/python -m pip
PYTEST := $(BIN)/python -m pytest

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-full soak controlplane image conformance oracle lint format bench docs docs-serve generate pin clean distclean

help: ## say what there is
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' Makefile
	@echo
	@echo "  PYTHON=python3.13 picks the interpreter (3.11 to 3.13) when .venv/ is made,"
	@echo "  JOBS=2 the number of test processes, ARGS='-k gang' goes to pytest or the bench."

setup: $(READY) ## make .venv/ with the pinned versions and batchsched in it

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' || \
	  { echo "batchsched needs Python 3.11 to 3.13, and $(PYTHON) is not; try: make $(MAKECMDGOALS) PYTHON=python3.13" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || test -x $(BIN)/python || \
	  { echo "$(PYTHON) cannot make a virtual environment; on Debian: apt-get install python3-venv" >&2; exit 1; }
	@test -x $(BIN)/python || { echo "Setting up .venv/ (a minute or two)"; $(PYTHON) -m venv $(VENV); }
	@$(PIP) install --quiet --constraint constraints.txt hatchling editables
	@$(PIP) install --quiet --constraint constraints.txt --no-build-isolation --editable '.[dev]'
	@touch $@

demo: $(READY) ## one session explained, then a day under three policies; writes demo-report.html
	@$(BIN)/batchsched demo --report demo-report.html

test: lint docs controlplane ## lint, docs, then every test with branch coverage
	@HYPOTHESIS_PROFILE=$${HYPOTHESIS_PROFILE:-ci} $(PYTEST) -n $(JOBS) --dist worksteal \
	  $(if $(ARGS),$(ARGS),--cov --cov-report=term --cov-fail-under=$(FLOOR))

test-full: ## the same, each property with at least 500 examples, freshly drawn
	@HYPOTHESIS_PROFILE=full $(MAKE) --no-print-directory test

soak: controlplane ## kills, bad network, churn (KILLS=200 STORM=600 SECONDS=3600 NODES=5000 PODS=50000)
	@BATCHSCHED_TAKEOVERS=20 BATCHSCHED_PAUSE=20 $(PYTEST) -q -rP tests/e2e/test_takeover.py tests/faults/test_control_plane.py
	@$(BIN)/python -m tests.soak --kills $(KILLS) --storm $(STORM) --seconds $(SECONDS) --nodes $(NODES) --pods $(PODS) $(ARGS)

controlplane: $(READY) ## build kube-apiserver, etcd and kwok, which tests run against (once, minutes)
	@$(BIN)/python -m tests.controlplane.build

image: ## build the container image, where docker or podman is (IMAGE=batchsched:0.1.0)
	@for engine in docker podman; do \
	  if $$engine info >/dev/null 2>&1; then \
	    exec $$engine build --build-arg SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) --tag $(IMAGE) --file deploy/Dockerfile .; \
	  fi; \
	done; \
	echo "no container engine answers (docker or podman): no image was built" >&2; exit 1

conformance: $(READY) ## compare with recorded answers of kube-scheduler (CASES=DIR for other files than our own)
	@$(BIN)/python -m tests.conformance $(CASES)

oracle: $(READY) ## ask kube-scheduler's own plugins about random cases, and compare (ARGS="--count 1000 --areas spread")
	@$(BIN)/python -m tests.conformance.oracle $(ARGS)

lint: $(READY) ## ruff, mypy --strict, import contracts, prose, the Dockerfile
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/python docs/prose.py
	@$(BIN)/dockerfile-doctor --severity warning --no-color --quiet deploy/Dockerfile

format: $(READY) ## let ruff write what it can
	@$(BIN)/ruff check --fix-only
	@$(BIN)/ruff format

bench: $(READY) ## run the benches (BENCH=solver for one, ARGS for its arguments)
	@$(BIN)/python -m bench $(BENCH) $(ARGS)

docs: $(READY) ## build the site into site/, strictly; fails when a generated page is stale
	@$(BIN)/python -m docs.generate --check
	@NO_MKDOCS_2_WARNING=1 DISABLE_MKDOCS_2_WARNING=true $(BIN)/mkdocs build --strict --quiet

docs-serve: $(READY) ## show the site and follow edits
	@$(BIN)/mkdocs serve

generate: $(READY) ## write the generated pages of docs/ anew
	@$(BIN)/python -m docs.generate

pin: $(READY) ## write constraints.txt from the newest versions that fit pyproject.toml
	@$(PIP) install --quiet --upgrade --upgrade-strategy eager hatchling editables
	@$(PIP) install --quiet --upgrade --upgrade-strategy eager --no-build-isolation --editable '.[dev,controlplane]'
	@{ sed -n '/^#/p' constraints.txt; $(PIP) freeze --exclude-editable | grep '=='; } > constraints.new
	@mv constraints.new constraints.txt

clean: ## remove what was built, keep .venv/
	@rm -rf site dist build htmlcov .coverage .coverage.* .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache demo-report.html
	@find batchsched bench tests docs examples -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

distclean: clean ## remove .venv/ too
	@rm -rf $(VENV)
