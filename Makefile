# Two commands for a newcomer: `make demo` and `make test`. They need python3 with pip, and make.
.POSIX:
.SUFFIXES:
.PHONY: help demo test check quick slow interop bench clean

BIN = .venv/bin
PYTEST = $(BIN)/python -m pytest -q
PHASE = @sh tools/phase.sh
SETUP = pyproject.toml .python-version tools/bootstrap.sh
DEMO = demo/airports

help:
	@echo "make demo     sweep a real store of 112 leaves and draw it"
	@echo "make test     formatting, lint, types, layers and the quick tests"
	@echo "make check    the same without the tests"
	@echo "make slow     the long tests (SHORT=--short for their short form)"
	@echo "make interop  the tests against the peer program (SHORT=--short likewise)"
	@echo "make bench    time this program against the peer"
	@echo "make clean    remove environments, caches and the demo"

.venv/.ready-demo: $(SETUP)
	@sh tools/bootstrap.sh demo
	@touch $@

.venv/.ready-dev: $(SETUP)
	@sh tools/bootstrap.sh dev
	@touch .venv/.ready-demo $@

.venv-interop/.ready: $(SETUP)
	@sh tools/bootstrap.sh interop
	@touch $@

demo: .venv/.ready-demo
	@rm -rf demo
	@$(BIN)/python tools/unpack_demo.py examples/airports-demo.tar.xz $(DEMO)
	@echo "sweep local $(DEMO) --scope all"
	@$(BIN)/sweep local $(DEMO) --scope all
	@echo "sweep info $(DEMO)"
	@$(BIN)/sweep info $(DEMO)
	@echo "sweep show $(DEMO) --level 3 --field h_tdigest --out $(DEMO).png"
	@$(BIN)/sweep show $(DEMO) --level 3 --field h_tdigest --out $(DEMO).png
	@echo "the program is $(BIN)/sweep; README says how to use it on a store of your own"

test: check quick

check: .venv/.ready-dev
	$(PHASE) "format (ruff)" $(BIN)/ruff format --check .
	$(PHASE) "lint (ruff)" $(BIN)/ruff check .
	$(PHASE) "types (mypy --strict)" $(BIN)/mypy
	$(PHASE) "layers (import-linter)" $(BIN)/lint-imports --no-logo

quick: .venv/.ready-dev
	@$(PYTEST) -n 2 --dist worksteal -m "not slow and not interop"

slow: .venv/.ready-dev
	@$(PYTEST) -n 2 --dist worksteal -m "slow and not interop" $(SHORT)

interop: .venv/.ready-dev .venv-interop/.ready
	@SWEEP_REQUIRE_INTEROP=1 $(PYTEST) -n 2 --dist worksteal -m interop $(SHORT)

bench: .venv/.ready-dev .venv-interop/.ready
	@$(BIN)/python benchmarks/sweep_local.py --peer .venv-interop/bin/python

clean:
	@rm -rf .venv .venv-interop .tools .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis demo build dist
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
