"""The cost of security, in one run: `make bench-security` (`ARGS=--quick` for a first look).

It runs the cells of `bench` with authorizer, quotas and metrics on, beside the same without them; the cells over TLS,
beside Apache Kafka's; and the authorization of one request. Each part can be run by itself, too: `bench.guard_bench`,
`bench.tls_bench`, `bench.acl_bench`.
"""

from __future__ import annotations

import argparse

from bench import acl_bench, guard_bench, tls_bench


def main() -> int:
    """Print the cells of each part; return 1 if the authorization of a request takes too long."""
    parser = argparse.ArgumentParser(prog="bench.security_bench", description="What security costs a broker.")
    parser.add_argument("--quick", action="store_true", help="a tenth of the records, and each cell once")
    quick = parser.parse_args().quick
    print("Authorizing a request, with 10,000 ACLs", flush=True)
    code = acl_bench.main()
    print("Authorizer, quotas and metrics on, beside the same broker without", flush=True)
    guard_bench.main(quick=quick)
    print("TLS 1.3, beside Apache Kafka with the same cipher", flush=True)
    tls_bench.main(quick=quick)
    return code


if __name__ == "__main__":
    raise SystemExit(main())
