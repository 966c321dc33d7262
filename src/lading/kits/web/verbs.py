"""``lading report``: one page that tells a run. ``lading ui``: runs in a browser; it reads, and writes nothing."""

from __future__ import annotations

import json
import secrets
import socket
import threading
import time
import webbrowser
from collections.abc import Callable
from typing import Annotated, Any
from urllib.parse import unquote

import typer
from rich.text import Text

from lading.cli.output import Attempt, Decode, Json, Run, answer, looks_of, open_run, progress_bar
from lading.errors import ConfigError, missing_extra
from lading.report.folder import named_runs
from lading.runtime.arrow import without_pandas
from lading.runtime.paths import local_path

_READER_SECONDS = 2.0
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


def report(
    run: Run,
    out: Annotated[str, typer.Option("--out", "-o", help="File to write.")] = "report.html",
    decode: Decode = None,
    attempt: Attempt = None,
    as_json: Json = False,
) -> None:
    """Write one page that tells the whole run; it needs no network, no script and no other file.

    Example: lading report runs/7 -o report.html
    """
    from lading.kits.web.render.page import write_page  # jinja2 is optional

    with progress_bar(quiet=as_json) as progress:
        looks = looks_of(decode) if decode is not None else None
        opened = open_run(run, attempt, decodes=decode is not None)
        size = write_page(opened, local_path(out), progress, looks)
    answer({"file": out, "bytes": size}, lambda: Text(f"{out}: {size / 1e3:.0f} kB"), as_json=as_json)


def ui(
    targets: Annotated[
        list[str], typer.Argument(help="Runs, or folders with runs.", metavar="RUN...|FOLDER", show_default=False)
    ],
    host: Annotated[str, typer.Option(help="Address to listen at; another than loopback is open to the network.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(help="Port; 0: a free one.", min=0, max=65535)] = 8765,
    no_token: Annotated[bool, typer.Option("--no-token", help="Ask for no token; only on loopback.")] = False,
    open_browser: Annotated[bool, typer.Option("--open", help="Open the browser.")] = False,
    decode: Decode = None,
    as_json: Json = False,
) -> None:
    """Look at runs in a browser, also while they train.

    Example: lading ui runs
    """
    if no_token and host not in _LOOPBACK:
        raise ConfigError(
            f"--no-token with --host {host}: whoever reaches this machine could read the runs. Leave out --no-token, "
            "or listen at 127.0.0.1 and forward the port: ssh -L 8765:127.0.0.1:8765."
        )
    if decode is None:  # what --decode opens may use pandas itself
        without_pandas()
    runs = named_runs(targets)
    from lading.kits.web.ui.site import Site  # jinja2, starlette and uvicorn are optional
    from lading.kits.web.ui.starlette import LOOPBACK, application

    server = _server()
    site = Site(runs, looks_of(decode) if decode is not None else None)
    listening = _listening(host, port)
    threading.Thread(target=_warm_up, args=(site,), daemon=True).start()
    port = listening.getsockname()[1]
    token = None if no_token else secrets.token_urlsafe(24)
    served = application(site, token=token, hosts=LOOPBACK if host in _LOOPBACK else (), cookie=f"lading-{port}")
    serve = server(served)
    shown = f"[{host}]" if ":" in host else host
    address = f"http://{shown}:{port}/" + (f"?token={token}" if token else "")
    said = {"address": address, "runs": list(runs)}
    print(
        json.dumps(said) if as_json else f"{address}\n{len(runs)} run{'s' * (len(runs) != 1)}; Ctrl+C ends it",
        flush=True,
    )
    if open_browser:
        webbrowser.open(address)
    serve(listening)


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    opened = socket.socket(family, socket.SOCK_STREAM)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        opened.bind((host, port))
        opened.listen()  # now: whoever opens the address at once waits instead of being refused
    except OSError as error:
        opened.close()
        raise ConfigError(
            f"{host}:{port} cannot be listened at: {error.strerror}. Pass --port 0 for a free port."
        ) from error
    return opened


def _warm_up(site: Any) -> None:
    """Work out the first page before somebody asks for it: of one run the run's, of several the list."""
    answer = site.answer("/", {})
    first = unquote(answer.location) or "/"
    site.answer(first, {})
    time.sleep(_READER_SECONDS)  # one who was waiting for it has asked for the rest by then
    site.answer(first, {"whole": ""})


def _server() -> Callable[[Any], Callable[[socket.socket], None]]:
    """Return what serves an application; where it is not installed, that is said before an address is."""
    try:
        import uvicorn
    except ImportError as error:
        raise missing_extra("uvicorn", "ui", "lading ui") from error

    def server(application: Any) -> Callable[[socket.socket], None]:
        config = uvicorn.Config(
            application, log_level="warning", access_log=False, server_header=False, lifespan="off", ws="none"
        )
        config.load()  # now: when the address is printed, it answers
        return lambda listening: uvicorn.Server(config).run(sockets=[listening])

    return server
