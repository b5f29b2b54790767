"""The distinguished name of a certificate as text, in the form of Java's `X500Principal.getName()` (RFC 2253).

So ACLs for Apache Kafka match the same principals here.
"""

from __future__ import annotations

from cryptography.x509 import Name, NameAttribute, ObjectIdentifier
from cryptography.x509.oid import NameOID

_KEYWORDS = {
    NameOID.COMMON_NAME: "CN",
    NameOID.COUNTRY_NAME: "C",
    NameOID.LOCALITY_NAME: "L",
    NameOID.STATE_OR_PROVINCE_NAME: "ST",
    NameOID.STREET_ADDRESS: "STREET",
    NameOID.ORGANIZATION_NAME: "O",
    NameOID.ORGANIZATIONAL_UNIT_NAME: "OU",
    NameOID.DOMAIN_COMPONENT: "DC",
    NameOID.USER_ID: "UID",
}
_SPECIAL = ',+"\\<>;'
_SHORT_FORM = 0x80
# ASN.1 universal tags by which cryptography numbers the kinds of strings.
_WIDE_ENCODINGS = {28: "utf-32-be", 30: "utf-16-be", 20: "latin-1"}


def distinguished_name(name: Name) -> str:
    """The most specific part first: `CN=alice,OU=teams,O=Example`."""
    return ",".join("+".join(_attribute(each) for each in part) for part in reversed(list(name.rdns)))


def _attribute(attribute: NameAttribute[str | bytes]) -> str:
    keyword = _KEYWORDS.get(attribute.oid)
    if keyword is not None and isinstance(attribute.value, str):
        return f"{keyword}={_escaped(attribute.value)}"
    return f"{_dotted(attribute.oid)}=#{_der(attribute).hex()}"


def _dotted(oid: ObjectIdentifier) -> str:
    return oid.dotted_string


def _escaped(value: str) -> str:
    text = "".join(f"\\{char}" if char in _SPECIAL else char for char in value)
    if text.endswith(" "):
        text = f"{text[:-1]}\\ "
    return f"\\{text}" if text.startswith(("#", " ")) and len(text) > 1 else text


def _der(attribute: NameAttribute[str | bytes]) -> bytes:
    """The value as it stands in the certificate: tag, length, contents."""
    tag = int(attribute._type.value)  # the only way to the kind of string, which is part of Java's text
    value = attribute.value
    contents = value if isinstance(value, bytes) else value.encode(_WIDE_ENCODINGS.get(tag, "utf-8"))
    size = len(contents)
    if size < _SHORT_FORM:
        return bytes((tag, size)) + contents
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes((tag, _SHORT_FORM | len(length))) + length + contents
