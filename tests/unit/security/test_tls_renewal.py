"""Certificates that replace the current one, and certificates that leave it in force."""

from __future__ import annotations

import datetime
from dataclasses import replace
from pathlib import Path

import pytest

from odradek.security.tls.config import TlsConfig, TlsSettingError
from odradek.security.tls.development import DAY, Authority, make_authority
from odradek.security.tls.listener import ListenerTls, RenewableContext, outgoing_context

# OpenSSL compares with the clock of the machine.
NOW = datetime.datetime.now(datetime.UTC)
OURS, THEIRS = make_authority("ours", now=NOW), make_authority("theirs", now=NOW)


class Node:
    """The files of a node, and its clock."""

    def __init__(self, folder: Path) -> None:
        self.keystore, self.truststore = folder / "node.pem", folder / "ca.pem"
        self.config = TlsConfig(
            keystore_type="PEM",
            keystore_location=str(self.keystore),
            truststore_type="PEM",
            truststore_location=str(self.truststore),
            client_auth="required",
        )
        self.now = NOW
        self.show(OURS)
        self.trust(OURS)

    def show(self, authority: Authority, *, at: datetime.datetime = NOW, valid: datetime.timedelta = DAY) -> Path:
        self.keystore.write_bytes(authority.issue("node", ["node.example"], now=at, valid=valid).to_pem())
        return self.keystore

    def trust(self, authority: Authority) -> None:
        self.truststore.write_text(authority.pem)

    def now_ms(self) -> int:
        return int(self.now.timestamp() * 1000)

    def listener(self, *, between_nodes: bool) -> RenewableContext:
        return ListenerTls("L", self.config, self.now_ms, between_nodes=between_nodes).renewable

    def outgoing(self) -> RenewableContext:
        return outgoing_context("L", self.config, self.now_ms)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def refused(context: RenewableContext, node: Node, caplog: pytest.LogCaptureFixture) -> str:
    """The reason why a changed file is not used; the same certificate must be refused in a setting."""
    before = context.context
    caplog.clear()
    assert not context.renew() and context.context is before
    (line,) = caplog.records
    reason = str(vars(line)["fields"]["reason"])
    other = node.keystore.with_name("other.pem")
    other.write_bytes(node.keystore.read_bytes())
    for change in (context.check, context.change_config):
        with pytest.raises(TlsSettingError) as error:
            change(replace(node.config, keystore_location=str(other)))
        assert str(error.value) == reason and context.context is before
    assert not context.renew() and len(caplog.records) == 1, "said once"
    return reason


def test_an_expired_certificate_replaces_no_valid_one(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    context = node.listener(between_nodes=False)
    node.show(OURS, valid=-DAY)
    assert refused(context, node, caplog).endswith(f"to {(NOW - DAY).replace(microsecond=0)}, and not now")
    node.now += 2 * DAY  # now the present one has expired, too
    node.show(OURS, valid=-2 * DAY)
    assert context.renew()


def test_a_certificate_is_used_once_it_is_valid(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    context = node.listener(between_nodes=False)
    node.show(OURS, at=NOW + DAY / 2, valid=10 * DAY)
    assert "the certificate is valid from" in refused(context, node, caplog)
    node.now += DAY / 2
    assert context.renew() and not context.renew()


def test_nodes_keep_a_certificate_that_others_accept(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    for context in (node.listener(between_nodes=True), node.outgoing()):
        node.show(THEIRS)
        said = refused(context, node, caplog)
        assert said.startswith("ssl.keystore: nodes with these settings would refuse each other: ")
        assert "self-signed certificate" in said or "unable to get" in said
        node.trust(THEIRS)
        assert context.renew(), "with the authority of the new one"
        node.show(OURS)
        assert "would refuse each other" in refused(context, node, caplog)
        node.trust(OURS)
        assert context.renew()


def test_a_listener_of_clients_takes_another_authority(node: Node) -> None:
    context = node.listener(between_nodes=False)
    node.show(THEIRS)
    assert context.renew()


def test_nodes_that_refuse_each_other_take_any_certificate(node: Node) -> None:
    node.trust(THEIRS)
    contexts = node.listener(between_nodes=True), node.outgoing()
    node.show(OURS, valid=2 * DAY)
    assert all(each.renew() for each in contexts)


def test_a_node_without_own_authorities_is_not_tried(node: Node) -> None:
    node.config = replace(node.config, truststore_location=None, client_auth="none")
    context = node.listener(between_nodes=True)
    node.show(THEIRS)
    assert context.renew()
