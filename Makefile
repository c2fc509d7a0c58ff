# Thin front of the CMake build; the work is in CMakePresets.json and tools/.
PREFIX ?= /usr/local
JOBS ?= $(shell nproc)

all:
	cmake --preset release
	cmake --build --preset release --parallel $(JOBS)

test:
	@tools/test.sh

test-slow:
	@tools/test.sh --slow

bench: all
	bench/run.sh

gpu-check:
	@tools/gpu_check.sh

demo:
	@tools/demo.sh

format:
	tools/check_format.sh --fix

lint:
	tools/lint.sh

install: all
	cmake --install build --prefix "$(PREFIX)"

clean:
	rm -rf build

.PHONY: all test test-slow bench gpu-check demo format lint install clean
