#!/usr/bin/env bash
# Builds the Dockerfile where there is no container engine, measures the image, and runs the server in it:
#
#   scripts/build_image_here.sh [DIRECTORY]        4 GB of it are needed; a temporary one, if none is named
#
# buildah carries out the steps in a chroot. It can fetch no base image here, so `BASE` is made of Debian's packages: the
# same Debian 12 and Python 3.11 as python:3.11-slim-bookworm, which is smaller. It needs root, buildah and mmdebstrap
# (apt-get install buildah mmdebstrap), and bubblewrap to run the image.
set -euo pipefail
cd "$(dirname "$0")/.."

for program in buildah mmdebstrap bwrap; do
  if ! command -v "$program" >/dev/null; then
    echo "image-here: skipped, $program is not installed: apt-get install buildah mmdebstrap bubblewrap"
    exit 0
  fi
done
if ((EUID != 0)); then
  echo "image-here: skipped, a chroot needs root"
  exit 0
fi

directory=${1:-}
if [[ -z $directory ]]; then
  directory=$(mktemp -d)
  trap 'buildah "${store[@]}" umount --all >/dev/null; rm -rf "$directory"' EXIT
fi
mkdir -p "$directory"
store=(--root "$directory/storage" --runroot "$directory/run")

base=rowwise-base
if ! buildah "${store[@]}" inspect --type image "localhost/$base" >/dev/null 2>&1; then
  echo "[base] Debian's packages in place of python:3.11-slim-bookworm"
  mmdebstrap --quiet --variant=minbase --include=python3.11,python3.11-venv,ca-certificates bookworm "$directory/base.tar"
  container=$(buildah "${store[@]}" from scratch)
  buildah "${store[@]}" add --quiet "$container" "$directory/base.tar" / >/dev/null
  # uv has certificates of its own unless it is told of others.
  buildah "${store[@]}" config --env SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt "$container"
  buildah "${store[@]}" commit --quiet "$container" "localhost/$base" >/dev/null
  buildah "${store[@]}" rm "$container" >/dev/null
  rm "$directory/base.tar"
fi

# How this machine reaches packages: its certificates, pip's configuration, and directories that this names.
volumes=(--volume /etc/ssl/certs:/etc/ssl/certs:ro)
if [[ -e /etc/pip.conf ]]; then
  volumes+=(--volume /etc/pip.conf:/etc/pip.conf:ro)
  for named in $(grep -oE '(file://)?/[^ ]+' /etc/pip.conf | sed -e 's,^file://,,' | sort -u); do
    if [[ -d $named ]]; then volumes+=(--volume "$named:$named:ro"); fi
  done
fi

context=$(mktemp -d -p "$directory")
PYTHONPATH=$PWD "${PYTHON:-python3}" -m scripts.run_image_steps --export "$context"
cp Dockerfile "$context"
echo "[build] the Dockerfile's stages packages, application and server"
buildah "${store[@]}" bud --isolation chroot --network host --pull-never --layers --format docker --quiet \
  --build-arg "BASE=localhost/$base" --target server --tag rowwise:here "${volumes[@]}" "$context" >"$directory/build.log" 2>&1 \
  || { tail -40 "$directory/build.log"; exit 1; }
rm -rf "$context"

container=$(buildah "${store[@]}" from --pull-never localhost/rowwise:here)
mounted=$(buildah "${store[@]}" mount "$container")
buildah "${store[@]}" inspect --type image localhost/rowwise:here >"$directory/image.json"
status=0
PYTHONPATH=$PWD "${PYTHON:-python3}" -m scripts.try_image "$mounted" "$directory/image.json" "$directory/storage" || status=$?
buildah "${store[@]}" rm "$container" >/dev/null
exit "$status"
