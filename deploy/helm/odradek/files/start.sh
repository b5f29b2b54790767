#!/bin/sh
# The settings of this pod, its directory formatted where it is new, then the node in place of this shell.
set -eu
run=/run/odradek
config=$run/server.properties
ordinal=${POD_NAME##*-}
node_id=$((ODRADEK_FIRST_ID + ordinal))

# The port of this pod, of those that the hosts have for brokers.
set -- ${ODRADEK_NODE_PORTS:-}
[ $# -gt "$ordinal" ] || set --
[ $# = 0 ] || shift "$ordinal"
node_port=${1:-}

# {pod}, {ordinal} and {nodePort} in addresses.
here() { printf '%s' "$1" | sed -e "s/{pod}/$POD_NAME/g" -e "s/{ordinal}/$ordinal/g" -e "s/{nodePort}/$node_port/g"; }

umask 077
tls=/etc/odradek/tls
if [ -d "$tls" ] && [ ! -e "$tls/tls-combined.pem" ]; then
    cat "$tls/tls.key" "$tls/tls.crt" > "$run/node.pem"
    keystore=$run/node.pem
else
    keystore=$tls/tls-combined.pem
fi
{
    cat /etc/odradek/settings/common.properties "/etc/odradek/settings/$ODRADEK_ROLE.properties"
    echo "process.roles=$ODRADEK_ROLE"
    echo "node.id=$node_id"
    echo "controller.listener.names=CONTROLLER"
    echo "controller.quorum.voters=$ODRADEK_VOTERS"
    echo "listener.security.protocol.map=$ODRADEK_PROTOCOLS"
    echo "listeners=$(here "$ODRADEK_LISTENERS")"
    echo "odradek.metrics.listener=$ODRADEK_PROBES"
    # The root of a volume may hold lost+found.
    echo "log.dirs=/var/lib/odradek/data"
    if [ "$ODRADEK_ROLE" = broker ]; then
        echo "inter.broker.listener.name=INTERNAL"
        echo "advertised.listeners=$(here "$ODRADEK_ADVERTISED")"
        rack=${ODRADEK_RACK:-}
        [ ! -s "$run/rack" ] || rack=$(cat "$run/rack")
        [ -z "$rack" ] || echo "broker.rack=$rack"
        echo "broker.host=$ODRADEK_HOST"
    fi
    if [ -d "$tls" ]; then
        echo "ssl.keystore.type=PEM"
        echo "ssl.keystore.location=$keystore"
        echo "ssl.truststore.type=PEM"
        echo "ssl.truststore.location=$tls/ca.crt"
    fi
} > "$config"
odradek storage format --ignore-formatted --cluster-id "$CLUSTER_ID" --config "$config"
echo $$ > "$run/pid"
exec odradek broker --config "$config"
