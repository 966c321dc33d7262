"""The site without a web framework: an address in, a page or its ``.json`` twin out.

    /                                 the runs                  /index.json
    /r/RUN                            a run                     /r/RUN.json
    /r/RUN/step/48213                 a step                    /r/RUN/step/48213.json
    /r/RUN/steps/48200-48299          a stretch of steps        ...
    /r/RUN/sample/DATASET/INDEX       a sample                  ...               DATASET is a name or a number
    /r/RUN/document/DATASET/NUMBER    a document of packed rows
    /r/RUN/checkpoint/SHA256          a checkpoint, by its waybill
    /compare?left=A&right=B           two runs
                                      every curve of a run      /r/RUN/curves.json
                                      what verify says of it    /r/RUN/verdict.json
    /search?q=...                     where a query leads

RUN is a name in the list of runs that the site was started with: no address is ever a path on the disk.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from lading.errors import LadingError
from lading.kits.web.pages.checkpoint import checkpoint_page
from lading.kits.web.pages.curves import compare_page, curves_page
from lading.kits.web.pages.run import run_page
from lading.kits.web.pages.sample import document_page, sample_page
from lading.kits.web.pages.search import hits_in, runs_named
from lading.kits.web.pages.step import step_page
from lading.kits.web.pages.stretch import stretch_page
from lading.kits.web.render import charts
from lading.kits.web.render.jinja2 import rendered
from lading.kits.web.render.page import lading_version, run_html
from lading.kits.web.ui.glances import Glances, version_of
from lading.kits.web.ui.verdicts import Verdicts
from lading.ledger.begun import lives
from lading.report.folder import differing_settings
from lading.report.run import Run
from lading.runtime.json import plain
from lading.runtime.processes import command_line
from lading.source.looks import SourceLooks

_KEPT_OPEN = 4
_RUNS_AT_ONCE = 40  # read before the list is first shown; the page asks for the others when it is
_STEPS_AT_ONCE = 50_000  # of a longer run, what takes longest is asked for when the rest is shown
_LARGEST = 1 << 62
_PARTS = {"run": 0, "curves": 1, "verdict": 1, "sample": 3, "document": 3}  # of an address below a run; else 2


@dataclass(frozen=True)
class Answer:
    """What a request gets.

    Attributes:
        kind: ``html`` or ``json``.
        status: HTTP's number for how it went.
        location: Where else to go, with a status of 3xx.
    """

    body: str
    kind: str = "html"
    status: int = 200
    location: str = ""


class NotFound(LookupError):
    """There is no such page."""


@dataclass
class OpenedRun:
    """A run that was asked something lately, and what it answered."""

    run: Run
    version: str
    lock: threading.Lock = field(default_factory=threading.Lock)
    pages: dict[str, Any] = field(default_factory=dict)
    html: str | None = None  # the page of the run, whole or its first part: it is shown while others are worked out

    def page(self, name: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Return a page's values; they are worked out once."""
        if name not in self.pages:
            self.pages[name] = make()
        found: dict[str, Any] = self.pages[name]
        return found


class _Asked(NamedTuple):
    """A page of a run; ``rest`` is its address below the kind of page."""

    opened: OpenedRun
    name: str
    rest: list[str]
    query: Mapping[str, str]
    as_json: bool


