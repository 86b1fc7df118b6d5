#!/bin/sh
# Makes .venv-oracle with tflite-runtime, against which tests compare. It needs a Python older than the project may use.
set -eu

for candidate in "${PYTHON:-python3}" python3.11 python3.10 python3.9; do
    if "$candidate" -c 'import sys, ensurepip; sys.exit(sys.version_info >= (3, 12))' >/dev/null 2>&1; then
        "$candidate" -m venv .venv-oracle
        .venv-oracle/bin/python -m pip install --quiet --disable-pip-version-check 'tflite-runtime>=2.14' 'numpy<2' ||
            echo "setup: tflite-runtime is not to be had for this machine; the tests that compare with it are skipped" >&2
        exit 0
    fi
done
echo "setup: no Python older than 3.12 for tflite-runtime; the tests that compare with it are skipped" >&2
