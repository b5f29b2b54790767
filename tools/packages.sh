#!/bin/sh
# Install what tests need beside Python, as root on Debian, in one call of apt-get. Elsewhere, and where that does
# not work, nothing fails: tests that need a package skip with the reason, and it is not asked for again for a day.
#
#     tools/packages.sh             what the tests need
#     tools/packages.sh NAME...     these packages
#
# VENV is the virtual environment, .venv of the project unless it is set. PACKAGES=no installs nothing.
set -u
[ "${PACKAGES:-}" != no ] || exit 0
cd "$(dirname "$0")/.."
venv=${VENV:-.venv}
# A file for each package that could not be installed, as old as the attempt.
failed=.cache/packages
policy=/usr/sbin/policy-rc.d
. tools/apt.sh

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
            command -v "${pair%%:*}" >/dev/null 2>&1 || is_installed "${pair#*:}" || echo "${pair#*:}"
        done
        set -- $libraries
        # The build of odradek[kerberos] includes it; an interpreter that is not Debian's has its own.
        include=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("include"))')
        [ -f "$include/Python.h" ] || set -- python3-dev "$@"
    fi
    for package in "$@"; do
        is_installed "$package" || echo "$package"
    done
}

# Those of the packages that did not fail within the last day.
not_tried() {
    for package in "$@"; do
        [ -n "$(find "$failed/$package" -mmin -1440 2>/dev/null)" ] || echo "$package"
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

# Debian starts the services that it installs, unless a policy forbids it. One that is there is the administrator's.
forbid_services() {
    (
        set -C
        printf '#!/bin/sh\n# Of tools/packages.sh, which removes it at its end.\nexit 101\n' >"$policy"
    ) 2>/dev/null || return 0
    trap 'rm -f "$policy"' EXIT
    trap 'exit 130' HUP INT TERM
    chmod 755 "$policy"
}

install_packages() {
    apt_get -y --no-install-recommends install "$@" >/dev/null
}

[ "$(id -u)" = 0 ] && grep -qx 'ID=debian' /etc/os-release 2>/dev/null || exit 0
command -v apt-get >/dev/null 2>&1 || exit 0
wanted=$(not_tried $(missing "$@"))
[ -n "$wanted" ] || exit 0

echo "Installing with apt-get what tests need:" $wanted >&2
update_lists || true
have=$(known $wanted)
if [ -n "$have" ]; then
    forbid_services
    if ! install_packages $have; then
        # One that cannot be installed is no reason to go without the others. What was waited for once was long enough.
        apt_options="-qq -o Acquire::Retries=0 -o Acquire::http::Timeout=10 -o DPkg::Lock::Timeout=10"
        for package in $have; do
            install_packages "$package" ||
                echo "apt-get could not install $package: tests that need it are skipped" >&2
        done
    fi
fi
left=$(missing $wanted)
[ -n "$left" ] || exit 0
mkdir -p "$failed"
for package in $left; do
    touch "$failed/$package"
done
echo "Not tried again for a day, or until $failed is removed:" $left >&2
exit 0
