"""Many small runs of DsTrainer in one plain process: ``deepspeed_alone.py FOLDER``; writes ``results.json``."""

from __future__ import annotations

import inspect
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from deepspeed_run import Net, Numbers, arguments, data
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[4]))
from tests.loader.named_sources import SOURCES

from lading import FollowLosses, open_run
from lading.errors import LadingError
from lading.kits.deepspeed import DsCallback, DsTrainer, DsTrainingArguments


class Named(Net):
    """Takes one of the names."""

    def forward(self, x, y, idx=None):
        self.seen = idx
        return super().forward(x, y)["loss"].mean()


class Anything(Net):
    """Takes whatever comes."""

    def forward(self, **batch):
        self.seen = sorted(batch)
        return super().forward(batch["x"], batch["y"])["loss"].mean()


class Positional(nn.Module):
    """Takes tuples, gives a tuple."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(1, 1)

    def forward(self, x, y):
        return ((self.layer(x) - y) ** 2).mean(), x


class Diary(DsCallback):
    """Notes when it is called."""

    def __init__(self):
        self.lines = []

    def on_step(self, engine, args, state, **kwargs):
        update = kwargs["update"]
        self.lines.append(f"step {update.number} of {update.num_samples}")

    def on_evaluate(self, engine, args, state, **kwargs):
        self.lines.append(f"evaluated {kwargs['metrics']['eval/samples']}")

    def on_save(self, engine, args, state, **kwargs):
        self.lines.append(f"saved {kwargs['path'].name}")


class AsInPhyagi:
    """A callback as phyagi's users have them: two methods, given as a class, reads engine, arguments and state."""

    seen: ClassVar[list] = []

    def on_evaluate(self, engine, args, state, **kwargs):
        self.seen.append(["evaluate", engine.global_steps, args.eval_max_steps, len(state["log_history"])])

    def on_save(self, engine, args, state, **kwargs):
        saved = [entry["train/step"] for entry in state["checkpoint_history"]]
        self.seen.append(["save", engine.global_steps, state["train_batch_size"], saved])


def message(action) -> str:
    """Return what an action complains about."""
    try:
        action()
    except LadingError as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


def forwards(folder: Path) -> dict:
    """Models with and without names in their signature."""
    short = {"max_steps": 1, "save_steps": None}
    named, anything, silent = Named(), Anything(), Named()
    DsTrainer(named, arguments(folder / "named", **short), data()).train()
    DsTrainer(anything, arguments(folder / "anything", **short), data()).train()
    DsTrainer(silent, arguments(folder / "silent", pass_names=False, **short), data()).train()
    pairs = [(torch.tensor([i / 8]), torch.tensor([i / 4])) for i in range(16)]
    output = DsTrainer(Positional(), arguments(folder / "pairs", **short), pairs).train()
    return {
        "named": named.seen.tolist(),
        "anything": anything.seen,
        "silent": silent.seen,
        "pairs": [output.updates, output.loss],
    }


def curriculum(folder: Path) -> None:
    """A policy that follows the losses; ``maths`` is noise, cannot be learnt and has the highest."""
    sources = data(scale=100)
    sources["maths"].y = 5 * torch.randn(len(sources["maths"]), generator=torch.Generator().manual_seed(1))
    policy = FollowLosses(every_steps=8, strength=0.02, smoothing=0.5)
    weights = dict.fromkeys(("code", "prose", "maths"), 1.0)
    args = arguments(
        folder, weights=weights, global_batch_size=128, gradient_accumulation_steps=1, max_steps=64, save_steps=None
    )
    DsTrainer(Net(), args, sources, policy=policy).train()


def adaptive(folder: Path) -> dict:
    """Chunks that grow with the evaluation, and easy samples first."""
    sizes = {"size": 2, "resize": {"policy": "grow_while_improving", "most": 8}}
    graded = {"scores": lambda source: source.y.abs().numpy(), "until": 8}
    short = {"max_steps": 12, "save_steps": None, "gradient_accumulation_steps": 1}
    args = arguments(folder, **short, train_chunk_size=sizes, curriculum=graded)
    trainer = DsTrainer(Net(), args, data(), {"code": Numbers(11, 1.0)})
    trainer.train()
    plan = trainer.loader.plan
    return {
        "reasons": [e.reason for e in plan.events],
        "stages": len(plan.adaptation.spec.stages),
        "steps": trainer.loader.step,
    }


