#!/bin/sh
# preStop: others lead before the node gets SIGTERM. Where that takes too long, the pod ends all the same.
exec odradek drain --process "$(cat /run/odradek/pid)" --probes "127.0.0.1:${ODRADEK_PROBES##*:}" \
    --timeout "$ODRADEK_DRAIN_SECONDS"
