"""TRL's trainers that make their own data (GRPO, RLOO), accounted for.

    plan        ──▶ rows of a block, each ``num_generations`` times         what the trainer asks for
    prompts     ──▶ compared with the plan, and read once each               what it makes rollouts of
    generated   ──▶ rollouts with numbers, an int64 column beside them       survives TRL's shuffle and split
    batch       ──▶ the column is read and taken out                         what goes into the loss
    update      ──▶ uses                                                     what the optimizer used

A block is one generation: ``steps_per_generation`` batches, each trained on
``num_iterations`` times. A step of the ledger is one such batch. A checkpoint
inside a block keeps what is left of it, ``lading_rollouts-<rank>.pt``: TRL
throws it away and generates anew, from other prompts.
"""

from __future__ import annotations

import hashlib
import io
import itertools
import os
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from lading.errors import LoaderError, ResumeError
from lading.identity import Bill, World
from lading.ledger.ledger import Ledger
from lading.loader.state import NO_MARK, loaded_mark
from lading.loader.torch.loader import Loader
from lading.runtime.fields import Fields, Origin, given, named, tuple_of
from lading.runtime.files import write_aside
from lading.train.rollouts.books import RolloutBooks
from lading.train.rollouts.group import MadeGroup, contents_of
from lading.train.transformers.books import UpdateBooks
from lading.train.transformers.numbered import Numbered, RowNumbers

NUMBERS = "lading_rollouts"  # the column of rollout numbers beside TRL's tensors
_SHAPE = ("num_generations", "steps_per_generation", "num_iterations", "batch_size", "accumulation", "world_size")
_WAY_OUT = "Take an older checkpoint, or start a new run."


