"""Pages in a browser for clusters that speak Kafka's protocol, over that protocol alone: `odradek console`.

- `clusters` is the configuration: which clusters, and who may do what there
- `auth`, `sessions`, `guard` decide who is let in, before any page is made
- `kafka_thread`, `watch` ask the clusters, once for all who look; `snapshot` computes what pages show
- `browse`, `texts` read records for people, within bounds
- `pages` show it, and nothing else; `serve` puts all of it together
"""
