#!/bin/sh
# From a machine's metadata (IMDSv2) to a running broker: its market is its rack, its volume says which broker it is.
# It runs at each boot. The node is started here alone: without its volume it would write to the machine's own disk.
set -eu
endpoint=${AWS_EC2_METADATA_SERVICE_ENDPOINT:-http://169.254.169.254}
port=${ODRADEK_PORT:-9092}

token=$(curl -fsS --retry 5 -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 300' "$endpoint/latest/api/token")
meta() { curl -fsS --retry 5 -H "X-aws-ec2-metadata-token: $token" "$endpoint/latest/meta-data/$1"; }
instance=$(meta instance-id)
zone=$(meta placement/availability-zone)
AWS_DEFAULT_REGION=$(meta placement/region)
export AWS_DEFAULT_REGION

# Machines of one type in one zone are taken away together: that is the market, and no partition has two copies in it.
if [ "$(meta instance-life-cycle)" = spot ]; then
    rack=$zone.$(meta instance-type)
    spot=yes
else
    rack=$zone.on-demand
    spot=
fi

if [ "$ODRADEK_PART" = consumer ]; then
    # No group.instance.id: the machine that comes next is another one, and takes over at once.
    cat > /etc/odradek/consumer.properties << END
bootstrap.servers=$ODRADEK_BOOTSTRAP
group.id=$ODRADEK_GROUP
client.id=$instance
client.rack=$rack
END
    exit
fi

systemctl disable odradek
volumes() {
    aws ec2 describe-volumes --output text --query 'Volumes[].[VolumeId, Tags[?Key==`odradek-node-id`] | [0].Value]' \
        --filters "Name=tag:odradek-cluster,Values=$ODRADEK_CLUSTER" "$@"
}
# A volume for each broker, tagged odradek-cluster and odradek-node-id. Of two machines that want one, one gets it.
# After a reboot the volume is still attached.
take_volume() {
    mine=$(volumes "Name=attachment.instance-id,Values=$instance") || return 0
    if [ -n "$mine" ]; then
        echo "$mine" | sed q | tr '\t' ' '
        return
    fi
    volumes "Name=availability-zone,Values=$zone" Name=status,Values=available |
        while read -r volume node_id; do
            if aws ec2 attach-volume --volume-id "$volume" --instance-id "$instance" --device /dev/sdf > /dev/null; then
                echo "$volume $node_id"
                break
            fi
        done
}
while taken=$(take_volume) && [ -z "$taken" ]; do
    echo "no free volume of $ODRADEK_CLUSTER in $zone; waiting for one"
    sleep "${ODRADEK_POLL_SECONDS:-5}"
done
volume=${taken% *}
node_id=${taken#* }
device=/dev/disk/by-id/nvme-Amazon_Elastic_Block_Store_$(echo "$volume" | tr -d -)
until [ -e "$device" ]; do sleep 1; done
blkid "$device" > /dev/null || mkfs.xfs -q "$device"
mkdir -p /var/lib/odradek
mountpoint -q /var/lib/odradek || mount -o noatime "$device" /var/lib/odradek
chown odradek:odradek /var/lib/odradek
echo "$volume" > /etc/odradek/volume

# The same broker at a new address: it registers with its id, and fetches what it missed.
address=$(meta local-ipv4)
{
    [ ! -e /etc/odradek/common.properties ] || cat /etc/odradek/common.properties
    cat << END
process.roles=broker
node.id=$node_id
broker.rack=$rack
listeners=PLAINTEXT://$address:$port
advertised.listeners=PLAINTEXT://$address:$port
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
controller.quorum.voters=$ODRADEK_VOTERS
log.dirs=/var/lib/odradek/data
END
} > /etc/odradek/server.properties
echo "CLUSTER_ID=$ODRADEK_CLUSTER_ID" > /etc/odradek/cluster.env
# The notice may come before the node serves, which is what its start waits for.
[ -z "$spot" ] || systemctl start odradek-spot-notice
systemctl start odradek
