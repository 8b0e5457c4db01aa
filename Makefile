# Two commands do everything: `make verify` and `make test`. `make help` lists the rest.
SHELL := /bin/sh
PYTHON := python3
VENV := .venv
FRESH :=
TUNED :=
BACKEND :=
TARGET :=
SECONDS := 10
ARGS :=
BASE_VENV = .venv-base-$(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)

# Tests share the cores, in eight processes at most; ARGS=-n0 runs them one by one.
PARALLEL := --numprocesses=auto --maxprocesses=8 --dist=worksteal

# `make … VENV=` uses the current interpreter as it is: no pip, the package read from tools/, the tests one by one where
# it lacks pytest-xdist.
ifeq ($(strip $(VENV)),)
RUN := PYTHONPATH="$(CURDIR)/tools$${PYTHONPATH:+:$$PYTHONPATH}" $(PYTHON)
SETUP = @$(PYTHON) tools/bootstrap.py --as-is --needs click yaml jsonschema $(NEEDS)
WORKERS = $(shell $(PYTHON) -c 'import xdist' 2>/dev/null && echo '$(PARALLEL)')
else
RUN := $(VENV)/bin/python
SETUP = @$(PYTHON) tools/bootstrap.py --venv $(VENV)
WORKERS = $(PARALLEL)
endif

.DEFAULT_GOAL := help
.PHONY: help setup verify test test-base fuzz sensitivity generate check lint bench report clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo "  with PYTHON=python3.11 (makes .venv), VENV= (the current interpreter as it is, no pip), ARGS='…' (passed on)"

setup: ## make or refresh .venv (every target does this by itself)
	$(SETUP)

verify: NEEDS = torch numpy tabulate
verify: setup ## judge every tuned row and declared use; FRESH=1 ignores the cache, TUNED=FILE, BACKEND=emulate
	@$(if $(TUNED),,$(RUN) -m moeshapes generate)
	@$(RUN) -m moeshapes verify $(if $(FRESH),--fresh) $(if $(BACKEND),--backend $(BACKEND)) $(ARGS) $(TUNED)

test: NEEDS = torch numpy pandas ml_dtypes pytest hypothesis
test: setup ## run the tests, those that need a GPU or an installed AITER left out and counted
	@$(RUN) -m pytest $(WORKERS) -m "not gpu and not aiter" $(ARGS)

test-base: ## run the tests that need no torch, from a base install: make test-base PYTHON=python3.10
	@$(PYTHON) tools/bootstrap.py --venv $(BASE_VENV) --base
	@$(BASE_VENV)/bin/python -m pytest $(PARALLEL) -m "not gpu and not aiter" -o cache_dir=$(BASE_VENV)/.pytest_cache $(ARGS)

fuzz: NEEDS = jinja2 scipy safetensors tabulate
fuzz: setup ## feed every parser hostile input for SECONDS=10 of CPU each, or one with TARGET=table
	@PYTHONPATH="$(CURDIR)/tools:$(CURDIR)/tests" $(if $(strip $(VENV)),$(VENV)/bin/python,$(PYTHON)) -m fuzz.run --seconds $(SECONDS) $(ARGS) $(TARGET)

sensitivity: NEEDS = torch numpy tabulate
sensitivity: setup ## print which lie of a backend is caught under which recipe, and by how much; BACKEND=portable on a GPU
	@PYTHONPATH="$(CURDIR)/tools:$(CURDIR)/tests" $(if $(strip $(VENV)),$(VENV)/bin/python,$(PYTHON)) -m sensitivity.matrix $(if $(BACKEND),--backend $(BACKEND)) $(ARGS)

generate: setup ## write generated/ from the YAML
	@$(RUN) -m moeshapes generate $(ARGS)

check: NEEDS = ruff mypy
check: setup ## ruff, mypy and everything of moeshapes that a CPU can check
	@failed=; \
	$(RUN) -m ruff check || failed=1; \
	$(RUN) -m ruff format --check || failed=1; \
	$(RUN) -m mypy || failed=1; \
	$(RUN) -m moeshapes check $(ARGS) || failed=1; \
	test -z "$$failed"

lint: setup ## static rules on the shipped tuned rows, or on TUNED=FILE
	@$(RUN) -m moeshapes lint $(ARGS) $(TUNED)

bench: NEEDS = torch numpy tabulate
bench: setup ## time the commands and the reference; AITER=DIR adds keys over its tables
	@$(RUN) -m moeshapes bench $(if $(AITER),--aiter $(AITER)) $(ARGS)

report: NEEDS = tabulate
report: setup ## print the last verification as markdown
	@$(RUN) -m moeshapes report $(ARGS)

clean: ## remove build/ and caches, never generated/
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis tools/*.egg-info
	find tools tests -name __pycache__ -type d -prune -exec rm -rf {} +
