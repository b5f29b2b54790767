"""Three real nodes under load, and faults of their machines, disks and networks; `make chaos`.

hosts      machines of their own for the nodes: network namespaces that can be cut from each other, one way or both
disks      file systems of their own for the nodes: filled, failing, without power
load       producers and readers that go on all the while
verdict    nothing acknowledged is lost, nothing came twice, the order is kept, the copies are alike
scenarios  the faults, each a function
"""
