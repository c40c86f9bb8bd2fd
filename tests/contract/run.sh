#!/usr/bin/env bash
# Runs the contract suites against a server of its own: the official OpenAI clients for Python and
# JavaScript, SGLang's native interface, the web page in Chromium, and the cases in cases/.
#
#   tests/contract/run.sh build/release/apps/tilewright MODEL [pytest arguments]
#
# Needs Python 3.10+ and Node 18+; the clients are installed into .venv and js/node_modules once.
set -euo pipefail

if [ $# -lt 2 ]; then
  echo "usage: $0 TILEWRIGHT_BINARY MODEL_PATH [pytest arguments]" >&2
  exit 2
fi
binary=$(realpath "$1")
model=$(realpath "$2")
shift 2
cd "$(dirname "$0")"
root=$(realpath ../..)
python=$root/.venv/bin/python

# Names of the client versions that were installed last; another one installs again.
install_clients() {
  local stamp=$root/.venv/contract-$(sha256sum requirements.txt | cut -c1-16)
  [ -x "$python" ] || python3 -m venv "$root/.venv"
  if [ ! -e "$stamp" ]; then
    "$python" -m pip install -q --disable-pip-version-check -r requirements.txt
    touch "$stamp"
  fi
  stamp=js/node_modules/.contract-$(sha256sum js/package-lock.json | cut -c1-16)
  if [ ! -e "$stamp" ]; then
    npm ci --prefix js --ignore-scripts --no-audit --no-fund --loglevel=error
    touch "$stamp"
  fi
}

server=
log=
stop_server() {
  [ -z "$server" ] || kill -KILL "$server" 2>/dev/null || true
  [ -z "$log" ] || rm -f "$log"
}
trap stop_server EXIT

start_server() {
  local port
  port=$("$python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
  log=$(mktemp)
  "$binary" serve --model-path "$model" --host 127.0.0.1 --port "$port" \
    --served-model-name contract-model --api-key contract-key --tool-call-parser qwen25 \
    --reasoning-parser qwen3 >"$log" 2>&1 &
  server=$!
  export TILEWRIGHT_URL=http://127.0.0.1:$port
  for _ in $(seq 300); do
    curl -sf -o /dev/null "$TILEWRIGHT_URL/health" && return
    kill -0 "$server" 2>/dev/null || break
    sleep 0.1
  done
  echo "the server did not become healthy:" >&2
  cat "$log" >&2
  exit 1
}

install_clients
start_server
export TILEWRIGHT_API_KEY=contract-key
# For the tests that start servers of their own, with other limits.
export TILEWRIGHT_BINARY=$binary TILEWRIGHT_MODEL=$model
failed=0
"$python" -m pytest -q -p no:cacheprovider python "$@" || failed=1
(cd js && node --test) || failed=1

kill -TERM "$server"
code=0
wait "$server" || code=$?
server=
if [ "$code" != 0 ]; then
  echo "the server ended with code $code after SIGTERM; its last words:" >&2
  tail -n 20 "$log" >&2
  failed=1
fi
exit "$failed"
