"""The server's half of PLAIN and SCRAM, against our client's half and against what no honest client sends."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.client.sasl import Credentials, ServerAuthenticationError, sasl_exchange
from odradek.common.saslprep import is_prepared, saslprep
from odradek.common.scram import SCRAM_MECHANISMS, encode64, keys_of, salted_password
from odradek.metadata.model import ScramCredential
from odradek.security.sasl.exchange import PLAIN_FAILED, AuthenticationError, Exchange, LoggedIn, plain
from odradek.security.sasl.scram import ScramUsers, scram
from odradek.settings.jaas import parse_jaas

NAMES = st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"]), min_size=1, max_size=20)
HASHES = list(SCRAM_MECHANISMS.values())
Known = Mapping[tuple[str, int], ScramCredential]


def credential(mechanism: str, password: str, iterations: int = 4096) -> ScramCredential:
    hashed = SCRAM_MECHANISMS[mechanism]
    salt = b"a salt of some length"
    keys = keys_of(hashed, salted_password(hashed, password.encode(), salt, iterations))
    return ScramCredential(salt, keys.stored_key, keys.server_key, iterations)


def known(**passwords: str) -> Known:
    return {(name, each.number): credential(each.name, pw) for name, pw in passwords.items() for each in HASHES}


def begin(exchange: Exchange) -> Exchange:
    next(exchange)
    return exchange


def server(credentials: Known, mechanism: str = "SCRAM-SHA-256", nonce: str = "server") -> Exchange:
    return begin(scram(ScramUsers(SCRAM_MECHANISMS[mechanism], b"of the cluster"), credentials, nonce))


def finish(exchange: Exchange, message: bytes) -> LoggedIn:
    with pytest.raises(StopIteration) as end:
        exchange.send(message)
    assert isinstance(end.value.value, LoggedIn)
    return end.value.value


def log_in(exchange: Exchange, mechanism: str, name: str, password: str) -> LoggedIn:
    """Let our own client talk to it."""
    client = sasl_exchange(Credentials(mechanism, name, password, Random(1)))
    words = next(client)
    while True:
        try:
            answer = exchange.send(words)
        except StopIteration as end:
            if end.value.final_token:
                with pytest.raises(StopIteration):
                    client.send(end.value.final_token)
            return cast("LoggedIn", end.value)
        words = client.send(answer)


@given(name=NAMES, password=NAMES)
def test_plain_accepts_the_right_password(name: str, password: str) -> None:
    assert log_in(begin(plain({name: password})), "PLAIN", name, password).name == name


@given(message=st.binary(max_size=40))
def test_plain_lets_in_no_one_else(message: bytes) -> None:
    with pytest.raises(AuthenticationError):
        begin(plain({"alice": "a password that is longer than that"})).send(message)


@pytest.mark.parametrize(
    "message",
    [b"\0alice\0secret\0", b"\0alice\0sec\0ret", b"alice\0secret", b"\0\0secret", b"\0alice\0", b"bob\0alice\0secret"],
)
def test_plain_refuses_what_is_not_one_name_and_one_password(message: bytes) -> None:
    with pytest.raises(AuthenticationError):
        begin(plain({"alice": "secret", "": "secret"})).send(message)


def test_plain_answers_an_unknown_user_as_a_wrong_password() -> None:
    for message in (b"\0alice\0wrong", b"\0unknown\0secret"):
        with pytest.raises(AuthenticationError, match=PLAIN_FAILED):
            begin(plain({"alice": "secret"})).send(message)


@pytest.mark.parametrize("mechanism", list(SCRAM_MECHANISMS))
@pytest.mark.parametrize("name", ["alice", "a,b=c", "=2C", "ünïcödé ", "a" * 200])
def test_scram_accepts_the_right_password(mechanism: str, name: str) -> None:
    found = log_in(server(known(**{name: "p=ä,ss\0"}), mechanism), mechanism, name, "p=ä,ss\0")
    assert (found.name, found.by_token, found.expires_at_ms) == (name, False, None)


def test_scram_treats_an_unknown_user_as_one_with_another_password() -> None:
    """The same steps, the same shapes, the same words; and the same challenge each time and on each node."""
    credentials = known(alice="secret", bob="other")
    challenges: dict[str, str] = {}
    for name in ("alice", "unknown", "unknown", "somebody"):
        exchange = server(credentials)
        challenge = exchange.send(f"n,,n={name},r=abc".encode()).decode()
        assert challenges.setdefault(name, challenge) == challenge
        with pytest.raises(AuthenticationError) as error:
            exchange.send(f"c=biws,r=abcserver,p={encode64(bytes(32))}".encode())
        assert "due to invalid credentials" in str(error.value)
        assert name not in str(error.value)
    assert len({len(each) for each in challenges.values()}) == 1
    assert len(set(challenges.values())) == 3


def test_scram_makes_up_what_most_users_have() -> None:
    credentials = {(f"user{n}", 1): credential("SCRAM-SHA-256", "p", 8192 if n else 4096) for n in range(3)}
    assert server(credentials).send(b"n,,n=unknown,r=abc").endswith(b",i=8192")
    assert server({}).send(b"n,,n=unknown,r=abc").endswith(b",i=4096")


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"p=tls-unique,,n=alice,r=abc",
        b"y,,n=alice,r=abc",
        b"n,,n=,r=abc",
        b"n,,n=alice,r=",
        b"n,,n=al\0ice,r=abc",
        b"n,,m=ext,n=alice,r=abc",
        b"n,,n=al=ice,r=abc",
        b"n,,n=alice,r=abc,",
        b"\xff\xfe",
        b"n,,n=" + b"a" * 100_000 + b",r=abc",
        b"c=biws,r=abcserver,p=AAAA",
    ],
)
def test_scram_refuses_a_first_message_that_is_none(first: bytes) -> None:
    with pytest.raises(AuthenticationError):
        server(known(alice="secret")).send(first)


def proof_of(first: str, challenge: bytes, bare: str, password: str) -> bytes:
    """A true proof over any messages, as a client makes it that lies about the rest."""
    import hashlib
    import hmac

    from odradek.common.scram import SCRAM_SHA_256, client_key_of, xor

    known_as = credential("SCRAM-SHA-256", password)
    salted = salted_password(SCRAM_SHA_256, password.encode(), known_as.salt, known_as.iterations)
    key = client_key_of(SCRAM_SHA_256, salted)
    signed = f"{first},{challenge.decode()},{bare}".encode()
    proof = xor(key, hmac.digest(hashlib.sha256(key).digest(), signed, "sha256"))
    return f"{bare},p={encode64(proof)}".encode()


@pytest.mark.parametrize(
    ("bare", "is_let_in"),
    [
        ("c=biws,r=abcserver", True),
        ("c=biws,r=abcother", False),
        ("c=biws,r=abc", False),
        ("c=biws,r=stolenserver", False),
        ("c=eSws,r=abcserver", False),
        ("c=cD10bHMtdW5pcXVlLCw=,r=abcserver", False),
    ],
)
def test_scram_takes_a_proof_for_this_login_alone(bare: str, is_let_in: bool) -> None:
    exchange = server(known(alice="secret"))
    challenge = exchange.send(b"n,,n=alice,r=abc")
    final = proof_of("n=alice,r=abc", challenge, bare, "secret")
    if is_let_in:
        assert finish(exchange, final).name == "alice"
    else:
        with pytest.raises(AuthenticationError):
            exchange.send(final)


def test_a_password_is_no_delegation_token() -> None:
    """The user's own is true, and is not what was asked for."""
    exchange = server(known(alice="secret"))
    challenge = exchange.send(b"n,,n=alice,r=abc,tokenauth=true")
    with pytest.raises(AuthenticationError):
        exchange.send(proof_of("n=alice,r=abc,tokenauth=true", challenge, "c=biws,r=abcserver", "secret"))


