# Sourced: how scripts call apt-get, with `apt_get WHAT...` and `update_lists`.

# A network that is not there does not hold up the tests; another apt-get that installs is waited for.
apt_options="-qq -o Acquire::Retries=1 -o Acquire::http::Timeout=30 -o DPkg::Lock::Timeout=120"

apt_get() {
    DEBIAN_FRONTEND=noninteractive apt-get $apt_options "$@" </dev/null
}

# Not every apt-get waits for another one that reads lists: this one is tried again.
update_lists() {
    for seconds in 2 5 10 0; do
        apt_get update && return 0
        sleep "$seconds"
    done
    return 1
}
