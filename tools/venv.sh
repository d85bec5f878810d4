#!/bin/sh
# Makes a virtual environment with this package in it, editable, at the versions of constraints.txt.
#   tools/venv.sh FOLDER [EXTRA]       FOLDER is replaced; EXTRA is an extra of setup.py ("dev")
# PYTHON names the interpreter (default python3), PIP_ARGS more arguments for pip, such as the index of a CPU build.
set -eu

folder=$1
extra=${2:+[$2]}
python=${PYTHON:-python3}
cd "$(dirname "$0")/.."

fail() {
    echo "$*" >&2
    exit 1
}

command -v "$python" >/dev/null || fail "$python is not found; install Python 3.10 or later, or name one: PYTHON=/path/to/python3"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
    fail "$python is $("$python" --version 2>&1); Python 3.10 or later is needed: name one with PYTHON=/path/to/python3"

rm -rf "$folder"
if "$python" -c 'import venv, ensurepip' 2>/dev/null; then
    "$python" -m venv "$folder"
else
    # Debian and Ubuntu split these modules off; a pip of 22.3 or later can stand in for the missing ensurepip.
    { "$python" -m venv --without-pip "$folder" && "$python" -m pip --python "$folder/bin/python" install --quiet pip; } ||
        fail "$python cannot make a virtual environment; on Debian or Ubuntu: apt install python3-venv"
fi

# PIP_ARGS is a list of words
# shellcheck disable=SC2086
"$folder/bin/python" -m pip install --disable-pip-version-check -c constraints.txt ${PIP_ARGS:-} -e ".$extra"
