"""A Trainer run for the tests: ``trainer.py OUT BATCH [--die-at UPDATE] [--resume CHECKPOINT]``."""

from __future__ import annotations

import argparse
import json
import os
import signal
from pathlib import Path

import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments, logging

from lading.train.transformers import account

logging.set_verbosity_error()
SAMPLES = {"code": 23, "prose": 15, "talk": 12}


class Texts(Dataset):
    """Short token sequences that say where they come from; a column that no model takes stands beside them."""

    def __init__(self, size: int, first: int) -> None:
        self.size, self.first = size, first

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> dict[str, object]:
        tokens = torch.tensor([self.first, index, (index * 7) % 50, 3])
        return {"input_ids": tokens, "labels": tokens, "note": f"{self.first}:{index}"}


class Stream(IterableDataset):
    """The same samples, one after another, without a length; workers share them as the torch manual shows it."""

    def __init__(self, size: int) -> None:
        self.texts = Texts(size, 50)

    def __iter__(self):
        worker = get_worker_info()
        first, every = (0, 1) if worker is None else (worker.id, worker.num_workers)
        return (self.texts[index] for index in range(first, len(self.texts), every))


class Unsharded(Stream):
    """One that every worker reads from beginning to end."""

    def __iter__(self):
        return (self.texts[index] for index in range(len(self.texts)))


class SizedStream(Stream):
    """One that says how many it has."""

    def __len__(self) -> int:
        return len(self.texts)


def sources() -> dict[str, Texts]:
    """Return three datasets."""
    return {name: Texts(size, 50 + number) for number, (name, size) in enumerate(SAMPLES.items())}


class Strict(GPT2LMHeadModel):
    """A model whose ``forward`` takes exactly what it needs, and remembers it."""

    def __init__(self) -> None:
        small = {"vocab_size": 64, "n_positions": 8, "n_embd": 16, "n_layer": 2, "n_head": 2}
        calm = {"bos_token_id": 0, "eos_token_id": 0, "resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0}
        super().__init__(GPT2Config(**small, **calm))
        self.seen: list[list[list[int]]] = []

    def forward(self, input_ids, labels):
        if self.training:
            self.seen.append(input_ids[:, :2].tolist())
        return super().forward(input_ids=input_ids, labels=labels)


class Dies(TrainerCallback):
    """Ends the process for real after an update."""

    def __init__(self, update: int) -> None:
        self.update = update

    def on_step_end(self, args, state, control, **_):
        if state.global_step == self.update:
            os.kill(os.getpid(), signal.SIGKILL)


def make(
    out: Path, batch: int, *, callbacks=(), data=None, eval_dataset=None, compute_metrics=None, **options
) -> Trainer:
    """Return a trainer of two epochs, two batches an update, a checkpoint every third."""
    torch.manual_seed(0)
    settings = {
        "num_train_epochs": 2,
        "gradient_accumulation_steps": 2,
        "save_steps": 3,
        "learning_rate": 1e-3,
    } | options
    args = TrainingArguments(
        str(out), per_device_train_batch_size=batch, use_cpu=True, report_to=[], disable_tqdm=True,
        save_only_model=False, logging_steps=1, **settings,
    )  # fmt: skip
    data = data or Texts(50, 50)
    more = {"eval_dataset": eval_dataset, "compute_metrics": compute_metrics, "callbacks": list(callbacks)}
    return Trainer(Strict(), args, train_dataset=data, **more)


def evaluated(out: Path, batch: int) -> dict[str, object]:
    """Return what evaluating 13 samples, which no number of processes divides, comes to."""
    counted: list[list[int]] = []

    def metrics(prediction):
        counted.extend(prediction.label_ids[:, :2].tolist())
        return {}

    evaluation = {"per_device_eval_batch_size": batch, "compute_metrics": metrics, "eval_dataset": Texts(13, 50)}
    trainer = account(make(out / "evaluated", batch, **evaluation), out / "evaluated-run")
    found = trainer.evaluate()
    return {"loss": found["eval_loss"], "counted": counted}


def streamed(out: Path, batch: int, **options) -> Trainer:
    """Return a trainer that has read a stream of 50 samples, and a bit of it a second time."""
    settings = {"max_steps": 8, "data": Stream(50)} | options
    trainer = make(out / "streamed", batch, **settings)
    account(trainer, out / "streamed-run").train()
    return trainer


def main() -> None:
    """Train, and say what each process's model saw."""
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("batch", type=int)
    parser.add_argument("--die-at", type=int)
    parser.add_argument("--resume")
    parser.add_argument("--others", action="store_true", help="evaluate and read a stream before")
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.others:
        found = evaluated(given.out, given.batch)
        found["streamed"] = streamed(given.out, given.batch).model.seen
        (given.out / f"others-{os.environ['RANK']}.json").write_text(json.dumps(found))
    callbacks = [Dies(given.die_at)] if given.die_at and os.environ.get("RANK") == "1" else []
    trainer = make(given.out / "trainer", given.batch, callbacks=callbacks)
    account(trainer, given.out / "run")
    trainer.train(resume_from_checkpoint=given.resume)
    (given.out / f"seen-{trainer.args.process_index}.json").write_text(json.dumps(trainer.model.seen))


if __name__ == "__main__":
    main()
