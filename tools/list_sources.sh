#!/usr/bin/env bash
# Lists the C++ sources that the format check covers.
set -euo pipefail
cd "$(dirname "$0")/.."
find src apps python tests bench \( -name '*.h' -o -name '*.cc' \) -not -path '*/node_modules/*'
