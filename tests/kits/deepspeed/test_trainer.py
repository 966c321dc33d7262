"""DsTrainer on real DeepSpeed: records, accumulation, overflow, kill -9 and resume, curriculum, refusals."""

from __future__ import annotations

import json
import os
import random
import re
import socket
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch
from tests.launching import read_jsonl, torchrun

from lading.errors import SourceError
from lading.report import open_checkpoint, open_run
from lading.report.checkpoint.check import check

SCRIPTS = Path(__file__).parent / "scripts"
RUN, ALONE = SCRIPTS / "deepspeed_run.py", SCRIPTS / "deepspeed_alone.py"
EXAMPLE = Path(__file__).parents[3] / "examples" / "deepspeed_training.py"
KEYS = {
    "train/global_rank",
    "train/step",
    "train/step_runtime",
    "train/loss",
    "train/n_samples_per_dataset",
    "train/dataset_names",
}
# In scripts/deepspeed_run.py: 14 updates of 2 steps, checkpoints after 5, 10 and 14.
STEPS, FIRST_SAVED = 28, 10

pytestmark = pytest.mark.needs("deepspeed")


def environment() -> dict[str, str]:
    """Return an environment in which DeepSpeed finds a CPU and no other process group."""
    taken = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
    return {**{key: value for key, value in os.environ.items() if key not in taken}, "DS_ACCELERATOR": "cpu"}


def run(*command, check=True):
    """Run a command; what it printed is shown where it fails."""
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=3000, env=environment())
    assert not check or done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-5000:]}"
    return done


