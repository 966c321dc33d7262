"""A witness beside the books: what a model was really given, written down where the model gets it.

    dataset    {"read": 7}                          a row was read, in whichever process
    forward    {"given": [7, 3], "weights": "a1.."}   the model's own input says which samples it got
    backward   {"taught": 1}                        its gradients arrived
    end        {"weights": "c3.."}

No loader, bill or ledger is asked. Whether an update was made, and what a process
that resumed continues, is read off the weights: they changed, or they are those
of an earlier moment. Each record is in its file before training goes on, so
``kill -9`` loses nothing before the update under way.
"""

from __future__ import annotations

import atexit
import contextlib
import difflib
import hashlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lading.errors import ConfigError
from lading.report import open_run
from lading.runtime.arrays import framework, host
from lading.runtime.paths import local_path
from lading.source.reader import draws_nothing

Ids = tuple[int, ...]


def witness(
    trained: Any,
    folder: str | os.PathLike[str],
    ids: Callable[..., Any],
    *,
    weights: Callable[..., Any] | None = None,
    rank: int | None = None,
) -> Witness:
    """Watch a model, or a step function, and write down what it is given; ``compare_witness`` compares it with a run.

    >>> import tempfile
    >>> step = witness(lambda weights, batch: weights + 1, tempfile.mkdtemp(), ids=lambda weights, batch: batch)
    >>> step(0, [7, 3])
    1

    Args:
        trained: A torch module, which is watched where it stands; or a function that makes an update: call the witness
            instead of it.
        folder: Where to write; one for all processes, ranks and attempts of a run.
        ids: Called with the arguments of ``forward`` or of the function; returns the number of each row, taken from the
            data themselves. Negative ones (padding) do not count.
        weights: Called with the same arguments; returns what an update changes, as arrays in dicts, lists and tuples.
            None: a module's parameters, a function's first argument.
        rank: Which of several processes that train one model this is. None: the environment's ``RANK``, else 0.
    """
    return Witness(trained, local_path(folder), ids, weights, int(os.environ.get("RANK", 0)) if rank is None else rank)


class Witness:
    """What ``witness`` returns: the step function, watched; or the watch over a module."""

    def __init__(
        self, trained: Any, folder: Path, ids: Callable[..., Any], weights: Callable[..., Any] | None, rank: int
    ) -> None:
        self._trained, self._ids, self._weights = trained, ids, weights
        self._folder, self._rank = folder, rank
        self._diary: _Diary | None = None
        self._handles: list[Any] = []
        self._now: Callable[[], Any] | None = None  # the weights of the moment
        self._taught = True
        if hasattr(trained, "register_forward_pre_hook"):
            self._watch(trained)
        elif not callable(trained):
            raise ConfigError(
                f"a witness was asked to watch a {type(trained).__name__}: expected a torch module, or a function that "
                "makes an update. Pass the model that is trained."
            )
        atexit.register(self.close)

    def __call__(self, *args: Any, **options: Any) -> Any:
        """Call the step function, and write down what it was given."""
        if self._handles:
            return self._trained(*args, **options)
        self._now = lambda: (args[0] if args else ()) if self._weights is None else self._weights(*args, **options)
        self._write_given(args, options, fresh=True, training=True)
        found = self._trained(*args, **options)
        self._write({"taught": 1})
        return found

    def dataset(self, data: Any) -> Any:
        """Return a dataset of the same rows; each is written down when it is read, also in worker processes."""
        return _Read(data, self._folder)

    def close(self, weights: Any = None) -> None:
        """Write down what the weights are in the end, and stop watching.

        Args:
            weights: What the last call of a step function returned as weights; None: as they are known.
        """
        atexit.unregister(self.close)
        for handle in self._handles:
            handle.remove()
        if self._diary is not None and self._diary.is_own and (weights is not None or self._handles):
            self._write({"weights": _hash(self._now() if weights is None and self._now else weights)})
        self._handles, self._diary = [], None

    def _watch(self, module: Any) -> None:
        parameters = list(module.parameters())
        self._now = lambda: [parameter.detach() for parameter in module.parameters()]

        def given(module: Any, args: Any, options: Any) -> None:
            is_fresh = all(parameter.grad is None for parameter in parameters)
            training = module.training and sys.modules["torch"].is_grad_enabled()
            self._write_given(args, options, fresh=is_fresh, training=training)

        self._handles = [module.register_forward_pre_hook(given, with_kwargs=True)]
        watched = [parameter for parameter in parameters if parameter.requires_grad]
        self._handles += [parameter.register_post_accumulate_grad_hook(self._note_gradient) for parameter in watched]

    def _note_gradient(self, parameter: Any) -> None:
        if not self._taught:
            self._taught = True
            self._write({"taught": 1})

    def _write_given(self, args: Any, options: Any, *, fresh: bool, training: bool) -> None:
        rows = [int(row) for row in host(self._ids(*args, **options)).reshape(-1).tolist()]
        if not training:
            self._write({"looked": rows})
            return
        self._taught = False
        assert self._now is not None
        self._write({"given": [row for row in rows if row >= 0], "weights": _hash(self._now()), "fresh": fresh})

    def _write(self, record: Mapping[str, Any]) -> None:
        if self._diary is None or not self._diary.is_own:
            self._diary = _Diary(self._folder, f"rank-{self._rank}")
        self._diary.write(record)