class PromptRows:
    """The rows of a batch's prompts, on their way to the trainer.

    A trainer asks for them anew for each batch of a block, and makes rollouts of the first: only then are they read,
    and moved to its device. Accelerate looks into lists, not into what it does not know.

    Attributes:
        rows: A row for each rollout that is to be made.
    """

    def __init__(self, rows: Sequence[int]) -> None:
        self.rows = list(rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __contains__(self, column: object) -> bool:
        return False  # a trainer asks whether there are labels


class GenerationShape:
    """How a trainer cuts its data: what must be the same after a resume.

    Args:
        trainer: The trainer.
    """

    def __init__(self, trainer: Any) -> None:
        args = trainer.args
        self.values = {
            "num_generations": int(trainer.num_generations),
            "steps_per_generation": int(args.steps_per_generation),
            "num_iterations": int(trainer.num_iterations),
            "batch_size": int(args.train_batch_size),
            "accumulation": int(args.gradient_accumulation_steps),
            "world_size": int(args.world_size),
        }
        self.num_generations, self.accumulation = self.values["num_generations"], self.values["accumulation"]
        self.block_steps = self.values["steps_per_generation"] * self.values["num_iterations"]
        self.rows = self.values["batch_size"] * self.values["steps_per_generation"]
        self.prompts = self.rows * self.values["world_size"] // self.num_generations

    def check(self, saved: Fields) -> None:
        """Refuse to resume with another shape, and name every difference."""
        before = {name: saved.integer(name, low=1) for name in _SHAPE}
        changed = [f"{name} {before[name]} -> {now}" for name, now in self.values.items() if before[name] != now]
        if changed:
            raise ResumeError(
                f"the checkpoint was taken inside a run with another shape: {', '.join(changed)}. Its open rollouts do "
                "not fit. Resume with the values of the run, or start a new run."
            )


class RolloutUpdateBooks(UpdateBooks):
    """Ledger, prompts and rollouts of a trainer's run.

    Args:
        loader: A loader over the prompts, which is never iterated: its plan is the order of the prompts.
        run: The ledger, or the folder in which each training opens one.
        shape: How the trainer cuts its data.
        world: This process among how many.
        put_back: Gives the trainer its count of batches, and what is left of a block.
        base: Checkpoints that the model's weights were loaded from.
        keep_texts: Whether what the completions say is written, too.
    """

    def __init__(
        self,
        loader: Loader,
        run: Ledger | str | os.PathLike[str],
        shape: GenerationShape,
        world: World,
        put_back: Callable[[int, list[dict[str, Any]] | None], None],
        base: Sequence[str] = (),
        *,
        keep_texts: bool = False,
    ) -> None:
        super().__init__(run, loader.plan.names, base)
        self._keeps_texts = keep_texts
        self.plan, self.shape, self._world, self._put_back = loader.plan, shape, world, put_back
        self._blocks = self.plan.epoch_steps(0)  # refused where there is none
        self._prompts = Numbered(tuple(loader.engine.request.sources.values()))
        self.data = RowNumbers(self._prompts)
        self.rollouts: RolloutBooks | None = None
        self.checkpoint: Path | None = None  # that the trainer resumes from
        self.rewards: torch.Tensor | None = None
        self._sha256 = ""

    @property
    def commits(self) -> Any:
        """What is told of the batches that an update used."""
        return self._open

    @property
    def rows_of_epoch(self) -> int:
        """Rows that the trainer's DataLoader reads in an epoch, all processes together."""
        return self._blocks * self.shape.prompts * self.shape.num_generations * self.shape.block_steps

    def order(self, update: int) -> Iterator[int]:
        """Yield the rows of the epoch that an update belongs to, each block as often as the trainer reads it."""
        epoch = update // -(-self._blocks * self.shape.block_steps // self.shape.accumulation)
        for block in range(epoch * self._blocks, (epoch + 1) * self._blocks):
            rows = np.repeat(self._rows_of(self._bill_of(block)), self.shape.num_generations).tolist()
            for _ in range(self.shape.block_steps):
                yield from rows

    def prompts(self, rows: Sequence[int]) -> list[Any]:
        """Return the prompts of a block, one a rollout; each is read once, so that a group has one.

        Args:
            rows: The prompts' rows, as they arrived.
        """
        size, count = self.shape.num_generations, self.shape.rows
        block, begin = self._open.step // self.shape.block_steps, self._world.rank * count
        wanted = np.repeat(self._rows_of(self._bill_of(block)), size)[begin : begin + count].tolist()
        if list(rows) != wanted:
            raise LoaderError(
                f"block {block} was to be made of the rows {wanted[::size][:6]}, but {list(rows)[::size][:6]} arrived. "
                "Something between the sampler and the trainer reorders or shards prompts once more: leave "
                "accelerator_config at its defaults."
            )
        read = dict(self._prompts.__getitems__(list(dict.fromkeys(rows))))
        return [read[row] for row in rows]

    def generated(self, output: dict[str, Any], tokenizer: Any, update: int, seconds: float) -> None:
        """Record what was generated for a block, and put the numbers of its rollouts beside it.

        Args:
            output: What the trainer made of its prompts.
            tokenizer: Knows the padding token, and how completions are written.
            update: The trainer's next update: the policy has had so many.
            seconds: How long it took.
        """
        books, size, count = self._open, self.shape.num_generations, self.shape.rows
        block, begin = books.step // self.shape.block_steps, self._world.rank * count
        bill, texts = self._bill_of(block), []
        books.pass_step(block)
        if self._keeps_texts:
            texts = tokenizer.batch_decode(output["completion_ids"], skip_special_tokens=True)
        datasets, indices, made = bill.dataset_idx.tolist(), bill.idx.tolist(), []
        for group in range(begin // size, -(-(begin + count) // size)):  # of all processes; the first may be cut
            first, stop = max(begin - group * size, 0), min(begin + count - group * size, size)
            prompt = bill.position + group, datasets[group], indices[group]
            made.append(MadeGroup(*prompt, update, stop - first, first))
        numbers = books.take(made, _counted(output, self.rewards, tokenizer.pad_token_id, seconds), texts)
        output[NUMBERS] = torch.tensor(numbers, device=output["completion_ids"].device)

    def used(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Note which rollouts go into the loss, and return what does, without their numbers."""
        counts = inputs["completion_mask"].sum(dim=1)  # in what the loss is given; any() takes ten times as long
        weights = [float(count > 0) for count in counts.tolist()]
        self._fetched.append(self._open.deliver(inputs[NUMBERS].tolist(), weights))
        return {name: value for name, value in inputs.items() if name != NUMBERS}

    def follow(self, loss: torch.Tensor) -> None:
        """See whether the batch whose loss this is gives gradients."""
        assert self._fates is not None, "watch() comes before the first batch"
        self._fates.follow(loss)

    def _watched(self, model: Any) -> Callable[[], Iterable[Any]]:
        return tuple  # the losses are followed

    def note(self, rows: NDArray[np.int64], real: int | None = None, kept: NDArray[np.int64] | None = None) -> Bill:
        """Batches are noted by ``used``: the trainer fetches prompts, and trains on rollouts."""
        raise AssertionError("a trainer that makes its data has no rows to note")

    def state(self) -> dict[str, Any]:
        """Return where the run is: after the last update, the same on every rank."""
        books = {"step": 0, **NO_MARK} if self.rollouts is None else self.rollouts.state()
        common = {name: books[name] for name in ("step", *NO_MARK)}
        return {**common, "files_sha256": self._sha256, "shape": dict(self.shape.values)}

    def keep(self, folder: Path, buffer: list[dict[str, Any]] | None, gather: Callable[[bytes], list[bytes]]) -> None:
        """Write this rank's open rollouts into a checkpoint; every rank calls it.

        Args:
            folder: The checkpoint.
            buffer: What is left of the block; None at its end.
            gather: Returns what all ranks give, in order.
        """
        content = io.BytesIO()
        kept = None if buffer is None else [_detached(part) for part in buffer]
        torch.save({"buffer": kept, "books": self._open.state()}, content)
        folder.mkdir(parents=True, exist_ok=True)
        write_aside(file_of(folder, self._world.rank), content.getvalue())
        self._sha256 = _together(gather(hashlib.sha256(content.getvalue()).digest()))

    def _stand(self, update: int, state: Mapping[str, Any] | None) -> None:
        size, most = self.shape.num_generations, max(1024, 2 * self.shape.prompts)
        books = RolloutBooks(
            self.ledger,
            self.plan,
            group_size=size,
            world=self._world,
            reusable_groups=most,
            keep_texts=self._keeps_texts,
        )
        buffer = None
        if state is not None:
            buffer = self._restore(books, update, state)
        self.rollouts = books
        books.begin()
        self._put_back(books.step, buffer)

    def _restore(self, books: RolloutBooks, update: int, state: Mapping[str, Any]) -> list[dict[str, Any]] | None:
        fields = Fields(state, Origin("the checkpoint's state", ResumeError, _WAY_OUT))
        self.shape.check(fields.record("shape"))
        if self.checkpoint is None:
            raise ResumeError(
                "the trainer resumes from a checkpoint that it did not name: its open rollouts are missing."
            )
        buffer, saved = read_buffer(
            self.checkpoint, self._world, fields.hexadecimal("files_sha256", digits=64), loaded_mark(state)
        )
        books.load(saved)
        if books.step != fields.integer("step", low=0) or (buffer is None) != (not books.step % self.shape.block_steps):
            raise ResumeError(
                f"{self.checkpoint}: its open rollouts were taken at another step than its state. {_WAY_OUT}"
            )
        return buffer

    @property
    def _open(self) -> RolloutBooks:
        assert self.rollouts is not None, "begin() comes before the first batch"
        return self.rollouts

    def _bill_of(self, block: int) -> Bill:
        order = None if self.rollouts is None else self.rollouts.prompts
        if order is None or order.plan is None or block < order.plan.first_step:
            return self.plan.bill(block)  # what is past is only counted
        return order.bill(block)

    def _rows_of(self, bill: Bill) -> NDArray[np.int64]:
        return np.asarray(self._prompts.row_of(bill.source_idx, bill.rows))


def file_of(folder: Path, rank: int) -> Path:
    """Return where a checkpoint keeps the open rollouts of a rank."""
    return folder / f"lading_rollouts-{rank}.pt"


def read_buffer(
    folder: Path, world: World, sha256: str, mark: Mapping[str, Any]
) -> tuple[list[dict[str, Any]] | None, dict[str, Any]]:
    """Return a rank's open buffer and its books' state; whatever is not what was saved is refused.

    Args:
        folder: The checkpoint.
        world: This rank among how many.
        sha256: What the state says of the files of all ranks.
        mark: Run, attempt and launch of the state.
    """
    hashes, mine = [], b""
    for rank in range(world.world_size):
        path = file_of(folder, rank)
        if not path.is_file():
            raise ResumeError(f"{path} is missing: the open rollouts of rank {rank} were kept in it. {_WAY_OUT}")
        content = path.read_bytes()
        hashes.append(hashlib.sha256(content).digest())
        mine = content if rank == world.rank else mine
    path = file_of(folder, world.rank)
    if _together(hashes) != sha256:
        raise ResumeError(
            f"{path}: the open rollouts are not those that were saved with {folder.name}: a file was changed, cut, or "
            f"comes from another checkpoint. {_WAY_OUT}"
        )
    try:
        found = torch.load(io.BytesIO(mine), weights_only=True, map_location="cpu")
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, KeyError) as error:
        why = str(error).partition("\n")[0]
        raise ResumeError(f"{path} is no file of tensors ({type(error).__name__}: {why}). {_WAY_OUT}") from error
    fields = Fields(found, Origin(path, ResumeError, _WAY_OUT))
    buffer, books = fields.read({"buffer": given(tuple_of(named(Fields.value))), "books": Fields.value}).values()
    if not isinstance(books, dict) or any(
        books.get(name) != mark[name] for name in ("run", "attempt", "launch", "step")
    ):
        raise ResumeError(f"{path} belongs to another run, or to another moment of this one. {_WAY_OUT}")
    return None if buffer is None else list(buffer), books


def _together(hashes: Sequence[bytes]) -> str:
    return hashlib.sha256(b"".join(hashes)).hexdigest()


def _detached(part: Mapping[str, Any]) -> dict[str, Any]:
    """Return tensors by themselves: a slice would take all it was cut from with it."""
    kept = {}
    for name, value in part.items():
        kept[name] = value.detach().cpu().clone() if isinstance(value, torch.Tensor) else value
    return kept


def _counted(output: Mapping[str, Any], rewards: torch.Tensor | None, pad: int, seconds: float) -> tuple[Any, ...]:
    """Return what is recorded of the rollouts of a block as TRL made them, see ``RolloutBooks.take``."""
    ids, masks = output["completion_ids"].cpu().numpy(), output["completion_mask"].cpu().numpy() > 0
    advantages = output["advantages"]
    if advantages.ndim > 1:  # one a token
        advantages = advantages.double().mean(dim=1)
    if not masks.any(axis=1).all():  # one that was cut off is masked as a whole: its last token, and all before it
        until = np.logical_or.accumulate((ids != pad)[:, ::-1], axis=1)[:, ::-1]
        masks = np.where(masks.any(axis=1, keepdims=True), masks, until)
    content, counts = ids[masks].astype("<i8").tobytes(), masks.sum(axis=1)
    ends = [0, *(8 * counts.cumsum()).tolist()]
    return (
        counts,
        contents_of(content[a:b] for a, b in itertools.pairwise(ends)),
        _known(rewards),
        _known(advantages),
        seconds,
    )


def _known(scores: torch.Tensor | None) -> NDArray[np.float64] | None:
    """Return scores; NaN where nobody could say one."""
    if scores is None:
        return None
    found = np.array(scores.tolist(), np.float64)
    found[~np.isfinite(found)] = np.nan
    return found