def free_port() -> int:
    """Return a port that no one listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def step_to_die_at() -> int:
    """Return a random step between the first and the last checkpoint."""
    return random.randrange(FIRST_SAVED + 1, STEPS - 1)


def history(folder: Path):
    """Return the history of a run that verifies."""
    opened = open_run(folder)
    verdict = opened.verify()
    assert verdict.holds, verdict
    return opened.history


# One plain process


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """Many small runs in one process of its own; its folder and what it noted."""
    folder = tmp_path_factory.mktemp("alone")
    done = run(sys.executable, ALONE, folder)
    return folder, {**json.loads((folder / "results.json").read_text()), "stderr": done.stderr}


def test_forward_gets_the_names_it_accepts_and_no_others(alone):
    """A forward without ``idx`` works, one with it gets it, ``**batch`` gets everything, and they can be withheld."""
    folder, results = alone
    found = results["forwards"]

    assert found["named"] == [sample["index"] for sample in open_run(folder / "forwards" / "named").step(1).samples]
    assert found["anything"] == ["dataset_idx", "idx", "x", "y"]
    assert found["silent"] is None
    assert found["pairs"][0] == 1


@pytest.mark.parametrize("source", ["weighted", "concatenated", "tagged", "concatenated_tags"])
def test_the_file_the_ledger_and_forward_name_the_same_samples(alone, source):
    """Concatenated, weighted and tagged data: everybody books the names that the batch carries."""
    folder, results = alone[0] / "names" / source, alone[1]["names"][source]
    opened, records = open_run(folder), read_jsonl(folder / "batch_tracker_rank_00.jsonl")

    assert opened.verify().holds
    for step, ((data, names), record) in enumerate(zip(results, records, strict=True)):
        assert data == names
        assert [[row["dataset"], row["index"]] for row in opened.step(step).samples] == names
        counts = Counter(str(dataset) for dataset, _ in names)
        assert record["train/n_samples_per_dataset"] == counts
        assert record["train/step"] == step + 1
        assert record["train/dataset_names"] == {d: opened.datasets[int(d)] for d in counts}


def test_chunks_adapt_and_easy_samples_come_first(alone):
    """The words of Python as arguments: an evaluation at the end of each chunk, and what the policy made of it."""
    found = alone[1]["adaptive"]

    assert found["steps"] == 12 and found["stages"] > 1
    assert found["reasons"] and all(reason.startswith("GrowWhileImproving: metric") for reason in found["reasons"])
    decided = open_run(alone[0] / "adaptive").decisions()
    assert set(decided["kind"]) == {"rebatch", "validated"} and open_run(alone[0] / "adaptive").verify().holds


def test_samples_come_by_their_weights(alone):
    """``sample_weights`` of the arguments: half of a source has weight 0 and never comes, the others do."""
    opened, (length, sources) = open_run(alone[0] / "weighted"), alone[1]["weighted"]
    rows = [(row["dataset"], row["index"]) for step in range(6) for row in opened.step(step).samples]

    mine = [index for dataset, index in rows if dataset == opened.plan.parts.number_of("code")]
    assert opened.verify().holds and len({dataset for dataset, _ in rows}) == sources
    assert mine and min(mine) >= length // 2


def test_policy_raises_the_share_of_the_dataset_with_the_highest_loss(alone):
    """Planned and delivered shares agree: to the sample with the plan, within rounding with the weights."""
    folder = alone[0] / "curriculum"
    opened = open_run(folder)
    assert opened.verify().holds
    records = read_jsonl(folder / "batch_tracker_rank_00.jsonl")
    counts = [[r["train/n_samples_per_dataset"].get(str(d), 0) for d in range(3)] for r in records]
    # Weights are exact over blocks of 1 024 samples, 8 steps: from where one event acted to where the next did.
    chosen, after = [event for event in opened.plan.events if event.position <= 64 * 128][-2:]
    start, stop = chosen.position // 128, after.position // 128

    first, delivered, last = [
        [sum(column) for column in zip(*block, strict=True)] for block in (counts[:8], counts[start:stop], counts[-8:])
    ]
    planned = [b - a for a, b in zip(opened.plan.counts(start), opened.plan.counts(stop), strict=True)]
    shares = [weight / 2**31 * sum(delivered) for weight in chosen.weights]
    assert max(first) - min(first) <= 2
    assert last[2] == max(last) and last[2] > first[2] + 50
    assert delivered == planned and sum(delivered) >= 1024
    assert all(abs(share - count) <= 4 for share, count in zip(shares, delivered, strict=True))


def test_the_log_says_the_losses_of_all_datasets(alone):
    """The dataset whose share was raised is the one with the highest loss."""
    lines = read_jsonl(alone[0] / "curriculum" / "log.jsonl")

    losses = {name: lines[-1][f"train/loss/{name}"] for name in ("code", "prose", "maths")}
    assert max(losses, key=losses.get) == "maths"
    assert lines[-1]["train/samples"] == 64 * 128
    assert [line["train/step"] for line in lines] == [*range(3, 64, 4)]


def test_callbacks_hear_of_updates_evaluations_and_checkpoints(alone):
    """In the order in which they happen; a share of the run is an interval, too."""
    diary = alone[1]["lives"]["diary"]

    assert diary[:5] == ["step 0 of 16", "step 1 of 16", "saved checkpoint-2", "step 2 of 16", "evaluated 11"]
    assert diary[-3:] == ["step 5 of 16", "evaluated 11", "saved checkpoint-6"]


def test_the_arguments_and_callbacks_of_phyagi_work(alone):
    """Sizes from ds_config, flags for the last evaluation and checkpoint, callbacks with (engine, args, state)."""
    folder, found = alone[0] / "phyagi", alone[1]["phyagi"]

    assert found["updates"] == 5 and found["sizes"] == [4, 4] and found["prefetch"] == [1, 3, True]
    # one evaluation and one checkpoint at 2 and at 4, none at 5; a batch of 16 samples makes an update
    assert found["seen"] == [
        ["evaluate", 2, 1, 1], ["save", 2, 16, [2]], ["evaluate", 4, 1, 3], ["save", 4, 16, [2, 4]]
    ]  # fmt: skip
    assert 0 <= found["rate"] < 0.02
    assert sorted(path.name for path in folder.glob("checkpoint-*")) == ["checkpoint-2", "checkpoint-4"]
    records = read_jsonl(folder / "batch_tracker_rank_00.jsonl")
    assert [record["train/step"] for record in records] == [1, 2, 3, 4, 5]
    assert set(records[0]) == KEYS and set(records[0]["train/dataset_names"].values()) <= {"code", "prose", "maths"}
    lines = read_jsonl(folder / "logs" / "log.jsonl")
    assert [line["eval/samples"] for line in lines if "eval/samples" in line] == [4, 4]  # eval_max_steps=1
    assert not (folder / "log.jsonl").exists()


def test_records_are_written_when_the_arguments_say(alone):
    """None: with the log; an integer or a share of the run; the rest at the end; nothing where nothing is tracked."""
    found = alone[1]["written"]

    assert found["as_logged"] == [0, 0, 2, 2, 4, 4, 6]
    assert found["every_4"] == [0, 0, 0, 0, 4, 4, 6]
    assert found["half"] == [0, 0, 0, 3, 3, 3, 6]
    assert found["untracked"] == [0, 0, 0, 0, 0, 0, None]
    assert open_run(alone[0] / "written" / "untracked").verify().holds  # the ledger is written either way


def test_the_arguments_of_the_trainer_stand_in_their_places_and_act(alone):
    """A collate function of one's own; training data in order on request; evaluation shuffled on request."""
    found = alone[1]["written"]

    assert found["arguments"][:6] == ["model", "args", "train_dataset", "eval_dataset", "collate_fn", "callbacks"]
    assert found["seen"] == [list(range(8 * step, 8 * step + 8)) for step in range(6)]
    assert found["evaluated, shuffle=False"] == list(range(8))
    assert found["evaluated, shuffle=True"] != sorted(found["evaluated, shuffle=True"])


