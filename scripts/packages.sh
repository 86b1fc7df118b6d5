#!/bin/sh
# Installs the Debian packages that are missing, where this user may; elsewhere says in one line what to install.
set -eu

missing=""
need() { # PACKAGE COMMAND...: the package is missing when the command fails
    package=$1
    shift
    "$@" >/dev/null 2>&1 || missing="$missing $package"
}
compiles() { printf '#include <stdio.h>\nint main(void) { return 0; }\n' | gcc -x c -fsyntax-only -; }
fuzzes() { printf 'int LLVMFuzzerTestOneInput(void) { return 0; }\n' | clang -fsanitize=fuzzer -x c - -o /dev/null; }

need gcc gcc --version
need libc6-dev compiles
need g++ g++ --version # a test compiles the generated headers as C++
need clang clang --version
need libclang-rt-dev fuzzes # libFuzzer and the sanitizers of clang
need gcc-arm-none-eabi arm-none-eabi-gcc --version
need qemu-system-arm qemu-system-arm --version
need gdb-multiarch sh -c 'gdb-multiarch --version || arm-none-eabi-gdb --version'
need python3-venv "${PYTHON:-python3}" -c 'import ensurepip, venv'

[ -n "$missing" ] || exit 0
if ! command -v apt-get >/dev/null; then
    echo "setup: these are missing, and there is no apt-get here; install what your system calls them:$missing" >&2
    exit 0
fi
if [ "$(id -u)" = 0 ]; then
    as_root="env"
elif sudo -n true 2>/dev/null; then
    as_root="sudo -n env"
else
    echo "setup: missing; have them installed: sudo apt-get install --no-install-recommends$missing" >&2
    exit 0
fi
echo "setup: installing Debian packages:$missing"
$as_root apt-get update -qq || echo "setup: apt-get update had errors; going on with the lists there are" >&2
# shellcheck disable=SC2086 # a list of words
$as_root DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $missing >/dev/null