def weighted(folder: Path) -> list[int]:
    """Samples of one of the sources come by weight: the first half never."""
    sources = data()
    often = {"code": np.arange(len(sources["code"])) >= len(sources["code"]) // 2}
    short = {"max_steps": 6, "save_steps": None, "gradient_accumulation_steps": 1}
    DsTrainer(Net(), arguments(folder, **short, sample_weights=often), sources).train()
    return [len(sources["code"]), len(sources)]


def lives(folder: Path) -> dict:
    """Checkpoints, callbacks, evaluation, and going back to an earlier checkpoint."""
    diary = Diary()
    args = {"max_steps": 6, "save_steps": 2, "eval_steps": 0.5, "logging_steps": 3}
    sources, held_out = data(), {"code": Numbers(11, 1.0)}
    first = DsTrainer(Net(), arguments(folder, **args), sources, held_out, callbacks=[diary])
    output = first.train()
    again = DsTrainer(Net(), arguments(folder, **args), sources, held_out)
    went_on = again.train(resume_from_checkpoint=folder / "checkpoint-4")
    back = DsTrainer(Net(), arguments(folder, **{**args, "max_steps": 3}), sources, held_out)
    back.train(resume_from_checkpoint=str(folder / "checkpoint-2"))
    rolled = message(lambda: back.train(resume_from_checkpoint=folder / "checkpoint-6"))
    limited = DsTrainer(Net(), arguments(folder / "limited", **args, save_total_limit=2), sources, held_out)
    limited.train("auto")
    return {
        "diary": diary.lines,
        "updates": [output.updates, went_on.updates],
        "loss": [output.loss, went_on.loss],
        "consumed": [first.consumed_samples, again.consumed_samples],
        "complete": sorted(p.parent.name for p in folder.glob("checkpoint-*/lading.json")),
        "limited": sorted(p.name for p in (folder / "limited").glob("checkpoint-*")),
        "rolled": rolled,
    }


class Seer(nn.Module):
    """Remembers the samples of every call, by their data and by their names."""

    def __init__(self):
        super().__init__()
        self.layer, self.seen = nn.Linear(2, 1), []

    def forward(self, x, idx, dataset_idx):
        names = list(zip(dataset_idx.tolist(), idx.tolist(), strict=True))
        self.seen.append([[[int(d), int(i)] for d, i in x.tolist()], names])
        return self.layer(x).square().mean()


def names(folder: Path) -> dict:
    """Sources that name their samples, or consist of several: what the model saw of each."""
    found = {}
    for make in SOURCES:
        model, short = Seer(), {"max_steps": 6, "save_steps": None, "global_batch_size": 3}
        DsTrainer(model, arguments(folder / make.__name__, **short, gradient_accumulation_steps=1), make()).train()
        found[make.__name__] = model.seen
    return found


def as_in_phyagi(folder: Path) -> dict:
    """Only phyagi's arguments: sizes, optimizer and scheduler in ds_config; its flags; its callbacks."""
    ds_config = {
        "train_batch_size": 16,
        "train_micro_batch_size_per_gpu": 4,
        "optimizer": {"type": "AdamW", "params": {"lr": 0.02, "betas": [0.9, 0.95]}},
        "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_min_lr": 0.0, "warmup_max_lr": 0.02}},
    }
    args = DsTrainingArguments(
        str(folder),
        ds_config=ds_config,
        do_eval=True,
        do_final_eval=False,
        max_steps=5,
        logging_steps=2,
        save_steps=2,
        save_final_checkpoint=False,
        eval_steps=2,
        eval_max_steps=1,
        seed=42,
        batch_tracker=True,
        batch_tracker_save_steps=5,
        dataloader_shuffle=True,
        eval_dataloader_shuffle=True,
        dataloader_pin_memory=True,
        dataloader_num_workers=1,
        dataloader_prefetch_factor=3,
        backend="gloo",
        timeout=600,
        log_dir=str(folder / "logs"),
        pipe_parallel_size=1,
        tensor_parallel_size=1,
        context_parallel_size=1,
    )
    trainer = DsTrainer(Net(), args, data(), {"code": Numbers(11, 1.0)}, callbacks=[AsInPhyagi])
    output = trainer.train()
    silent = replace(args, output_dir=str(folder / "quiet"), log_dir=None, do_eval=False, progress=False)
    quiet = DsTrainer(Net(), silent, data())
    quiet.train()
    return {
        "updates": output.updates,
        "seen": AsInPhyagi.seen,
        "sizes": [trainer.args.per_device_train_batch_size, trainer.args.gradient_accumulation_steps],
        "prefetch": [trainer.loader.num_workers, trainer.loader.prefetch_factor, trainer.loader.pin_memory],
        "rate": trainer.engine.get_lr()[0],
    }


