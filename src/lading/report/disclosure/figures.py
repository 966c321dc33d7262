"""Numbers of a page, each with the query that gives it: a Python expression over ``open_checkpoint(CKPT)``.

20 480[^3]        ...        [^3]: `sum(r["samples"] for r in open_checkpoint(CKPT).totals() if r["dataset"] == 'code')`
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lading.report.checkpoint.checkpoint import OpenedCheckpoint

_TOTALS = "open_checkpoint(CKPT).totals()"
_HISTORY = "open_checkpoint(CKPT).history()"
UNKNOWN = "not known"


class Figures:
    """Numbers about a checkpoint that were given out, and the queries that give them.

    Args:
        opened: The checkpoint.
    """

    def __init__(self, opened: OpenedCheckpoint) -> None:
        self._totals, self._history = opened.totals().dicts(), opened.history()
        self._opened = opened
        self._queries: dict[str, int] = {}
        self.datasets = sorted({row["dataset"] for row in self._totals})

    def samples(self, dataset: str | None = None) -> str:
        """Return how many samples updates used, of a dataset or of all."""
        return self._sum("samples", dataset)

    def passes(self, dataset: str) -> str:
        """Return how often a dataset was gone through."""
        return self._sum("passes", dataset, digits=3)

    def tokens(self, dataset: str | None = None) -> str:
        """Return how many tokens updates used."""
        return self._sum("tokens", dataset)

    def share(self, dataset: str) -> str:
        """Return a dataset's share of all samples, in percent."""
        found, total = self._rows("samples", dataset), sum(self._rows("samples", None))
        if not total:
            return UNKNOWN
        query = f"100 * {_summed('samples', dataset)} / {_summed('samples', None)}"
        return self._cited(f"{100 * sum(found) / total:.1f}", f"round({query}, 1)") + " %"

    def used(self) -> str:
        """Return samples, tokens, steps and runs, in a line."""
        steps = self._cited(_spaced(len(self._history)), f"len({_HISTORY})")
        runs = self._cited(_spaced(len({*self._history["run"]})), f'len({{*{_HISTORY}["run"]}})')
        return f"Samples used: {self.samples()}; tokens: {self.tokens()}; steps: {steps}; runs: {runs}"

    def files(self) -> str:
        """Return how many files it has, how many bytes, and the waybill that knows them, in a line."""
        sizes = [file.size for file in self._opened.waybill.files.values()]
        files = "open_checkpoint(CKPT).waybill.files"
        count = self._cited(_spaced(len(sizes)), f"len({files})")
        size = self._cited(_spaced(sum(sizes)), f"sum(file.size for file in {files}.values())")
        sha256 = self._cited(f"`{self._opened.waybill.sha256}`", "open_checkpoint(CKPT).waybill.sha256")
        return f"Files: {count}; bytes: {size}; SHA-256 of the waybill: {sha256}"

    def member(self, number: int) -> str:
        """Return what a member of the family is, itself first."""
        member, query = self._opened.family()[number], f"open_checkpoint(CKPT).family()[{number}]"
        return f"{self._cited(member.what, f'{query}.what')}, waybill {self._cited(f'`{member.key}`', f'{query}.key')}"

    def notes(self) -> list[str]:
        """Return the queries as footnotes."""
        return [f"[^{number}]: `{query}`" for query, number in self._queries.items()]

    def _rows(self, name: str, dataset: str | None) -> list[Any]:
        return [row[name] for row in self._totals if dataset in (None, row["dataset"])]

    def _sum(self, name: str, dataset: str | None, digits: int = 0) -> str:
        found = self._rows(name, dataset)
        if not found or None in found:
            return UNKNOWN
        query = _summed(name, dataset)
        if digits:
            return self._cited(f"{sum(found):.{digits}f}", f"round({query}, {digits})")
        return self._cited(_spaced(sum(found)), query)

    def _cited(self, text: str, query: str) -> str:
        return f"{text}[^{self._queries.setdefault(query, len(self._queries) + 1)}]"


def _summed(name: str, dataset: str | None) -> str:
    quoted = repr(dataset).replace("`", r"\x60")  # the expression is shown between backticks
    of = "" if dataset is None else f' if r["dataset"] == {quoted}'
    return f'sum(r["{name}"] for r in {_TOTALS}{of})'


def _spaced(number: int) -> str:
    return f"{number:,}".replace(",", " ")


def table(headings: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    """Return a table in Markdown, cells as they are."""
    names = list(headings)
    lines = [names, ["---"] * len(names), *map(list, rows)]
    return [f"| {' | '.join(line)} |" for line in lines]
