PY = .venv/bin/python

.PHONY: help demo test test-slurm-matrix lint docs bench cluster clean

help:
	@echo "make demo     one simulated 8-GPU node from prolog to report (about half a minute)"
	@echo "make test     set everything up and run all tests"
	@echo "make test-slurm-matrix  the tests on a real Slurm, with the releases of Debian trixie and sid (root)"
	@echo "make cluster  a real 4-node Slurm on this machine with slurmgpu in it, to play with (root)"
	@echo "make bench    the budgets, measured side by side"
	@echo "make docs     the documentation as HTML in docs/_build"

demo:
	@contrib/dev/setup.sh demo
	@$(PY) contrib/demo/demo.py

test:
	@contrib/dev/setup.sh test
	@$(MAKE) --no-print-directory lint docs
	@contrib/dev/test.sh

test-slurm-matrix:
	@contrib/dev/slurm-matrix.sh

lint:
	@.venv/bin/ruff check .
	@.venv/bin/ruff format --check --quiet . || { echo "run: .venv/bin/ruff format ."; exit 1; }
	@.venv/bin/mypy

docs:
	@.venv/bin/sphinx-build -q -W --keep-going -b html docs docs/_build

bench:
	@contrib/dev/setup.sh test
	@$(PY) bench/run.py

cluster:
	@contrib/dev/setup.sh test
	@$(PY) contrib/testcluster/cluster.py up --slurmgpu

clean:
	rm -rf .venv docs/_build contrib/simgpu/build