class Marked(nn.Module):
    """Takes a column that only a collate function of one's own makes; remembers what it saw."""

    def __init__(self):
        super().__init__()
        self.layer, self.seen = nn.Linear(4, 1), []

    def forward(self, x, y, mark, idx):
        assert mark.tolist() == [7] * len(x)
        self.seen.append(idx.tolist())
        return (self.layer(x)[:, 0] - y).square().mean()


class Lines(DsCallback):
    """Notes how many records are on disk when an update is done, before it is looked at what is due."""

    def __init__(self):
        self.lines = []

    def on_step(self, engine, args, state, **kwargs):
        path = Path(args.output_dir) / "batch_tracker_rank_00.jsonl"
        self.lines.append(len(path.read_text().splitlines()) if path.exists() else 0)


def marked(samples: list) -> dict:
    """Collate as torch does, with a column more."""
    return {**torch.utils.data.default_collate(samples), "mark": torch.full((len(samples),), 7)}


def written(folder: Path) -> dict:
    """When records are written; data in order; a collate function of one's own; arguments in their places."""
    found = {"arguments": list(inspect.signature(DsTrainer).parameters)}
    short = {"max_steps": 6, "logging_steps": 2, "save_steps": None, "gradient_accumulation_steps": 1}
    for name, changes in {
        "as_logged": {},
        "every_4": {"batch_tracker_save_steps": 4},
        "half": {"batch_tracker_save_steps": 0.5},
        "untracked": {"batch_tracker": False},
    }.items():
        lines, model = Lines(), Marked()
        args = arguments(folder / name, dataloader_shuffle=False, **short, **changes)
        DsTrainer(model, args, Numbers(48, 1.0), None, marked, [lines]).train()
        records = folder / name / "batch_tracker_rank_00.jsonl"
        found[name] = [*lines.lines, len(records.read_text().splitlines()) if records.exists() else None]
        found["seen"] = model.seen
    for shuffle in (False, True):
        args = arguments(folder / "never", eval_dataloader_shuffle=shuffle)
        trainer = DsTrainer(Net(), args, data(), Numbers(11, 1.0))
        found[f"evaluated, shuffle={shuffle}"] = trainer.eval_loader.plan.bill(0).idx.tolist()
    return found


class Sizes(DsCallback):
    """Notes the size that the state says, and the loss."""

    def __init__(self):
        self.sizes, self.losses = [], []

    def on_step(self, engine, args, state, **kwargs):
        self.sizes.append(state["train_batch_size"])
        self.losses.append(float(kwargs["update"].loss))


