#!/bin/sh
# A topic of its own is made, written and read back as a whole.
set -eu
topic=load-$(odradek random-uuid | tr -dc 'a-zA-Z0-9')
odradek topics create "$topic" --partitions "$LOAD_PARTITIONS"
trap 'odradek topics delete "$topic"' EXIT
python -c '
import os, sys
filler = "x" * (int(os.environ["LOAD_RECORD_BYTES"]) - 20)
for number in range(int(os.environ["LOAD_RECORDS"])):
    sys.stdout.write("%020d%s\n" % (number, filler))
' | odradek produce "$topic"
read=$(odradek consume "$topic" --from-beginning --to-end | cut -c 1-20 | sort -u | wc -l)
echo "$LOAD_RECORDS written, $read read"
[ "$read" -eq "$LOAD_RECORDS" ]
