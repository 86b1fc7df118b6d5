# `make demo` and `make test` set up all that they need first.

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/ready
ORACLE := .venv-oracle/ready
TORCH := .venv-torch/ready
PYTEST := $(BIN)/python -m pytest -n 2 --dist worksteal

QAT_TESTS := tests/test_qat_*.py tests/test_pytorch.py

# Inputs for `make fuzz`.
RUNS ?= 10000000

.PHONY: help setup demo test test-long test-qat torch lint fuzz bench bench-check bench-accuracy bench-qat bench-calibration fit-costs onnx-coverage ops boards readme clean

help:
	@echo 'make demo       a network that reads digits, from ONNX to an emulated board'
	@echo 'make test       linters and tests, as CI runs them'
	@echo 'make test-long  the tests that take long, too'
	@echo 'make test-qat   the tests of training, in .venv-torch, which it makes with the CPU build of PyTorch'
	@echo 'make lint       ruff, mypy, import-linter'
	@echo 'make fuzz       ten million inputs for the firmware'"'"'s end of the serial line (RUNS=...), under sanitizers'
	@echo 'make bench      instructions, RAM and flash of the benchmark models'
	@echo 'make bench-check  the same again, failing when a figure is worse than the kept one by 1%'
	@echo 'make bench-accuracy  what each way of quantizing keeps of five float models (needs ../shared)'
	@echo 'make bench-qat  what training keeps of them with weights of few bits (needs ../shared)'
	@echo 'make bench-calibration  time and memory of calibration (needs ../shared)'
	@echo 'make fit-costs  the cost model, from measurements of all kernels on all cores'
	@echo 'make onnx-coverage  docs/onnx-coverage.md, from the node tests of the onnx package'
	@echo 'make ops        docs/ops.md, what can be done with each kind of op'
	@echo 'make boards     the digits example for every board, and the tables of docs/boards.md'
	@echo 'make readme     the output of the demo, written into README.md'
	@echo 'make setup      Debian packages (as root, or with sudo where it asks no password) and .venv'
	@echo 'make clean      remove what was built, but not .venv'

setup: $(READY) $(ORACLE)

$(READY): pyproject.toml setup.py scripts/packages.sh
	@PYTHON=$(PYTHON) sh scripts/packages.sh
	@echo 'setup: making .venv'
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,oracles,images,plots,vela]'
	@touch $@

$(ORACLE): scripts/oracle.sh | $(READY)
	@PYTHON=$(PYTHON) sh scripts/oracle.sh
	@mkdir -p $(@D)
	@touch $@

demo: $(READY)
	@$(BIN)/rlx-edge demo --out build/demo

test: lint $(ORACLE)
	$(PYTEST) -m 'not long'

test-long: lint $(ORACLE)
	RLX_EDGE_TESTS=long $(PYTEST) -m 'long or not long'

torch: $(TORCH)

$(TORCH): pyproject.toml setup.py scripts/torch.sh
	@PYTHON=$(PYTHON) sh scripts/torch.sh
	@touch $@

test-qat: $(TORCH)
	OMP_NUM_THREADS=1 .venv-torch/bin/python -m pytest -n 2 --dist worksteal -m 'not long' $(QAT_TESTS)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

fuzz: $(READY)
	$(BIN)/python tests/fuzz_link.py $(RUNS) build/fuzz

bench: $(READY)
	$(BIN)/python benchmarks/bench.py

bench-check: $(READY)
	$(BIN)/python benchmarks/bench.py --check

bench-accuracy: $(READY)
	$(BIN)/python benchmarks/accuracy.py

bench-qat: $(TORCH)
	.venv-torch/bin/python benchmarks/bench_qat.py --jobs 2

bench-calibration: $(READY)
	$(BIN)/python benchmarks/bench_calibration.py

fit-costs: $(READY)
	$(BIN)/python benchmarks/fit_costs.py

onnx-coverage: $(READY)
	PYTHONPATH=tests $(BIN)/python scripts/onnx_coverage.py

ops: $(READY)
	$(BIN)/python scripts/ops_page.py

boards: $(READY)
	PYTHONPATH=tests $(BIN)/python scripts/boards_page.py

readme: $(READY)
	$(BIN)/python scripts/readme.py

clean:
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
