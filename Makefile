# Two commands do all: `make reproduce` and `make test`. `make help` lists the rest with minutes and hardware.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules

PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
RUN := $(PY) -m harness.experiments.run
FIT := $(PY) -m harness.experiments.predictor_fit
DRAW := $(PY) -m figures.draw
OUT := outputs/reproduce

# With a CUDA device the same experiments run on the paper's model (dummy weights: timing needs no download).
GPU = $(shell $(PY) -c 'import torch; print("model=llama3_8b device=cuda" if torch.cuda.is_available() else "")')

# What `make simulate` runs; the first four, the 8B core figures, are part of `make reproduce`.
SIMULATED_CORE := sim_goodput_vs_rate sim_release sim_blocking sim_rounds
SIMULATED := $(SIMULATED_CORE) sim_chunk_tradeoff sim_slo_scale sim_predictor_error sim_gain_split sim_models \
  sim_ablation sim_steady_state sim_steady_state_doubled sim_overload sim_single_slo sim_arrivals \
  sim_resampled_lengths sim_tp sim_colocated sim_pd sim_pd_routing sim_slo_scale_release sim_blocking_release sim_chunk_tradeoff_release \
  sim_rounds_release sim_predictor_error_release sim_steady_state_release

export PYTHONUNBUFFERED := 1

.PHONY: help env test lint smoke reproduce reproduce-full simulate real-servers fidelity figures figures-check claims bench gpu-check soak traces checkpoint env-vllm env-sglang env-sweeps test-servers clean

help:  ## This list
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

env: $(VENV)/.complete  ## Build .venv from requirements.lock (3-5 min once, ~1.5 GB, any machine)

$(VENV)/.complete: requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed, found " + sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --disable-pip-version-check -r requirements.lock
	@touch $@

env-vllm env-sglang: env-%:
	@$(PYTHON) -m baselines.servers.build_environment $* --variant $(or $(VARIANT),auto)

env-vllm:  ## Build .venv-vllm, vLLM's server as a rival and our plugin in it (5-10 min once, ~3.5 GB; VARIANT=cpu|cuda; Linux x86_64)

env-sglang:  ## Build .venv-sglang, SGLang's server as a rival (5-10 min once, ~3 GB; VARIANT=cpu|cuda; Linux x86_64)

env-sweeps: env  ## Build .venv-sweeps over .venv: sweeps of simulated points on Slurm and Ray (3 min once, ~450 MB)
	$(PY) -m venv .venv-sweeps
	.venv-sweeps/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r requirements-sweeps.txt
	ls -d $(CURDIR)/$(VENV)/lib/python3*/site-packages > $$(ls -d .venv-sweeps/lib/python3*/site-packages)/project.pth

test: env  ## All tests (10 min, 2 cores, no GPU)
	$(PY) -m pytest -m "not servers"

test-servers: env  ## Start and stop the real rivals, other clients on ours (10-30 min, 2 cores; 26 beside other work; needs make env-vllm env-sglang)
	$(PY) -m pytest -m servers

lint: env  ## ruff, mypy, import rules (1 min, any machine)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports

checkpoint: env  ## Write a model as a Hugging Face folder, random weights (seconds for MODEL=cpu_demo, the default; any machine)
	$(PY) -m engine.torch_backend.checkpoint --model $(or $(MODEL),cpu_demo) --out checkpoints/$(or $(MODEL),cpu_demo)

smoke: env  ## A few real requests through every system, a table and a figure (<= 2 min, 2 cores)
	$(RUN) experiment=smoke output.results=outputs/smoke
	$(DRAW) --results outputs/smoke --out outputs/smoke/figures attainment_vs_rate
	@echo "smoke: figures in outputs/smoke/figures"

reproduce: env  ## FlowPrefill and its rivals measured here, figures drawn (<= 30 min, 2 cores or one GPU; resumable)
	$(RUN) experiment=reproduce output.results=$(OUT) $(GPU)
	$(RUN) experiment=granularity output.results=$(OUT) $(GPU)
	if [ -n "$(GPU)" ]; then $(RUN) experiment=launch_bounds output.results=$(OUT) $(GPU); fi
	for name in $(SIMULATED_CORE); do $(RUN) experiment=$$name output.results=$(OUT); done
	if [ -e .venv-vllm ] && [ -e .venv-sglang ]; then $(RUN) experiment=real_servers_short output.results=$(OUT) $(GPU); fi
	$(DRAW) --results $(OUT) --out $(OUT)/figures
	@echo "reproduce: done; figures in $(OUT)/figures, tables in $(OUT)/tables"

reproduce-full: env  ## Every measured experiment but the real servers (about 3 hours, 2 cores; needs make traces; docs/results.md; resumable)
	for name in goodput_vs_rate granularity slo_scale ablation azure_code mooncake; do $(RUN) experiment=$$name $(GPU); done
	$(MAKE) figures claims

real-servers: env  ## FlowPrefill beside real vLLM and SGLang (80 min, 2 cores; needs make env-vllm env-sglang; resumable)
	$(RUN) experiment=real_servers $(GPU)

simulate: env  ## Every simulated experiment at the committed resolution (about 150 min of one core, 75 of two, no GPU; resumable)
	for name in $(SIMULATED); do $(RUN) experiment=$$name; done
	$(FIT) -m model=llama3_8b,qwen2_5_14b,llama3_70b,qwen3_30b_a3b device=a800_clean
	$(FIT) model=llama3_8b device=a800_release
	$(FIT) -m model=cpu_demo device=cpu_simulated system.predictor=polynomial,operator_sum
	$(MAKE) figures claims

fidelity: env  ## Measured points beside their simulation: docs/fidelity.md (1 min, no GPU)
	$(PY) -m harness.experiments.fidelity

figures: env  ## Redraw every figure from the committed results (< 1 min, no torch, no GPU)
	$(DRAW)
	@echo "figures: in figures/out"

figures-check: env  ## Compare what would be drawn with the committed rows (< 1 min, no GPU; CI)
	$(DRAW) --check

claims: env  ## Hold the paper's claims against the committed results (seconds, no GPU; exit 1 where one is contradicted and not explained)
	$(PY) -m figures.check_claims

bench: env  ## Noisy timings, apart from the tests (20 min, 2 quiet cores)
	for name in scheduling_call check_overhead step_overhead prefill_vs_transformers client_rate; do \
	  echo "== bench.$$name"; $(PY) -m bench.$$name; done

gpu-check: env  ## Everything the engine claims on a CUDA device, one table (<= 8 min, one GPU)
	$(PY) -m bench.gpu_check --out outputs/gpu_check

soak: env  ## A server at twice its load, clients leaving at random: nothing leaks, memory stays flat (11 min, no GPU)
	$(PY) -m bench.soak --seconds 600

traces: env  ## Fetch the public traces of workloads/sources.yaml (network)
	$(PY) -m workloads.fetch

clean:  ## Remove what runs left in outputs/ (seconds)
	rm -rf outputs
