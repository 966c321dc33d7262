"""The witness campaign: every framework, ended in order, by an exception and by ``kill -9``, and resumed.

    python -m tests.campaigns.witness [SETUP ...]          the whole matrix, a line a case, one JSON line at the end
    python -m tests.campaigns.witness --one SETUP FOLDER END PHASE      one process of a case

48 samples, 4 a batch, two epochs. A case is a first process, which ends after 12 batches, or fails or is killed in
its 15th, and a second one that resumes from the last checkpoint and trains to the end. After each, what the witness
saw is compared with ``history``, sample by sample and in order.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lading import Columns, Ledger, NumpyLoader, open_run
from lading.testing import compare_witness, trained_batches, witness

ROWS, BATCH, STEPS, FIRST_STEPS, STOPS_AT, SAVE_EVERY = 48, 4, 24, 12, 15, 5
LEFT_OUT = 7  # the setups that skip leave out the batch with this row: once an epoch
ENDS = ("finished", "exception", "kill")
X = np.stack([np.arange(ROWS), np.arange(ROWS) * 7 % ROWS], axis=1).astype(np.float32)


class Stopped(RuntimeError):
    """The exception that ends a training."""


class Rows:
    """Samples whose first feature is their own number."""

    random_free = True

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"x": X[index]}


@dataclass
class Case:
    """One process of a case.

    Attributes:
        folder: Of the case.
        end: ``finished``, ``exception`` or ``kill``.
        resumes: Whether this is the second process.
    """

    folder: Path
    end: str
    resumes: bool
    given: int = 0

    @property
    def run(self) -> Path:
        """The run folder."""
        return self.folder / "run"

    @property
    def seen(self) -> Path:
        """The witness's folder."""
        return self.folder / "witness"

    @property
    def steps(self) -> int:
        """The step to train to."""
        return FIRST_STEPS if self.end == "finished" and not self.resumes else STEPS

    def stop(self, *_: Any) -> None:
        """End the first process in its 15th batch, as the case wants it."""
        self.given += 1
        if self.resumes or self.end == "finished" or self.given != STOPS_AT:
            return
        if self.end == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        raise Stopped("as asked")

    def watch(self, model: Any, ids: Callable[..., Any]) -> Any:
        """Watch a torch model; it stops training when it is time."""
        import torch

        seen = witness(model, self.seen, ids)

        def stop(module: Any, *_: Any) -> None:
            if module.training and torch.is_grad_enabled():
                self.stop()

        model.register_forward_pre_hook(stop)
        return seen


def net() -> Any:
    """Return a model of two features."""
    import torch

    torch.manual_seed(0)

    class Net(torch.nn.Module):
        """Gives a loss a row."""

        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(2, 1)

        def forward(self, x: Any) -> Any:
            return (self.layer(x / ROWS)[:, 0] - 1).square()

    return Net()


def first_column(x: Any) -> Any:
    """Return the numbers that the samples carry."""
    return x[:, 0]


class TorchRun:
    """Model, optimizer and checkpoint of a loop in plain torch."""

    def __init__(self, case: Case) -> None:
        import torch

        self.case, self.torch, self.model = case, torch, net()
        self.seen = case.watch(self.model, first_column)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)
        self.path = case.folder / "checkpoint.pt"

    def load(self, loader: Any) -> None:
        """Stand where the checkpoint was taken."""
        if self.case.resumes:
            saved = self.torch.load(self.path, weights_only=False)
            self.model.load_state_dict(saved["model"])
            self.optimizer.load_state_dict(saved["optimizer"])
            loader.load_state_dict(saved["loader"])

    def save(self, loader: Any) -> None:
        """Take a checkpoint."""
        parts = {"model": self.model, "optimizer": self.optimizer, "loader": loader}
        self.torch.save({name: part.state_dict() for name, part in parts.items()}, self.path)

    def update(self, x: Any) -> Any:
        """Make an update of a batch."""
        loss = self.model(x).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss

    def is_due(self, done: int) -> bool:
        """Say whether a checkpoint is due."""
        return done % SAVE_EVERY == 0 or done == self.case.steps


def _lading_loop(case: Case, batches_of: Callable[[Any], Any] = lambda loader: loader, **options: Any) -> None:
    from lading import Loader

    made = TorchRun(case)
    loader = Loader(made.seen.dataset(Rows()), BATCH, seed=3, **options)
    made.load(loader)
    with Ledger(case.run) as ledger:
        loader.tracker = ledger
        while loader.step < case.steps:
            for batch in batches_of(loader):
                bill = loader.last_bill
                ledger.commit(bill, loss=made.update(batch["x"]))
                if made.is_due(bill.step + 1):
                    made.save(loader)
                if bill.step + 1 == case.steps:
                    break
    made.seen.close()


