#!/bin/sh
# A topic of its own is written at a rate and read at once, for some minutes: it fails where an acknowledged record is lost.
set -eu
topic=load-$(odradek random-uuid | tr -dc 'a-zA-Z0-9')
odradek topics create "$topic" --partitions "$LOAD_PARTITIONS"
trap 'odradek topics delete "$topic"' EXIT
odradek perf soak "$topic" --minutes "$LOAD_MINUTES" --rate "$LOAD_RATE" --size "$LOAD_RECORD_BYTES"
