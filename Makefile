# Two commands on a fresh machine: `make run` and `make test`. Everything else: `make help`.

PYTHON ?= $(firstword $(foreach name,python3.11 python3.12 python3.13 python3 python,$(shell command -v $(name) 2>/dev/null)))
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
KERNELS := $(VENV)/.kernels
PYTEST_ARGS ?=
N ?= 10000
SEED ?= 1
BUG ?=
SECONDS ?= 120

.DEFAULT_GOAL := help
.PHONY: help run docs test test-fast check simulate-faults soak bench format lock clean clean-kernels setup java

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: $(READY) java ## Run word count on embedded Spark over an emulated cluster, improve its plan live, report
	@$(BIN)/penstock run word-count --emulate hetero-small --rate 100 --policy round-robin \
		--then local-search --objective delay --duration 30 --report

# Without compiled modules, each test process compiles all tests and the package, and each process of a run the package.
test test-fast: export PYTHONDONTWRITEBYTECODE :=

test: $(KERNELS) java ## Run all tests, one process per core and one more, since some wait
	@$(BIN)/python -m pytest -n auto --dist worksteal --durations=20 $(PYTEST_ARGS)

test-fast: $(KERNELS) ## Run the tests that need no Java and compute little
	@$(BIN)/python -m pytest -n auto --dist worksteal --durations=20 -m "not spark and not slow" $(PYTEST_ARGS)

check: $(READY) ## Check style, types and who imports whom
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/mypy --no-error-summary
	@$(BIN)/lint-imports --no-logo
	@echo "style, types and imports are fine"

docs: $(READY) ## Build the documentation into site/; start with site/index.html
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

simulate-faults: $(READY) ## Run N schedules of faults on a simulated cluster, from SEED on, with a BUG where one is named
	@$(BIN)/python -m penstock.testing.schedules --schedules $(N) --seed $(SEED) $(if $(BUG),--bug $(BUG))

soak: $(READY) java ## Run word count on embedded Spark for SECONDS, with a fault about every ten, and check its output
	@$(BIN)/python -m benchmarks.soak --seconds $(SECONDS)

bench: $(READY) ## Measure speed; the figures are in benchmarks/README.md
	@$(BIN)/python -m benchmarks

format: $(READY) ## Rewrite the code in the house style
	@$(BIN)/ruff check --quiet --fix .
	@$(BIN)/ruff format --quiet .

lock: $(READY) ## Resolve requirements.lock anew
	@$(BIN)/python -m pip install -qq uv
	@$(BIN)/uv pip compile pyproject.toml --extra dev --universal --python-version 3.11 --no-emit-index-url --quiet \
		--upgrade --custom-compile-command "make lock" -o requirements.lock

clean-kernels: ## Remove compiled kernels, after editing one that another file calls
	@find src -name '*.nb[ic]' -delete

clean: ## Remove what the other targets made, results excepted
	@rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist site
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

setup: $(READY) ## Make .venv from requirements.lock

$(READY): requirements.lock pyproject.toml
	@test -n "$(PYTHON)" || { echo "python: not found; install Python 3.11 or newer, or say make PYTHON=/path/to/python" >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "python: $(PYTHON) does not run or is older than 3.11; install Python 3.11 or newer, or say make PYTHON=/path/to/python" >&2; exit 1; }
	@echo "setting up $(VENV) (a few minutes, once)" >&2
	@"$(PYTHON)" -m venv $(VENV)
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -r requirements.lock
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --no-deps --no-build-isolation -e .
	@echo "compiling the inner loops of planning and archiving Spark's classes (about a minute, once)" >&2
	@$(BIN)/penstock doctor --compile >/dev/null || true
	@touch $@

$(KERNELS): $(READY) $(shell find src -name '*.py')
	@echo "compiling the inner loops of simulation where they have changed" >&2
	@$(BIN)/python -m tests.kernels
	@touch $@

java:
	@java="$${JAVA_HOME:+$$JAVA_HOME/bin/}java"; \
	version=$$("$$java" -version 2>&1 | sed -n 's/.*version "\(1\.\)\{0,1\}\([0-9]*\).*/\2/p' | head -n 1); \
	test -n "$$version" || { echo "java: not found; install a JDK 17 or newer, or set JAVA_HOME to one" >&2; exit 1; }; \
	test "$$version" -ge 17 || { echo "java: version $$version is too old for Spark; install a JDK 17 or newer, or set JAVA_HOME to one" >&2; exit 1; }
