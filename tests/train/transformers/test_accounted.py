"""Hugging Face's Trainer, accounted for: the plan's order, every update committed, its own resume exact."""

from __future__ import annotations

import logging
import sys

import numpy as np
import pytest
import torch
from tests.train.transformers.accounts import holds, names, trainer_script

from lading import Loader, Resume
from lading.errors import ConfigError, LadingError, LoaderError, SourceError, UnshardedStreamWarning
from lading.observe.names import stream_index, stream_place
from lading.order.plan import Plan
from lading.report.summary import summarise

pytest.importorskip("transformers", reason="transformers is not installed")
script = trainer_script()
from transformers import DataCollatorWithFlattening, TrainerCallback  # noqa: E402

from lading.train.fates import NO_GRADIENTS  # noqa: E402
from lading.train.transformers import LadingTrainerMixin, account  # noqa: E402
from lading.train.transformers.books import Books  # noqa: E402


def test_one_line_keeps_the_books_of_an_epoch(tmp_path):
    """Each sample once, what the model saw is what the ledger says, and no extra column reaches it."""
    trainer = script.make(tmp_path / "trainer", 4, num_train_epochs=1)

    account(trainer, tmp_path / "run").train()

    opened = holds(tmp_path / "run")
    seen = [sorted(index for _, index in batch) for batch in trainer.model.seen]
    recorded = [sorted(index for _, index in names(opened, step)) for step in range(13)]
    assert seen == recorded
    assert sorted(index for batch in seen for index in batch) == list(range(50))
    assert opened.history["update"] == [step // 2 for step in range(13)]
    assert None not in opened.history["loss"]


def test_resume_in_the_second_epoch_is_exact(tmp_path):
    """Trainer's own resume_from_checkpoint, in the middle of epoch 1, with accumulation."""
    whole = script.make(tmp_path / "whole", 4)
    account(whole, tmp_path / "whole-run").train()
    first = script.make(tmp_path / "trainer", 4)
    account(first, tmp_path / "run").train()

    again = script.make(tmp_path / "trainer", 4)
    account(again, tmp_path / "run").train(resume_from_checkpoint=str(tmp_path / "trainer" / "checkpoint-9"))

    opened, uninterrupted = holds(tmp_path / "run"), holds(tmp_path / "whole-run")
    assert again.model.seen == whole.model.seen[-len(again.model.seen) :]
    assert opened.history["digest"] == uninterrupted.history["digest"]
    np.testing.assert_allclose(opened.history["loss"], uninterrupted.history["loss"], rtol=1e-5)


def test_weights_that_change_count_from_the_next_step_on(tmp_path):
    """Bills are made ahead; those of steps to come are made anew where the plan has changed, and the books agree."""
    data = {"a": torch.arange(400.0), "b": torch.arange(400.0)}
    loader = Loader(data, 4, weights={"a": 1, "b": 1}, names=False)
    books = Books(loader, str(tmp_path / "run"), 1)
    books.begin(0, None)
    rows = books.order(0)

    drawn = []
    for step in range(10):
        if step == 3:
            loader.add_event(loader.plan.reweighting(5, (1 << 31, 0), "only a"))
        drawn.append([next(rows) for _ in range(4)])
        bill = books.note(np.array(drawn[-1]))
        books.ledger.skip(bill, "not trained on")
    books.close()

    assert drawn == [books.data.row_of(b.source_idx, b.rows).tolist() for b in map(loader.plan.bill, range(10))]
    assert max(map(max, drawn[5:])) < 400 <= max(map(max, drawn[:5]))


def test_a_mixture_of_three_with_a_schedule(tmp_path):
    """Weights by name, a change planned for step 6; the books say what was drawn."""
    from lading import Stages

    trainer = script.make(tmp_path / "trainer", 8, num_train_epochs=2, gradient_accumulation_steps=1)
    planned = Stages([(0, {"code": 1.0, "prose": 0.0, "talk": 0.0}), ("6ba", {"code": 0.0, "prose": 0.5, "talk": 0.5})])

    account(trainer, tmp_path / "run", sources=script.sources(), mixture=mixture_of(planned)).train()

    opened = holds(tmp_path / "run")
    assert {name for name, _ in names(opened, 5)} == {"code"}
    assert {name for name, _ in names(opened, 6)} == {"prose", "talk"}
    seen = [{first - 50 for first, _ in batch} for batch in trainer.model.seen]
    assert seen[5] == {0}
    assert seen[6] == {1, 2}


def mixture_of(schedule):
    """Return a mixture that follows a schedule."""
    from lading.order import Mixture

    return Mixture(schedule=schedule)


def test_other_data_behind_a_checkpoint_is_refused(tmp_path):
    """The difference is named before anything is trained on."""
    account(script.make(tmp_path / "trainer", 4), tmp_path / "run").train()
    other = script.make(tmp_path / "trainer", 4, data=script.Texts(51, 50))
    account(other, tmp_path / "run")

    with pytest.raises(LadingError, match="51"):
        other.train(resume_from_checkpoint=str(tmp_path / "trainer" / "checkpoint-3"))


def test_another_global_batch_is_refused(tmp_path):
    """Samples would repeat or be missed."""
    account(script.make(tmp_path / "trainer", 4), tmp_path / "run").train()
    other = script.make(tmp_path / "trainer", 5)
    account(other, tmp_path / "run")

    with pytest.raises(LadingError, match="batch"):
        other.train(resume_from_checkpoint=str(tmp_path / "trainer" / "checkpoint-3"))
    allowed = script.make(tmp_path / "trainer", 5)
    account(allowed, tmp_path / "run", on_resume=Resume(rebatch=True))
    with pytest.raises(LadingError, match="Trainer finds its epoch"):
        allowed.train(resume_from_checkpoint=str(tmp_path / "trainer" / "checkpoint-3"))


@pytest.mark.parametrize(
    "options",
    [{"auto_find_batch_size": True}, {"accelerator_config": {"split_batches": True}}, {"ignore_data_skip": True}],
)
def test_what_reorders_batches_behind_the_plan_is_refused(tmp_path, options):
    """By name, with the way out."""
    trainer = script.make(tmp_path / "trainer", 4, **options)

    with pytest.raises(LadingError, match=next(iter(options))):
        account(trainer, tmp_path / "run")


def test_a_subclass_keeps_books_too(tmp_path):
    """The mixin in a class of one's own."""
    trainer = script.make(tmp_path / "trainer", 4, num_train_epochs=1)
    trainer.__class__ = type("Mine", (LadingTrainerMixin, type(trainer)), {})

    with pytest.raises(LadingError, match="account"):
        trainer.train()
    trainer.keep_books(tmp_path / "run")
    trainer.train()

    holds(tmp_path / "run")


def test_evaluation_is_left_alone(tmp_path):
    """Evaluating before, while and after training changes nothing that is trained on."""
    plain = script.make(tmp_path / "plain", 4, num_train_epochs=1)
    account(plain, tmp_path / "plain-run").train()
    evaluated = {"eval_strategy": "steps", "eval_steps": 2, "eval_dataset": script.Texts(10, 50)}
    trainer = script.make(tmp_path / "trainer", 4, num_train_epochs=1, **evaluated)

    account(trainer, tmp_path / "run").train()

    assert trainer.model.seen == plain.model.seen
    assert trainer.evaluate()["eval_loss"] > 0


def test_evaluation_counts_every_sample_once(tmp_path):
    """Each sample's labels once, and a loss that is the mean over the samples, whatever the batch size."""
    found = script.evaluated(tmp_path, 4)

    assert sorted(index for _, index in found["counted"]) == list(range(13))
    assert found["loss"] == pytest.approx(script.evaluated(tmp_path, 13)["loss"], rel=1e-5)


def streamed_indices(opened) -> list[list[int]]:
    """Return the numbers that each step of a stream held, padding left out."""
    return [sorted(index for _, index in names(opened, step)) for step in opened.history["step"]]


def shared_in_turn(indices: list[int], workers: int) -> list[int]:
    """Return the places in the stream of rows named by worker and count, where workers take turns."""
    return sorted(worker + count * max(workers, 1) for worker, count in map(stream_place, indices))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_stream_has_names_and_a_ledger(tmp_path, workers):
    """Worker and count are the name; the second pass counts from 0 again; updates, losses, no plan."""
    trainer = script.streamed(tmp_path, 4, dataloader_num_workers=workers)

    opened = holds(tmp_path / "streamed-run")
    seen = [sorted(index for _, index in batch) for batch in trainer.model.seen]
    assert [shared_in_turn(batch, workers) for batch in streamed_indices(opened)] == seen
    batches = 14 if workers else 13  # each worker ends with a batch of its own
    assert sorted(index for batch in seen[:batches] for index in batch) == list(range(50))
    assert opened.history["epoch"] == [0] * batches + [1] * (len(seen) - batches)
    assert opened.history["update"][:4] == [0, 0, 1, 1]
    assert None not in opened.history["loss"]
    worker, count = (7 % workers, 7 // workers) if workers else (0, 7)
    where = opened.where("data", stream_index(worker, count))
    assert where["step"][0] == next(k for k, batch in enumerate(seen) if 7 in batch)


def test_a_stream_that_every_worker_reads_is_warned_of_and_named_as_it_came(tmp_path):
    """The model received every sample twice; the books name the readings, and ``verify`` repeats the warning."""
    with pytest.warns(UnshardedStreamWarning, match=r"workers 0 and 1 .*Unsharded.*lading audit"):
        trainer = script.streamed(tmp_path, 4, data=script.Unsharded(48), max_steps=6, dataloader_num_workers=2)

    opened = holds(tmp_path / "streamed-run")
    seen = [sorted(index for _, index in batch) for batch in trainer.model.seen]
    booked = streamed_indices(opened)
    assert [sorted(stream_place(index)[1] for index in batch) for batch in booked] == seen
    assert {stream_place(index)[0] for batch in booked for index in batch} == {0, 1}
    assert len({index for batch in seen for index in batch}) < len({index for batch in booked for index in batch})
    assert any("equal batches" in finding.message for finding in opened.verify().findings)


def test_a_stream_resumes_where_trainer_can(tmp_path):
    """Inside the first pass, by reading it again; in a later one Trainer cannot know where passes end: refused."""
    whole = script.streamed(tmp_path / "whole", 4)
    script.streamed(tmp_path, 4)

    again = script.make(tmp_path / "streamed", 4, data=script.Stream(50), max_steps=6)
    account(again, tmp_path / "streamed-run")
    again.train(resume_from_checkpoint=str(tmp_path / "streamed" / "checkpoint-3"))

    opened = holds(tmp_path / "streamed-run")
    assert again.model.seen == whole.model.seen[6:12]
    assert opened.history["step"] == list(range(12))
    assert opened.history["attempt"] == [0] * 6 + [1] * 6
    late = script.make(tmp_path / "late", 4, data=script.Stream(50), max_steps=12)
    account(late, tmp_path / "late-run").train()
    late = script.make(tmp_path / "late", 4, data=script.Stream(50), max_steps=14)
    account(late, tmp_path / "late-run")
    with pytest.raises(LadingError, match="pass 1 over the stream"):
        late.train(resume_from_checkpoint=str(tmp_path / "late" / "checkpoint-12"))
    sized = script.make(tmp_path / "late", 4, data=script.SizedStream(50), max_steps=12)
    account(sized, tmp_path / "sized-run").train()
    again = script.make(tmp_path / "late", 4, data=script.SizedStream(50), max_steps=12)
    account(again, tmp_path / "sized-run").train(resume_from_checkpoint=str(tmp_path / "late" / "checkpoint-9"))
    assert again.model.seen == sized.model.seen[-len(again.model.seen) :]
    assert holds(tmp_path / "sized-run").history["epoch"] == [0] * 13 + [1] * 10
    other = script.make(tmp_path / "streamed", 5, data=script.Stream(50), max_steps=6)
    account(other, tmp_path / "streamed-run")
    with pytest.raises(LadingError, match="rows a step"):
        other.train(resume_from_checkpoint=str(tmp_path / "streamed" / "checkpoint-3"))


def test_a_stream_cannot_be_weighed(tmp_path):
    """What needs an order is refused by name."""
    trainer = script.make(tmp_path / "trainer", 4, data=script.Stream(50), max_steps=3)

    with pytest.raises(LadingError, match="weights needs an order"):
        account(trainer, tmp_path / "run", weights={"data": 1.0})


def test_the_bill_of_a_step_is_worked_out_once(tmp_path):
    """The sampler and the books follow the same bill."""
    trainer = account(script.make(tmp_path / "trainer", 4, num_train_epochs=1), tmp_path / "run")
    made = []

    def note(frame, event, _):
        if event == "call" and frame.f_code is Plan.bill.__code__:
            made.append(frame.f_locals["step"])

    sys.setprofile(note)
    try:
        trainer.train()
    finally:
        sys.setprofile(None)

    assert made == list(range(13))


class Choosy(script.Trainer):
    """Leaves batches that begin with an even sample out of training: it returns before the backward pass."""

    def training_step(self, model, inputs, num_items_in_batch=None):
        if int(inputs["input_ids"][0, 1]) % 2 == 0:
            return script.torch.zeros(())
        return super().training_step(model, inputs, num_items_in_batch)


@pytest.mark.parametrize("accumulated", [1, 3])
def test_a_batch_without_a_backward_pass_is_skipped(tmp_path, accumulated):
    """The trainer counts its updates all the same; what the model was trained on is what history says."""
    trainer = script.make(tmp_path / "trainer", 4, num_train_epochs=1, gradient_accumulation_steps=accumulated)
    trainer.__class__ = Choosy

    account(trainer, tmp_path / "run").train()

    opened = holds(tmp_path / "run")
    seen = [sorted(index for _, index in batch) for batch in trainer.model.seen]
    used = [row["step"] for row in opened.batches.dicts() if row["fate"] == "applied"]
    assert 0 < len(seen) < 13
    assert [[index for _, index in names(opened, step)] for step in used] == seen
    assert {row["reason"] for row in opened.batches.dicts()} == {None, NO_GRADIENTS}


def test_training_again_in_one_process_is_in_history_twice(tmp_path):
    """The same trainer, the same model: 10 updates of it, and 10 in the books."""
    trainer = script.make(tmp_path / "trainer", 4, max_steps=5, gradient_accumulation_steps=1, save_strategy="no")
    account(trainer, tmp_path / "run")

    trainer.train()
    trainer.train()

    opened = holds(tmp_path / "run")
    assert len(opened.history) == len(trainer.model.seen) == 10
    seen = [sorted(index for _, index in batch) for batch in trainer.model.seen]
    assert seen == [[index for _, index in names(opened, step)] for step in opened.history["step"]]
    assert any("without loading a state" in finding.message for finding in opened.verify().findings)


def test_training_again_over_a_stream_is_in_history_twice(tmp_path):
    """What cannot be planned goes on, too."""
    trainer = script.streamed(tmp_path, 4, max_steps=3)

    trainer.train()

    assert len(holds(tmp_path / "streamed-run").history) == len(trainer.model.seen) == 12


@pytest.mark.filterwarnings("ignore:.*a second root")
def test_a_model_made_anew_begins_a_history_of_its_own(tmp_path):
    """``model_init``: what the process trained before is no part of this model, and is said to be left behind."""
    trainer = script.make(tmp_path / "trainer", 4, max_steps=5, gradient_accumulation_steps=1, save_strategy="no")
    trainer.model_init = script.Strict
    account(trainer, tmp_path / "run")

    trainer.train()
    trainer.train()

    opened = holds(tmp_path / "run")
    assert len(opened.history) == len(trainer.model.seen) == 5
    assert any("is left behind" in finding.message for finding in opened.verify().findings)


class Breaks(script.TrainerCallback):
    """Ends training with an exception after an update."""

    def __init__(self, error):
        self.error = error

    def on_step_end(self, args, state, control, **_):
        if state.global_step == 3:
            raise self.error


@pytest.mark.parametrize(
    ("error", "state"), [(RuntimeError("broken"), "failed"), (KeyboardInterrupt(), "interrupted")], ids=repr
)
def test_a_training_that_an_exception_ends_says_how(tmp_path, error, state):
    """Failed, or broken off by hand; never ended."""
    trainer = script.make(tmp_path / "trainer", 4, gradient_accumulation_steps=1, save_strategy="no")
    account(trainer, tmp_path / "run")
    trainer.add_callback(Breaks(error))

    with pytest.raises(type(error)):
        trainer.train()

    assert [attempt["state"] for attempt in summarise(holds(tmp_path / "run")).attempts] == [state]


def without_five(samples):
    """Leave a sample out."""
    kept = [sample for sample in samples if sample["input_ids"][1] != 5]
    return {name: torch.stack([sample[name] for sample in kept]) for name in ("input_ids", "labels")}


class EvenOnes:
    """Keeps samples of even numbers, and says which."""

    def __call__(self, samples):
        self.kept = [place for place, sample in enumerate(samples) if sample["input_ids"][1] % 2 == 0] or [0]
        kept = [samples[place] for place in self.kept]
        return {name: torch.stack([sample[name] for sample in kept]) for name in ("input_ids", "labels")}

    def rows(self, batch):
        """Return the places of the rows of a batch."""
        return self.kept


class Holes(script.Texts):
    """Texts of which some are None."""

    def __getitem__(self, index):
        return None if index == 5 else super().__getitem__(index)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_batch_that_is_not_its_bill_is_refused(tmp_path, workers):
    """A data collator that leaves rows out, a sample that is None; with Trainer's own workers, too; streams as well."""
    more = {"dataloader_num_workers": workers, "max_steps": 20}
    for data in (None, script.Stream(40)):
        trainer = script.make(tmp_path / "a", 4, **more)
        trainer.data_collator = without_five
        trainer.train_dataset = trainer.train_dataset if data is None else data
        with pytest.raises(SourceError, match="made of 4 samples, and nothing in it has so many rows: input_ids has"):
            account(trainer, tmp_path / f"run{data is None}").train()
    trainer = script.make(tmp_path / "b", 4, **more)
    trainer.train_dataset = Holes(20, 50)
    with pytest.raises(SourceError, match="a Holes gave None for sample 5"):
        account(trainer, tmp_path / "none").train()


def test_what_a_data_collator_left_out_is_booked(tmp_path):
    """By name; what the model saw is what the books say. Of a stream, whose batches Accelerate cuts, it is refused."""
    trainer = script.make(tmp_path / "a", 4, num_train_epochs=1)
    trainer.data_collator = EvenOnes()
    account(trainer, tmp_path / "run").train()

    opened = holds(tmp_path / "run")
    seen = [sorted(index for _, index in batch) for batch in trainer.model.seen]
    rows = [opened.step(step).samples.dicts() for step in range(len(seen))]
    assert seen == [sorted(row["index"] for row in found if not row["note"]) for found in rows]
    assert len(opened.bad()) > 15
    stream = script.make(tmp_path / "b", 4, data=script.Stream(50), max_steps=6)
    stream.data_collator = EvenOnes()
    with pytest.raises(ConfigError, match="Accelerate cuts the batches of a stream by the rows they have"):
        account(stream, tmp_path / "other")


def test_batches_that_cannot_be_counted_are_noted_once(tmp_path):
    """A flattening collator of transformers is known, and said."""
    trainer = script.make(tmp_path / "a", 4, num_train_epochs=1)
    flatten = DataCollatorWithFlattening(return_position_ids=False)
    trainer.data_collator = lambda samples: flatten([{"input_ids": s["input_ids"].tolist()} for s in samples])
    trainer.data_collator.rows = "any"
    trainer.model.config.n_positions = 16
    trainer.model.transformer.wpe = torch.nn.Embedding(16, 16)
    account(trainer, tmp_path / "run").train()

    found = [remark.message for remark in holds(tmp_path / "run").verify().findings]
    assert len(found) == 1 and "the rows of batches are not counted" in found[0]


class Ordered(script.Trainer):
    """A trainer with an order of its own."""

    def _get_train_sampler(self, train_dataset=None):
        return torch.utils.data.SequentialSampler(self.train_dataset)


class OwnLoader(script.Trainer):
    """A trainer with a loader of its own."""

    def get_train_dataloader(self):
        return torch.utils.data.DataLoader(self.train_dataset, 4, collate_fn=lambda samples: samples[0][1])


class Chatty(script.Trainer):
    """One that looks at Trainer's."""

    def get_train_dataloader(self):
        self.asked = True
        return super().get_train_dataloader()


def test_a_trainer_with_an_order_of_its_own_is_refused_by_name(tmp_path):
    """A subclass, or a method put on the object: neither is overruled in silence; the trainer stays as it was."""
    trainer = script.make(tmp_path / "a", 4)
    trainer.__class__ = Ordered
    with pytest.raises(ConfigError, match=r"Ordered has a _get_train_sampler of its own.*shuffle=False"):
        account(trainer, tmp_path / "run")
    assert type(trainer) is Ordered and isinstance(trainer.train_dataset, script.Texts)

    trainer = script.make(tmp_path / "a", 4)
    trainer._get_train_sampler = lambda dataset=None: torch.utils.data.SequentialSampler(trainer.train_dataset)
    with pytest.raises(ConfigError, match="Trainer has a _get_train_sampler of its own"):
        account(trainer, tmp_path / "run")

    trainer = script.make(tmp_path / "a", 4, num_train_epochs=1)
    account(trainer, tmp_path / "run", shuffle=False).train()
    assert [i for batch in trainer.model.seen for _, i in batch] == list(range(50))


def test_a_trainer_that_makes_its_own_loader_is_refused_by_name(tmp_path):
    """Unless it is Trainer's own that it returns."""
    trainer = script.make(tmp_path / "a", 4)
    trainer.__class__ = OwnLoader
    with pytest.raises(ConfigError, match=r"OwnLoader.get_train_dataloader makes a DataLoader of its own"):
        account(trainer, tmp_path / "run").train()

    trainer = script.make(tmp_path / "b", 4, num_train_epochs=1)
    trainer.__class__ = Chatty
    account(trainer, tmp_path / "other").train()
    assert trainer.asked and holds(tmp_path / "other")


class EndsEarly(TrainerCallback):
    """Ends each epoch after two updates."""

    def on_step_end(self, args, state, control, **_):
        control.should_epoch_stop = state.global_step % 2 == 0


def test_an_epoch_that_ends_early_is_said_in_the_users_words(tmp_path):
    """The plan's epochs are whole."""
    trainer = script.make(tmp_path / "a", 4, callbacks=[EndsEarly()])

    with pytest.raises(LoaderError, match=r"the one before was ended early \(control.should_epoch_stop\)"):
        account(trainer, tmp_path / "run").train()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"batch_size": 4}, "the trainer decides it. Set TrainingArguments.per_device_train_batch_size"),
        ({"seed": 3}, "Set TrainingArguments.data_seed"),
        ({"on_bad_sample": "skip"}, r"account\(\) has no on_bad_sample=: the trainer reads the samples"),
        ({"collate_fn": len}, "the trainer's data_collator makes the batches"),
        ({"weights": [-1]}, "a weight is -1"),
        ({"sources": "train.bin"}, "dataset 'data' is 'train.bin', a str"),
        ({"on_resume": True}, r"expected lading.Resume\(...\)"),
    ],
)
def test_a_refused_account_leaves_the_trainer_as_it_was(tmp_path, options, text):
    """Class, data and callbacks; it can be trained, or accounted for, afterwards."""
    trainer = script.make(tmp_path / "a", 4, max_steps=2)
    before = type(trainer), trainer.train_dataset, len(trainer.callback_handler.callbacks)

    with pytest.raises(LadingError, match=text):
        account(trainer, tmp_path / "run", **options)

    assert (type(trainer), trainer.train_dataset, len(trainer.callback_handler.callbacks)) == before
    trainer.train()


