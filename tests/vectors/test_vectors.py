"""The vectors that others test by: worked out by Lading, compiled and plain, and by a reader made from documents."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from tests.vectors import make, reader, run_reader
from tests.vectors.golden import compacted

from lading.ledger.seal import seal as sealed
from lading.order import Mixture, Plan
from lading.order.dataset import PlannedDataset
from lading.order.event import Block, Rebatch, event_to_dict
from lading.order.mixture.spec import integer_weights
from lading.report.run import open_run

HERE = Path(__file__).parent


def vectors(name: str) -> list[dict[str, Any]]:
    """Return the vectors of a file."""
    found: list[dict[str, Any]] = json.loads((HERE / f"{name}.json").read_text())
    return found


@pytest.mark.parametrize("name", make.FILES)
def test_vectors_are_what_lading_works_out(name):
    """A change of any of them is a change of a version."""
    assert make.text_of(name) == (HERE / f"{name}.json").read_text()


def test_plain_versions_work_out_the_same_vectors():
    """Without compiled kernels nothing differs; there are at least 200."""
    environment = {**os.environ, "LADING_COMPILED": "0", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, str(HERE / "make.py"), "--check"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)

    assert done.returncode == 0, done.stderr
    assert sum(int(line.split(": ")[1]) for line in done.stdout.splitlines()) >= 200


@pytest.mark.parametrize("module", [reader, run_reader])
def test_readers_import_nothing_of_ours(module):
    """What they know they have from the documents."""
    tree = ast.parse(Path(module.__file__).read_text())
    named = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    named += [name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names]

    assert not [name for name in named if name.split(".")[0] == "lading"]


def test_reader_agrees_on_hashes_permutations_and_trees():
    """Everything that needs no plan."""
    for v in vectors("hashes"):
        of = v["of"] if isinstance(v["of"], list) else [v["of"]]
        parts = [int(p["integer"]) if isinstance(p, dict) else p for p in of]
        numbers = parts if v["function"] in ("text64", "key64") else [int(p) for p in parts]
        assert str(getattr(reader, v["function"])(*numbers)) == v["is"], v
    for v in vectors("permutations"):
        n, key = int(v["n"]), int(v["key"])
        assert [str(reader.permute(n, key, int(x))) for x in v["positions"]] == v["elements"], v
        assert [str(reader.permute(n, key, int(x), inverse=True)) for x in v["elements"]] == v["positions"], v
    for v in vectors("windows"):
        found = [reader.permute_pass("block", v["window"], int(v["n"]), int(v["key"]), int(x)) for x in v["positions"]]
        assert list(map(str, found)) == v["elements"], v
    for v in vectors("trees"):
        tree = reader.Tree(v["weights"], [int(owed) for owed in v["owed"]])
        draws = [tree.draws(int(v["place"]) + x, 1)[0] for x in range(4)]
        assert " ".join(f"{d}:{j}" for d, j, _ in draws) == v["draws"], v
    for v in vectors("fingerprints"):
        assert reader.fingerprint(reader.parse(v["text"])) == v["fingerprint"], v


@pytest.mark.parametrize("number", range(len(vectors("plans"))))
def test_reader_agrees_on_plans(number):
    """Fingerprint, id, samples and digest."""
    v = vectors("plans")[number]
    files = {name: [int(w) for w in some] for name, some in v["files"].items()}
    plan = reader.Plan(v["plan"], reader.parse(v["events"]), files)

    assert plan.fingerprint == v["fingerprint"]
    for wanted in v["steps"]:
        assert shown(plan.bill(int(wanted["step"]))) == wanted


def shown(bill: dict[str, Any]) -> dict[str, Any]:
    """Return a reader's bill as vectors have it."""
    names = bill.pop("samples")
    held = {"samples": " ".join(f"{d}:{i}" for d, i in names)} if len(names) <= 16 else {}
    texts = {name: str(bill[name]) for name in ("step", "epoch", "position")}
    return {**bill, **texts, "digest": str(reader.digest(bill["position"], dict(enumerate(names)))), **held}


