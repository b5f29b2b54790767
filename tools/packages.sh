#!/bin/sh
# Install what tests need beside Python, as root on Debian, in one call of apt-get. Elsewhere, and where that does
# not work, nothing fails: tests that need a package skip with the reason.
#
#     tools/packages.sh             what the tests need
#     tools/packages.sh NAME...     these packages
set -u
cd "$(dirname "$0")/.."

# A package is missing where none of its programs is on the path: who has Maven from elsewhere keeps that one.
programs="
chromium-headless-shell:chromium-headless-shell chromedriver:chromium-driver
promtool:prometheus haproxy:haproxy kcat:kcat postgres:postgresql
krb5kdc:krb5-kdc kadmin.local:krb5-admin-server kinit:krb5-user krb5-config:libkrb5-dev
javac:default-jdk-headless mvn:maven
gcc:gcc g++:g++ make:make pkg-config:pkg-config
git:git curl:curl openssl:openssl ip:iproute2 mkfs.ext4:e2fsprogs unshare:util-linux
"
# The others have no program: of kcat's logins, and of the build of librdkafka.
libraries="
libsasl2-modules-gssapi-mit
libssl-dev zlib1g-dev libzstd-dev liblz4-dev libsasl2-dev libcurl4-openssl-dev rapidjson-dev
"

# Some programs are not on the path of every user, and PostgreSQL's are on none.
PATH=$PATH:/usr/sbin:/sbin:$(echo /usr/lib/postgresql/*/bin | tr ' ' ':')

is_installed() {
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

# Prints the packages that are missing, each on a line.
missing() {
    if [ $# = 0 ]; then
        for pair in $programs; do
            command -v "${pair%%:*}" >/dev/null 2>&1 || echo "${pair#*:}"
        done
        set -- $libraries
        # The build of odradek[kerberos] includes it; an interpreter that is not Debian's has its own.
        [ -f "$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h" ] ||
            set -- python3-dev "$@"
    fi
    for package in "$@"; do
        is_installed "$package" || echo "$package"
    done
}

# Those of the packages that this Debian has.
known() {
    for package in "$@"; do
        if apt-cache show "$package" >/dev/null 2>&1; then
            echo "$package"
        else
            echo "apt-get does not know $package: tests that need it are skipped" >&2
        fi
    done
}

[ "$(id -u)" = 0 ] && grep -qx 'ID=debian' /etc/os-release 2>/dev/null || exit 0
command -v apt-get >/dev/null 2>&1 || exit 0
wanted=$(missing "$@")
[ -n "$wanted" ] || exit 0

# A network that is not there does not hold up the tests; another apt-get is waited for.
options="-qq -o Acquire::Retries=1 -o Acquire::http::Timeout=30 -o DPkg::Lock::Timeout=120"
echo "Installing with apt-get what tests need:" $wanted >&2
apt-get $options update || true
wanted=$(known $wanted)
[ -n "$wanted" ] || exit 0
DEBIAN_FRONTEND=noninteractive apt-get $options -y --no-install-recommends install $wanted </dev/null >/dev/null ||
    echo "apt-get failed: tests that need what is missing are skipped" >&2
exit 0