def test_a_ramp_up_as_in_phyagi(alone):
    """Updates take more steps of the same size; the books have every step once, also when resumed in the middle."""
    folder, found = alone[0] / "ramp_up", alone[1]["ramp_up"]
    steps = [1, 1, 2, 2, 3, 3, 4, 4]

    assert found["sizes"] == [[8 * n for n in steps], [8 * n for n in steps[:5]], [8 * n for n in steps[3:]]]
    for name in ("whole", "cut"):
        assert history(folder / name)["update"] == [u for u, number in enumerate(steps) for _ in range(number)]
        records = read_jsonl(folder / name / "batch_tracker_rank_00.jsonl")
        assert [sum(r["train/n_samples_per_dataset"].values()) for r in records] == [8 * n for n in steps]
    assert history(folder / "whole")["digest"] == history(folder / "cut")["digest"]
    assert list((folder / "whole").glob("events.out.tfevents.*")), "tensorboard=True"


def test_a_ramp_up_that_is_at_the_top_changes_nothing(alone):
    """Gradients are averaged over the steps an update really has."""
    level, plain = alone[1]["ramp_up"]["level"]

    assert level == pytest.approx(plain, rel=1e-6)


def test_epochs_are_counted_in_updates_that_grow(alone):
    """An epoch of n steps holds as many updates as fit."""
    steps, updates = alone[1]["ramp_up"]["epochs"]
    sizes = [min(1 + update // 2, 4) for update in range(1000)]

    assert sum(sizes[:updates]) <= steps < sum(sizes[: updates + 1])


def test_losses_are_printed_where_there_is_no_terminal(alone):
    """A pipe or a file has no progress bar, but a line at every log step, and none with progress=False."""
    lines = [line for line in alone[1]["stderr"].splitlines() if line.startswith("update ")]

    assert [line.split()[1] for line in lines] == ["2/5", "4/5", "5/5"]
    assert all(re.search(r"loss [\d.e+-]+  lr [\d.e+-]+  [\d.e+-]+ samples/s", line) for line in lines)


def test_going_back_to_a_checkpoint_rolls_the_later_ones_back(alone):
    """Records, checkpoints and history all speak of the way that was taken last."""
    folder, found = alone[0] / "lives", alone[1]["lives"]
    records = read_jsonl(folder / "batch_tracker_rank_00.jsonl")
    saved = json.loads((folder / "checkpoint-3" / "lading.json").read_text())

    assert found["updates"] == [6, 6] and found["consumed"] == [96, 96]
    assert found["complete"] == ["checkpoint-2", "checkpoint-3"]
    assert "was rolled back" in found["rolled"]
    assert [record["train/step"] for record in records] == [1, 2, 3]
    assert history(folder)["update"] == [0, 0, 1, 1, 2, 2]
    assert [(line["attempt"], line["update"]) for line in saved["lineage"]] == [(0, 0), (2, 2)]
    assert saved["consumed_samples"] == 48


def test_only_the_newest_checkpoints_are_kept_where_a_limit_is_set(alone):
    """Older ones are removed once a newer one is complete."""
    assert alone[1]["lives"]["limited"] == ["checkpoint-4", "checkpoint-6"]


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("other_world", "written by 2 processes at ZeRO stage 1, this run has 1: .* Resume with 2 processes, or train"),
        ("other_stage", "at ZeRO stage 2, this run has stage 0: .* Resume with zero_stage=2"),
        ("other_seed", "the saved plan differs in 1 place: seed 42 -> 1"),
        ("no_checkpoint", "has no complete checkpoint. Pass resume_from_checkpoint='auto'"),
        (
            "not_resumed",
            "holds a run with checkpoint-2. Pass resume_from_checkpoint=True to resume there.* overwrite_output_dir",
        ),
        ("no_data", "nothing to train on: expected train_dataset="),
        ("no_eval", "nothing to evaluate on: expected eval_dataset="),
        ("no_eval_in_time", "nothing to evaluate on: expected eval_dataset="),
        ("too_small", "3 samples has no complete global batch of 8"),
        (
            "scalar",
            "the policy follows the losses of the datasets, but forward returns one loss .* Return one for each",
        ),
        ("tainted", "is tainted: 8 samples .* must be forgotten were used at step 3.*Resume from .*checkpoint-1"),
    ],
)
def test_what_cannot_work_is_refused_with_a_way_out(alone, case, words):
    """Before anything is trained, and in one sentence."""
    found = alone[1]["refusals"][case]

    assert re.search(words, found), found


