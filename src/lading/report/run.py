"""Open a run and ask it: what was in step k, where was this sample used, what did the model really get.

run = open_run("runs/7")
run.step(48_213).samples            what was in that batch
run.where("code", 93_412)           was this document ever seen, and when
run.verify().holds                  is the record what the plan says, sample for sample
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading.errors import LedgerError
from lading.identity import SampleId
from lading.ledger.rollout_texts import read_texts
from lading.ledger.waybill.waybill import checkpoint_path, read_waybill
from lading.order.plan import Plan
from lading.report.bias import Bias, bias
from lading.report.block import block
from lading.report.blocked import BLOCKED, BLOCKS, bad_samples, block_rows
from lading.report.compare import Comparison, compare
from lading.report.documents import RunDocuments
from lading.report.evidence import Evidence
from lading.report.explain import DECISIONS, Explanation, decisions, explain
from lading.report.exposures import documents_used, exposures
from lading.report.history import NOTHING, History, taken
from lading.report.losses import SPIKE_WINDOW, has_own_losses, losses, losses_by_dataset, spikes, undone_losses
from lading.report.metrics import metrics
from lading.report.mix import mix, passes
from lading.report.planned import SAMPLES, planned_samples
from lading.report.rollouts import RolloutHistory
from lading.report.snapshot import read_evidence
from lading.report.step import StepRecord, step_of_batch, step_record
from lading.report.suspects import Lengths
from lading.report.table import Table
from lading.report.verify.verdict import Verdict
from lading.report.views import NoSamples, Views
from lading.report.where import dataset_number, newest_plan, next_step, run_events, where
from lading.runtime.arrow import numbers
from lading.runtime.blocks.progress import Progress, silent
from lading.runtime.fields import INT64_MAX, shown_html
from lading.runtime.paths import local_path

if TYPE_CHECKING:
    from lading.report.forget.forget import Forgetting
    from lading.report.trace.contaminated import Contamination
    from lading.report.trace.trace import Trace

_STEPS_AT_ONCE = 4096
_SPIKES_SHOWN = 5


class Run:
    """A run as its ledger tells it, at the moment it was opened. Open it again to see what came since.

    Args:
        path: Folder of the run.
        attempt: The attempt whose history is asked for; None: the newest that recorded something.
        stores: Where token stores lie now, by the name of the dataset, where they moved since.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        attempt: int | None = None,
        stores: Mapping[str, str] | None = None,
        evidence: Evidence | None = None,
    ) -> None:
        self.evidence = read_evidence(local_path(path), attempt) if evidence is None else evidence
        self.path = self.evidence.run.path
        self.steps = History(self.evidence)
        self.views = Views(self.evidence)
        self._stores, self._digests = stores, dict[str, str]()
        self._mixed: dict[str | int, Table] = {}  # answers that others are made of

    @classmethod
    def of(cls, evidence: Evidence, stores: Mapping[str, str] | None = None) -> Run:
        """Return the run of evidence that was taken: ``evidence.at(moment)`` is a run as a checkpoint saw it."""
        return cls(evidence.run.path, stores=stores, evidence=evidence)

    def at(self, checkpoint: str | os.PathLike[str]) -> Run:
        """Return the run as one of its checkpoints saw it: history ends there.

        Args:
            checkpoint: Folder or file of a checkpoint that has a waybill.
        """
        path = checkpoint_path(checkpoint)
        waybill, own = read_waybill(path), self.evidence.description.run
        moment = waybill.moment
        if moment is None or moment.run != own:
            made = "no run" if moment is None else f"run {moment.run}"
            raise LedgerError(f"{path} was saved in {made}, and {self.path} is run {own}. Give a checkpoint of it.")
        run = Run.of(self.evidence.at(moment), self._stores)
        run._digests = {name: total.names for name, total in waybill.totals.items() if total.names is not None}
        return run

    def __repr__(self) -> str:
        attempts = sum(not attempt.is_void for attempt in self.evidence.attempts.values())
        return f"Run({str(self.path)!r}, {self.num_steps} steps, {attempts} attempt{'s' * (attempts != 1)})"

    def _repr_html_(self) -> str:
        """Return how far it got, what it used of each dataset and its worst spikes, for notebooks."""
        worst = Table(self.spikes().arrow.slice(0, _SPIKES_SHOWN))
        spikes = f"<p>The worst of its spikes</p>{worst._repr_html_()}" if len(worst) else ""
        return f"<p>{shown_html(repr(self))}</p>{self.passes()._repr_html_()}{spikes}"

    @property
    def plan(self) -> Plan | None:
        """The plan the run follows now, events included; None where nothing predicts the order."""
        return newest_plan(self.evidence)

    @functools.cached_property
    def documents(self) -> RunDocuments:
        """The documents behind the samples, where the plan says that they lie: their names, and their rows."""
        return RunDocuments(self.plan, self._stores, self._digests)

    @property
    def datasets(self) -> tuple[str, ...]:
        """Names of the datasets, by number; empty where a number is unused."""
        return self.evidence.datasets

    @property
    def named_datasets(self) -> list[tuple[int, str]]:
        """Number and name of each dataset."""
        return self.evidence.description.named_datasets

    @property
    def events(self) -> list[dict[str, Any]]:
        """What happened to the run as a whole, and every bad sample."""
        bad = [{"event": "bad sample", **e} for e in self.evidence.exceptions() if e["reason"] != BLOCKED]
        return [*run_events(self.evidence), *bad]

    @property
    def num_steps(self) -> int:
        """Steps from 0 to the last one recorded."""
        return next_step(self.evidence)

    @functools.cached_property
    def history(self) -> Table:
        """What the model was trained on, in order: each step once, unless it was replayed."""
        return Table(self.views.query("FROM history ORDER BY attempt, step"))

    @functools.cached_property
    def batches(self) -> Table:
        """Every row that any rank recorded in any attempt."""
        return Table(self.views.query("SELECT * EXCLUDE owned FROM batches ORDER BY attempt, step, rank"))

    def step(self, step: int | str) -> StepRecord:
        """Return everything known of a step, or of a batch by its id: samples, fate, loss, exceptions, attempts."""
        if isinstance(step, str):
            step = step_of_batch(self.step, step)
        record = step_record(self.evidence, self.views, step)
        samples = self.documents.named(record.samples)
        if self.evidence.has_rows("uses"):
            samples = self.rollout_history.noted(samples, attempt=record.attempt, step=step)
        return replace(record, samples=samples, unnamed=list(self.documents.missing.values()))

    def samples_of(self, steps: Iterable[int]) -> dict[int, list[dict[str, Any]]]:
        """Return the samples of some steps of history: slot, dataset, name, index; a plan is asked for all at once."""
        if not self.evidence.is_planned:
            return {step: self.step(step).samples.dicts() for step in steps}
        owners = [(self.evidence.owner(step), step) for step in steps]
        pairs = [(owner, step) for owner, step in owners if owner is not None]
        found: dict[int, list[dict[str, Any]]] = {step: [] for _, step in owners}
        for row in planned_samples(self.evidence, pairs).to_pylist():
            found[row["step"]].append(row)
        return found

    def where(self, dataset: str | int, index: int, *, until: int | None = None) -> Table:
        """Return every place a sample was used at: step, epoch, slot, rank, attempt, fate.

        A sample that is used no more has a last row with the fate ``blocked``: since which step, and why.

        Args:
            dataset: Name or number.
            index: Index in the dataset.
            until: Also list where the plan will use it, up to this step.
        """
        found = where(self.evidence, self.views, dataset, index, until)
        return self.rollout_history.noted(found) if self.evidence.has_rows("uses") else found

    def blocks(self) -> Table:
        """Return every sample that is used no more: since which step (None: from the next attempt on), and why."""
        return Table.of(block_rows(self.evidence), BLOCKS)

    @functools.cached_property
    def rollout_history(self) -> RolloutHistory:
        """The rollouts of history, their uses and fates, as columns."""
        return RolloutHistory(self.evidence, self.steps)

    def rollouts(self, dataset: str | int | None = None, index: int | None = None) -> Table:
        """Return every rollout of history: its prompt, policy, reward, updates, age and fate.

        Args:
            dataset: Only of prompts of this dataset, by name or number.
            index: Only of this prompt of the dataset.
        """
        if dataset is None:
            return self.rollout_history.table()
        made = self.rollout_history.made
        chosen = made["dataset"] == dataset_number(self.evidence, dataset)
        chosen &= True if index is None else made["index"] == index
        return self.rollout_history.table(chosen)

    def rollout_texts(self, dataset: str | int, index: int) -> dict[int, str]:
        """Return what the rollouts of a prompt say, by their numbers, where training kept it (``keep_texts=True``)."""
        made = self.rollout_history.made
        mine = taken(made, (made["dataset"] == dataset_number(self.evidence, dataset)) & (made["index"] == index))
        hashes = [None if content == NOTHING else content for content in mine["content"].tolist()]
        return read_texts(self.path, zip(mine["rollout"].tolist(), hashes, strict=True))

    def bias(self) -> Bias:
        """Return how often decided rollouts were used, by what they are, and whether dropping depended on seconds."""
        return bias(self.rollout_history)

    def bad(self) -> Table:
        """Return every sample that could not be used: where it was planned, what came instead, and why."""
        return bad_samples(self.evidence)

    def mix(self, by: str | int = "run") -> Table:
        """Return the samples and share of each dataset, against the plan.

        Args:
            by: ``run``, ``epoch``, ``chunk``, ``attempt``, or a number of steps.
        """
        if by not in self._mixed:
            columns = [by] if by in ("epoch", "chunk") else []
            self._mixed[by] = mix(self.evidence, self.steps.only(*columns), self.views, by)
        return self._mixed[by]

    def decisions(self) -> Table:
        """Return what changed the plan while it ran, and what was validated: step, kind, what was decided, and why."""
        return Table.of(decisions(self.evidence), DECISIONS)

    def passes(self) -> Table:
        """Return how often each dataset was gone through, and how much of it was ever used."""
        return passes(self.evidence, self.steps.only(), self.views)

    coverage = passes

    def losses(self, by: str | None = None, *, bins: int = 40) -> Table:
        """Return the loss of every applied step, or with ``by="dataset"`` of each dataset along the run."""
        return losses_by_dataset(self.evidence, self.views, bins) if by == "dataset" else self._losses

    @functools.cached_property
    def _losses(self) -> Table:
        return losses(self.steps)

    def metrics(self) -> dict[str, Table]:
        """Return attempt, step and value of every metric that training committed beside the loss, by its name."""
        return metrics(self.evidence, self.steps)

    def undone_losses(self) -> Table:
        """Return attempt, step and loss of what was trained on and then undone by a resume, or left behind."""
        return undone_losses(self.steps)

    @property
    def has_dataset_losses(self) -> bool:
        """Whether training committed metrics ``loss/<dataset>``."""
        return has_own_losses(self.evidence, self.views)

    def spikes(self, *, window: int = SPIKE_WINDOW, threshold: float = 6.0) -> Table:
        """Return the steps whose loss stands far above those before them, the worst first.

        Args:
            window: Steps before it to compare with.
            threshold: How many robust standard deviations are far.
        """
        return spikes(self._losses, window, threshold)

    def compare(self, other: Run | str | os.PathLike[str]) -> Comparison:
        """Compare with another run, step by step, whatever their world sizes."""
        return compare(self, other if isinstance(other, Run) else Run(other))

    def explain(self, step: int, *, around: int = 5, lengths: Lengths | None = None) -> Explanation:
        """Return everything known of a step: samples, shares, earlier exposures, losses around it.

        Args:
            step: The step.
            around: Steps before and after it whose losses are listed.
            lengths: ``lengths(dataset, index)`` says how long a sample is; None: nothing is said of lengths.
        """
        return explain(self, step, around, lengths)

    def trace(self, text: str | None = None, **options: Any) -> Trace:
        """Return the spans of a text that the corpora hold word for word, and the updates that used them.

        Args:
            text: The text.
            options: ``ids`` instead of a text, ``least``, ``limit``, ``tokenizer``: see ``report.trace.trace``.
        """
        from lading.report.trace.corpora import TracedRun
        from lading.report.trace.trace import trace  # few ask what a text did

        return trace([TracedRun(self, self)], text, **options)

    def contaminated(self, benchmark: str | os.PathLike[str], field: str, **options: Any) -> Contamination:
        """Return the items of a benchmark, an object a line, that the corpora hold, and the updates that used them.

        Args:
            benchmark: The file.
            field: Key of the text of an item.
            options: ``answer``, ``n``, ``limit``, ``tokenizer``: see ``report.trace.contaminated``.
        """
        from lading.report.trace.contaminated import contaminated
        from lading.report.trace.corpora import TracedRun

        return contaminated([TracedRun(self, self)], benchmark, field, **options)

    def forget(self, **asked: Any) -> Forgetting:
        """Ask that documents (``documents=["web:81"]``) or samples be forgotten; return what that takes.

        Args:
            asked: ``documents``, ``samples``, ``shared_tokens``, ``by``, ``reason``, ``runs``, ``dry_run``, ``yes``:
                see ``report.forget.forget``.
        """
        from lading.report.forget.forget import forget  # few forget

        return forget(self, **asked)

    def block(self, *specs: str, reason: str = "") -> list[SampleId]:
        """Ask that samples (``code:93412``, ``code:0-9``, ``step:48213``) be used no more from the next attempt on."""
        return block(self, list(specs), reason)

    def sql(self, query: str, *, steps: tuple[int, int] | None = None) -> Table:
        """Return the answer of DuckDB over the views ``batches``, ``history`` and ``samples``.

        Args:
            query: SQL.
            steps: ``(first, stop)`` of the steps whose samples a planned run works out; None: all of history.
        """
        if self.evidence.is_planned:
            self.views.unregister("samples")  # they were of the steps that an earlier query asked for
        try:
            return Table(self.views.ask(query))
        except NoSamples:
            self._provide_samples(steps)
        return Table(self.views.ask(query))

    def rows_of(self, table: str, until: int | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the rows of ``history``, ``samples``, ``exposures``, ``documents`` or ``rollouts``, in batches.

        Args:
            table: Which of them.
            until: Only what came before this step: what a checkpoint that was saved there had seen.
        """
        stop = INT64_MAX if until is None else until
        if table == "history":
            yield from self.views.stream(f"FROM history WHERE step < {stop} ORDER BY attempt, step")
        elif table == "samples" and not self.evidence.is_planned:
            self.views.create_samples()
            yield from self.views.stream(f"FROM samples WHERE step < {stop} ORDER BY attempt, step, slot")
        elif table == "samples":
            pairs = self._applied_between(0, stop)
            yield pa.RecordBatch.from_pylist([], schema=SAMPLES)
            for first in range(0, len(pairs), _STEPS_AT_ONCE):
                yield from planned_samples(self.evidence, pairs[first : first + _STEPS_AT_ONCE]).to_batches()
        elif table == "rollouts":
            made = self.rollouts().arrow
            yield from made.take(np.flatnonzero(numbers(made["step"])[0] < stop)).combine_chunks().to_batches()
        else:
            yield from self._exposed(table, stop)

    def _exposed(self, table: str, until: int) -> Iterator[pa.RecordBatch]:
        if self.evidence.is_planned:
            samples = pa.RecordBatchReader.from_batches(SAMPLES, self.rows_of("samples", until))
            self.views.register("samples", samples)
        else:
            self.views.create_samples()
        try:
            if table == "exposures":
                yield from exposures(self.views, self.documents, until)
            else:
                numbers = [number for number, _ in self.named_datasets]
                yield from documents_used(self.views, self.documents, numbers, until)
        finally:
            if self.evidence.is_planned:
                self.views.unregister("samples")

    def _provide_samples(self, steps: tuple[int, int] | None) -> None:
        if not self.evidence.is_planned:
            self.views.create_samples()
            return
        pairs = self._applied_between(*(steps or (0, self.num_steps)))
        self.views.register("samples", planned_samples(self.evidence, pairs))

    def _applied_between(self, first: int, stop: int) -> list[tuple[int, int]]:
        """Return attempt and step of what history applied, from a step to before another."""
        applied = self.steps.applied
        inside = taken(applied, (applied["step"] >= first) & (applied["step"] < stop))
        return list(zip(inside["attempt"].tolist(), inside["step"].tolist(), strict=True))

    def content_of(self, step: int) -> dict[int, int]:
        """Return the hash of each sample's bytes in a step, by slot, where they were kept."""
        owner = self.evidence.owner(step)
        self.views.create_samples()
        table = self.views.query(
            "SELECT slot, content FROM recorded_samples WHERE step = ? AND attempt = ?",
            step,
            -1 if owner is None else owner,
        )
        return dict(zip(table["slot"].to_pylist(), table["content"].to_pylist(), strict=True))

    def counts_between(self, first: int, stop: int) -> NDArray[np.int64]:
        """Return the samples of each dataset, by number, that steps from one to before another recorded by name."""
        self.views.create_samples()
        query = "SELECT dataset, count(*) AS n FROM samples WHERE step >= ? AND step < ? GROUP BY dataset"
        counts = np.zeros(len(self.datasets), dtype=np.int64)
        for row in self.views.query(query, first, stop).to_pylist():
            counts[row["dataset"]] = row["n"]
        return counts

    def number_of(self, dataset: str | int) -> int:
        """Return the number of a dataset given by name or number."""
        return dataset_number(self.evidence, dataset)

    def verify(self, progress: Progress = silent, *, allow_empty: bool = False) -> Verdict:
        """Recompute the plan and compare it with the evidence.

        Args:
            progress: Is called with how far it is, and what is looked at.
            allow_empty: Whether a run that committed nothing holds, too.
        """
        from lading.report.verify.checking import verify  # other questions need none of it

        return verify(self.evidence, progress, allow_empty=allow_empty)


def open_run(
    path: str | os.PathLike[str], attempt: int | None = None, *, stores: Mapping[str, str] | None = None
) -> Run:
    """Open a run for questions; another process may be writing to it. The arguments are those of ``Run``."""
    return Run(path, attempt, stores)
