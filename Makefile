# Every target sets up what it needs: a virtual environment in .venv with the exact packages of
# requirements/dev.lock. It is reused until pyproject.toml or the lock changes. What every process imports is compiled to
# byte code at once: the large packages on all cores, and what a server and a builder import besides by importing it, also
# where the environment forbids Python to write byte code (each process would compile a thousand modules again, for
# seconds). The rest, most of 11,000 modules, is compiled when it is first imported.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/set-up-$(shell cat pyproject.toml requirements/dev.lock | cksum | tr ' ' '-')

# What `make bench` compares with is installed by it alone.
BENCH_STAMP := $(VENV)/set-up-bench-$(shell cat pyproject.toml requirements/bench.lock | cksum | tr ' ' '-')
# So are the servers that `make race` runs against.
RACE_STAMP := $(VENV)/set-up-race-$(shell cat pyproject.toml requirements/race.lock | cksum | tr ' ' '-')

# Ray has some hundred packages of its own: an environment beside this one, with the same packages and those.
RAY_VENV := $(VENV)-ray
RAY_STAMP := $(RAY_VENV)/set-up-$(shell cat pyproject.toml requirements/dev.lock requirements/ray.lock | cksum | tr ' ' '-')
# Schemas of Kubernetes and KServe are read, and never imported beside what serves.
SCHEMAS := .cache/kubernetes
SCHEMAS_STAMP := $(SCHEMAS)/set-up-$(shell cksum < requirements/kubernetes.lock | tr ' ' '-')

IMPORTED_BY_ALL := tensorflow keras numpy

# Further arguments, for example: make test ARGS="-k planner"
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-long test-ray ray-race kubernetes recipes fuzz fuzz-codecs schemathesis soak chaos kills attack serve load race bench bench-gpu check lint types rules docs op-page dashboard protos \
        invariant screenshots dockerfile compose docker-steps image-here format lock clean

help: ## Show the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## Make .venv with the locked packages (once; the other targets do it themselves)

$(STAMP):
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info[:2] == (3, 11) else \
		f"Rowwise needs Python 3.11, {sys.executable} is {sys.version.split()[0]}: make PYTHON=/path/to/python3.11 ...")'
	@echo "Setting up $(VENV): about a minute, once."
	@$(PYTHON) -m venv $(VENV)
	@scripts/install-packages.sh $(BIN)/python requirements/dev.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@cd $(VENV)/lib/python3.11/site-packages && ../../../bin/python -m compileall -q -j 0 $(IMPORTED_BY_ALL) || true
	@PYTHONDONTWRITEBYTECODE= $(BIN)/python -c "import tensorflow, server.app, vectorizer" >/dev/null 2>&1 || true
	@rm -f $(VENV)/set-up-* && touch $@

demo: setup ## Start the real server, register the digits model, send it 1,797 real digits, compare with both baselines
	@$(BIN)/python -m loadtests.demo $(ARGS)

test: setup ## Run all tests but the long ones, in two processes
	@$(BIN)/python -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder -m "not long" $(ARGS)

test-long: setup ## Run the tests that `make test` leaves out, as quicker ones are of the same kind
	@$(BIN)/python -m pytest -m long $(ARGS)

recipes: setup ## Other people's models, as the manual registers them, against their own answers; installs a few packages
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements/recipes.lock
	@$(BIN)/python -m pytest tests/e2e/test_other_models.py $(ARGS)

fuzz: setup ## Random requests, faults and switches in virtual time, 1,000,000 steps; SEED=... repeats, STEPS=... shortens
	@$(BIN)/python -m tests.fuzz $(if $(SEED),--seed $(SEED)) $(if $(STEPS),--steps $(STEPS)) $(ARGS)

fuzz-codecs: setup ## A million inputs that are nearly right into each codec (ARGS="--inputs 10000 --only oip"): declared errors alone
	@$(BIN)/python -m tests.fuzz_codecs $(ARGS)

schemathesis: setup ## Requests made from the OpenAPI document, by its rules and against them (ARGS=--real: a real process): no error of ours, no code it lacks
	@$(BIN)/python -m tests.web.api_requests $(ARGS)

soak: setup ## The real server under mixed load for 30 minutes (MINUTES=...): nothing may grow; a table and a picture
	@$(BIN)/python -m loadtests.soak $(if $(MINUTES),--minutes $(MINUTES)) $(ARGS)

chaos: setup ## Kills and faults under load, with an account of every request that was sent
	@$(BIN)/python -m loadtests.chaos $(ARGS)

kills: setup ## kill -9 at a step of each operation, then a look at what is left: ROUNDS=200 of the store and of a whole server
	@$(BIN)/python -m tests.store.rounds .cache/kills --rounds $(or $(ROUNDS),200) $(if $(SEED),--seed $(SEED))
	@$(BIN)/python -m tests.e2e.killed_rounds --rounds $(or $(ROUNDS),200) $(if $(SEED),--seed $(SEED)) $(ARGS)

attack: setup ## A hundred attempts to get in, out, or in others' way, on a running server; each must be refused or contained
	@$(BIN)/python -m loadtests.attack $(ARGS)