def test_a_batch_that_is_not_its_bill_is_refused(tmp_path):
    """The loader that a DsTrainer trains with counts rows, as every one does."""
    from lading.kits.deepspeed.arguments import DsTrainingArguments
    from lading.kits.deepspeed.loaders import training_loader

    args = DsTrainingArguments(str(tmp_path), per_device_train_batch_size=4)
    loader = training_loader(args, list(range(20)), lambda samples: torch.tensor(samples[1:]), None)

    with pytest.raises(SourceError, match="made of 4 samples, and nothing in it has so many rows"):
        next(iter(loader))


def test_the_example_runs(tmp_path):
    """``examples/deepspeed_training.py`` as a plain script."""
    run(sys.executable, EXAMPLE, tmp_path, "--max-steps", 6)

    assert history(tmp_path)["update"] == [u for u in range(6) for _ in range(2)]


def test_without_deepspeed_one_line_says_how_to_install_it():
    """And nothing else of Lading is affected, the arguments included."""
    program = (
        "import sys; sys.modules['deepspeed'] = None\n"
        "import lading, lading.kits.deepspeed\n"
        "print(lading.kits.deepspeed.DsTrainingArguments('runs/7').max_steps, lading.Loader.__name__)\n"
        "try:\n    lading.kits.deepspeed.DsTrainer\n"
        "except ImportError as error:\n    print(type(error).__name__, error)"
    )
    done = run(sys.executable, "-c", program)

    assert done.stdout.splitlines() == [
        "-1 Loader",
        "MissingExtraError lading.kits.deepspeed.DsTrainer needs deepspeed, which is not installed: pip install 'lading[deepspeed]'",  # noqa: E501
    ]


# Two processes


@pytest.fixture(scope="module")
def launched_by_deepspeed(tmp_path_factory):
    """Two processes under DeepSpeed's launcher: a run with an overflow, then one at ZeRO 0 that is killed."""
    folder, at = tmp_path_factory.mktemp("deepspeed"), step_to_die_at()
    launcher = [sys.executable, "-m", "deepspeed.launcher.runner", "--num_gpus=2", f"--master_port={free_port()}"]
    done = run(*launcher, RUN, "records-and-die", folder, at, check=False)
    assert "return code = -9" in done.stdout + done.stderr, f"{at}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return folder, at


