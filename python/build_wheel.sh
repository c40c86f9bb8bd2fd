#!/usr/bin/env bash
# Builds the wheel into build/wheels and tests it in a new environment.
# usage: python/build_wheel.sh [PYTHON]
set -euo pipefail
cd "$(dirname "$0")/.."
readonly python=${1:-.venv/bin/python} environment=build/wheel-test
# The compiler by the name that other builds give it, so that ccache knows what they compiled.
export CC=cc CXX=c++
rm -rf build/wheels "$environment"
"$python" -m pip wheel -q --no-deps -w build/wheels ./python
"$python" -m venv "$environment"
"$environment/bin/pip" install -q --disable-pip-version-check build/wheels/tilewright-*.whl
"$environment/bin/python" -m unittest discover -s python/tests
ls build/wheels/*.whl