def test_scram_does_not_take_a_proof_again() -> None:
    first = server(known(alice="secret"), nonce="one")
    final = proof_of("n=alice,r=abc", first.send(b"n,,n=alice,r=abc"), "c=biws,r=abcone", "secret")
    assert finish(first, final).name == "alice"
    again = server(known(alice="secret"), nonce="two")
    again.send(b"n,,n=alice,r=abc")
    with pytest.raises(AuthenticationError):
        again.send(final)


def test_scram_lets_no_one_act_for_another_user() -> None:
    exchange = server(known(alice="secret", bob="other"))
    challenge = exchange.send(b"n,a=bob,n=alice,r=abc")
    with pytest.raises(AuthenticationError):
        exchange.send(proof_of("n=alice,r=abc", challenge, f"c={encode64(b'n,a=bob,')},r=abcserver", "secret"))


@given(message=st.binary(max_size=80))
def test_scram_ends_quietly_whatever_comes_second(message: bytes) -> None:
    exchange = server(KNOWN)
    exchange.send(b"n,,n=alice,r=abc")
    with pytest.raises(AuthenticationError):
        exchange.send(message)


KNOWN = known(alice="secret")


@pytest.mark.parametrize("iterations", [1, 4095, 10**9])
def test_our_client_neither_gives_a_weak_proof_nor_computes_for_hours(iterations: int) -> None:
    client = sasl_exchange(Credentials("SCRAM-SHA-256", "alice", "secret", Random(1)))
    nonce = next(client).decode().partition("r=")[2]
    with pytest.raises(ServerAuthenticationError):
        client.send(f"r={nonce}server,s={encode64(b'salt')},i={iterations}".encode())


def test_saslprep_is_that_of_the_rfc() -> None:
    examples = {"I\u00adX": "IX", "user": "user", "USER": "USER", "\u00aa": "a", "\u2168": "IX", "a\u00a0b": "a b"}
    assert {text: saslprep(text) for text in examples} == examples
    for text in ("\x07", "\u0627\u0031"):
        with pytest.raises(ValueError, match="RFC 4013"):
            saslprep(text)
    assert is_prepared("pässwörd 1")
    assert not is_prepared("\u2168")


def test_a_jaas_entry_is_read_as_java_does() -> None:
    entry = parse_jaas(
        "org.apache.kafka.common.security.plain.PlainLoginModule required\n"
        ' username="admin" password="a\\"; b=c" user_alice=\'x y\' user_bob=z;'
    )
    assert entry.is_plain
    assert entry.options == {"username": "admin", "password": 'a"; b=c', "user_alice": "x y", "user_bob": "z"}
    assert "x y" not in repr(entry)


@pytest.mark.parametrize(
    "text",
    [
        "",
        ";",
        "A required",
        "A maybe;",
        "A required b;",
        "A required b=;",
        'A required b="c;',
        "A required; B required;",
    ],
)
def test_a_jaas_entry_that_cannot_be_read_is_refused_without_its_text(text: str) -> None:
    with pytest.raises(ValueError, match=r"must|flag|quote|followed") as error:
        parse_jaas(text)
    assert "b=" not in str(error.value)
