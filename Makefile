# All targets need Python 3.11 to 3.13 and make. They create .venv/ if it is missing. `make help` lists them.

PYTHON ?= python3
# The number of test processes, and further arguments of pytest: make test ARGS="-k gang"
JOBS ?= 2
ARGS ?=
# The lowest accepted branch coverage of all tests together, in percent.
FLOOR ?= 85
BENCH ?=
IMAGE ?= batchsched:0.1.0
# Duration and size of the soak test.
KILLS ?= 200
STORM ?= 600
SECONDS ?= 3600
NODES ?= 5000
PODS ?= 50000
# The release of kube-scheduler that `make oracle` compares with: 1.36 or 1.37; by default, that of the profile.
RELEASE ?=

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PIP := PIP_DISABLE_PIP_VERSION_CHECK=1 $(BIN)/python -m pip
# The Python of deploy/Dockerfile; neither a file nor a message names a package index.
COMPILE := $(BIN)/uv pip compile --quiet --constraint constraints.txt --generate-hashes --no-header --no-annotate \
  --python-version 3.13 --python-platform linux
PYTEST := $(BIN)/python -m pytest

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-full soak controlplane image hashes sbom conformance oracle lint format bench docs docs-serve generate pin clean distclean

help: ## list the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' Makefile
	@echo
	@echo "  PYTHON=python3.13 picks the interpreter (3.11 to 3.13) when .venv/ is made,"
	@echo "  JOBS=2 the number of test processes, ARGS='-k gang' goes to pytest or the bench."

setup: $(READY) ## create .venv/ with the pinned versions and batchsched

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' || \
	  { echo "batchsched needs Python 3.11 to 3.13, and $(PYTHON) is not; try: make $(MAKECMDGOALS) PYTHON=python3.13" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || test -x $(BIN)/python || \
	  { echo "$(PYTHON) cannot make a virtual environment; on Debian: apt-get install python3-venv" >&2; exit 1; }
	@test -x $(BIN)/python || { echo "Setting up .venv/ (a minute or two)"; $(PYTHON) -m venv $(VENV); }
	@$(PIP) install --quiet --constraint constraints.txt hatchling editables
	@$(PIP) install --quiet --constraint constraints.txt --no-build-isolation --editable '.[dev]'
	@touch $@

demo: $(READY) ## explain one session, simulate a day under four policies, write demo-report.html
	@$(BIN)/batchsched demo --report demo-report.html

test: lint docs controlplane ## lint, docs, then every test with branch coverage
	@HYPOTHESIS_PROFILE=$${HYPOTHESIS_PROFILE:-ci} $(PYTEST) -n $(JOBS) --dist worksteal --durations=60 --durations-min=5 \
	  $(if $(ARGS),$(ARGS),--cov --cov-report=term --cov-fail-under=$(FLOOR))

test-full: ## the same, each property with at least 500 new examples
	@HYPOTHESIS_PROFILE=full $(MAKE) --no-print-directory test

soak: controlplane ## kills, bad network, churn (KILLS=200 STORM=600 SECONDS=3600 NODES=5000 PODS=50000)
	@BATCHSCHED_TAKEOVERS=20 BATCHSCHED_PAUSE=20 BATCHSCHED_FLAPPING=20 BATCHSCHED_CONNECTIONS=10000 \
	  BATCHSCHED_HOSTILE_OBJECTS=20000 $(PYTEST) -q -rP tests/e2e/test_takeover.py tests/faults/test_new_leader.py \
	  tests/faults/test_control_plane.py tests/faults/test_nodes.py tests/faults/test_connections.py \
	  tests/faults/test_hostile_objects.py
	@$(BIN)/python -m tests.soak --kills $(KILLS) --storm $(STORM) --seconds $(SECONDS) --nodes $(NODES) --pods $(PODS) $(ARGS)

controlplane: $(READY) ## build kube-apiserver, etcd and kwok, which tests run against (once, minutes)
	@$(BIN)/python -m tests.controlplane.build

image: ## build the container image with docker or podman (IMAGE=batchsched:0.1.0)
	@for engine in docker podman; do \
	  if $$engine info >/dev/null 2>&1; then \
	    exec $$engine build --build-arg SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) --tag $(IMAGE) --file deploy/Dockerfile .; \
	  fi; \
	done; \
	echo "no container engine answers (docker or podman): no image was built" >&2; exit 1

hashes: $(READY) ## write the packages of the image with their hashes to deploy/*requirements.txt
	@{ echo '# The packages of the image, with the versions of constraints.txt. Written by `make hashes`.'; \
	  $(COMPILE) pyproject.toml; } > deploy/requirements.new
	@{ echo '# What builds the wheel in the image, with the versions of constraints.txt. Written by `make hashes`.'; \
	  echo hatchling | $(COMPILE) -; } > deploy/build-requirements.new
	@mv deploy/requirements.new deploy/requirements.txt
	@mv deploy/build-requirements.new deploy/build-requirements.txt

sbom: $(READY) ## write the software bill of materials of the image to dist/batchsched.cdx.json
	@mkdir -p dist
	@$(BIN)/cyclonedx-py requirements deploy/requirements.txt --pyproject pyproject.toml --mc-type application \
	  --output-reproducible --output-format JSON --output-file dist/batchsched.cdx.json

conformance: $(READY) ## compare with recorded answers of kube-scheduler (CASES=DIR for other recordings)
	@$(BIN)/python -m tests.conformance $(CASES) $(ARGS)

oracle: $(READY) ## compare with kube-scheduler's plugins on random cases (RELEASE=1.36, ARGS="--count 1000 --areas spread")
	@$(BIN)/python -m tests.conformance.oracle $(if $(RELEASE),--kubernetes-version $(RELEASE)) $(ARGS)

lint: $(READY) ## ruff, mypy --strict, import contracts, prose, the Dockerfile
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/python docs/prose.py
	@$(BIN)/dockerfile-doctor --severity warning --no-color --quiet deploy/Dockerfile

format: $(READY) ## format the code with ruff
	@$(BIN)/ruff check --fix-only
	@$(BIN)/ruff format

bench: $(READY) ## run the benches (BENCH=solver for one, ARGS for its arguments)
	@$(BIN)/python -m bench $(BENCH) $(ARGS)

docs: $(READY) ## build the site into site/; fails if a generated page is out of date
	@$(BIN)/python -m docs.generate --check
	@NO_MKDOCS_2_WARNING=1 DISABLE_MKDOCS_2_WARNING=true $(BIN)/mkdocs build --strict --quiet

docs-serve: $(READY) ## serve the site and reload it after edits
	@$(BIN)/mkdocs serve

generate: $(READY) ## write the generated pages of docs/
	@$(BIN)/python -m docs.generate

pin: $(READY) ## write the newest versions that pyproject.toml allows to constraints.txt
	@$(PIP) install --quiet --upgrade --upgrade-strategy eager hatchling editables
	@$(PIP) install --quiet --upgrade --upgrade-strategy eager --no-build-isolation --editable '.[dev,controlplane]'
	@{ sed -n '/^#/p' constraints.txt; $(PIP) freeze --exclude-editable | grep '=='; } > constraints.new
	@mv constraints.new constraints.txt
	@$(MAKE) --no-print-directory hashes

clean: ## remove build results, keep .venv/
	@rm -rf site dist build htmlcov .coverage .coverage.* .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache demo-report.html
	@find batchsched bench tests docs examples -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

distclean: clean ## remove build results and .venv/
	@rm -rf $(VENV)
