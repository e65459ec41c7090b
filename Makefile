# Needs Python >= 3.11 and make. Another interpreter: make PYTHON=python3.13 venv
PYTHON ?= python3
BIN := .venv/bin
NPM := cd api/dashboard && npm
RUN_READY := .venv/.ready-run
DEV_READY := .venv/.ready-dev
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
SOURCES := taskq api/taskq_api worker/taskq_worker tests

.DEFAULT_GOAL := help
.PHONY: help venv run test faults check bench chaos dashboard dashboard-check browser format clean
.PHONY: up down ps logs scale-worker clean-data test-deploy

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

venv: $(DEV_READY) ## create .venv with everything (redone when pyproject.toml changes)

# The recipe is one plain command: make starts it without a shell, so signals reach it.
run: $(RUN_READY) ## start Valkey, the API, a worker and the janitor (ARGS="--port 9000")
	@$(BIN)/taskq dev $(ARGS)

test: $(DEV_READY) ## run the tests (ARGS="-k name"); the fault scenarios and the browser apart
	$(BIN)/python -m pytest -n 2 --ignore=tests/faults --ignore=tests/dashboard --ignore=tests/deploy/engine $(ARGS)

faults: $(DEV_READY) ## kill, cut off and break everything, and count what was lost
	$(BIN)/python -m pytest -n 2 tests/faults $(ARGS)

check: $(DEV_READY) ## check format, lint, types and import directions
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(DEV_READY) ## measure (ARGS passes options)
	$(BIN)/python -m bench $(ARGS)

chaos: $(DEV_READY) ## long fault scenarios, then everything at once (ARGS="--seed 7")
	$(BIN)/python -m pytest -n 2 -m slow_fault tests/faults
	PYTHONPATH=tests $(BIN)/python -m support.chaos $(ARGS)

dashboard: $(DEV_READY) ## check, test and build the dashboard (needs Node 20.19 or newer)
	$(NPM) ci --no-progress --silent
	env -i PATH="$$PATH" $(BIN)/python api/dashboard/openapi.py > api/dashboard/openapi.json
	$(NPM) run --silent types
	$(NPM) run --silent check
	$(NPM) test --silent
	$(NPM) run --silent build

dashboard-check: dashboard ## the same, and fail if what is committed is not what the sources make
	git diff --exit-code --stat -- api/taskq_api/static api/dashboard/src/api/schema.d.ts
	@test -z "$$(git status --porcelain -- api/taskq_api/static)" || { git status --short api/taskq_api/static; exit 1; }

browser: $(DEV_READY) ## use the dashboard in a headless Chromium, against a real server and worker
	$(BIN)/python -m pytest tests/dashboard $(ARGS)

format: $(DEV_READY) ## format and fix what can be fixed
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

up: ## build and start the containers (N=3 workers, MONITORING=1, PUBLIC=1)
	@N='$(N)' MONITORING=$(MONITORING) PUBLIC=$(PUBLIC) deploy/compose up

scale-worker: ## run N workers, under load too (N=3)
	@deploy/compose scale '$(N)'

ps: ## show the containers
	@MONITORING=1 deploy/compose ps

# A plain command: Ctrl-C reaches it.
logs: ## follow what the containers say (ARGS="worker")
	@deploy/compose logs -f --tail=100 $(ARGS)

down: ## stop and remove the containers; the jobs stay
	@MONITORING=1 deploy/compose down

clean-data: ## delete the jobs of the containers, for good; asks first
	@printf 'This deletes every job and setting of the containers, for good. Type yes to go on: '; \
	  read -r answer && [ "$$answer" = yes ] || { echo 'nothing was deleted' >&2; exit 1; }
	@MONITORING=1 deploy/compose down --volumes

test-deploy: $(DEV_READY) ## run the containers for real, kill them, count what was lost
	$(BIN)/python -m pytest -s -o faulthandler_timeout=600 tests/deploy/engine $(ARGS)

clean: ## remove .venv, caches and build output (the jobs in .taskq stay)
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist build
	find $(SOURCES) -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@command -v $(PYTHON) >/dev/null \
	  || { echo "taskq needs Python 3.11 or newer: $(PYTHON) was not found (set PYTHON=...)" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "taskq needs Python 3.11 or newer: $(PYTHON) is $$($(PYTHON) -V 2>&1) (set PYTHON=...)" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null \
	  || { echo "$(PYTHON) has no venv module: install it (on Debian and Ubuntu: apt install python3-venv)" >&2; exit 1; }
	$(PYTHON) -m venv .venv

$(RUN_READY): pyproject.toml | $(BIN)/python
	$(PIP) -e '.[all]'
	@touch $@

$(DEV_READY): pyproject.toml | $(BIN)/python
	$(PIP) -e '.[all,dev]'
	@touch $(RUN_READY) $@
