# make setup   the environment: .venv/bin/regard
# make demo    trains a translator on the built-in corpus, translates, draws an alignment
# make test    style, types and tests
# make bench   how fast it is, beside JoeyNMT, MarianMT and CTranslate2; REGARD_DATA must hold multi30k/
PYTHON ?= python3
BIN := .venv/bin

.PHONY: setup demo test test-all check bench multi30k clean

setup: .venv/ready

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

.venv/peers: .venv/ready
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev,peers]' || test -z "$$CI"  # needs a compiler
	touch $@

tests/node_modules/.ready: tests/package.json tests/package-lock.json
	npm ci --silent --ignore-scripts --prefix tests || test -z "$$CI"  # needs npm
	mkdir -p tests/node_modules && touch $@

demo: setup
	$(BIN)/regard demo

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

test: check .venv/peers tests/node_modules/.ready
	$(BIN)/python -m pytest

test-all: check .venv/peers tests/node_modules/.ready
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev,peers,docs]'
	$(BIN)/python -m pytest -m 'slow or not slow'

multi30k:
	@test -n "$(REGARD_DATA)" || { echo "REGARD_DATA is not set: set it to the folder that holds multi30k/train.en.gz and its like."; exit 1; }

bench/.venv/ready: bench/requirements.txt
	$(PYTHON) -m venv bench/.venv
	bench/.venv/bin/pip install --quiet --requirement bench/requirements.txt
	touch $@

bench: multi30k .venv/peers bench/.venv/ready
	$(BIN)/python bench/check.py
	$(BIN)/python bench/train.py
	$(BIN)/python bench/decoding.py translation

clean:
	rm -rf .venv bench/.venv build *.egg-info
