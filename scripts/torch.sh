#!/bin/sh
# Makes .venv-torch: rlx_edge and PyTorch's CPU build. The version's label +cpu, which only PyTorch's own index of CPU
# builds has, keeps pip from taking the default build for Linux, which brings several GB of CUDA.
set -eu

wanted="torch==2.13.0+cpu"
[ "$(uname -s)" = Linux ] || wanted="torch==2.13.0" # elsewhere there is no CUDA in it
echo 'torch: making .venv-torch'
"${PYTHON:-python3}" -m venv .venv-torch
pip=".venv-torch/bin/python -m pip --disable-pip-version-check --quiet"
$pip --retries 0 install --no-deps --index-url https://download.pytorch.org/whl/cpu "$wanted"
$pip install --editable '.[torch,plots]' pytest pytest-xdist hypothesis
