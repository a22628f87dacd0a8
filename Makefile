# Every target works from a fresh clone with Python >= 3.10, gcc and make: the virtual environment is made on first use.
#   make PYTHON=python3.12 ...    another interpreter for the virtual environment
#   make VENV=/path ...           another place for it

PYTHON ?= python3
VENV   ?= .venv
PY     := $(VENV)/bin/python
RUN    := $(VENV)/.lagom-installed
STAMP  := $(VENV)/.lagom-dev-installed
DOCS   := $(VENV)/.lagom-docs-installed
PYTEST := $(PY) -m pytest
# Most processes of the tests are Python's: what one has compiled the next ones read.
unexport PYTHONDONTWRITEBYTECODE
# Tests at a time. Many of them wait for processes of their own, so three keep two cores busy.
JOBS   ?= 3
SPREAD := -n $(JOBS)

.DEFAULT_GOAL := help
.NOTPARALLEL: # two pips at once in one environment would hurt
.PHONY: help demo test test-full test-times test-busy test-gpu test-gpu-safety test-abi native dev lint asan-ubsan asan ubsan tsan bench bench-gpu \
	figures agreement memory-model plans kills soak mutants readme docs fresh-clone fuzz wheel test-wheel \
	clean

help: ## what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: native ## 8 virtual ranks of an FSDP Llama under the real plugin, controller and search; no GPU, under a minute
	$(PY) -m lagom demo

test: dev ## everything CI runs: lint, native tests plain and under the sanitizers, pytest
	@$(MAKE) --no-print-directory lint & lint=$$!; \
	LAGOM_SANITIZE="none address,undefined thread" $(PYTEST) $(SPREAD); tests=$$?; \
	wait $$lint || { echo "make lint failed: what it found is printed above the tests"; exit 1; }; exit $$tests

test-full: dev ## the same tests with the long versions (100,000 plans, 1,000 seeds, ...)
	LAGOM_TEST_FULL=1 LAGOM_SANITIZE="none address,undefined thread" $(PYTEST) $(SPREAD) --timeout 3600

test-times: ## `make test` where a test above 8 s of processor time fails unless tests/tiers.py says why; on a quiet machine
	LAGOM_TEST_LIMIT=1 $(MAKE) test

BUSY ?= 3
RUNS ?= 1
test-busy: dev ## `make test` RUNS=1 times beside BUSY=3 busy loops; what failed, run by run, and the logs in build/busy
	$(PY) -m tests.busy --loops $(BUSY) --runs $(RUNS) -- $(MAKE) test

test-gpu: dev ## tests that need NVIDIA GPUs and torch; each one skips and says why where there is none
	$(PYTEST) tests/gpu --timeout 900

GPU_EVIDENCE ?= $(CURDIR)/build/safety_gpu.json
test-gpu-safety: dev ## on GPUs: 2,000 configs a regime exact, kills, 8 minutes of FSDP under changing configs
	LAGOM_TEST_FULL=1 LAGOM_TEST_EVIDENCE=$(GPU_EVIDENCE) $(PYTEST) tests/gpu/test_exact.py tests/gpu/test_faults.py \
		tests/gpu/test_soak.py --timeout 1200

lint: $(STAMP) ## ruff, shellcheck, mypy, imports that only go down (import-linter), what may not grow (tests/growth.py)
	$(VENV)/bin/ruff check .
	git ls-files '*.sh' | xargs $(VENV)/bin/shellcheck --severity warning .ci/run
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports --no-cache
	$(PY) -m tests.growth

native: $(RUN) ## build liblagom.so and libnccl-tuner-lagom.so into lagom/_lib
	@$(PY) setup.py --quiet native

dev: $(STAMP) native

asan-ubsan: dev ## native tests under both AddressSanitizer and UndefinedBehaviorSanitizer
	LAGOM_SANITIZE=address,undefined $(PYTEST) $(SPREAD) tests/native

asan: dev ## native tests under AddressSanitizer
	LAGOM_SANITIZE=address $(PYTEST) $(SPREAD) tests/native