class _Diary:
    """A file of this process: a JSON record a line, handed to the system before training goes on."""

    def __init__(self, folder: Path, name: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._process = os.getpid()
        path = folder / f"{name}-{time.time_ns()}-{self._process}.jsonl"
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    @property
    def is_own(self) -> bool:
        """Whether this is still the process that opened it, not a fork."""
        return self._process == os.getpid()

    def write(self, record: Mapping[str, Any]) -> None:
        os.write(self._file, json.dumps(record).encode() + b"\n")


class _Read:
    """A dataset that writes down which rows are read of it."""

    def __init__(self, data: Any, folder: Path) -> None:
        self._data, self._folder = data, folder
        self._diary: _Diary | None = None

    @property
    def random_free(self) -> bool:
        """Whether reading draws no random numbers."""
        return draws_nothing(self._data)

    def __len__(self) -> int:
        return len(self._data)

    def __getitem__(self, index: Any) -> Any:
        self._note([int(index)])
        return self._data[index]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        found = getattr(self._data, name)
        return self._taking(found) if name == "take" else found

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_diary": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)

    def _taking(self, take: Any) -> Any:
        def taken(indices: Any, *args: Any, **options: Any) -> Any:
            self._note([int(index) for index in indices])
            return take(indices, *args, **options)

        return taken

    def _note(self, rows: list[int]) -> None:
        if self._diary is None or not self._diary.is_own:
            self._diary = _Diary(self._folder, "read")
        self._diary.write({"read": rows})


@dataclass(frozen=True)
class WitnessDifference:
    """Where a run's books and the witness differ.

    Attributes:
        kind: ``books only`` (recorded as applied, not trained on), ``model only`` (trained on, not in history) or
            ``never read`` (the model was given a row that nobody read).
        ids: The rows.
        attempt: The attempt of the books' step; None where the books have none.
        step: The books' step.
    """

    kind: str
    ids: Ids
    attempt: int | None = None
    step: int | None = None


def compare_witness(
    folder: str | os.PathLike[str],
    run: str | os.PathLike[str],
    number: Callable[[str, int], int] | None = None,
    *,
    may_lack_end: bool = False,
) -> list[WitnessDifference]:
    """Compare what the newest model was trained on, by the witness, with a run's history, batch by batch, in order.

    Args:
        folder: Where the witness wrote.
        run: Folder of the run.
        number: The number that the data carry for the sample (dataset, index) of the books; None: the index.
        may_lack_end: Whether the end of history may be missing: the last attempt was killed, and what it recorded after
            its last flush is gone.
    """
    line, is_ended = trained_batches(folder)
    books = list(_applied(run, number or (lambda dataset, index: index)))
    truth = [batch.ids for batch in line if batch.is_used]
    known = [ids for _, _, ids in books]
    if not is_ended and known[len(truth) :] and known[: len(truth)] == truth:
        books = books[: len(truth)]  # the update under way when the process died: nobody saw whether it was made
    if may_lack_end and truth[: len(known)] == known:
        truth = truth[: len(known)]
    return [*_differences(books, truth), *_never_read(local_path(folder), truth)]


@dataclass(frozen=True)
class GivenBatch:
    """A batch that a model was given while it was trained.

    Attributes:
        ids: Its rows, in ascending order; of all ranks together.
        weights: Hash of the weights before it.
        is_taught: Whether gradients arrived.
        is_fresh: Whether no gradients were waiting before it.
        is_used: Whether an update used it.
    """

    ids: Ids
    weights: str
    is_taught: bool
    is_fresh: bool
    is_used: bool = False


def trained_batches(folder: str | os.PathLike[str]) -> tuple[list[GivenBatch], bool]:
    """Return what the newest model was given from its beginning on, and whether its process saw its own end."""
    lines: list[tuple[list[GivenBatch], str | None]] = []
    for own, end in _launches(local_path(folder)):
        before: list[GivenBatch] = []
        for earlier, last in reversed(lines):
            moments = [*(batch.weights for batch in earlier), last]
            if own and own[0].weights in moments:
                before = earlier[: moments.index(own[0].weights)]
                break
        lines.append(([*before, *own], end))
    if not lines:
        raise ConfigError(f"{folder} holds no record of a witness. Pass the folder that witness(...) was given.")
    return lines[-1][0], lines[-1][1] is not None


def _launches(folder: Path) -> Iterator[tuple[list[GivenBatch], str | None]]:
    """Yield what each start of the training was given, the ranks that were started together as one."""
    by_rank: dict[str, list[Path]] = {}
    for path in sorted(folder.glob("rank-*.jsonl"), key=lambda p: int(p.stem.split("-")[2])):
        by_rank.setdefault(path.stem.split("-")[1], []).append(path)
    if len({len(paths) for paths in by_rank.values()}) > 1:
        counts = ", ".join(f"rank {rank}: {len(paths)}" for rank, paths in sorted(by_rank.items()))
        raise ConfigError(
            f"the ranks that a witness saw in {folder} were not started equally often ({counts}): expected each in "
            "every start. Compare runs of as many ranks each time, and give each start of a run the same folder."
        )
    for paths in zip(*(by_rank[rank] for rank in sorted(by_rank, key=int)), strict=True):
        read = [_given(path) for path in paths]
        ranks = [_with_uses(batches, end) for batches, end in read]
        yield [_together(batches) for batches in zip(*ranks, strict=False)], read[0][1]


def _given(path: Path) -> tuple[list[GivenBatch], str | None]:
    found: list[GivenBatch] = []
    end = None
    for record in _records(path):
        if "given" in record:
            found.append(GivenBatch(tuple(sorted(record["given"])), record["weights"], False, record["fresh"]))
        elif "taught" in record and found:
            found[-1] = replace(found[-1], is_taught=True)
        elif "weights" in record:
            end = record["weights"]
    return found, end


def _with_uses(batches: list[GivenBatch], end: str | None) -> list[GivenBatch]:
    """Mark what an update used: it gave gradients, none were thrown away since, and the weights changed after it."""
    found: list[GivenBatch] = []
    waiting: list[int] = []
    for place, batch in enumerate(batches):
        if batch.is_fresh:
            waiting = []
        if batch.is_taught:
            waiting.append(place)
        found.append(batch)
        following = batches[place + 1].weights if place + 1 < len(batches) else end
        if following is not None and following != batch.weights:
            for used in waiting:
                found[used] = replace(found[used], is_used=True)
            waiting = []
    return found


def _together(ranks: Sequence[GivenBatch]) -> GivenBatch:
    ids = tuple(sorted(row for batch in ranks for row in batch.ids))
    return replace(ranks[0], ids=ids, is_used=all(batch.is_used for batch in ranks))


def _applied(run: str | os.PathLike[str], number: Callable[[str, int], int]) -> Iterator[tuple[int, int, Ids]]:
    """Yield attempt, step and rows of the applied steps of history, in the order of training."""
    rows: dict[tuple[int, int], list[int]] = {}
    for batch in open_run(run).rows_of("samples"):
        for row in batch.to_pylist():
            rows.setdefault((row["attempt"], row["step"]), []).append(number(row["name"], row["index"]))
    for (attempt, step), found in sorted(rows.items()):
        yield attempt, step, tuple(sorted(found))


def _differences(books: list[tuple[int, int, Ids]], truth: list[Ids]) -> Iterator[WitnessDifference]:
    known = [ids for _, _, ids in books]
    for kind, a, b, c, d in difflib.SequenceMatcher(None, known, truth, autojunk=False).get_opcodes():
        if kind != "equal":
            for attempt, step, ids in books[a:b]:
                yield WitnessDifference("books only", ids, attempt, step)
            for ids in truth[c:d]:
                yield WitnessDifference("model only", ids)


def _never_read(folder: Path, truth: list[Ids]) -> Iterator[WitnessDifference]:
    read = {row for path in folder.glob("read-*.jsonl") for record in _records(path) for row in record["read"]}
    missing = sorted({row for ids in truth for row in ids} - read) if read else []
    if missing:
        yield WitnessDifference("never read", tuple(missing))


def _records(path: Path) -> Iterator[dict[str, Any]]:
    for line in path.read_bytes().split(b"\n")[:-1]:  # the last line of a killed process may be torn
        with contextlib.suppress(ValueError):
            yield json.loads(line)


def _hash(weights: Any) -> str:
    """Return a hash of arrays."""
    total = hashlib.blake2b(digest_size=8)
    for leaf in _leaves(weights):
        total.update(host(leaf).tobytes())
    return total.hexdigest()


def _leaves(value: Any) -> Iterable[Any]:
    if isinstance(value, Mapping):
        return (leaf for key in value for leaf in _leaves(value[key]))
    if isinstance(value, list | tuple):
        return (leaf for inner in value for leaf in _leaves(inner))
    return [value] if framework(value) or isinstance(value, int | float) else []
