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
# The extra `kerberos` has no wheels. Without it, its tests are skipped.
if command -v krb5-config >/dev/null 2>&1; then
    "$venv/bin/pip" install -q --disable-pip-version-check --require-hashes -r requirements/kerberos.txt ||
        echo "odradek[kerberos] could not be built; it needs gcc, python3-dev and libkrb5-dev" >&2
fi
"$venv/bin/pip" install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
