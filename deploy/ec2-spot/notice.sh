#!/bin/sh
# Waits for the notice that this machine goes in two minutes. Then others lead, the node stops, its volume is free.
set -eu
endpoint=${AWS_EC2_METADATA_SERVICE_ENDPOINT:-http://169.254.169.254}
noticed() {
    token=$(curl -fsS -m 2 -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 60' "$endpoint/latest/api/token") || return 1
    curl -fs -m 2 -H "X-aws-ec2-metadata-token: $token" "$endpoint/latest/meta-data/$1"
}
until AWS_DEFAULT_REGION=$(noticed placement/region); do sleep "${ODRADEK_POLL_SECONDS:-5}"; done
export AWS_DEFAULT_REGION
until action=$(noticed spot/instance-action); do sleep "${ODRADEK_POLL_SECONDS:-5}"; done
echo "$action"

pid=$(systemctl show --property MainPID --value odradek)
if [ "$pid" != 0 ]; then
    odradek drain --process "$pid" --probes "${ODRADEK_PROBES:-127.0.0.1:9404}" --timeout 40 || echo "not drained in time"
fi
timeout 45 systemctl stop odradek || echo "not stopped in time"
umount /var/lib/odradek
aws ec2 detach-volume --volume-id "$(cat /etc/odradek/volume)" > /dev/null
