"""DefaultPrincipalData, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, boolean, string


class DefaultPrincipalData(Message, kind="data", versions="0", flexible="0+"):
    """Data, versions 0, flexible 0+."""

    type: str = string("0+")
    name: str = string("0+")
    token_authenticated: bool = boolean("0+")
