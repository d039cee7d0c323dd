#!/usr/bin/env bash
# Installs the few Debian packages that are used where they exist. Nothing here is needed for `make demo` or
# `make test`: what misses one of them says so and goes on without it.
#
#   bubblewrap    what builders are shut in with; without it the server makes the same namespaces itself
#   chromium      the browser that the console is tested in
#   libseccomp2   the filter of system calls in there; every Debian has it, as apt needs it
#   prometheus    promtool, which checks the alert rules, and a Prometheus that scrapes the server in a test
#   wrk           HTTP load generator: `make load` prefers it where one core of Python could not keep up with the server
set -euo pipefail

packages=(bubblewrap chromium libseccomp2 prometheus wrk)

missing=()
for package in "${packages[@]}"; do
  dpkg-query --show --showformat='${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
done
if ((${#missing[@]} == 0)); then
  echo "Debian packages: all there (${packages[*]})"
  exit 0
fi
if ! command -v apt-get >/dev/null; then
  echo "Debian packages: skipped ${missing[*]}, this machine has no apt-get"
  exit 0
fi

as_root=()
if ((EUID != 0)); then
  if ! command -v sudo >/dev/null; then
    echo "Debian packages: skipped ${missing[*]}, installing them needs root"
    exit 0
  fi
  as_root=(sudo)
fi
"${as_root[@]}" apt-get update --quiet=2
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install --quiet=2 --yes --no-install-recommends "${missing[@]}"
