"""The books of a loop that makes its own data: every rollout has a number, and is accounted for at any time.

    books = RolloutBooks("runs/7", plan, group_size=8)
    for update in range(1000):
        prompts = books.draw(4)                                       in the plan's order
        numbers = books.made([RolloutGroup(p.group, sample(p), policy=update) for p in prompts])
        used, late = choose(numbers)
        books.drop(late, "stale")
        books.used(used, update, loss=train(used))
        save(..., books.state())                                      load(state) continues exactly here

A step of the ledger is one call of ``used``: the prompts of the rollouts that
went into the update. What is recorded between two steps belongs to the next, so
that a resume undoes what came after its checkpoint and nothing else: rows of
the step under way travel in the state and are written again by the new attempt.
"""

from __future__ import annotations

import functools
import json
import os
import threading
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lading.errors import ConfigError, LedgerError, ResumeError
from lading.identity import Bill, World
from lading.ledger.description import read_description
from lading.ledger.ledger import Ledger
from lading.ledger.limits import now_milliseconds, readable
from lading.ledger.log import read_log
from lading.ledger.packed import rows_of
from lading.ledger.rollout_texts import keep_texts as write_texts
from lading.ledger.rows import Columns
from lading.ledger.run_folder import RunFolder
from lading.ledger.schema import SCHEMAS
from lading.ledger.tables import APPLIED
from lading.ledger.writer import unwritable
from lading.loader.state import loaded_mark, marked
from lading.order.plan import Plan
from lading.runtime.fields import Fields, Origin, is_whole, whole
from lading.train.rollouts.group import MadeGroup, Prompt, RolloutGroup
from lading.train.rollouts.live import DROPPED, MOST_PLACES, OPEN, LiveGroup, LiveGroups
from lading.train.rollouts.prompts import PromptOrder

STATE_VERSION = 1
_LONGEST = 1 << 26
_ORIGIN = Origin("the state of the rollouts", ResumeError, "Pass what RolloutBooks.state() returned.")