def loader(case: Case) -> None:
    """A ``Loader`` in the process."""
    _lading_loop(case)


def loader_workers(case: Case) -> None:
    """A ``Loader`` with two worker processes."""
    _lading_loop(case, num_workers=2)


def loader_threads(case: Case) -> None:
    """A ``Loader`` with two threads."""
    _lading_loop(case, num_workers=2, workers="threads")


def repeating(case: Case) -> None:
    """A ``RepeatingLoader``."""
    from lading import RepeatingLoader

    _lading_loop(case, RepeatingLoader)


def _functional(case: Case, make: Callable[..., Any], update: Callable[[Any, Any], Any], first: Any) -> None:
    """Train with a function that takes weights and returns new ones."""

    def step(weights: Any, batch: Any) -> Any:
        case.stop()
        return update(weights, batch["x"])

    watched = witness(step, case.seen, ids=lambda weights, batch: batch["x"][:, 0])
    loader, path, weights = make(watched.dataset(Columns(x=X))), case.folder / "checkpoint.json", first
    if case.resumes:
        saved = json.loads(path.read_text())
        weights = type(first)(saved["weights"]) if isinstance(first, list) else first * 0 + np.float32(saved["weights"])
        loader.load_state_dict(saved["loader"])
    with Ledger(case.run) as ledger:
        loader.tracker = ledger
        try:
            while loader.step < case.steps:
                for batch, bill in loader.with_bills():
                    weights = watched(weights, batch)
                    ledger.commit(bill)
                    if (bill.step + 1) % SAVE_EVERY == 0 or bill.step + 1 == case.steps:
                        kept = {"weights": np.asarray(weights).tolist(), "loader": loader.state_dict()}
                        path.write_text(json.dumps(kept))
                    if bill.step + 1 == case.steps:
                        break
        finally:
            watched.close(weights)


def numpy(case: Case) -> None:
    """A ``NumpyLoader`` and a step in NumPy."""

    def update(weights: Any, x: Any) -> Any:
        return (weights - 0.01 * (x / ROWS).mean(0) * (1 + weights)).astype(np.float32)

    _functional(case, lambda data: NumpyLoader(data, BATCH, seed=3), update, np.ones(2, np.float32))


def jax(case: Case) -> None:
    """A ``JaxLoader`` and a compiled step."""
    import jax.numpy as jnp
    from jax import jit

    from lading import JaxLoader

    @jit
    def update(weights: Any, x: Any) -> Any:
        return weights - 0.01 * (x / ROWS).mean(0) * (1 + weights)

    _functional(case, lambda data: JaxLoader(data, BATCH, seed=3), update, jnp.ones(2, jnp.float32))


def _tracked(case: Case, kind: Any, **options: Any) -> None:
    import torch

    from lading import track

    made = TorchRun(case)
    order = torch.Generator().manual_seed(3)
    data = made.seen.dataset(Rows())
    loader = track(kind(data, batch_size=BATCH, shuffle=True, generator=order, **options), run=case.run)
    made.load(loader)
    with loader:
        while loader.step < case.steps:
            for batch in loader:
                made.update(batch["x"])
                if made.is_due(loader.step):
                    made.save(loader)
                if loader.step == case.steps:
                    break
    made.seen.close()


def track_dataloader(case: Case) -> None:
    """``track`` on a DataLoader with two workers."""
    import warnings

    from torch.utils.data import DataLoader

    warnings.filterwarnings("ignore", message="the workers of this DataLoader draw")
    _tracked(case, DataLoader, num_workers=2)


def track_stateful(case: Case) -> None:
    """``track`` on torchdata's StatefulDataLoader."""
    from torchdata.stateful_dataloader import StatefulDataLoader

    _tracked(case, StatefulDataLoader)


def _trainer(case: Case, trainer: Any, ids: Callable[..., Any]) -> None:
    from lading.train.transformers import account

    seen = case.watch(trainer.model, ids)
    account(trainer, case.run)
    try:
        trainer.train(resume_from_checkpoint=True if case.resumes else None)
    finally:
        seen.close()


