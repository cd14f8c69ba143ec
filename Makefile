# Two commands: `make run` and `make test` set everything up by themselves.
# Everything lives in .venv; a second run finds it ready.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
unexport PYTHONDONTWRITEBYTECODE  # without bytecode every process that a test starts compiles all it imports
EMBEDDED := $(VENV)/.embedded
# Two for each processor: a test waits a third of its time, for the disk or for a process that it has started.
WORKERS ?= $(shell expr 2 \* $$(getconf _NPROCESSORS_ONLN))

.PHONY: setup run check test test-real plugins bench eval soak docs constraints clean

setup: $(READY)

# uv makes the installation quick; it comes from PyPI like everything else and stays inside the venv.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt uv
	$(BIN)/uv pip install --quiet --python $(BIN)/python --constraint constraints.txt --editable '.[dev]'
	touch $(READY)

run: setup $(EMBEDDED)  ## set up, then start the gateway, open its page, and chat
	@$(BIN)/pal up

# The small model for small talk: tried once and for a minute at most, then `make run` goes on with it or without it.
$(EMBEDDED): $(READY)
	@$(BIN)/pal models install embedded --timeout 60 >&2 || echo "Going on without the small embedded model." >&2
	@touch $(EMBEDDED)

check: setup  ## what is quick: style, types, floors of the house, fast tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/pytest -q -n auto --dist worksteal -m "not slow and not real" \
	  tests/domain tests/sessions tests/context tests/dispatch tests/agent tests/docs

test: setup packages  ## everything but browsers and real peers
	$(BIN)/pytest -q -n $(WORKERS) --dist worksteal -m "not real"

test-real: export COMPATIBILITY := tests/real/compatibility.json  # what docs/compatibility.md is made of
plugins: setup  ## what the plugins in plugins/ need
	$(BIN)/uv pip install --quiet --python $(BIN)/python --constraint constraints.txt --constraint plugins/constraints.txt \
	  $(patsubst %,--requirement %,$(wildcard plugins/*/pyproject.toml))

test-real: setup plugins  ## what needs a browser, a real peer or the small embedded model
	@sh tools/debian-packages chromium ngircd
	@sh tools/debian-packages podman runc catatonit busybox-static:busybox || echo "Tests of containers are skipped."
	@$(BIN)/pal models install embedded || echo "Its tests are skipped."
	@timeout 240 sh tools/openclaw $(BIN) || echo "OpenClaw could not be installed: its tests are skipped."
	@for old in 2026.2.26 2026.6.11; do timeout 400 sh tools/openclaw $(BIN) $$old || echo "OpenClaw $$old: skipped."; done
	@timeout 240 sh tools/qmd $(BIN) || echo "qmd could not be installed: its tests are skipped."
	@timeout 240 sh tools/embedding-sdks $(BIN) || echo "The vendors' programs could not be installed: their tests are skipped."
	@timeout 240 sh tools/clawhub $(BIN) || echo "clawhub could not be installed: its tests are skipped."
	@timeout 240 sh tools/clients $(BIN) || echo "Clients of models could not be installed: their tests are skipped."
	@timeout 240 sh tools/agents $(BIN) || echo "Hermes and nanobot could not be installed: their tests are skipped."
	@timeout 240 sh tools/mcp-clients $(BIN) || echo "MCP clients could not be installed: their tests are skipped."
	$(BIN)/pytest -q -n auto --dist loadfile -m "real or shows" $$(grep -rlE --include='test_*.py' 'mark\.(real|shows)' tests | grep -v real/page) || [ $$? -eq 5 ]
	$(BIN)/mypy plugins/*/palinurus_*
	$(BIN)/pytest -q -n auto --dist loadfile -m real plugins || [ $$? -eq 5 ]
	$(BIN)/pytest -q -n auto --dist loadfile -m real tests/real/page || [ $$? -eq 5 ]  # by itself: a browser holds the event loop

bench: setup  ## what the program exists for, measured beside peers
	$(BIN)/python -m benchmarks

eval: setup  ## what memory search finds, with the data of EVAL_DATA
	$(BIN)/python -m benchmarks.eval

soak: setup  ## the long runs of which `make test` has a sample
	$(BIN)/python -m tests.soak
	HYPOTHESIS_PROFILE=soak $(BIN)/pytest -q -n auto --dist loadfile $$(grep -rlE --include='test_*.py' 'from hypothesis|import SOAK' tests)
	PYTHONPATH=tests $(BIN)/python -m support.simulator --seeds 0-4999
	PYTHONPATH=tests $(BIN)/python -m support.simulator --seeds 0-199 --disk

# Debian packages that real tests need, installed only by root on Debian; elsewhere those tests skip and say why.
.PHONY: packages
packages:
	@sh tools/debian-packages

docs: setup  ## rewrite the generated parts of the docs
	$(BIN)/python tools/docs.py

constraints:  ## pin what is newest now
	$(BIN)/uv pip compile --quiet --upgrade --no-header --no-annotate --no-emit-index-url --extra dev pyproject.toml -o constraints.txt

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