ubsan: dev ## native tests under UndefinedBehaviorSanitizer
	LAGOM_SANITIZE=undefined $(PYTEST) $(SPREAD) tests/native

tsan: dev ## native tests under ThreadSanitizer
	LAGOM_SANITIZE=thread $(PYTEST) $(SPREAD) tests/native

memory-model: dev ## the atomics under a C11 memory model: shipped orderings hold, weakened ones are found; needs g++
	@$(PY) -m tests.memory_model.run || [ $$? = 77 ]

bench: native ## latency of a decision and of a switch, and the simulator suite: every strategy on every workload (5 to 10 minutes)
	$(PY) -m benchmarks.decision_latency
	$(PY) -m benchmarks.switch_latency
	$(PY) -m benchmarks.sim_suite --json benchmarks/results/sim_suite_202611.json

# The interpreter that has torch: not the virtual environment's, as a rule.
GPU_PYTHON ?= python3
GPUS       ?= $(shell nvidia-smi -L 2>/dev/null | wc -l)

bench-gpu: native ## ten minutes on GPUs: the telling rows of the matrix (NCCL_230=/path/libnccl.so.2, GPU_PYTHON=python3)
	PYTHONPATH=.$${PYTHONPATH:+:$$PYTHONPATH} $(GPU_PYTHON) -m benchmarks.matrix --quick --gpus $(GPUS) --budget 570 --out matrix_quick.json \
		$(if $(NCCL_230),--nccl-230 $(NCCL_230))
	PYTHONPATH=.$${PYTHONPATH:+:$$PYTHONPATH} $(GPU_PYTHON) -m benchmarks.matrix_page matrix_quick.json --table

figures: $(RUN) ## the paper's figures from the simulator, and the page that compares them (after: make bench)
	$(PY) -m benchmarks.figures

agreement: dev ## 8 ranks x 4 communicators, 100,000 plans, not one call on which two ranks differ
	LAGOM_TEST_FULL=1 $(PYTEST) tests/native tests/system -k agreement --timeout 3600

PLANS ?= 1000000
plans: native ## 1,000,000 plans on 8 ranks x 8 communicators while ranks pause, publishers die and one meddles (PLANS=...)
	$(PY) -m tests.system.storm --plans $(PLANS) --json benchmarks/results/agreement_$(PLANS).json

KILLS ?= 10000
kills: native ## 10,000 controllers forked from a warm process and killed -9 where they publish (KILLS=...)
	$(PY) -m tests.soak.kills --kills $(KILLS) --json benchmarks/results/kills_$(KILLS).json

SOAK_MINUTES ?= 30
SOAK_SEED ?= 20261120
soak: native ## 8 virtual ranks tuned for SOAK_MINUTES=30 under kills, stops, pauses and noise; every call checked
	$(PY) -m tests.soak --minutes $(SOAK_MINUTES) --seed $(SOAK_SEED) --json build/soak_$(SOAK_MINUTES)min.json

MUTANTS ?= 100
MUTANTS_SEED ?= 1
MUTANTS_JOBS ?= 2
MUTANTS_AREAS ?=
MUTANTS_JSON ?= build/mutants_$(MUTANTS_SEED)$(if $(MUTANTS_AREAS),_$(subst /,-,$(MUTANTS_AREAS))).json
mutants: dev ## plants MUTANTS=100 faults in copies of the code (MUTANTS_AREAS=lagom/bench,...), and counts those the tests see (hours)
	nice $(PY) -m tests.mutants --count $(MUTANTS) --seed $(MUTANTS_SEED) --areas "$(MUTANTS_AREAS)" --jobs $(MUTANTS_JOBS) --json "$(MUTANTS_JSON)"

test-abi: dev ## NCCL's real wheels, from pip (200 to 350 MB each, one at a time): symbols, structs, offsets, recognition
	LAGOM_TEST_ABI=1 $(PYTEST) tests/abi

readme: dev ## write again the tables of docs/ that are made from the code
	$(PY) -m tests.contract.readme_blocks

