#!/usr/bin/env bash
# Runs clients that users bring against a server: LiteLLM, LangChain, lm-evaluation-harness and GuideLLM.
# Not part of `make test`: what they need is large (PyTorch among it).
#
#   tests/clients/run.sh build/release/apps/tilewright MODEL [pytest arguments]
set -euo pipefail
if [ $# -lt 2 ]; then
  echo "usage: $0 TILEWRIGHT_BINARY MODEL_PATH [pytest arguments]" >&2
  exit 2
fi
TILEWRIGHT_BINARY=$(realpath "$1")
TILEWRIGHT_MODEL=$(realpath "$2")
export TILEWRIGHT_BINARY TILEWRIGHT_MODEL
shift 2
cd "$(dirname "$0")"
environment=$(realpath ../..)/.cache/clients
stamp=$environment/installed-$(sha256sum requirements.txt | cut -c1-16)
if [ ! -e "$stamp" ]; then
  python3 -m venv "$environment"
  "$environment/bin/pip" install -q --disable-pip-version-check -r requirements.txt
  touch "$stamp"
fi
"$environment/bin/python" -m pytest -q -p no:cacheprovider "$@"