def ramp_up(folder: Path) -> dict:
    """Updates that grow, whole and resumed in the middle; and a ramp-up that is at the top from the start."""
    grows = {"train_batch_size_init_rampup": 8, "train_batch_size_per_rampup": 8, "rampup_steps": 2}
    args = {"gradient_accumulation_steps": 4, "max_steps": 8, "save_steps": 3, "logging_steps": 1, **grows}
    whole, first, rest, level, plain = (Sizes() for _ in range(5))
    DsTrainer(Net(), arguments(folder / "whole", **args, tensorboard=True), data(), callbacks=[whole]).train()
    stopped = {**args, "max_steps": 5, "lr_scheduler_type": "constant"}
    DsTrainer(Net(), arguments(folder / "cut", **stopped), data(), callbacks=[first]).train()
    longer = {**stopped, "max_steps": 8}
    DsTrainer(Net(), arguments(folder / "cut", **longer), data(), callbacks=[rest]).train(
        folder / "cut" / "checkpoint-3"
    )
    top = {**args, "train_batch_size_init_rampup": 32}
    DsTrainer(Net(), arguments(folder / "level", **top), data(), callbacks=[level]).train()
    none = {**args, "train_batch_size_init_rampup": 0}
    DsTrainer(Net(), arguments(folder / "plain", **none), data(), callbacks=[plain]).train()
    by_epochs = {**args, "max_steps": -1, "num_train_epochs": 1.0}
    epochs = DsTrainer(Net(), arguments(folder / "epochs", **by_epochs), data())
    return {
        "sizes": [whole.sizes, first.sizes, rest.sizes],
        "level": [level.losses, plain.losses],
        "epochs": [len(epochs.loader), epochs.max_steps],
    }


def refusals(folder: Path) -> dict:
    """What is refused, and in which words."""
    args = arguments(folder, max_steps=2, save_steps=1)
    DsTrainer(Net(), args, data()).train()
    mark = folder / "checkpoint-2" / "lading.json"
    as_written = mark.read_text()
    mark.write_text(
        as_written.replace('"world_size": 1', '"world_size": 2').replace('"zero_stage": 0', '"zero_stage": 1')
    )
    other_world = message(lambda: DsTrainer(Net(), args, data()).train(True))
    mark.write_text(as_written.replace('"zero_stage": 0', '"zero_stage": 2'))
    other_stage = message(lambda: DsTrainer(Net(), args, data()).train(True))
    mark.write_text(as_written)
    reseeded = arguments(folder, max_steps=2, seed=1)
    tiny, plain = {"code": Numbers(3, 1.0)}, arguments(folder / "new", max_steps=1)
    mixed = arguments(folder / "mixed", max_steps=1, weights={"code": 1, "prose": 1, "maths": 1})
    return {
        "other_world": other_world,
        "other_stage": other_stage,
        "other_seed": message(lambda: DsTrainer(Net(), reseeded, data()).train(True)),
        "no_checkpoint": message(lambda: DsTrainer(Net(), plain, data()).train(True)),
        "not_resumed": message(lambda: DsTrainer(Net(), args, data()).train()),
        "no_data": message(lambda: DsTrainer(Net(), plain).train()),
        "no_eval": message(lambda: DsTrainer(Net(), plain, data()).evaluate()),
        "no_eval_in_time": message(lambda: DsTrainer(Net(), arguments(folder / "late", eval_steps=5), data()).train()),
        "too_small": message(lambda: DsTrainer(Net(), plain, tiny).train()),
        "scalar": message(lambda: DsTrainer(Named(), mixed, data(), policy=FollowLosses()).train()),
        "tainted": message(lambda: forgotten(folder, args)),  # last: the run is not as it was
    }


def forgotten(folder: Path, args: DsTrainingArguments) -> None:
    """Resume from a checkpoint that learned from what must be forgotten."""
    open_run(folder).forget(samples=["step:3"])
    DsTrainer(Net(), replace(args, max_steps=3), data()).train(True)


def main() -> None:
    torch.set_num_threads(1)
    folder = Path(sys.argv[1])
    curriculum(folder / "curriculum")
    results = {
        "forwards": forwards(folder / "forwards"),
        "lives": lives(folder / "lives"),
        "phyagi": as_in_phyagi(folder / "phyagi"),
        "refusals": refusals(folder / "refusals"),
        "names": names(folder / "names"),
        "ramp_up": ramp_up(folder / "ramp_up"),
        "written": written(folder / "written"),
        "adaptive": adaptive(folder / "adaptive"),
        "weighted": weighted(folder / "weighted"),
    }
    (folder / "results.json").write_text(json.dumps(results))


if __name__ == "__main__":
    main()
