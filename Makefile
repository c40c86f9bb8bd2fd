# The verbs of the project. Each works from a clean clone; `make` alone lists them.
.DEFAULT_GOAL := help
SHELL := /bin/bash

JOBS ?= $(shell nproc)
PRESET ?= release
WERROR ?= OFF
BUILD := build/$(PRESET)
MODEL := .cache/models/SmolLM2-135M-Instruct.Q4_1.gguf
HOST ?= 127.0.0.1
PORT ?= 30000
PYTHON := .venv/bin/python

.PHONY: help setup build run chat test test-unit test-contract test-clients test-sanitize test-thread test-xeon fuzz wheel \
  bench bench-instructions models-table quality-table format lint clean

help: ## list the verbs
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*##/\t/' | expand -t 18

setup: ## install packages, Rust, tools and the small model (asks for sudo when it must)
	@tools/setup.sh

build: setup ## compile everything (PRESET=release|debug|asan|tsan, WERROR=ON)
	@cmake --preset $(PRESET) -DTW_WERROR=$(WERROR) >$(BUILD).log 2>&1 || { cat $(BUILD).log; exit 1; }
	@cmake --build --preset $(PRESET) -j $(JOBS)

run: build ## serve SmolLM2-135M-Instruct on http://127.0.0.1:30000 (HOST=, PORT=, ARGS=)
	@$(BUILD)/apps/tilewright serve --model-path $(MODEL) --host $(HOST) --port $(PORT) $(ARGS)

chat: build ## talk to SmolLM2-135M-Instruct in the terminal
	@$(BUILD)/apps/tilewright chat --model-path $(MODEL)

wheel: build ## the Python package: a wheel in build/wheels, tested in a new environment
	@WERROR=$(WERROR) python/build_wheel.sh $(PYTHON)

test: lint build ## everything: lint, unit, golden, property, command and contract tests, short fuzzing
	@tools/fetch_tokenizers.sh
	@$(MAKE) --no-print-directory test-unit test-contract fuzz

test-unit: ## the GoogleTest programs of a finished build
	@$(PYTHON) tools/proxy/make_proxy.py --tests --out .cache/test-models
	@ctest --test-dir $(BUILD) --output-on-failure -j $(JOBS)

test-contract: ## the official OpenAI clients against a running server
	@tests/contract/run.sh $(BUILD)/apps/tilewright $(MODEL)

test-clients: build ## LiteLLM, LangChain, lm-eval and GuideLLM against a running server (installs them first)
	@tests/clients/run.sh $(BUILD)/apps/tilewright $(MODEL)

test-sanitize: ## the unit tests under the address and undefined-behaviour sanitizers
	@$(MAKE) --no-print-directory PRESET=asan build
	@tools/fetch_tokenizers.sh
	@$(MAKE) --no-print-directory PRESET=asan test-unit

test-thread: ## the unit tests under the thread sanitizer
	@$(MAKE) --no-print-directory PRESET=tsan build
	@tools/fetch_tokenizers.sh
	@$(MAKE) --no-print-directory PRESET=tsan test-unit

test-xeon: build ## the kernel tests on emulated Xeons: AVX-512, AMX (XEON_TESTS=quick|full)
	@tools/xeon/test.sh $${XEON_TESTS:-full} $(BUILD)/tests/kernels/tw_kernels_test

models-table: build ## measure the table of docs/models.md again
	@$(PYTHON) tools/proxy/make_proxy.py --tests --out .cache/test-models
	@tools/golden/update_models_table.py $(BUILD)/tests/models/tw_models_test

quality-table: build ## measure the table of docs/quality.md again (half an hour)
	@$(PYTHON) tools/quality/quality_table.py $(BUILD)/apps/tilewright --write

fuzz: ## run each fuzz target for a few seconds (FUZZ_SECONDS=5)
	@tests/fuzz/run.sh $${FUZZ_SECONDS:-5}

bench: build ## measure kernels and model against the machine's limits
	@bench/run.sh $(BUILD) $(MODEL)

bench-instructions: build ## compare the GEMM kernels' instruction counts with the committed ones (COUNTS=check|update|print)
	@bench/instructions.sh $(BUILD)/bench/tw_bench_instructions $${COUNTS:-check}

format: ## rewrite the sources in the project's format
	@tools/list_sources.sh | xargs clang-format -i
	@cd text-ffi && cargo fmt

lint: setup ## format and include-direction checks
	@tools/list_sources.sh | xargs clang-format --dry-run --Werror
	@python3 tools/check_floors.py

clean: ## remove the builds (keeps the downloaded model)
	@rm -rf build
