"""Every reader of the library, each with valid inputs to damage.

A target makes a folder of valid files once, and reads a folder; the campaign
damages one file of a copy at a time. Readers of texts have a folder of one file.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import random
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from tests.campaigns.mutations import changed_bytes, changed_json, changed_parquet, changed_text, changed_yaml
from tests.campaigns.rehash import rehash
from tests.kits.jasper.jasper_directory import make_directory
from tests.report.runs import record

from lading import Plan, TokenStore, build_tokens
from lading.cli.plan import read_plan, steps_until
from lading.errors import LadingError
from lading.identity import World
from lading.kits.chunked.config import read_config
from lading.kits.jasper.dataset import JASPERSteeringDataset
from lading.kits.web.render.page import page
from lading.ledger import Ledger
from lading.loader.request import Resume
from lading.loader.state import make_state, read_state, restored_plan
from lading.order import Block, Reweight
from lading.order.mixture.spec import MixtureSpec
from lading.order.packing.file import open_index, save_index
from lading.order.packing.fill import fill_rows
from lading.order.packing.index import PackingIndex
from lading.report import Run, open_run
from lading.report.summary import summarise
from lading.source.tokens.inputs import FilePiece, find_inputs
from lading.source.tokens.read import read_documents

HALF = 1 << 30
MIXED = MixtureSpec(1000, ((0, (HALF, HALF)), (400, (HALF // 2, HALF + HALF // 2))))
CONFIG = """
dataset: {class_path: my.Data, init_args: {files: 20, nested: {class_path: my.Louder}}}
loader: {batch_size: 32, num_workers: 2, drop_last: true, seed: 1}
train: {train_chunk_size: 2000, val_chunk_size: 100, limit_train_batches: 0.5, seed: 3}
trainer: {max_epochs: 4, limit_val_batches: 7}
model: {class_path: my.Model, init_args: &arguments {width: 64, lr: 1e-3}}
run: {dir: runs/7, ledger: true, mixture: {code: 0.7, prose: 0.3}, checkpoint_updates: 10}
"""
PLAN_YAML = """
datasets:
  code: 1_000_000
  prose: {length: 200_000, mean_tokens: 850}
batch_size: 1024
seed: 0
weights: {code: .7, prose: .3}
until: 20000ba
"""
SCHEDULED_YAML = """
plan:
  datasets: {code: 50000, prose: 20000}
  batch_size: 64
  schedule: [[0, {code: 1, prose: 1}], [500ba, {code: 3, prose: 1}], [2ep, [1, 3]]]
  shuffle: full
  drop_last: false
  chunk_batches: 10
