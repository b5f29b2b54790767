# Sourced in the project's directory: export JAVA_HOME of a Java 17 or newer, which Spark needs. Installs one on Debian
# where we are root, unless PACKAGES=no.

java_major() {
    "$1" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1
}

java_is_new_enough() {
    [ -x "$1" ] && [ "$(java_major "$1")" -ge 17 ] 2>/dev/null
}

find_java() {
    for java in "${JAVA_HOME:-/nowhere}/bin/java" "$(command -v java || true)" \
        /usr/lib/jvm/*/bin/java /opt/java/*/bin/java /opt/jdk*/bin/java \
        "$HOME"/.sdkman/candidates/java/current/bin/java /opt/homebrew/opt/openjdk*/bin/java \
        /Library/Java/JavaVirtualMachines/*/Contents/Home/bin/java; do
        if java_is_new_enough "$java"; then
            JAVA_HOME=$("$java" -XshowSettings:properties -version 2>&1 | sed -n 's/^ *java.home = //p')
            export JAVA_HOME
            return 0
        fi
    done
    return 1
}

if ! find_java; then
    if [ "$(id -u)" = 0 ] && [ "${PACKAGES:-}" != no ] && command -v apt-get >/dev/null 2>&1; then
        echo "Java 17 or newer is missing; installing it with apt-get" >&2
        . tools/apt.sh
        update_lists && apt_get -y install default-jre-headless >/dev/null
    fi
    find_java || {
        echo "Spark needs Java 17 or newer: install a JDK (Debian: apt-get install default-jre-headless) or set JAVA_HOME" >&2
        false
    }
fi
