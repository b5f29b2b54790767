#!/bin/sh
# Make a virtual environment with exactly the locked packages and the project itself, editable.
set -eu
venv=$1
python=
for candidate in ${PYTHON:-} python3 python3.13 python3.12 python3.11; do
    if command -v "$candidate" >/dev/null 2>&1 &&
        "$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
        python=$candidate
        break
    fi
done
if [ -z "$python" ]; then
    echo "Python 3.11 or newer with venv is needed; install it, or name it: PYTHON=/path/to/python3 make setup" >&2
    exit 1
fi
[ -x "$venv/bin/pip" ] || "$python" -m venv "$venv"
echo "Installing the locked packages into $venv (a minute or two the first time)"
"$venv/bin/pip" install -q --disable-pip-version-check --require-hashes -r requirements/dev.txt
tools/kerberos.sh "$venv"
"$venv/bin/pip" install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
