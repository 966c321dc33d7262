"""The site on the network: loopback, a token, GET and nothing else, nothing from elsewhere.

http://127.0.0.1:8765/?token=...   ─▶  a cookie, and the address without the token
without either                     ─▶  403
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import quote, urlencode

from lading.errors import missing_extra
from lading.kits.web.render.jinja2 import asset
from lading.kits.web.ui.site import Site

try:
    from starlette.applications import Starlette
    from starlette.concurrency import run_in_threadpool
    from starlette.requests import Request
    from starlette.responses import PlainTextResponse, RedirectResponse, Response
    from starlette.routing import Route
except ImportError as error:
    raise missing_extra("starlette", "ui", "lading ui") from error

LOOPBACK = ("127.0.0.1", "localhost", "::1", "[::1]")
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
        "media-src data:; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_TYPES = {"html": "text/html", "json": "application/json"}
_STATIC = dict.fromkeys(("page.js", "chart.js", "runs.js"), "text/javascript")


def application(site: Site, *, token: str | None, hosts: tuple[str, ...] = LOOPBACK, cookie: str = "lading") -> Any:
    """Return the site as an ASGI application.

    Args:
        token: What a reader must know; None: nothing.
        hosts: Names by which the server may be addressed, so that no other site's name can be made to mean it.
        cookie: Name of the cookie that keeps the token; servers on other ports have others.
    """
    guard = _Guard(token, hosts, cookie)

    async def page(request: Request) -> Response:
        refused = guard.refused(request)
        if refused is not None:
            return refused
        path, query = request.scope["path"], dict(request.query_params)
        if token is not None and query.pop("token", None) is not None and not path.endswith(".json"):
            return guard.welcome(request)  # a program that asks for a twin keeps no cookie, and is answered at once
        answer = await run_in_threadpool(site.answer, path, query)
        if answer.location:
            return RedirectResponse(answer.location, answer.status, _HEADERS)
        return Response(answer.body, answer.status, _HEADERS, f"{_TYPES[answer.kind]}; charset=utf-8")

    async def static(request: Request) -> Response:
        refused = guard.refused(request)
        if refused is not None:
            return refused
        name = request.path_params["name"]
        if name not in _STATIC:
            return PlainTextResponse("not found", 404, _HEADERS)
        return Response(asset(name), 200, _HEADERS, f"{_STATIC[name]}; charset=utf-8")

    routes = [Route("/static/{name:path}", static, methods=["GET"]), Route("/{rest:path}", page, methods=["GET"])]
    return _OnlyGet(Starlette(routes=routes))


class _Guard:
    """Who may read."""

    def __init__(self, token: str | None, hosts: tuple[str, ...], cookie: str) -> None:
        self._token, self._hosts, self._cookie = token, hosts, cookie

    def refused(self, request: Request) -> Response | None:
        """Return the refusal of a request, or None."""
        if self._hosts and (request.url.hostname or "") not in self._hosts:
            return PlainTextResponse("403: this server is not known by that name.", 403, _HEADERS)
        if self._token is None:
            return None
        given = request.query_params.get("token") or request.cookies.get(self._cookie) or ""
        if hmac.compare_digest(given.encode(), self._token.encode()):
            return None
        return PlainTextResponse("403: open the address that `lading ui` printed; it holds a token.", 403, _HEADERS)

    def welcome(self, request: Request) -> Response:
        """Return the same address without the token, which the browser keeps from now on."""
        query = urlencode([pair for pair in request.query_params.multi_items() if pair[0] != "token"])
        path = "/" + quote(request.scope["path"].lstrip("/"))  # never another host's address
        response = RedirectResponse(path + (f"?{query}" if query else ""), 303, _HEADERS)
        response.set_cookie(self._cookie, self._token or "", httponly=True, samesite="strict")
        return response


class _OnlyGet:
    """Refuses every method but GET, before anything else is looked at."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    async def __call__(
        self, scope: dict[str, Any], receive: Callable[..., Awaitable[Any]], send: Callable[..., Awaitable[Any]]
    ) -> None:
        if scope["type"] == "http" and scope["method"] != "GET":
            refusal = PlainTextResponse("405: this server only reads.", 405, {**_HEADERS, "Allow": "GET"})
            await refusal(scope, receive, send)
        elif scope["type"] in ("http", "lifespan"):
            await self._inner(scope, receive, send)
