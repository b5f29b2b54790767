#!/bin/sh
# Build the extra `kerberos`, which has no wheels, into a virtual environment where libkrb5-dev is installed. Without it, its
# tests are skipped.
#
#     tools/kerberos.sh VENV [--if-missing]
set -eu
case $1 in
/*) venv=$1 ;;
*) venv=$PWD/$1 ;;
esac
cd "$(dirname "$0")/.."
command -v krb5-config >/dev/null 2>&1 || exit 0
[ "${2:-}" = --if-missing ] && "$venv/bin/python" -c 'import gssapi' 2>/dev/null && exit 0
"$venv/bin/pip" install -q --disable-pip-version-check --require-hashes -r requirements/kerberos.txt ||
    echo "odradek[kerberos] could not be built; it needs gcc, python3-dev and libkrb5-dev" >&2
