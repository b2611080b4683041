# make setup   the environment: .venv/bin/regard
# make demo    trains a translator on the built-in corpus, translates, draws an alignment
# make test    style, types and tests
PYTHON ?= python3
BIN := .venv/bin

.PHONY: setup demo test test-all check clean

setup: .venv/ready

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

demo: setup
	$(BIN)/regard demo

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

test: check
	$(BIN)/python -m pytest

test-all: check
	$(BIN)/python -m pytest -m 'slow or not slow'

clean:
	rm -rf .venv build *.egg-info