docs: dev $(DOCS) ## the documentation as a site in build/docs, and its tests; no network once mkdocs is installed
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --quiet
	$(PYTEST) tests/contract/test_site.py

fresh-clone: ## clone HEAD into a temporary folder and run `make test` and `make demo` there
	tests/contract/fresh_clone.sh

fuzz: $(STAMP) ## every C reader under libFuzzer, FUZZ_SECONDS (1440) CPU seconds each; needs clang
	$(PY) -m tests.fuzz.run

# zig's C compiler has the headers and symbols of each glibc for both processors, so one machine builds both wheels.
WHEEL_VENV ?= $(CURDIR)/build/wheel-venv
WHEEL_PY := $(WHEEL_VENV)/bin/python
WHEEL_STAMP := $(WHEEL_VENV)/.lagom-wheel-installed
ZIG := ZIG_GLOBAL_CACHE_DIR=$(CURDIR)/build/zig
MANYLINUX := 2_17

wheel: $(WHEEL_STAMP) ## into dist/: manylinux wheels for x86_64 and aarch64, and the source distribution
	@rm -rf build/wheel dist
	@for processor in x86_64 aarch64; do \
		$(ZIG) CC="$(WHEEL_PY) -m ziglang cc -target $$processor-linux-gnu.$(subst _,.,$(MANYLINUX))" \
		$(WHEEL_PY) -W ignore setup.py --quiet build --build-base build/wheel/$$processor \
		bdist_wheel --plat-name manylinux_$(MANYLINUX)_$$processor --dist-dir dist || exit 1; done
	@$(WHEEL_PY) -W ignore setup.py --quiet sdist --dist-dir dist
	@ls -l dist

test-wheel: wheel dev ## what `make wheel` made: tags, symbols, installed without gcc, aarch64 under qemu-user
	$(ZIG) LAGOM_TEST_WHEEL=$(WHEEL_PY) $(PYTEST) $(SPREAD) tests/wheel

clean: ## remove what was built (the virtual environment stays)
	rm -rf build dist lagom/_lib *.egg-info .pytest_cache .mypy_cache .ruff_cache

# The environment is complete when its stamp exists; it is renewed when the dependencies change. $(RUN): what lagom itself
# needs, and so the demo. $(STAMP): tests, ruff and mypy as well.
define make_environment
	@command -v $(PYTHON) >/dev/null || { echo "lagom: $(PYTHON) is not on PATH; install Python >= 3.10 or say make PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
		{ echo "lagom: Python >= 3.10 is needed and $(PYTHON) is older; say make PYTHON=python3.12 or similar" >&2; exit 1; }
	@test -x $(PY) || $(PYTHON) -m venv $(VENV) || \
		{ echo "lagom: no virtual environment could be made; on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
endef
# --no-compile: what is imported is compiled then, a small part of what is installed.
PIP := $(PY) -m pip --quiet --disable-pip-version-check install --no-compile

$(RUN): pyproject.toml
	$(make_environment)
	$(PIP) 'setuptools>=77'
	$(PIP) --no-build-isolation --editable .
	@touch $@

$(STAMP): pyproject.toml
	$(make_environment)
	$(PIP) 'setuptools>=77'
	@$(PY) setup.py --quiet native & $(PIP) --no-build-isolation --editable '.[dev]'; code=$$?; wait; exit $$code
	$(PIP) --no-deps 'HolisticTraceAnalysis==0.5.0'
	@touch $(RUN) $@

$(DOCS): pyproject.toml
	$(make_environment)
	$(PIP) 'setuptools>=77'
	$(PIP) --no-build-isolation --editable '.[docs]'
	@touch $@

$(WHEEL_STAMP): pyproject.toml
	$(PYTHON) -m venv $(WHEEL_VENV)
	$(WHEEL_PY) -m pip --quiet --disable-pip-version-check install --upgrade 'pip>=25.1'
	$(WHEEL_PY) -m pip --quiet --disable-pip-version-check install --group wheel
	@touch $@
