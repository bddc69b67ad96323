# make run: the main job on a bundled robot.  make test: the tests.  make quick: those that catch most.
# They set up everything, in .venv, the first time.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: run test quick coverage lint format docs bench clean

run: $(VENV)/.run
	@$(BIN)/python examples/00_tour.py

test: $(VENV)/.test
	@$(BIN)/python -m pytest -n $$(nproc 2>/dev/null || echo 2) --dist worksteal

quick: $(VENV)/.test
	@$(BIN)/python -m pytest -n $$(nproc 2>/dev/null || echo 2) --dist worksteal -m quick

coverage: $(VENV)/.test
	@$(BIN)/python -m pytest -n $$(nproc 2>/dev/null || echo 2) --dist worksteal --cov=rigidgrad --cov-report=term:skip-covered

lint: $(VENV)/.lint
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/pylint src

format: $(VENV)/.lint
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

docs: $(VENV)/.docs
	@$(BIN)/python tools/performance_tables.py
	@$(BIN)/python tools/badges.py docs/pictures/badges.svg
	@$(BIN)/python bench/picture.py bench/results/dynamics.json docs/pictures/speed.svg
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@$(BIN)/python tools/check_links.py build/site

bench: $(VENV)/.test
	@$(BIN)/python bench/dynamics.py --json bench/results/dynamics.json

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(BIN)/python:
	@echo "creating a virtual environment in $(VENV)" >&2
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "rigidgrad needs Python 3.11 or newer: make PYTHON=python3.11 …" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.run: $(BIN)/python pyproject.toml
	@echo "installing rigidgrad and its live pages into $(VENV)" >&2
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[view]'
	@touch $@

$(VENV)/.test: $(BIN)/python pyproject.toml
	@echo "installing rigidgrad and what its tests need into $(VENV)" >&2
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[test]'
	@touch $@ $(VENV)/.run

$(VENV)/.lint: $(BIN)/python pyproject.toml
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[lint]'
	@touch $@

$(VENV)/.docs: $(BIN)/python pyproject.toml
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[docs]'
	@touch $@
