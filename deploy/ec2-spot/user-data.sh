#!/bin/sh
# User data of a launch template. The machine's image has /opt/odradek, the unit of deploy/systemd, and these files in
# /opt/odradek/ec2-spot. A line for each thing that differs from cluster to cluster:
export ODRADEK_PART=broker # or consumer
export ODRADEK_CLUSTER=orders
export ODRADEK_CLUSTER_ID=4L6g3nShT-eMCtK--X86sw # of `odradek random-uuid`, the same for controllers
# Controllers are on demand, at names that stay.
export ODRADEK_VOTERS=1001@controller-1.orders.internal:9093,1002@controller-2.orders.internal:9093,1003@controller-3.orders.internal:9093
# Of consumers alone.
export ODRADEK_BOOTSTRAP=controller-1.orders.internal:9092
export ODRADEK_GROUP=billing
# cloud-init runs user data at the first boot alone, and what is in this folder at each.
boot=/var/lib/cloud/scripts/per-boot/odradek
[ "$0" = "$boot" ] || install -m 0755 "$0" "$boot"
exec /bin/sh /opt/odradek/ec2-spot/boot.sh
