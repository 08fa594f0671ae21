# Everything works in a fresh clone: each target first brings .venv up to date (tools/setup).
# ARGS goes to the program of the target:  make run ARGS=doctor   make test ARGS="-k router"

PYTHON_BIN := .venv/bin/python
ARGS ?=
ROUNDS ?= 1

.DEFAULT_GOAL := help
.PHONY: help run test check format e2e browser chaos bench constraints clean

help:
	@sed -n 's/^\([a-z0-9]*\):.*## /  make \1\t/p' Makefile

run: ## start Untether (ARGS="doctor" and so on for its other commands)
	@sh tools/setup run
	@exec $(PYTHON_BIN) -m untether $(ARGS)

test: ## unit, contract and loopback tests
	@sh tools/setup dev
	$(PYTHON_BIN) -m pytest -n 2 $(ARGS)

check: ## lint, format, types, layers
	@sh tools/setup dev
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	.venv/bin/mypy --scripts-are-modules tools/install-clis
	.venv/bin/lint-imports --no-logo

format: ## rewrite the sources as `make check` wants them
	@sh tools/setup dev
	.venv/bin/ruff check --fix .
	.venv/bin/ruff format .

e2e: ## end-to-end tests with the real agent CLIs (needs npm; versions in tests/clis.toml)
	@sh tools/setup dev
	$(PYTHON_BIN) tools/install-clis
	$(PYTHON_BIN) -m pytest -n 4 --timeout 180 tests/e2e $(ARGS)

browser: ## tests of the web console in a browser (needs chromium)
	@sh tools/setup browser
	$(PYTHON_BIN) -m pytest --timeout 180 tests/browser $(ARGS)

chaos: ## the bridge killed, cut off and lied to, with a log in build/chaos.log (ROUNDS=10, ARGS="-k disk")
	@sh tools/setup dev
	CHAOS_ROUNDS=$(ROUNDS) $(PYTHON_BIN) -m pytest -n 2 --timeout 180 tests/chaos $(ARGS)

bench: ## measure against the budgets
	@sh tools/setup dev
	$(PYTHON_BIN) -m bench $(ARGS)

constraints: ## pin the newest releases that pyproject.toml allows in constraints.txt
	sh tools/freeze

clean: ## remove caches and build output (.venv stays: rm -r .venv)
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache build dist
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +
