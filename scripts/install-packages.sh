#!/usr/bin/env bash
# Installs a lock's packages into an environment:
#
#   install-packages.sh PYTHON LOCK [OPTION OF uv pip install ...]
#
# uv does it in a sixth of pip's processor time (19 s, not 118, for requirements/dev.lock), and again from its cache in
# a few. It is installed for that alone, by pip, from requirements/dev.lock. Where it can't, because only pip is
# configured for this machine's mirrors and certificates, pip does all of it.
set -euo pipefail

python=$1 lock=$2
shift 2
locks=$(dirname "$0")/../requirements
pip=("$python" -m pip --disable-pip-version-check install --quiet --require-hashes)

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
awk '/^uv==/ { found = 1 } found { print } found && !/\\$/ { exit }' "$locks/dev.lock" >"$work/uv.lock"

with_uv() {
  "${pip[@]}" --no-compile --target "$work/uv" --requirement "$work/uv.lock" || return
  # A mirror that pip knows, uv does not.
  if [[ -z ${UV_DEFAULT_INDEX-} ]]; then
    UV_DEFAULT_INDEX=$("$python" -m pip config get global.index-url 2>/dev/null) || UV_DEFAULT_INDEX=${PIP_INDEX_URL-}
    if [[ -n $UV_DEFAULT_INDEX ]]; then export UV_DEFAULT_INDEX; else unset UV_DEFAULT_INDEX; fi
  fi
  "$work/uv/bin/uv" pip install --quiet --python "$python" --require-hashes --requirement "$lock" "$@"
}

if ! with_uv "$@"; then
  echo "uv could not install $lock; pip does, which takes some minutes."
  "${pip[@]}" --requirement "$lock"
fi