class Site:
    """The pages of some runs.

    Args:
        runs: Folders of the runs, by name.
        looks: Says what samples look like, where the sources are at hand.
    """

    def __init__(self, runs: Mapping[str, Path], looks: SourceLooks | None = None) -> None:
        self._runs, self._looks = dict(runs), looks
        self._opened: OrderedDict[str, OpenedRun] = OrderedDict()
        self._glances, self._verdicts = Glances(self._runs), Verdicts()
        self._lock = threading.Lock()

    def answer(self, path: str, query: Mapping[str, str]) -> Answer:
        """Return the page at an address, or its JSON.

        Args:
            path: The decoded path of the address.
        """
        try:
            return self._answer(path, query)
        except NotFound as error:
            return self._problem(404, f"There is no page {error}.", path)
        except LadingError as error:
            return self._problem(404, " ".join(str(error).split()), path)

    def _answer(self, path: str, query: Mapping[str, str]) -> Answer:
        as_json = path.endswith(".json")
        pages = {"/index.json" if as_json else "/": self._index}
        pages |= {f"/compare{'.json' * as_json}": self._compare, f"/search{'.json' * as_json}": self._search}
        if path in pages:
            return pages[path](query, as_json)
        if not path.startswith("/r/"):
            raise NotFound(path)
        try:
            name, rest = self._named(path.removeprefix("/r/"))
            return self._of_run(name, rest, query, as_json=False)
        except NotFound:
            if not as_json:
                raise
        name, rest = self._named(path.removeprefix("/r/").removesuffix(".json"))
        return self._of_run(name, rest, query, as_json=True)

    def _named(self, text: str) -> tuple[str, list[str]]:
        """Return the run whose name an address begins with, and the rest of it."""
        parts = text.split("/")
        for size in range(len(parts), 0, -1):
            name = "/".join(parts[:size])
            if name in self._runs:
                return name, parts[size:]
        raise NotFound(f"/r/{text}")

    def _of_run(self, name: str, rest: list[str], query: Mapping[str, str], *, as_json: bool) -> Answer:
        base = address(name)
        if rest == ["step", ""]:  # the form that goes to a step
            number = query.get("number", "").strip()
            return Answer("", status=303, location=f"{base}/step/{quote(number, safe='')}" if number else base)
        kind = rest[0] if rest else "run"
        if kind in ("sample", "document") and len(rest) > 3:  # the name of a dataset may hold slashes
            rest = [kind, "/".join(rest[1:-1]), rest[-1]]
        makers = {"run": self._run, "step": self._step, "sample": self._sample, "document": self._document}
        makers |= {"checkpoint": self._checkpoint, "steps": self._stretch}
        if as_json:
            makers |= {"curves": self._curves, "verdict": self._verdict}
        if kind not in makers or len(rest) != _PARTS.get(kind, 2):
            raise NotFound("/".join(["/r", name, *rest]))
        opened = self._open(name)
        asked = _Asked(opened, name, rest[1:], query, as_json)
        if kind == "verdict":  # it takes a while: pages need not wait for it
            return self._verdict(asked)
        if kind == "run" and not as_json and "whole" not in query and opened.html is not None:
            return Answer(opened.html)
        with opened.lock:
            return makers[kind](asked)

    def _run(self, asked: _Asked) -> Answer:
        opened, name, _, query, as_json = asked
        run = opened.run
        if as_json and query.get("since") == opened.version:
            return _json({"version": opened.version, "unchanged": True})
        later = not as_json and "whole" not in query and "run" not in opened.pages and run.num_steps > _STEPS_AT_ONCE
        if later:
            values = run_page(run, looks=self._looks, whole=False)
        else:
            values = opened.page("run", lambda: run_page(run, looks=self._looks))
        if as_json:
            return _json({"run": name, "version": opened.version, **values})
        base = address(name)
        shown = {"site": True, "live": f"{base}.json", "others": len(self._runs) > 1, "within": name, "later": later}
        opened.html = run_html(run, {**values, "command": command_of(run)}, name=name, base=base, **shown)
        return Answer(opened.html)

    def _stretch(self, asked: _Asked) -> Answer:
        run, since = asked.opened.run, asked.query.get("since")
        first, _, last = asked.rest[0].partition("-")
        steps = _whole(first), _whole(last or first), None if since is None else _whole(since)
        values = stretch_page(run, *steps, looks=self._looks)
        return _page("stretch.html", asked, values, numbers={name: number for number, name in run.named_datasets})

    def _curves(self, asked: _Asked) -> Answer:
        opened, first, last = asked.opened, asked.query.get("first"), asked.query.get("last")
        if first is None and last is None:
            values = opened.page("curves", lambda: curves_page(opened.run))
        else:
            values = curves_page(opened.run, _whole(first or "0"), _whole(last) if last else None)
        return _json({"run": asked.name, **values})

    def _verdict(self, asked: _Asked) -> Answer:
        return _json(self._verdicts.of(self._runs[asked.name], asked.opened.version))

    def _step(self, asked: _Asked) -> Answer:
        run, number = asked.opened.run, asked.rest[0]
        step = max(run.num_steps - 1, 0) if number == "last" else _whole(number)
        values = asked.opened.page(f"step/{step}", lambda: step_page(run, step, self._looks))
        return _page("step.html", asked, values, steps=run.num_steps)

    def _sample(self, asked: _Asked) -> Answer:
        run, (dataset, index) = asked.opened.run, asked.rest
        values = sample_page(run, _dataset(run, dataset), _whole(index), self._looks)
        drawn = {"chart": charts.uses_chart(values), "groups_chart": charts.groups_chart(values)}
        return _page("sample.html", asked, values, **drawn)

    def _document(self, asked: _Asked) -> Answer:
        run, (dataset, number) = asked.opened.run, asked.rest
        values = document_page(run, _dataset(run, dataset), _whole(number))
        return _page("sample.html", asked, values, chart=charts.uses_chart(values))

    def _checkpoint(self, asked: _Asked) -> Answer:
        run, waybill = asked.opened.run, asked.rest[0]
        if all(saved.waybill != waybill for saved in run.evidence.log.checkpoints):
            raise NotFound(f"of the waybill {waybill[:64]!r}")
        values = checkpoint_page(run, waybill, list(self._runs.values()))
        known = {str(path.resolve()): run for run, path in self._runs.items()}
        folders = {row["from"] for row in values["totals"]} | {row["run"] for row in values["tree"] if row["run"]}
        named = {folder: known.get(str(Path(folder).resolve())) for folder in folders}
        runs = {folder: {"name": run, "href": address(run)} for folder, run in named.items() if run is not None}
        return _page("checkpoint.html", asked, values, runs=runs)

    def _index(self, query: Mapping[str, str], as_json: bool) -> Answer:
        if len(self._runs) == 1 and not as_json and "all" not in query:
            return Answer("", status=303, location=address(next(iter(self._runs))))
        if as_json:
            return _json(self._glances.every())
        rows = self._glances.every() if "whole" in query else self._glances.first(_RUNS_AT_ONCE)
        later = any(row["state"] is None for row in rows)
        if not later:
            rows.sort(key=lambda row: row["run"])
            rows.sort(key=lambda row: row["wrote"] or "", reverse=True)
        linked = [{**row, "href": address(row["run"]), "spark": charts.sparkline(row["curve"])} for row in rows]
        settings = differing_settings(row for row in rows if row["state"])
        return _html("index.html", rows=linked, settings=settings, live="/index.json", later=later)

    def _compare(self, query: Mapping[str, str], as_json: bool) -> Answer:
        left, right = query.get("left", ""), query.get("right", "")
        for name in (left, right):
            if name and name not in self._runs:
                raise NotFound(f"of a run called {name}")
        values: dict[str, Any] = {}
        if left and right:
            opened = {name: self._open(name) for name in sorted({left, right})}
            with contextlib.ExitStack() as stack:
                for one in opened.values():
                    stack.enter_context(one.lock)
                values = compare_page(opened[left].run, opened[right].run)
        if as_json:
            return _json({"left": left, "right": right, **values})
        names: dict[str, Any] = {"left": left, "right": right, "names": list(self._runs)}
        bases = {"left_base": address(left), "right_base": address(right)}
        drawn = charts.compare_chart(values) if values else None
        return _html("compare.html", **names, **bases, page=values, chart=drawn)

    def _search(self, query: Mapping[str, str], as_json: bool) -> Answer:
        text, within = query.get("q", "")[:400], query.get("run", "")
        hits: list[dict[str, Any]] = []
        names = [within] if within in self._runs else list(self._runs) if len(self._runs) == 1 else []
        for name in names:
            opened = self._open(name)
            with opened.lock:
                hits += hits_in(opened.run, name, text)
        if text.strip():
            hits += runs_named({row["run"]: row for row in self._glances.every()}, text)
        linked = [{**hit, "href": _href(hit)} for hit in hits]
        if as_json:
            return _json({"query": text, "hits": linked})
        if len(linked) == 1:
            return Answer("", status=303, location=linked[0]["href"])
        return _html("search.html", within, query=text, hits=linked)

    def _open(self, name: str) -> OpenedRun:
        """Return a run as it is now: opened again only where its files have changed."""
        path = self._runs[name]
        version = version_of(path)
        with self._lock:  # held while a run is opened: whoever asks for it meanwhile waits, and opens nothing twice
            opened = self._opened.get(name)
            if opened is not None and opened.version == _with_life(version, opened.run):
                self._opened.move_to_end(name)
                return opened
            run = Run(path)
            fresh = OpenedRun(run, _with_life(version, run))
            self._opened[name] = fresh
            self._opened.move_to_end(name)
            while len(self._opened) > _KEPT_OPEN:
                self._opened.popitem(last=False)
        return fresh

    def _problem(self, status: int, text: str, path: str) -> Answer:
        if path.endswith(".json"):
            return Answer(json.dumps({"error": text}), "json", status)
        return replace(_html("problem.html", status=status, text=text), status=status)