def test_account_says_what_it_takes(tmp_path):
    """A model is no trainer, and a number no run."""
    trainer = script.make(tmp_path / "a", 4)
    with pytest.raises(ConfigError, match=r"account\(\) was given a Strict: expected a transformers.Trainer"):
        account(trainer.model, tmp_path / "run")
    with pytest.raises(ConfigError, match=r"run is 7: expected the folder of the run, or a lading.Ledger"):
        account(trainer, 7)


def test_a_resume_without_account_is_warned_of(tmp_path, caplog):
    """Trainer itself names the callback that the checkpoint knows of."""
    account(script.make(tmp_path / "a", 4, max_steps=3), tmp_path / "run").train()
    again = script.make(tmp_path / "a", 4, max_steps=4, restore_callback_states_from_checkpoint=True)

    transformers_logger = logging.getLogger("transformers.trainer")
    transformers_logger.addHandler(caplog.handler)
    with caplog.at_level("WARNING", logger="transformers.trainer"):
        again.train(resume_from_checkpoint=str(tmp_path / "a" / "checkpoint-3"))
    transformers_logger.removeHandler(caplog.handler)

    assert "LadingCallback" in caplog.text


def test_trainers_that_make_their_samples_are_refused_by_name(tmp_path):
    """TRL's DistillationTrainer: what it trains on are no rows of a dataset, nor are they made as GRPO makes them."""
    pytest.importorskip("trl")
    from trl.trainer.distillation_trainer import DistillationTrainer

    trainer = script.make(tmp_path / "a", 4)
    trainer.__class__ = DistillationTrainer

    with pytest.raises(ConfigError, match=r"DistillationTrainer trains on completions .* lading.RolloutBooks"):
        account(trainer, tmp_path / "run")