def test_reader_agrees_on_rows_and_seals():
    """Stored rows, files of ranks, the chain, lines of manifests."""
    for v in vectors("rows"):
        tables = {name: [_row(name, row) for row in some] for name, some in v["tables"].items()}
        assert run_reader.rows_hash(tables) == (v["rows"], v["sha256"]), v
    for v in vectors("seals"):
        if "manifest_line" in v:
            assert run_reader.crc_holds(v["manifest_line"].strip().encode())
            continue
        begun = reader.parse(v["begun"])
        assert run_reader.begun_holds(begun) and run_reader.seal_line(begun) == v["line"]
        assert run_reader.sha256(f"{v['before']}\n{v['line']}".encode()) == v["sha256"]


def _row(table: str, values: list[Any]) -> dict[str, Any]:
    words = run_reader.TABLES[table].split()
    return {name: _value(value, kind) for name, kind, value in zip(words[::2], words[1::2], values, strict=True)}


def _value(value: Any, kind: str) -> Any:
    if value is None or kind == "s":
        return value
    if kind == "m":
        return [(key, _value(number, "f8")) for key, number in value]
    return int(value) if kind in run_reader.INTEGERS else float(value)


sizes = st.integers(1, 9)


@settings(max_examples=40, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 90), min_size=1, max_size=4),
    batches=st.tuples(sizes, sizes, sizes),
    drop_last=st.booleans(),
    chunk=st.none() | st.integers(1, 5),
    shuffle=st.sampled_from(["full", "none", "window"]),
    weighted=st.booleans(),
    seed=st.integers(0, (1 << 64) - 1),
)
def test_reader_agrees_on_any_plan(lengths, batches, drop_last, chunk, shuffle, weighted, seed):
    """Sizes that change as planned and after a resume, blocks, weights: the same samples at every step."""
    batches = tuple(min(batch, sum(lengths)) for batch in batches)
    names = {f"d{number}": length for number, length in enumerate(lengths)}
    mixture = Mixture([1 + number for number in range(len(lengths))]) if weighted else None
    fields: dict[str, Any] = {"drop_last": drop_last, "chunk_batches": chunk, "shuffle": shuffle, "window_samples": 7}
    schedule = [(0, batches[0]), ("5ba", batches[1])]
    plan = Plan.make(names, batch_schedule=schedule, mixture=mixture, seed=seed, **fields)
    if weighted and (
        event := plan.reweighting(6, integer_weights([1 + len(lengths) - n for n in range(len(lengths))]))
    ):
        plan = plan.with_event(event)
    at = plan.locate(9)
    plan = plan.with_event(Rebatch(9, at.epoch, at.offset, batches[2], chunk))
    if lengths[0] > 1:
        plan = plan.with_event(Block(11, 0, (0,), "bad"))
    for resumed, steps in ((plan, range(16)), (plan.with_events(plan.events_from(12)), range(12, 20))):
        text = json.dumps({**json.loads(resumed.with_events(()).to_json()), "events": []})
        other = reader.Plan(text, json.loads(json.dumps([event_to_dict(e) for e in resumed.events])), {})
        for step in steps:
            assert shown(other.bill(step)) == make._step(resumed, step)


def test_reader_checks_a_run(tmp_path):
    """Chain, plans, rows and seal of two attempts, one of them killed on two ranks; digests are those of the plan."""
    path = compacted("planned", tmp_path)
    problems, seal, plans = run_reader.check_run(path)

    assert problems == [] and seal == sealed(path).seal
    assert shown(plans[0].bill(2))["digest"] == str(open_run(path).plan.bill(2).digest)


@pytest.mark.parametrize(
    "name", ["run.json", "log/000001.json", "begun/00000.json", "part-", "manifest.jsonl", "plans/"]
)
def test_reader_finds_a_changed_file(tmp_path, name):
    """One byte in the middle of any file."""
    path = compacted("planned", tmp_path)
    file = next(f for f in sorted(path.rglob("*")) if f.is_file() and name in str(f))
    content = bytearray(file.read_bytes())
    place = content.find(b'"seed": ') + 8 if name == "plans/" else len(content) // 2
    content[place] ^= 1
    file.write_bytes(content)

    try:
        problems = run_reader.check_run(path)[0]
    except (ValueError, OSError, KeyError) as error:
        problems = [str(error)]
    assert problems


def test_integers_and_floats_are_one_number_of_tokens():
    """A plan given 100 tokens a sample has the fingerprint of its own JSON, which says 100.0."""
    plan = Plan.make([PlannedDataset("a", 10, mean_tokens=100)], batch_size=2)

    assert Plan.from_json(plan.to_json()).fingerprint == plan.fingerprint
