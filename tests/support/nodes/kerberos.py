"""A realm of MIT Kerberos in a directory: its own KDC on a free port, principals, keytabs and tickets.

Tests that call `require_kerberos()` skip, and say which packages are missing. Nothing here needs root.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.support.nodes.node import Node, free_port
from tests.support.nodes.server_process import ServerProcess

REALM = "ODRADEK.TEST"
# A ticket counts for so long after its end.
CLOCK_SKEW_S = 1
# Programs of the packages, which are not on the path of every user.
_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
PACKAGES = {"krb5kdc": "krb5-kdc", "kadmin.local": "krb5-admin-server", "kinit": "krb5-user"}


def require_kerberos(*, extra: bool = True) -> None:
    """Skip the test at hand, with the reason, where Kerberos is not available.

    Args:
        extra: whether the library of `odradek[kerberos]` is needed as well.
    """
    missing = [package for program, package in PACKAGES.items() if shutil.which(program, path=_PATH) is None]
    if missing:
        pytest.skip(f"needs a KDC: apt-get install {' '.join(missing)}")
    if extra and importlib.util.find_spec("gssapi") is None:
        pytest.skip("needs odradek[kerberos]: apt-get install gcc python3-dev libkrb5-dev, then make setup")


class Realm(ServerProcess):
    """The KDC of one realm. A service on localhost has its key in `keytab("kafka/localhost")`."""

    what = "the KDC"

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        super().__init__(directory, "kdc.log", free_port())
        self.config = directory / "krb5.conf"
        self.replays = directory / "replays"
        self._kdc_config = directory / "kdc.conf"
        self._write_configs()
        self._run("kdb5_util", "create", "-s", "-P", "master", "-r", REALM)

    def _write_configs(self) -> None:
        self.config.write_text(
            f"""[libdefaults]
    default_realm = {REALM}
    dns_lookup_realm = false
    dns_lookup_kdc = false
    dns_canonicalize_hostname = false
    rdns = false
    clockskew = {CLOCK_SKEW_S}
    udp_preference_limit = 1
[realms]
    {REALM} = {{
        kdc = 127.0.0.1:{self.port}
    }}
"""
        )
        self._kdc_config.write_text(
            f"""[kdcdefaults]
    kdc_listen = 127.0.0.1:{self.port}
    kdc_tcp_listen = 127.0.0.1:{self.port}
[realms]
    {REALM} = {{
        database_name = {self.directory}/principal
        key_stash_file = {self.directory}/stash
        max_life = 1d
    }}
[logging]
    kdc = FILE:{self.directory}/kdc-requests.log
"""
        )

    def environment(self) -> dict[str, str]:
        return os.environ | self.variables | {"KRB5_KDC_PROFILE": str(self._kdc_config), "PATH": _PATH}

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables of a process that uses this realm."""
        return {
            "KRB5_CONFIG": str(self.config),
            "KRB5CCNAME": f"FILE:{self.directory}/no-tickets",
            "KRB5RCACHENAME": f"file2:{self.replays}",
        }

    def command(self) -> list[str]:
        return ["krb5kdc", "-n", "-r", REALM, "-P", str(self.directory / "kdc.pid")]

    def add(self, *principals: str, options: Sequence[str] = ()) -> None:
        """Make principals with random keys."""
        for each in principals:
            self._run("kadmin.local", "-r", REALM, "addprinc", "-randkey", *options, each)

    def keytab(self, *principals: str, name: str = "") -> Path:
        """A file with the keys of principals, which get new ones with it."""
        path = self.directory / f"{name or principals[0].replace('/', '-')}.keytab"
        path.unlink(missing_ok=True)
        self._run("kadmin.local", "-r", REALM, "ktadd", "-q", "-k", str(path), *principals)
        return path

    def tickets(self, principal: str, keytab: Path, *, lifetime: str = "1d") -> Path:
        """A credential cache with a ticket of a principal."""
        path = self.directory / f"{principal.replace('/', '-')}.{lifetime}.ccache"
        self._run("kinit", "-k", "-t", str(keytab), "-l", lifetime, "-c", f"FILE:{path}", principal)
        return path

    def _run(self, *command: str) -> None:
        done = subprocess.run(command, env=self.environment(), capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"


class KerberosNode(Node):
    """A node with a listener EXTERNAL for GSSAPI on localhost, and one in plain text."""

    def __init__(self, directory: Path, realm: Realm, keytab: Path, **settings: object) -> None:
        super().__init__(directory)
        self._realm = realm
        self.kerberos_port = free_port()
        at, controller = f"127.0.0.1:{self.port}", f"127.0.0.1:{self.controller_port}"
        self.overrides |= {
            "listeners": f"EXTERNAL://127.0.0.1:{self.kerberos_port},CONTROLLER://{controller},PLAINTEXT://{at}",
            "advertised.listeners": f"EXTERNAL://{self.kerberos_bootstrap},PLAINTEXT://{at}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,EXTERNAL:SASL_PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
            "listener.name.external.sasl.enabled.mechanisms": "GSSAPI",
            "listener.name.external.gssapi.sasl.jaas.config": jaas(f"kafka/localhost@{REALM}", keytab),
            "sasl.kerberos.service.name": "kafka",
            "delegation.token.secret.key": "of all nodes",
        } | {key.replace("__", "."): value for key, value in settings.items()}

    @property
    def kerberos_bootstrap(self) -> str:
        return f"localhost:{self.kerberos_port}"

    def environment(self) -> dict[str, str]:
        return super().environment() | self._realm.variables


def jaas(principal: str, keytab: Path) -> str:
    """The JAAS configuration of who has a keytab."""
    options = f'useKeyTab=true storeKey=true keyTab="{keytab}" principal="{principal}"'
    return f"com.sun.security.auth.module.Krb5LoginModule required {options};"


@contextlib.contextmanager
def in_realm(variables: dict[str, str]) -> Iterator[None]:
    """This process uses a realm, with other variables on top."""
    before = {key: os.environ.get(key) for key in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for key, text in before.items():
            if text is None:
                del os.environ[key]
            else:
                os.environ[key] = text