"""


@dataclasses.dataclass(frozen=True)
class Target:
    """A reader.

    Attributes:
        make: Write valid inputs into an empty folder.
        read: Read the folder, and use what was read.
        share: Inputs of a hundred thousand.
        change: How the bytes of one file are damaged.
        mend: What an attacker does to the folder afterwards: make checksums right.
    """

    make: Callable[[Path], None]
    read: Callable[[Path], object]
    share: int
    change: Callable[[bytes, random.Random], bytes] = changed_bytes
    mend: Callable[[Path], None] | None = None


def _json_files(data: bytes, chance: random.Random) -> bytes:
    """Damage JSON as JSON, anything else as bytes."""
    try:
        return changed_text(data, chance)
    except ValueError:
        return changed_bytes(data, chance)


def _plans(folder: Path) -> None:
    plans = [
        Plan.make({"code": 700, "prose": 301}, 16, seed=3).with_event(Block(4, 0, (5, 6), "bad")),
        Plan.make({"code": 700, "prose": 301}, 16, seed=3, mixture=MIXED).with_event(
            Reweight(40, 640, (HALF, HALF), "policy")
        ),
        Plan.make(9, 2, shuffle="none", drop_last=True, chunk_batches=2),
    ]
    for number, plan in enumerate(plans):
        (folder / f"{number}.json").write_text(plan.to_json())


def _read_plans(folder: Path) -> None:
    for path in folder.iterdir():
        plan = Plan.from_json(path.read_bytes().decode(errors="surrogateescape"))
        assert Plan.from_json(plan.to_json()).fingerprint == plan.fingerprint
        if plan.global_batch_size <= 1 << 16:
            plan.bill(3)
            plan.where(0, 0, 0, 5) if plan.datasets[0].length else None


def _states(folder: Path) -> None:
    plain = Plan.make({"code": 700, "prose": 301}, 16, seed=3)
    (folder / "0.json").write_text(json.dumps(make_state(plain.with_event(Block(4, 0, (5, 6), "bad")), 7)))


def _changed_state(data: bytes, chance: random.Random) -> bytes:
    """Change the state, or the JSON that is a string inside it."""
    state = json.loads(data)
    key = chance.choice(("summary", "events", "policy", ""))
    if not key:
        return json.dumps(changed_json(state, chance)).encode()
    return json.dumps(state | {key: changed_text(state[key].encode(), chance).decode(errors="replace")}).encode()


def _read_states(folder: Path) -> None:
    plan = Plan.make({"code": 700, "prose": 301}, 16, seed=3)
    for path in folder.iterdir():
        saved = read_state(json.loads(path.read_bytes()))
        for allowed in (Resume(), Resume(rebatch=True, changed_plan=True)):
            restored_plan(saved, plan, allowed).bill(saved.step)


def _tokens(folder: Path) -> None:
    (folder / "a.txt").write_text("to be or not\n\nto be\n\nthat is\n")
    build_tokens([folder / "a.txt"], folder / "store", split="paragraph")
    (folder / "a.txt").unlink()


def _read_tokens(folder: Path) -> None:
    for validate in (True, False):
        store = TokenStore(folder / "store", validate=validate)
        lengths = store.lengths()
        if store.names is not None:
            [store.name(document) for document in range(min(len(store), 100))]
            store.names.find("a.txt:3")
        index = PackingIndex.build(lengths, 16, overflow="split") if lengths.sum() < 1 << 20 else None
        if index is not None:
            fill_rows(index, np.arange(len(index)), store.tokens, store.offsets)


def _packing(folder: Path) -> None:
    save_index(PackingIndex.build([5, 9, 3, 0, 16, 40], 16, overflow="split"), folder)


def _read_packing(folder: Path) -> None:
    index = open_index(next(folder.glob("packing-*")))
    offsets = np.array([0, 5, 14, 17, 17, 33, 73])
    if index.rules.row_length <= 1 << 16 and len(index) < 1 << 10:
        fill_rows(index, np.arange(len(index)), np.arange(73, dtype=np.uint16), offsets)
        [index.pieces(row) for row in range(len(index))]
        index.rows_of_document(5)


def _documents(folder: Path) -> None:
    (folder / "a.jsonl").write_text('{"text": "one"}\n{"text": [1, 2, 3]}\n')
    (folder / "b.txt").write_text("one\n\ntwo\n")
    pq.write_table(pa.table({"text": ["one", "two", "", "x" * 300]}), folder / "c.parquet")
    pq.write_table(pa.table({"text": [[1, 2], [], [3]]}), folder / "d.parquet")


def _whole(path: Path) -> list[FilePiece]:
    return [FilePiece(file, 0, max(file.size, 1)) for file in find_inputs([path])]


def _read_documents(folder: Path) -> None:
    for path in sorted(folder.iterdir()):
        for _ in itertools.islice(read_documents(_whole(path), split="line"), 100):
            pass


def _jasper(folder: Path) -> None:
    make_directory(folder)


def _jasper_hdf5(folder: Path) -> None:
    make_directory(folder)
    JASPERSteeringDataset.convert_pt_to_hdf5(str(folder), compression=None)
    for path in [*folder.glob("*.pt"), *folder.glob(".*")]:
        path.unlink()


def _read_jasper(folder: Path) -> None:
    for mapped in (False, True):
        dataset = JASPERSteeringDataset(str(folder), "train", use_mmap=mapped)
        dataset[0]


def _run(folder: Path) -> None:
    record(folder / "run", range(12), part_rows={"batches": 5})
    record(folder / "run", range(8, 14), world_size=2, close=False)


def _named_run(folder: Path) -> None:
    plan = Plan.make({"code": 70, "prose": 31}, batch_size=8, seed=3)
    ledger = Ledger(folder / "run", plan, record="names", part_rows={"batches": 4, "samples": 20})
    for step in range(9):
        bill = plan.bill(step, world=World())
        ledger.deliver(bill)
        ledger.commit(bill, update=step, loss=1.0)
    ledger.close()


ASKS: tuple[Callable[[Run], object], ...] = (
    summarise,
    lambda run: run.step(7),
    lambda run: run.where("code", 5),
    lambda run: run.mix(),
    lambda run: run.explain(7),
    lambda run: run.sql("SELECT count(*), sum(samples) FROM history"),
    lambda run: run.sql("FROM samples LIMIT 5"),
    lambda run: run.history,
    lambda run: run.batches,
    page,
)


def _read_run(folder: Path) -> None:
    """Verify a run and ask two things; which ones, its bytes decide."""
    run = open_run(folder / "run")
    chance = random.Random(zlib.crc32(b"".join(p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file())))
    refused: LadingError | None = None
    for ask in (Run.verify, *chance.sample(ASKS, 2)):
        try:
            ask(run)
        except LadingError as error:
            refused = error
    if refused is not None:
        raise refused


def _rehashed(folder: Path) -> None:
    with contextlib.suppress(OSError, ValueError, AttributeError, TypeError):
        rehash(folder / "run")


def _hostile(data: bytes, chance: random.Random) -> bytes:
    """Change values of JSON and Parquet, seldom bytes: checksums will be right, so that values are looked at."""
    if data[:4] == b"PAR1" and chance.random() < 0.9:
        return changed_parquet(data, chance)
    try:
        return json.dumps(changed_json(json.loads(data), chance)).encode()
    except ValueError:
        lines = data.splitlines(keepends=True)
        if not data.startswith(b"{") or chance.random() < 0.2:
            return changed_bytes(data, chance)
        line = chance.randrange(len(lines))
        lines[line] = json.dumps(changed_json(json.loads(lines[line]), chance)).encode() + b"\n"
        return b"".join(lines)


TARGETS = {
    "plan JSON": Target(_plans, _read_plans, 23_000, changed_text),
    "loader state": Target(_states, _read_states, 8_000, _changed_state),
    "token store": Target(_tokens, _read_tokens, 13_000, _json_files),
    "packing index": Target(_packing, _read_packing, 16_500, _json_files),
    "documents": Target(_documents, _read_documents, 12_500),
    "plan YAML": Target(
        lambda folder: (
            [(folder / name).write_text(text) for name, text in (("a.yaml", PLAN_YAML), ("b.yaml", SCHEDULED_YAML))]
            and None
        ),
        lambda folder: [steps_until(*read_plan(str(path))) for path in folder.iterdir()],
        8_000,
        changed_yaml,
    ),
    "configuration": Target(
        lambda folder: (folder / "run.yaml").write_text(CONFIG) and None,
        lambda folder: read_config(folder / "run.yaml").sizes(),
        8_000,
        changed_yaml,
    ),
    "JASPER .pt": Target(_jasper, _read_jasper, 1_500, _json_files),
    "JASPER HDF5": Target(_jasper_hdf5, _read_jasper, 1_500, _json_files),
    "run": Target(_run, _read_run, 2_000, _json_files),
    "run with names": Target(_named_run, _read_run, 1_500, _json_files),
    "run, checksums right": Target(_run, _read_run, 2_500, _hostile, _rehashed),
    "run with names, checksums right": Target(_named_run, _read_run, 2_000, _hostile, _rehashed),
}
torch.set_num_threads(1)
