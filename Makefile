# Start with `make demo` and `make test`; `make help` lists the other targets.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
unexport PYTHONDONTWRITEBYTECODE
export PATH := $(CURDIR)/$(BIN):$(PATH)
PIP := $(BIN)/pip install --quiet --disable-pip-version-check
UV_PIP := VIRTUAL_ENV="$(CURDIR)/$(VENV)" $(BIN)/python tools/uv_pip.py install --quiet -c constraints/dev.txt

.DEFAULT_GOAL := help

.PHONY: help demo test test-core records study bench bench-record docs docs-slow lint pre-commit clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## /\1|/' | column -t -s '|'

$(VENV)/train: pyproject.toml constraints/dev.txt
	@echo "Creating $(VENV): about 1.2 GB of disk and up to 3 minutes, mostly for PyTorch."
	$(PYTHON) -m venv $(VENV)
	$(PIP) -c constraints/dev.txt uv
	$(UV_PIP) -e '.[train]'
	@touch $@

$(VENV)/ready: $(VENV)/train
	@echo "Adding the test dependencies to $(VENV): about 0.6 GB and 1 minute."
	$(UV_PIP) -e '.[train,ray,rg,math,search,serve,dense,mcp,vision,eval,view,docs,test,lint]' 'nox[uv]'
	@touch $@

demo: $(VENV)/train  ## train a tiny agent on a number game in about 3 minutes and show what it learned
	$(BIN)/python -m gem_lab.train.demo --out runs/demo

test: $(VENV)/ready  ## run every test (prints requirements first)
	@echo "make test: 9 GB of disk with the installs, 40 to 60 minutes on 2 cores (make test-core: about 20)."
	$(BIN)/nox

test-core: $(VENV)/ready  ## run the tests of gem_core only
	$(BIN)/nox -s core

lint: $(VENV)/ready  ## run ruff, mypy --strict and the check of import layers
	$(BIN)/nox -s lint

pre-commit: $(VENV)/ready  ## check the changed files at each commit from now on
	$(PIP) pre-commit
	$(BIN)/pre-commit install

bench: $(VENV)/ready  ## compare speed with gem-llm and textarena, in a separate environment
	$(BIN)/python benchmarks/run.py

bench-record: $(VENV)/ready  ## like bench, and write the table to docs/results/bench.md
	$(BIN)/python benchmarks/run.py --record

records: $(VENV)/ready  ## measure the environment ID and write its records and tables
	$(BIN)/python tools/records.py '$(ID)'

study: $(VENV)/ready  ## run the learning study NAME (without a name: list them)
	$(BIN)/python benchmarks/study.py $(NAME)

docs: $(VENV)/ready  ## build the documentation site into site/
	$(BIN)/mkdocs build --strict

docs-slow: $(VENV)/ready  ## run the slow code blocks of the documentation, too
	GEM_CORE_DOCS_SLOW=1 $(BIN)/python -m pytest tests/docs --timeout 3600

clean:  ## remove environments and build artifacts (not runs/)
	rm -rf $(VENV) .venv-bench .nox build dist site
