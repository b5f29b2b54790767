"""Answers of the guard over ASGI, each with the headers of all pages, and the page of the login in plain HTML."""

from __future__ import annotations

import html
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

LOGIN, LOGOUT, ALIVE = "/login", "/logout", "/alive"
MAX_FORM_BYTES = 8 * 1024
# Nothing is loaded from other hosts, and other pages cannot embed these. The front end creates functions from text.
_POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self'; worker-src 'self' blob:; "
    "frame-ancestors 'none'; base-uri 'self'; form-action 'self'; object-src 'none'"
)
# Of a page whose form goes to an issuer, which may redirect it to another one, and back to a console without TLS.
FORM_TO_ISSUER = _POLICY.replace("form-action 'self'", "form-action 'self' https:")
_OTHER_HEADERS = (
    (b"x-frame-options", b"DENY"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"same-origin"),
)
_HEADERS = ((b"content-security-policy", _POLICY.encode()), *_OTHER_HEADERS)


async def read_form(receive: Any) -> bytes:
    """The body of a form, truncated to the largest valid size."""
    body = b""
    while len(body) <= MAX_FORM_BYTES:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    return body[:MAX_FORM_BYTES]


def with_headers(send: Any) -> Any:
    """A send function that adds the common headers to responses."""

    async def sending(message: Any) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message["headers"], *_HEADERS]}
        await send(message)

    return sending


async def refuse(scope: Any, receive: Any, send: Any, text: str) -> None:
    """Refuse a request or a web socket."""
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": 1008, "reason": text[:100]})
    else:
        await answer(send, 403, text + "\n", content_type=b"text/plain")


async def redirect(send: Any, to: str, *headers: tuple[bytes, bytes]) -> None:
    """Send the browser elsewhere, by GET."""
    await answer(send, 303, "", (b"location", to.encode("latin-1", "replace")), *headers)


async def answer(
    send: Any,
    status: int,
    text: str,
    *headers: tuple[bytes, bytes],
    content_type: bytes = b"text/html; charset=utf-8",
    policy: str = _POLICY,
) -> None:
    """Answer with a text that no cache keeps."""
    body = text.encode()
    fields = [
        (b"content-type", content_type),
        (b"content-length", b"%d" % len(body)),
        (b"cache-control", b"no-store"),
        (b"content-security-policy", policy.encode()),
        *_OTHER_HEADERS,
        *headers,
    ]
    await send({"type": "http.response.start", "status": status, "headers": fields})
    await send({"type": "http.response.body", "body": body})


def login_page(to: str, text: str) -> str:
    """The login form, which redirects to a path; `text` is an error, or ""."""
    action = html.escape(f"{LOGIN}?next={quote(to, safe='')}")
    return _LOGIN_PAGE.format(form=_FORM.format(said=_said(text), action=action))


def issuer_page(begin: str, issuer: str, text: str) -> str:
    """The login page of a console with an issuer; `begin` is the path that redirects there."""
    link = f'<a href="{html.escape(begin)}">Log in at {html.escape(issuer)}</a>'
    return _LOGIN_PAGE.format(form=f"<main><h1>Odradek</h1>{_said(text)}{link}</main>")


def logged_out_page(to: str, fields: Mapping[str, str], issuer: str) -> str:
    """Leads on to the issuer, to log out there: a form that is sent at once, or without scripts by its button."""
    hidden = "".join(
        f'<input type="hidden" name="{html.escape(name)}" value="{html.escape(value)}">'
        for name, value in fields.items()
    )
    form = _LOGOUT_FORM.format(action=html.escape(to), hidden=hidden, issuer=html.escape(issuer))
    return _LOGIN_PAGE.format(form=form)


def _said(text: str) -> str:
    return f'<p role="alert">{html.escape(text)}</p>' if text else ""


_LOGIN_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Odradek: log in</title>
<style>
:root {{ color-scheme: light dark; font-family: system-ui, sans-serif; }}
body {{ display: grid; place-items: center; min-height: 90vh; margin: 1rem; }}
form, main {{ display: grid; gap: .75rem; width: min(20rem, 100%); }}
input, button {{ font: inherit; padding: .6rem; border-radius: .3rem; border: 1px solid #8888; }}
button {{ background: #24527a; color: white; }}
[role=alert] {{ color: #c62828; margin: 0; }}
</style>
</head>
<body>
{form}
</body>
</html>
"""

_FORM = """<form method="post" action="{action}">
<h1>Odradek</h1>
{said}
<label for="name">Name</label>
<input id="name" name="name" autocomplete="username" autocapitalize="none" required autofocus>
<label for="password">Password</label>
<input id="password" name="password" type="password" autocomplete="current-password" required>
<button>Log in</button>
</form>
"""

_LOGOUT_FORM = """<form method="post" action="{action}">
<h1>Odradek</h1>
<p role="status">You are logged out here.</p>
{hidden}
<button>Log out at {issuer}, too</button>
</form>
<script>document.forms[0].submit()</script>"""
