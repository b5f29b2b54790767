"""A web console for Kafka clusters, which uses only Kafka's protocol: `odradek console`.

- `clusters` is the configuration: the clusters, and the permissions of users
- `auth`, `sessions`, `guard` authenticate users before a page is created
- `kafka_thread`, `watch` send requests to the clusters, once for all viewers; `snapshot` computes the content of pages
- `browse`, `texts` read and format records, within limits
- `pages` only display; `serve` starts all parts
"""
