#!/usr/bin/env bash
# Resolves pyproject.toml's ranges into exact releases with hashes, one file for each place they are installed in.
#
# It reads no configuration of the machine it runs on, and the files name no index: the same ranges and the same
# published releases give the same locks everywhere.
set -euo pipefail
cd "$(dirname "$0")/.."

unset "${!UV_@}" "${!PIP_@}"

lock() {
  local name=$1
  shift
  .venv/bin/uv pip compile --no-config --quiet --python-version 3.11 --python-platform linux --generate-hashes --no-annotate \
    --no-header --no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" \
    --output-file "requirements/$name.lock" "$@"
  echo "requirements/$name.lock: $(grep -c '==' "requirements/$name.lock") packages"
}

lock build requirements/build.in "$@"
lock image-cpu pyproject.toml requirements/image-cpu.in --extra models --extra s3 --extra tracing \
  --override requirements/image-cpu.overrides "$@"
lock image-gpu pyproject.toml --extra models --extra s3 --extra tracing --extra gpu "$@"
lock loadtest pyproject.toml --extra loadtest "$@"
lock dev pyproject.toml --extra dev --extra docs --extra loadtest --extra tracing "$@"
# Installed beside what dev.lock installs.
lock bench pyproject.toml --extra bench --constraint requirements/dev.lock "$@"
lock race pyproject.toml --extra race --constraint requirements/dev.lock "$@"
lock ray pyproject.toml --extra ray --constraint requirements/dev.lock "$@"
lock recipes requirements/recipes.in --no-deps
lock kubernetes requirements/kubernetes.in --no-deps

if grep -nE '://|--(extra-)?index-url|--find-links' requirements/*.lock; then
  echo "error: a lock names where packages came from" >&2
  exit 1
fi