def _hugging_face(case: Case, **options: Any) -> Any:
    from tests.train.transformers.scripts.trainer import Texts, make

    accumulated = options.get("gradient_accumulation_steps", 1)
    steps = {"max_steps": case.steps // accumulated, "gradient_accumulation_steps": accumulated}
    calm = {"data": Texts(ROWS, 50), "save_steps": SAVE_EVERY, "lr_scheduler_type": "constant"}
    return make(case.folder / "trainer", BATCH, **{**calm, **options, **steps})


def second_token(input_ids: Any, labels: Any = None) -> Any:
    """Return the numbers that the texts carry."""
    return input_ids[:, 1]


def trainer(case: Case) -> None:
    """Hugging Face's Trainer, accounted for."""
    _trainer(case, _hugging_face(case), second_token)


def trainer_accumulated(case: Case) -> None:
    """The same with two batches an update, evaluation in between and two workers."""
    from tests.train.transformers.scripts.trainer import Texts

    evaluation = {"eval_dataset": Texts(8, 50), "eval_strategy": "steps", "eval_steps": 3}
    options = {"gradient_accumulation_steps": 2, "save_steps": 2, "dataloader_num_workers": 2}
    _trainer(case, _hugging_face(case, **options, **evaluation), second_token)


def trainer_skips(case: Case) -> None:
    """Two batches an update, of which the one with row 7 ends before its backward pass."""
    from transformers import Trainer

    class Choosy(Trainer):
        """Leaves a batch out, as people do with broken ones."""

        def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Any:
            if LEFT_OUT in second_token(inputs["input_ids"]).tolist():
                return inputs["input_ids"].new_zeros((), dtype=model.dtype)
            return super().training_step(model, inputs, num_items_in_batch)

    made = _hugging_face(case, gradient_accumulation_steps=2, save_steps=2)
    made.__class__ = Choosy
    _trainer(case, made, second_token)


def trl_sft(case: Case) -> None:
    """TRL's SFTTrainer."""
    from datasets import Dataset
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast, logging, set_seed
    from trl import SFTConfig, SFTTrainer

    logging.set_verbosity_error()
    set_seed(0)
    words = ["<pad>", "<eos>", "<unk>", *(f"w{number}" for number in range(ROWS))]
    tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokens = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>"
    )
    texts = [" ".join([f"w{number}"] * (2 + number % 3)) for number in range(ROWS)]
    args = SFTConfig(
        str(case.folder / "trainer"), max_length=16, per_device_train_batch_size=BATCH, max_steps=case.steps,
        bf16=False, use_cpu=True, report_to=[], disable_tqdm=True, save_steps=SAVE_EVERY, lr_scheduler_type="constant",
    )  # fmt: skip
    small = {"vocab_size": 64, "n_positions": 64, "n_embd": 16, "n_layer": 1, "n_head": 2}
    calm = {"resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0}
    model = GPT2LMHeadModel(GPT2Config(**small, **calm, bos_token_id=1, eos_token_id=1))
    made = SFTTrainer(model, args, train_dataset=Dataset.from_dict({"text": texts}), processing_class=tokens)
    _trainer(case, made, lambda *_, input_ids, **__: input_ids[:, 0] - 3)


def accelerate(case: Case) -> None:
    """Accelerate, two batches an update, fates taken from the optimizer."""
    from accelerate import Accelerator

    from lading import Loader
    from lading.train import Fates

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    made = TorchRun(case)
    loader = Loader(made.seen.dataset(Rows()), BATCH, seed=3)
    made.load(loader)
    with Ledger(case.run) as ledger:
        loader.tracker = ledger
        model, optimizer, prepared = accelerator.prepare(made.model, made.optimizer, loader)
        fates = Fates(ledger, model.parameters, [optimizer])
        while loader.step < case.steps:
            for batch in prepared:
                with accelerator.accumulate(model):
                    accelerator.backward(model(batch["x"]).mean())
                    optimizer.step()
                    optimizer.zero_grad()
                fates.trained(loader.last_bill)
                if accelerator.sync_gradients:
                    fates.settle(update=loader.last_bill.step // 2)
                    if loader.step % 6 == 0:
                        made.save(loader)
                if loader.step == case.steps:
                    break
    made.seen.close()


def lightning(case: Case) -> None:
    """Lightning's Trainer with a ledger callback."""
    _lightning(case)


def lightning_skips(case: Case) -> None:
    """The same; ``training_step`` returns None for the batch with row 7."""
    _lightning(case, left_out=LEFT_OUT)


def _lightning(case: Case, left_out: int | None = None) -> None:
    import warnings

    import torch
    from lightning.pytorch import LightningModule, Trainer
    from lightning.pytorch.callbacks import ModelCheckpoint

    from lading import Loader
    from lading.train.lightning import LedgerCallback

    warnings.filterwarnings("ignore")

    class Module(LightningModule):
        """Leaves the batch with one row out."""

        def __init__(self) -> None:
            super().__init__()
            self.net = net()

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return None if left_out in batch["x"][:, 0].tolist() else self.net(batch["x"]).mean()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)

    module = Module()
    seen = case.watch(module.net, first_column)
    saves = ModelCheckpoint(case.folder / "saves", every_n_train_steps=SAVE_EVERY, save_last=True, save_top_k=-1)
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}
    made = Trainer(max_steps=case.steps, callbacks=[LedgerCallback(case.run), saves], **quiet)
    last = case.folder / "saves" / "last.ckpt"
    try:
        data = Loader(seen.dataset(Rows()), BATCH, seed=3)
        made.fit(module, data, ckpt_path=last if case.resumes else None, weights_only=False)
    finally:
        seen.close()