def address(name: str) -> str:
    """Return the address of a run."""
    return f"/r/{quote(name)}"


def command_of(run: Run) -> str | None:
    """Return the command line of a run that goes on, where it runs on this machine: the ledger has none."""
    newest = run.evidence.attempts[max(run.evidence.attempts)] if run.evidence.attempts else None
    begun = [rank.begun for rank in newest.ranks if rank.begun and lives(rank.folder, rank.begun)] if newest else []
    return command_line(*begun[0].process) if begun and begun[0].host == socket.gethostname() else None


def _href(hit: dict[str, Any]) -> str:
    place = hit["place"]
    return address(hit["run"]) + (place if place.startswith("#") or not place else f"/{place}")


def _dataset(run: Run, text: str) -> int:
    """Return the number of a dataset given by number, as in our own links, or by name."""
    return _whole(text) if text.isdigit() else run.number_of(text)


def _whole(text: str) -> int:
    if not text.isdigit() or not text.isascii() or len(text) > 19 or int(text) >= _LARGEST:
        raise NotFound(f"of {text[:40]!r}: expected a number from 0 on")
    return int(text)


def _page(template: str, asked: _Asked, values: dict[str, Any], **shown: Any) -> Answer:
    """Return a page of a run, or its values where they are asked for."""
    name = asked.name
    if asked.as_json:
        return _json({"run": name, **values})
    return _html(template, name, base=address(name), name=name, page=values, **shown)


def _html(template: str, within: str = "", **shown: Any) -> Answer:
    """Return a page of the site; ``within``: the run that a search from there looks into."""
    return Answer(rendered(template, site=True, version=lading_version(), within=within, **shown))


def _json(value: Any) -> Answer:
    return Answer(json.dumps(plain(value), separators=(",", ":")), "json")


def _with_life(version: str, run: Run) -> str:
    """Return a version that also changes when a process of the run dies."""
    ranks = (rank for attempt in run.evidence.attempts.values() for rank in attempt.ranks)
    alive = sum(rank.begun is not None and lives(rank.folder, rank.begun) for rank in ranks)
    return f"{version}-{alive}"