serve: setup ## Serve the digits model on http://127.0.0.1:8000 until Ctrl-C
	@$(BIN)/rowwise serve --model digits=models.digits:predict $(ARGS)

load: setup ## Compare Rowwise with both baselines at 1, 8, 32 and 128 callers; writes a table and a picture
	@$(BIN)/python -m loadtests.compare $(ARGS)

race: $(if $(RACE),setup,$(RACE_STAMP)) ## Against other servers on the same model; RACE=directory of a race with more of them installed
	@$(BIN)/python -m $(if $(RACE),loadtests.race --race $(RACE),loadtests.peer_race) $(ARGS)

# A peer that can't be installed here is left out of the race, which says so.
$(RACE_STAMP): $(STAMP)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/race.lock \
		|| echo "mosec and LitServe could not be installed: they are left out."
	@rm -f $(VENV)/set-up-race-* && touch $@

test-ray: $(RAY_STAMP) ## Replicas on a local Ray cluster: answers, versions, kills and scaling, under load
	@$(RAY_VENV)/bin/python -m pytest tests/ray_serve $(ARGS)

ray-race: $(RAY_STAMP) ## Against a hand-made @serve.batch on the same Ray cluster (ARGS="--own-proxy" without HAProxy)
	@$(RAY_VENV)/bin/python -m loadtests.ray_race $(ARGS)

$(RAY_STAMP):
	@echo "Setting up $(RAY_VENV): a minute or two, once."
	@$(PYTHON) -m venv $(RAY_VENV)
	@scripts/install-packages.sh $(RAY_VENV)/bin/python requirements/dev.lock
	@scripts/install-packages.sh $(RAY_VENV)/bin/python requirements/ray.lock
	@$(RAY_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@cd $(RAY_VENV)/lib/python3.11/site-packages && ../../../bin/python -m compileall -q -j 0 ray $(IMPORTED_BY_ALL) || true
	@rm -f $(RAY_VENV)/set-up-* && touch $@

kubernetes: setup $(SCHEMAS_STAMP) ## The Kubernetes manifests against the schemas of Kubernetes and KServe
	@$(BIN)/python -m pytest --quiet tests/deploy/test_kubernetes.py $(ARGS)

$(SCHEMAS_STAMP): $(STAMP)
	@rm -rf $(SCHEMAS)
	@scripts/install-packages.sh $(BIN)/python requirements/kubernetes.lock --no-deps --target $(SCHEMAS)
	@touch $@

bench: $(BENCH_STAMP) ## Measure the vectorizer against what else there is, and the batching core
	@$(BIN)/python -m benchmarks $(ARGS)

# A contender that can't be installed here is left out of the measurement, which says so.
$(BENCH_STAMP): $(STAMP)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/bench.lock \
		|| echo "JAX and DyNet could not be installed: they are left out."
	@rm -f $(VENV)/set-up-bench-* && touch $@

bench-gpu: setup ## The same on the GPUs that TensorFlow lists; says so if there are none
	@$(BIN)/python -m benchmarks --device gpu $(ARGS)

check: lint types rules docs dockerfile compose kubernetes ## All that is checked besides tests

lint: setup ## ruff: rules and format
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: setup ## mypy, strict
	@$(BIN)/mypy

rules: setup ## Who may import whom, what importing may do, which names are public
	@$(BIN)/python -m pytest --quiet tests/test_import_rules.py tests/test_importing.py tests/test_public_names.py

docs: setup ## Build the manual into docs/_build/html; a warning is an error
	@$(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

dashboard: setup ## Write Grafana's dashboard from scripts/dashboard/panels.py
	@$(BIN)/python -m scripts.dashboard

protos: setup ## Compile server/protocol/protos/*.proto into the descriptors that the server loads
	@$(BIN)/python -m scripts.compile_protos

op-page: setup ## Find out again what becomes of each op of TensorFlow and write docs/ops.md
	@$(BIN)/python -m scripts.op_page $(ARGS)

screenshots: setup ## Pictures of the console for the manual, in docs/figures; needs chromium (ARGS="--store DIR")
	@$(BIN)/python -m scripts.console_screenshots $(ARGS)

invariant: setup ## Ask a server in invariant mode 200,000 times under random load: same bytes? And what does it cost?
	@$(BIN)/python -m loadtests.invariant $(ARGS)

dockerfile: setup ## hadolint
	@$(BIN)/hadolint Dockerfile

compose: setup ## docker-compose.yml against the Compose schema
	@$(BIN)/check-jsonschema --builtin-schema vendor.compose-spec docker-compose.yml

docker-steps: setup ## Run the image's steps in a clean directory, without a container engine
	@$(BIN)/python scripts/run_image_steps.py

image-here: setup ## Build the image with buildah over a base of Debian's packages, measure it, run the server in it
	@PYTHON=$(BIN)/python scripts/build_image_here.sh $(ARGS)

format: setup ## Format and fix what ruff can
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

lock: setup ## Resolve pyproject.toml's ranges into requirements/*.lock again (ARGS=--upgrade for newer releases)
	@scripts/lock.sh $(ARGS)

clean: ## Remove .venv and everything that was built or measured
	rm -rf $(VENV) $(RAY_VENV) build dist docs/_build reports .cache .mypy_cache .pytest_cache .ruff_cache .hypothesis