@pytest.mark.launch
def test_records_of_two_processes_agree_with_the_ledger(launched_by_deepspeed):
    """One record an update with the promised keys; an update is four steps; an overflow is skipped, not applied."""
    folder = launched_by_deepspeed[0] / "records"
    ranks = [read_jsonl(folder / f"batch_tracker_rank_{rank:02d}.jsonl") for rank in (0, 1)]
    rows = history(folder).dicts()
    plan = open_run(folder).plan

    for rank, records in enumerate(ranks):
        assert [record["train/step"] for record in records] == [*range(1, 7)]
        assert all(set(record) == KEYS and record["train/global_rank"] == rank for record in records)
        assert all(sum(record["train/n_samples_per_dataset"].values()) == 4 * 4 for record in records)
    for update, steps in enumerate(zip(*[iter(range(24))] * 4, strict=True)):
        expected = {}
        for step in steps:
            for dataset, count in plan.bill(step).counts().items():
                expected[str(dataset)] = expected.get(str(dataset), 0) + count
        both = [records[update]["train/n_samples_per_dataset"] for records in ranks]
        assert {d: sum(counts.get(d, 0) for counts in both) for d in expected} == expected

    assert [row["update"] for row in rows] == [u if u != 2 else None for u in range(6) for _ in range(4)]
    assert {row["fate"] for row in rows if row["update"] is None} == {"skipped"}
    assert [row["step"] for row in rows if row["fate"] == "skipped"] == [8, 9, 10, 11]
    assert "overflow" in rows[8]["reason"] and ranks[1][2]["train/loss"] is None
    assert read_jsonl(folder / "log.jsonl")[0]["train/skipped"] == 1


@pytest.mark.launch
def test_killed_at_zero_0_it_resumes_on_one_process(launched_by_deepspeed):
    """History has each step once although 2 processes became 1; evaluation counts each sample once."""
    folder, at = launched_by_deepspeed[0] / "zero0", launched_by_deepspeed[1]
    run(sys.executable, RUN, "resume", folder, 0)

    table = history(folder)
    saved = FIRST_SAVED * (1 + at // (2 * FIRST_SAVED))
    assert table["step"] == [*range(STEPS)], f"killed at {at}"
    assert table["attempt"] == [0] * saved + [1] * (STEPS - saved), f"killed at {at}"
    assert table["ranks"] == [2] * saved + [1] * (STEPS - saved)
    evaluated = json.loads((folder / "evaluated_0.json").read_text())
    assert evaluated["eval/samples"] == evaluated["rows"] == 17
    assert evaluated["eval/loss"] == pytest.approx(evaluated["expected"], abs=1e-5)


@pytest.mark.launch
def test_killed_at_zero_1_its_loss_curve_goes_on_as_if_nothing_had_happened(tmp_path):
    """Dropout included; records of both processes and the ledger have each update once."""
    at = step_to_die_at()
    killed = torchrun(RUN, 2, "whole-and-die", tmp_path, at, check=False)
    assert "SIGKILL" in killed.stderr, killed.stderr[-5000:]
    torchrun(RUN, 2, "resume", tmp_path / "zero1", 1)

    whole, resumed = history(tmp_path / "whole"), history(tmp_path / "zero1")
    assert max(resumed["attempt"]) == 1
    assert resumed["step"] == whole["step"] == [*range(STEPS)], f"killed at {at}"
    assert resumed["digest"] == whole["digest"]
    assert resumed["loss"] == pytest.approx(whole["loss"], abs=1e-5), f"killed at {at}"
    for rank in (0, 1):
        name = f"batch_tracker_rank_{rank:02d}.jsonl"
        ours, theirs = read_jsonl(tmp_path / "zero1" / name), read_jsonl(tmp_path / "whole" / name)
        drop = {"train/step_runtime": None, "train/loss": None}
        assert [{**o, **drop} for o in ours] == [{**t, **drop} for t in theirs]
        evaluated = json.loads((tmp_path / "zero1" / f"evaluated_{rank}.json").read_text())
        assert evaluated["eval/samples"] == evaluated["rows"] == 17
        assert evaluated["eval/loss"] == pytest.approx(evaluated["expected"], abs=1e-5)
    saved = sorted((tmp_path / "zero1").glob("checkpoint-*"))
    assert len(saved) == 3
    for path in saved:  # one that the resume rolled back is still what it says
        if path == saved[0]:  # as if it had been killed while this one was hashed: made late, from the state inside
            (path / "waybill.json").unlink(missing_ok=True)
            run(sys.executable, "-c", VERIFY, "model", "stamp", path, "--run", tmp_path / "zero1")
        verdict = check(open_checkpoint(path))
        assert verdict.holds and verdict.files > 3, verdict
    assert run(sys.executable, "-c", VERIFY, "verify", tmp_path / "zero1").returncode == 0


VERIFY = "from lading.cli import main; main()"