class RolloutBooks:
    """Records prompts, rollouts, their uses and fates. Any thread may call it.

    Args:
        run: Folder of the run, or its ledger.
        plan: The order of the prompts. None: they come from a stream; names are kept, and nothing says what is next.
        group_size: Most rollouts of a prompt. The number of a rollout is group x group_size + its place in the group.
        world: This rank among how many; None: looked up. Each rank draws its own prompts, and calls ``used`` once
            for each update.
        reusable_groups: Decided groups that are remembered: their rollouts may be used again.
        keep_texts: Whether the texts of rollouts are written, too, into ``texts`` in the run's folder.
    """

    def __init__(
        self,
        run: str | os.PathLike[str] | Ledger,
        plan: Plan | None = None,
        *,
        group_size: int,
        world: World | None = None,
        reusable_groups: int = 1024,
        keep_texts: bool = False,
    ) -> None:
        if not is_whole(group_size, 1) or group_size > MOST_PLACES:
            raise ConfigError(
                f"group_size is {group_size!r}: expected the most rollouts of a prompt, 1 to {MOST_PLACES}."
            )
        self.world = world or World.current()
        self.prompts = PromptOrder(plan, self.world)
        self.live = LiveGroups(group_size, reusable_groups)
        self.ledger = run if isinstance(run, Ledger) else _ledger(run, self.prompts, plan)
        self._run = RunFolder(self.ledger.run_dir.absolute())
        self.step, self._position, self._update, self._keeps_texts = 0, 0, -1, keep_texts
        self._redrawn: list[int] = []
        self._delivered: dict[int, tuple[list[int], list[float] | float]] = {}
        self._recent: dict[str, list[Columns]] = {}  # rows of the next step
        self._loaded: dict[str, Any] | None = None
        self._began = False
        self._lock = threading.RLock()

    def draw(self, count: int = 1) -> list[Prompt]:
        """Return the next prompts of this rank, in the plan's order; after a resume first those without a rollout."""
        with self._lock:
            self.begin()
            again, self._redrawn = self._redrawn[:count], self._redrawn[count:]
            found = [self.prompts.prompt_of(group) for group in again]
            found += [self.prompts.next() for _ in range(count - len(again))]
            self.live.waiting.update({prompt.group: prompt for prompt in found})
            return found

    def made(self, groups: Iterable[RolloutGroup]) -> list[int]:
        """Record rollouts and return their numbers, in order; all of them, or (where one is refused) none."""
        with self._lock:
            self.begin()
            several = list(groups)
            named = [self._named(made) for made in several]
            texts = self._texts_of(several)
            counted = [rollout.counted for made in several for rollout in made.rollouts]
            return self.take(named, tuple(map(list, zip(*counted, strict=True))), texts)

    def take(self, several: Sequence[MadeGroup], counted: Sequence[Any], texts: Sequence[str] = ()) -> list[int]:
        """Record rollouts as ``made`` does.

        Args:
            several: Their groups.
            counted: Columns of what is recorded of them: tokens, content, reward, advantage, seconds.
            texts: What they say, where that is kept.
        """
        with self._lock:
            groups: dict[int, LiveGroup] = {}
            numbers = [number for made in several for number in self.live.add(made, groups)]
            if texts:
                self._keep_texts([*zip(numbers, counted[1], texts, strict=True)])
            self.live.take(groups)
            names = zip(*(made[:4] for made in several for _ in range(made.rollouts)), strict=True)
            self._record("rollouts", len(numbers), self.step, numbers, *map(list, names), *counted, now_milliseconds())
            return numbers.copy()

    def used(self, rollouts: Iterable[int], update: int, *, loss: Any = None, **metrics: Any) -> Bill:
        """Record that an update used some rollouts; they may be used again. This is one step of the run.

        Args:
            rollouts: Their numbers.
            update: Number of the update, from 0.
            loss: Its loss.
            **metrics: Further numbers by name.
        """
        with self._lock:
            numbers = _numbers(rollouts)
            if not is_whole(update, 0):
                raise LedgerError(f"update is {update!r}: expected the number of the update, from 0.")
            self.live.check_open(numbers, used=update)
            bill = self.deliver(numbers)
            self.commit([bill], update=update, loss=loss, **metrics)
            return bill

    def drop(self, rollouts: Iterable[int], reason: str) -> None:
        """Record that no update will use some rollouts.

        Args:
            rollouts: Their numbers.
            reason: ``stale`` and ``lost`` are fates of their own; whatever else (``zero_advantage``, ``length``,
                ``error`` ...) is why they were filtered.
        """
        with self._lock:
            numbers = _numbers(rollouts)
            self.live.check_open(numbers)
            self.begin()
            fate = reason if reason in DROPPED else "filtered"
            why = None if reason == fate else readable(reason)
            self.live.decide(numbers, fate)
            self._record("fates", len(numbers), self.step, numbers, fate, why, now_milliseconds())

    def open_rollouts(self) -> list[int]:
        """Return the numbers of the rollouts that were made and are not decided, in order."""
        with self._lock:
            size, groups = self.live.size, self.live.groups.items()
            return sorted(
                g * size + place for g, live in groups for place, fate in enumerate(live.fates) if fate == OPEN
            )

    def flush(self) -> None:
        """Wait until everything recorded so far is on disk."""
        self.ledger.flush()

    def close(self) -> None:
        """Write everything and close the ledger."""
        self.ledger.close()

    def __enter__(self) -> RolloutBooks:
        return self

    def __exit__(self, *exception: Any) -> None:
        self.ledger.__exit__(*exception)

    def state(self) -> dict[str, Any]:
        """Return where the run is, for a checkpoint of this rank; everything recorded before is on disk."""
        with self._lock:
            if not self.ledger.is_closed:
                self.begin()
                self.ledger.begin(self.step, world=self.world)  # the thread that takes states is the one that trains
                self.ledger.flush()
            return {
                "version": STATE_VERSION,
                "step": self.step,
                "position": self._position,
                "update": self._update,
                "rank": self.world.rank,
                "world_size": self.world.world_size,
                "prompts": json.dumps(self.prompts.state(), separators=(",", ":")),
                "groups": json.dumps(self.live.state(), separators=(",", ":")),
                "rows": json.dumps(self._recent_rows(), separators=(",", ":")),
                **marked(self.ledger.mark(self.step)),
            }

    def load(self, state: Mapping[str, Any]) -> None:
        """Stand where a state was taken. Call it before anything else."""
        with self._lock:
            if self._began:
                raise LedgerError("these books have begun: load a state before the first draw.")
            fields = Fields(state, _ORIGIN)
            if fields.integer("version") != STATE_VERSION:
                fields.refuse("version", str(STATE_VERSION))
            found = World(fields.integer("rank", low=0), fields.integer("world_size", low=1))
            if found != self.world:
                raise ResumeError(
                    f"the state is that of rank {found.rank} of {found.world_size}, this is rank {self.world.rank} of "
                    f"{self.world.world_size}: each rank has its own open rollouts. Resume with as many ranks as there "
                    "were, and give each its own state."
                )
            prompts = _ORIGIN.record(fields.text("prompts", longest=_LONGEST))
            self.prompts.load(prompts.value("plan"), prompts.integer("slot", low=0))
            self.live.load(_ORIGIN.record(fields.text("groups", longest=_LONGEST)))
            self.step, self._position = fields.integer("step", low=0), fields.integer("position", low=0)
            self._update = fields.integer("update", low=-1)
            self._recent = _recent_of(_ORIGIN.record(fields.text("rows", longest=_LONGEST)))
            self._redrawn, self._loaded = list(self.live.waiting), loaded_mark(state)

    def begin(self) -> None:
        """Open the attempt, unless it is: samples blocked by hand are left out from here on."""
        if self._began:
            return
        self._began = True
        if self._run.description.exists():
            self.prompts.honour(read_log(self._run, read_description(self._run).sha256).blocks)
        self.ledger.begin(self.step, world=self.world, loaded=self._loaded)
        for table, pieces in self._recent.items():
            self.ledger.record_columns(table, pieces)

    def pass_step(self, step: int) -> None:
        """Note that the prompts of a step of the plan were all drawn, by all ranks together."""
        with self._lock:
            self.prompts.bill(step)  # what is made of them is looked up in it
            self.prompts.step, self.prompts.slot = step + 1, 0

    def deliver(self, rollouts: list[int], weights: list[float] | float = 1.0) -> Bill:
        """Begin a step: rollouts go into the model, and ``commit`` or ``skip`` will say what became of it.

        Args:
            rollouts: Their numbers.
            weights: What each counts in the loss, or what all do; 0 where all tokens are masked.
        """
        with self._lock:
            self.begin()
            groups = list(map(self.live.of, rollouts))
            world, count = self.world, len(rollouts)
            epoch = self._epoch_of(rollouts[0] // self.live.size) if rollouts else 0
            slots, is_padding = _slots(world.rank, world.world_size, count)
            bill = Bill(
                batch_id="",
                step=self.step,
                epoch=epoch,
                chunk=None,
                position=self._position,
                slots=slots,
                dataset_idx=np.array([live.dataset_idx for live in groups], dtype=np.int32),
                idx=np.array([live.index for live in groups], dtype=np.int64),
                is_padding=is_padding,
                global_size=count * world.world_size,
                world=world,
                names=self.prompts.names,
            )
            self.ledger.deliver(bill)
            self._delivered[self.step] = rollouts.copy(), weights.copy() if isinstance(weights, list) else weights
            self.step, self._position, self._recent = self.step + 1, self._position + bill.global_size, {}
            return bill

    def commit(self, bills: Sequence[Bill], update: int | None = None, loss: Any = None, **metrics: Any) -> None:
        """Record that an update used the rollouts of some steps."""
        with self._lock:
            uses: list[Columns] = []
            number = self._update + 1 if update is None else update
            for bill in bills:
                rollouts, weights = self._delivered.pop(bill.step)
                self.live.decide(rollouts, APPLIED)
                uses.append((len(rollouts), (bill.step, bill.slots, rollouts, number, weights)))
            self._update = number
            self.ledger.record_columns("uses", uses)  # before the step is called applied: without its uses it is none
            self.ledger.commit(bills, update=number, loss=loss, **metrics)

    def skip(self, bills: Bill | Sequence[Bill], reason: str) -> None:
        """Record that no update used the rollouts of some steps; they stay open, or applied by an earlier one."""
        with self._lock:
            several = [bills] if isinstance(bills, Bill) else list(bills)
            for bill in several:
                self._delivered.pop(bill.step)
            self.ledger.skip(several, reason)

    def _texts_of(self, several: Sequence[RolloutGroup]) -> list[str]:
        """Return the texts of some groups, none where they are not kept; refuse a rollout that has none."""
        if not self._keeps_texts:
            return []
        texts = [rollout.text for made in several for rollout in made.rollouts]
        if not all(isinstance(text, str) for text in texts):
            raise LedgerError(
                "keep_texts=True, and a rollout was reported without its text: expected Rollout(tokens, text=...). "
                "Give every rollout its text, or keep none."
            )
        return [text for text in texts if text is not None]

    def _keep_texts(self, texts: list[tuple[int, int | None, str]]) -> None:
        """Write number, hash and text of some rollouts; a full disk does what the ledger's ``on_error`` says."""
        try:
            write_texts(self._run, self.world.rank, texts)
        except OSError as error:
            why = unwritable(self.ledger.run_dir, error)
            if self.ledger.on_error == "raise":
                raise why from error
            warnings.warn(f"{why} The texts of {len(texts)} rollouts are not kept.", stacklevel=4)

    def _named(self, made: RolloutGroup) -> MadeGroup:
        """Return a group with its prompt; one that this rank was to draw must have been drawn."""
        prompt = self.live.groups.get(made.group) or self._prompt_of(made)
        return MadeGroup(made.group, prompt.dataset_idx, prompt.index, made.policy, len(made.rollouts), made.first)

    def _prompt_of(self, made: RolloutGroup) -> Prompt:
        if not is_whole(made.group, 0):
            raise LedgerError(f"group is {made.group!r}: expected the number that draw() gave with the prompt.")
        if made.group not in self.live.waiting and self.world.world_size == 1 and not self._was_passed(made.group):
            raise LedgerError(
                f"group {made.group} was never drawn, or it was decided before: report a group once, under the number "
                "that draw() gave with its prompt."
            )
        return self.live.waiting.get(made.group) or self.prompts.prompt_of(made.group)

    def _was_passed(self, group: int) -> bool:
        """Say whether a group belongs to the step of the plan that was drawn as a whole last."""
        order = self.prompts
        if order.plan is None or order.slot or not order.step:
            return False
        at = order.plan.locate(order.step - 1)
        return at.position <= group < at.position + at.size

    def _epoch_of(self, group: int) -> int:
        plan = self.prompts.plan
        return 0 if plan is None else group // plan.epoch_samples

    def _record(self, table: str, rows: int, *columns: Any) -> None:
        self._recent.setdefault(table, []).append((rows, columns))
        self.ledger.record_columns(table, [(rows, columns)])

    def _recent_rows(self) -> dict[str, list[tuple[Any, ...]]]:
        return {table: [row for piece in pieces for row in rows_of(*piece)] for table, pieces in self._recent.items()}


def _ledger(run: str | os.PathLike[str], prompts: PromptOrder, plan: Plan | None) -> Ledger:
    lengths = () if plan is None or len(plan.names) != len(plan.lengths) else plan.lengths
    return Ledger(run, names=prompts.names, lengths=lengths)


@functools.lru_cache(maxsize=8)  # batches are as long as the ones before, as a rule
def _slots(rank: int, world_size: int, count: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the slots of a batch of this rank, none of which is padding."""
    slots = rank + world_size * np.arange(count, dtype=np.int64)
    is_padding = np.zeros(count, dtype=bool)
    slots.flags.writeable = is_padding.flags.writeable = False
    return slots, is_padding


def _numbers(rollouts: Iterable[int]) -> list[int]:
    found = [whole(number) for number in (rollouts.tolist() if hasattr(rollouts, "tolist") else rollouts)]
    numbers = [number for number in found if number is not None]
    if len(numbers) < len(found):
        raise LedgerError("a rollout's number is an integer: pass what made() returned.")
    if len(set(numbers)) < len(numbers):
        raise LedgerError(f"rollout {max(numbers, key=numbers.count)} is there twice: name each once.")
    return numbers


def _recent_of(found: Fields) -> dict[str, list[Columns]]:
    """Return the rows of the step under way; whatever a ledger would not write is refused when it is written."""
    found.only("rollouts", "fates")
    recent = {}
    for table in found:
        rows, width = found.items(table), len(SCHEMAS[table].names)
        kept = [found.value(table)[i] for i in rows if rows.items(i, least=width, most=width)]
        recent[table] = [(len(kept), tuple(map(list, zip(*kept, strict=True))))] if kept else []
    return recent