def deepspeed(case: Case) -> None:
    """DsTrainer."""
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    from lading.kits.deepspeed import DsTrainer, DsTrainingArguments

    model = net()
    seen = case.watch(model, first_column)
    args = DsTrainingArguments(
        str(case.run), global_batch_size=BATCH, gradient_accumulation_steps=1, max_steps=case.steps,
        save_steps=SAVE_EVERY, learning_rate=0.02, progress=False, logging_steps=4, lr_scheduler_type="constant",
    )  # fmt: skip
    try:
        DsTrainer(model, args, seen.dataset(Rows())).train(resume_from_checkpoint=True if case.resumes else None)
    finally:
        seen.close()


def _two_ranks(case: Case) -> None:
    """The loop of ``lading.train.torch`` on a rank of two, two rows each."""
    import torch

    from lading import Loader
    from lading.train.torch import train

    torch.set_num_threads(1)
    model = net()
    seen = case.watch(model, first_column)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    loader = Loader(seen.dataset(Rows()), BATCH // 2, seed=3)
    try:
        train(
            model, optimizer, loader, lambda made, batch: made(batch["x"]), case.run, updates=case.steps,
            save_every=SAVE_EVERY,
        )  # fmt: skip
    finally:
        seen.close()


def torchrun(case: Case) -> None:
    """The loop of ``lading.train.torch`` on two ranks of torchrun."""
    from lading.train.torch import process_group

    with process_group():
        _two_ranks(case)


def _ray(case: Case, loop: Callable[[Any], None], workers: int) -> None:
    calm = {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0", "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.5"}
    os.environ.update(calm)
    import ray
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    if workers:
        ray.init(num_cpus=2, include_dashboard=False)
    scaling = ScalingConfig(num_workers=workers, resources_per_worker={"CPU": 0.5} if workers else None)
    run = RunConfig(storage_path=str(case.folder), name="ray")
    TorchTrainer(loop, train_loop_config={}, scaling_config=scaling, run_config=run).fit()


def ray(case: Case) -> None:
    """Ray Train in the process itself: a loop over a prepared ``Loader``."""

    def loop(config: Any) -> None:
        from lading.train.ray import prepare

        _lading_loop(case, prepare)

    _ray(case, loop, 0)


def ray_workers(case: Case) -> None:
    """The loop of ``lading.train.torch`` on two Ray workers of a cluster."""
    _ray(case, lambda config: _two_ranks(case), 2)


SETUPS: dict[str, Callable[[Case], None]] = {
    function.__name__: function
    for function in (
        loader, loader_workers, loader_threads, repeating, numpy, jax, track_dataloader, track_stateful, trainer,
        trainer_accumulated, trainer_skips, trl_sft, accelerate, lightning, lightning_skips, deepspeed, torchrun, ray,
        ray_workers,
    )
}  # fmt: skip


ROOT = Path(__file__).parents[2]
_FRAMEWORKS = (  # loaded once, by the process that all others are forked from
    "tests.campaigns.witness", "lading.train.torch", "torchdata.stateful_dataloader", "lading.train.transformers",
    "trl", "tests.train.transformers.scripts.trainer", "datasets", "lading.train.lightning", "lading.kits.deepspeed",
)  # fmt: skip


def start_server(*, frameworks: bool = True) -> None:
    """Start the process that the processes of cases are forked from; without frameworks it has torch alone."""
    paths = [str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    calm = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "DS_ACCELERATOR": "cpu", "JAX_PLATFORMS": "cpu"}
    os.environ.update({"PYTHONPATH": os.pathsep.join(paths), **calm})
    _PROCESSES.set_forkserver_preload(list(_FRAMEWORKS if frameworks else _FRAMEWORKS[:2]))


_PROCESSES = multiprocessing.get_context("forkserver")


def run_phase(setup: str, folder: Path, end: str, *, resumes: bool) -> tuple[int, str]:
    """Run one process of a case to its end; return its exit code and what it said."""
    said = folder / f"{'second' if resumes else 'first'}.log"
    if setup == "torchrun":
        ranks = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
        command = [*ranks, "-m", "tests.campaigns.witness", "--one", setup, str(folder), end, said.stem]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
        return done.returncode, done.stderr
    process = _PROCESSES.Process(target=_train, args=(setup, Case(folder, end, resumes), said))
    process.start()
    process.join()
    assert process.exitcode is not None
    return process.exitcode, said.read_text()


def _train(setup: str, case: Case, said: Path) -> None:
    file = os.open(said, os.O_WRONLY | os.O_CREAT)
    os.dup2(file, 1)
    os.dup2(file, 2)
    multiprocessing.set_start_method("fork", force=True)  # as in a process that nobody forked: workers are forks
    SETUPS[setup](case)


def run_case(setup: str, end: str, folder: Path) -> dict[str, Any]:
    """Run a case: end the first process, resume in a second, and compare after each."""
    began, differences = time.monotonic(), []
    folder.mkdir(exist_ok=True)
    for resumes in (False, True):
        code, said = run_phase(setup, folder, end, resumes=resumes)
        ended = "finished" if resumes else end
        launched = setup in ("torchrun", "ray_workers")  # the launcher reports a killed rank, and ends the others
        killed = 1 if launched else -signal.SIGKILL
        expected = {"finished": 0, "exception": 1, "kill": killed}[ended]
        if code != expected or (ended == "exception" and "Stopped" not in said):
            return {"setup": setup, "end": end, "failed": [f"exit {code}", *said.strip().splitlines()[-12:]]}
        run = folder / "run"
        found = compare_witness(folder / "witness", run, may_lack_end=ended == "kill")
        differences += [f"{'resumed' if resumes else end}: {one}" for one in found]
    verdict, (line, _) = open_run(run).verify(), trained_batches(folder / "witness")
    if not verdict.holds:
        differences.append(f"verify: {verdict.faults[0].message}")
    used = [batch for batch in line if batch.is_used]
    expected = STEPS - 2 if setup.endswith("_skips") else STEPS
    if len(used) != expected:
        differences.append(f"the model was trained on {len(used)} batches, not {expected}")
    return {
        "setup": setup, "end": end, "batches": len(used), "samples": sum(len(batch.ids) for batch in used),
        "state": state_of(run), "differences": differences, "seconds": round(time.monotonic() - began, 1),
    }  # fmt: skip


def state_of(run: Path) -> str:
    """Return how the first attempt ended, as ``show`` says it."""
    from lading.report.summary import summarise

    return str(summarise(open_run(run)).attempts[0]["state"])


def cases(setups: list[str]) -> Iterator[dict[str, Any]]:
    """Run every case of some setups."""
    for setup in setups:
        for end in ENDS:
            with tempfile.TemporaryDirectory(prefix="lading-witness-") as folder:
                yield run_case(setup, end, Path(folder))


def main() -> None:
    """Run one process of a case, or the matrix."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--one", action="store_true")
    parser.add_argument("what", nargs="*")
    given = parser.parse_args()
    if given.one:
        setup, folder, end, phase = given.what
        SETUPS[setup](Case(Path(folder), end, phase == "second"))
        return
    start_server()
    found = []
    for case in cases(given.what or list(SETUPS)):
        print(json.dumps(case), flush=True)
        found.append(case)
    wrong = [case for case in found if case.get("failed") or case["differences"]]
    total = sum(case.get("samples", 0) for case in found)
    print(json.dumps({"cases": len(found), "samples": total, "wrong": len(wrong)}), flush=True)
    sys.exit(bool(wrong))


if __name__ == "__main__":
    from tests.campaigns import witness as found_by_name  # workers of Ray find its classes there, not in __main__

    found_by_name.main()
