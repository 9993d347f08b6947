# Two commands: `make demo` and `make test`. Everything they need is installed and started by them.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# A machine without Node gets one as a wheel (requirements/node.txt).
NPM = $(shell command -v npm 2>/dev/null || echo $(BIN)/npm)
# Of the demo: simulator, or real (control planes as processes; built from source, with Go).
CLUSTERS ?= simulator
# Of the demo: local accounts, or keycloak (a real one beside it; needs Java 17, and Maven the first time).
SIGNIN ?= local
ARGS ?=

.PHONY: help demo test bench lint format types setup setup-dev assets lock clean

help:  ## What can be made
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1|\2/' | column -t -s '|'

demo: setup  ## Start the portal with a simulated fleet and a month of data
	@$(BIN)/python -m portal.cli up --demo --clusters $(CLUSTERS) --sign-in $(SIGNIN) $(ARGS)

test: setup-dev  ## Lint, types, and every test, with the time of each stage
	@$(BIN)/python scripts/stages.py test $(ARGS)

bench: setup-dev  ## Our figures beside their yardsticks, in one run
	@$(BIN)/python scripts/stages.py bench $(ARGS)

lint: setup-dev  ## ruff, import contracts, mypy
	@$(BIN)/python scripts/stages.py lint

format: setup-dev  ## Format the code
	@$(BIN)/ruff check --fix-only -q . && $(BIN)/ruff format -q .

setup: $(VENV)/.base assets  ## Virtual environment and style sheets
setup-dev: $(VENV)/.dev assets  ## The same, with what the tests need

$(VENV)/bin/uv: requirements/uv.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements/uv.txt
	@touch $@

$(VENV)/.base: requirements/base.txt $(VENV)/bin/uv
	@VIRTUAL_ENV=$(VENV) $(BIN)/uv pip install -q --require-hashes -r requirements/base.txt
	@touch $@

$(VENV)/.dev: requirements/dev.txt $(VENV)/.base
	@VIRTUAL_ENV=$(VENV) $(BIN)/uv pip install -q --require-hashes -r requirements/dev.txt
	@touch $@

assets: static/vendor/.stamp
static/vendor/.stamp: package-lock.json requirements/node.txt $(VENV)/.base
	@command -v npm >/dev/null || VIRTUAL_ENV=$(VENV) $(BIN)/uv pip install -q --require-hashes -r requirements/node.txt
	@$(NPM) ci --silent
	@mkdir -p static/vendor
	@cp node_modules/@tabler/core/dist/css/tabler.min.css node_modules/uplot/dist/uPlot.min.css \
	    node_modules/uplot/dist/uPlot.iife.min.js static/vendor/
	@sed -i '/sourceMappingURL/d' static/vendor/tabler.min.css
	@touch $@

lock: $(VENV)/bin/uv  ## Lock the Python packages anew (hashes, no addresses)
	@for name in uv base dev node; do \
	  $(BIN)/uv pip compile -q --upgrade --generate-hashes --no-emit-index-url --no-header \
	    --python-version 3.11 -o requirements/$$name.txt requirements/$$name.in; done

clean:  ## Remove what was built here (data of the demo is elsewhere, and stays)
	@rm -rf $(VENV) node_modules static/vendor staticfiles .mypy_cache .ruff_cache .pytest_cache .hypothesis
