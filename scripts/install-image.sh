#!/usr/bin/env bash
# The image's two layers, also run outside of a container by run_image_steps.py.
#
#   install-image.sh packages VENV LOCK             a fresh environment with exactly the locked packages
#   install-image.sh application VENV [DIRECTORY]   the wheel, built here and installed beside them; or into a directory
#                                                   that is to be copied over the environment
#
# Packages are compiled to byte code as they are installed: a read-only container could not keep it later.
# KEEP_PACKAGE_CACHE=1 keeps what was downloaded, which only makes an image larger.
set -euo pipefail

pip=(-m pip --disable-pip-version-check --no-cache-dir install --quiet)

case ${1:?packages or application} in
  packages)
    venv=$2 lock=$3
    python3.11 -m venv "$venv"
    [[ -n ${KEEP_PACKAGE_CACHE-} ]] || export UV_NO_CACHE=1 PIP_NO_CACHE_DIR=1
    "$(dirname "$0")/install-packages.sh" "$venv/bin/python" "$lock" --compile-bytecode
    # What nothing that serves or builds models reads, 0.8 GB of it: headers for compilers of own ops, libclang, of plotly
    # all but its script, the tests of numpy, scipy and scikit-learn, and the names of TensorFlow's inner functions.
    packages=$venv/lib/python3.11/site-packages
    rm -rf "$packages/tensorflow/include" "$packages/clang" "$packages/plotly/"{graph_objs,validators,labextension}
    for name in numpy scipy sklearn joblib; do
      [[ ! -d $packages/$name ]] || find "$packages/$name" -type d -name tests -prune -exec rm -rf {} +
    done
    if command -v strip >/dev/null; then
      for library in "$packages"/tensorflow/libtensorflow_{cc,framework}.so.2; do
        # A new file: the old one may be a link to uv's cache.
        strip --strip-unneeded -o "$library.stripped" "$library"
        mv "$library.stripped" "$library"
      done
    fi
    # Nothing is installed later but the application, by a pip of its own.
    "$venv/bin/python" -m pip --quiet uninstall --yes pip
    ;;
  application)
    venv=$2 directory=${3:-$2}
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    python3.11 -m venv "$work/build"
    "$work/build/bin/python" "${pip[@]}" --require-hashes --requirement requirements/build.lock
    "$work/build/bin/python" -m pip --disable-pip-version-check wheel --quiet --no-deps --no-build-isolation \
      --wheel-dir "$work" .
    # Its commands name the environment's Python, wherever they are written.
    "$work/build/bin/python" -m pip --disable-pip-version-check --python "$venv/bin/python" --quiet install \
      --no-deps --no-index --prefix "$directory" "$work"/rowwise-*.whl
    ;;
  *)
    echo "install-image.sh: unknown layer $1" >&2
    exit 2
    ;;
esac
