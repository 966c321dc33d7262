"""TRL's GRPO and RLOO, accounted for: resumed inside a block they are what they would have been."""

from __future__ import annotations

import importlib.util
import json
import pickle
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from accelerate.utils import send_to_device
from tests.launching import torchrun
from transformers import Trainer, TrainerCallback

from lading import open_run
from lading.errors import ConfigError, LadingError, LoaderError, ResumeError
from lading.report.block import block

pytest.importorskip("trl", reason="trl is not installed")
SCRIPT = Path(__file__).parent / "scripts" / "rollout_trainer.py"
spec = importlib.util.spec_from_file_location("rollout_script", SCRIPT)
script = importlib.util.module_from_spec(spec)
spec.loader.exec_module(script)

from lading.train.accelerate import moved  # noqa: E402
from lading.train.fates import NO_GRADIENTS  # noqa: E402
from lading.train.transformers import account  # noqa: E402
from lading.train.transformers.rollouts import PromptRows, file_of  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # of TRL and torch, about a tiny model on a CPU
PLACES = (1, 2, 3, 4, 5)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Return the folder of a run of four updates, in blocks of two, with every checkpoint, and its weights."""
    folder = tmp_path_factory.mktemp("trained")
    trainer = script.make(folder / "trainer", "twice", updates=4)
    account(trainer, folder / "run").train()
    return folder, script.weights(trainer)


def resumed(trained, update, **options):
    """Return a trainer that went on from a checkpoint of the run."""
    trainer = script.make(trained[0] / "trainer", options.pop("shape", "twice"), updates=4, **options)
    account(trainer, trained[0] / "run").train(resume_from_checkpoint=str(trained[0] / f"trainer/checkpoint-{update}"))
    return trainer


def test_every_rollout_of_a_run_is_accounted_for(trained):
    """Far end: what the reward saw is what the ledger says; each rollout twice, by its own policy and the next."""
    opened = open_run(trained[0] / "run")
    rows = opened.rollouts().dicts()

    assert opened.verify().holds
    assert {row["fate"] for row in rows} == {"applied"}
    assert {row["uses"] for row in rows} == {2}  # num_iterations
    assert {row["age"] for row in rows} == {0}
    assert {row["last_update"] - row["policy"] for row in rows} == {1}
    assert [row["rollout"] for row in rows] == list(range(16))
    for row in rows:  # the reward is a whole number, and the prompt's number in hundredths
        assert row["reward"] is None if row["index"] == 23 else round(100 * (row["reward"] % 1)) == row["index"]


def test_completions_are_kept_where_it_is_asked_for(tmp_path):
    """Their texts are what the reward was given; a plain Trainer keeps none."""
    seen = []

    def reward(completions, **_):
        seen.extend(completions)
        return [float(len(text)) for text in completions]

    trainer = script.make(tmp_path / "trainer", "long", updates=4, save_strategy="no")
    trainer.reward_funcs = [reward]
    account(trainer, tmp_path / "run", keep_texts=True).train()
    run = open_run(tmp_path / "run")
    rows = run.rollouts().dicts()

    kept = {n: text for row in rows for n, text in run.rollout_texts(row["dataset"], row["index"]).items()}
    assert [kept[row["rollout"]] for row in rows] == seen[: len(rows)]
    with pytest.raises(ConfigError, match="keep_texts=True, and Trainer makes no completions"):
        account(Trainer(script.model(), train_dataset=[{}]), tmp_path / "other", keep_texts=True)


class MaskedLater(TrainerCallback):
    """Leaves the first rollout of what is left of a block out of the loss, after it was made."""

    def __init__(self, trainer):
        self.trainer = trainer

    def on_step_end(self, args, state, control, **_):
        for part in self.trainer._buffered_inputs if state.global_step == 1 else ():
            part["completion_mask"][0] = 0


def test_a_use_weighs_what_the_loss_was_given(tmp_path):
    """Not what was generated: the mask is read where the model receives it."""
    trainer = script.make(tmp_path / "trainer", "long", updates=2, save_strategy="no")
    trainer.add_callback(MaskedLater(trainer))
    account(trainer, tmp_path / "run").train()

    uses = open_run(tmp_path / "run").rollout_history.uses
    weights = {update: uses["weight"][uses["update"] == update].tolist() for update in (0, 1)}
    assert set(weights[0]) == {1.0} and weights[1].count(0.0) == 1 and weights[1].count(1.0) == len(weights[1]) - 1


def test_prompts_are_moved_where_rollouts_are_made_of_them():
    """Three of four batches of a block would be read for nothing: rows travel, and Accelerate does not look in."""
    rows, prompts = PromptRows([7, 3]), [{"prompt": "w1", "image": torch.zeros(2)}, {"prompt": "w2"}]
    accelerator = SimpleNamespace(device="meta", device_placement=True, non_blocking=False)

    assert send_to_device(rows, "meta") is rows
    assert (len(rows), "labels" in rows) == (2, False)
    assert pickle.loads(pickle.dumps(rows)).rows == [7, 3]  # from a worker process
    there = moved(accelerator, prompts)
    assert [sample["prompt"] for sample in there] == ["w1", "w2"] and there[0]["image"].is_meta
    accelerator.device_placement = False
    assert not moved(accelerator, prompts)[0]["image"].is_meta


def test_a_group_has_one_prompt_even_where_every_read_gives_another(tmp_path):
    """It is read once a block, where its rollouts are made; TRL alone reads it for each rollout of each batch."""
    reads, seen = [], []

    def another(rows):
        reads.extend(rows["number"])
        return {**rows, "prompt": [f"w{len(reads) % 40} w{i}" for i in range(len(rows["number"]))]}

    def reward(prompts, **_):
        seen.extend(prompts)
        return [float(len(prompt)) for prompt in prompts]

    trainer = script.make(tmp_path / "trainer", "long", data=script.prompts(), updates=8, save_strategy="no")
    trainer.train_dataset.set_transform(another)
    trainer.reward_funcs = [reward]
    account(trainer, tmp_path / "run")
    reads.clear()
    trainer.train()

    rollouts = open_run(tmp_path / "run").rollouts().dicts()
    assert reads == [row["index"] for row in rollouts[::4]]  # num_generations
    assert seen == [prompt for prompt in seen[::4] for _ in range(4)] and len(seen) == len(rollouts) == 16


def test_a_batch_without_a_backward_pass_used_no_rollout(tmp_path):
    """Its loss is followed: the second batch of the first update ends early, and its rollouts stay open."""
    trainer = script.make(tmp_path / "trainer", (4, 2, 4, 1, 4), updates=2, save_strategy="no")
    account(trainer, tmp_path / "run")
    backward, losses = trainer.accelerator.backward, []
    trainer.accelerator.backward = lambda loss, **_: losses.append(loss) or (len(losses) != 2 and backward(loss))
    trainer.train()

    opened = open_run(tmp_path / "run")
    used = ("applied", None)
    assert opened.verify().holds
    assert [(row["fate"], row["reason"]) for row in opened.batches.dicts()] == [
        used,
        ("skipped", NO_GRADIENTS),
        used,
        used,
    ]
    assert sorted(row["uses"] for row in opened.rollouts().dicts()) == [0] * 4 + [1] * 12


def test_prompts_in_another_order_than_the_plans_are_refused(tmp_path):
    """Each prompt comes with its own row, whatever stands between the sampler and the trainer."""
    trainer = account(script.make(tmp_path / "trainer", "long", updates=1, save_strategy="no"), tmp_path / "run")
    inner = trainer._generate_and_score_completions
    trainer._generate_and_score_completions = lambda prompts: inner(PromptRows(prompts.rows[::-1]))

    with pytest.raises(LoaderError, match=r"block 0 was to be made of the rows .* arrived"):
        trainer.train()


def test_a_resume_inside_a_block_is_exact(trained):
    """Law 2, small: the first update of a block of two is behind, the second uses what is left of it."""
    before = open_run(trained[0] / "run").rollout_history.uses

    trainer = resumed(trained, 1)

    opened = open_run(trained[0] / "run")
    assert opened.verify().holds
    assert script.weights(trainer) == trained[1]
    after = opened.rollout_history.uses
    assert sorted(zip(before["rollout"].tolist(), before["update"].tolist(), strict=True)) == sorted(
        zip(after["rollout"].tolist(), after["update"].tolist(), strict=True)
    )


@pytest.mark.slow
@pytest.mark.launch
@pytest.mark.parametrize("ranks", [1, 2])
def test_resumes_are_exact_whatever_the_shape(tmp_path, ranks):
    """Law 2: 4 shapes x 5 places, beside TRL's own resume, and TRL twice without any."""
    torchrun(SCRIPT, ranks, "resumes", tmp_path, ",".join(script.SHAPES), ",".join(map(str, PLACES)))

    found = {shape: json.loads((tmp_path / f"{shape}.json").read_text()) for shape in script.SHAPES}
    print(json.dumps(found))
    for shape, answer in found.items():
        assert answer["repeats"], shape  # or there would be nothing to compare with
        assert answer["weights"] == [True] * len(PLACES), (shape, answer)
        assert answer["uses"] == [True] * len(PLACES), (shape, answer)
    assert not all(exact for answer in found.values() for exact in answer["plain"])


@pytest.mark.slow
@pytest.mark.launch
def test_a_trainer_killed_inside_a_block_resumes_exactly(tmp_path):
    """kill -9 after the third update, one and a half blocks in: verify holds, and the weights are the same."""
    whole = script.make(tmp_path / "whole", "twice", updates=7)
    account(whole, tmp_path / "whole-run").train()

    command = [sys.executable, SCRIPT, tmp_path / "trainer", tmp_path / "run", "twice", "-3"]
    killed = subprocess.run(command, capture_output=True, text=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr[-2000:]
    opened = open_run(tmp_path / "run")
    assert opened.verify().holds
    again = script.make(tmp_path / "trainer", "twice", updates=7)
    account(again, tmp_path / "run").train(resume_from_checkpoint=str(tmp_path / "trainer" / "checkpoint-2"))

    assert script.weights(again) == script.weights(whole)
    opened = open_run(tmp_path / "run")
    assert opened.verify().holds
    assert "lost" not in opened.rollouts()["fate"]


def test_rloo_is_accounted_for_as_well(tmp_path):
    """The other trainer with the same methods."""
    whole = script.make(tmp_path / "a", "twice", kind=script.RLOOTrainer, updates=3)
    account(whole, tmp_path / "run").train()
    again = script.make(tmp_path / "a", "twice", kind=script.RLOOTrainer, updates=3)
    account(again, tmp_path / "run").train(resume_from_checkpoint=str(tmp_path / "a" / "checkpoint-1"))

    assert script.weights(again) == script.weights(whole)
    assert open_run(tmp_path / "run").verify().holds


def test_a_blocked_prompt_is_as_if_it_had_never_been_there(tmp_path):
    """Law 7: blocked by hand, resumed before its first use: the weights of a run that never had it."""
    first = script.make(tmp_path / "a", "twice", updates=4)
    account(first, tmp_path / "run").train()
    opened = open_run(tmp_path / "run")
    bad = next(row for row in opened.rollouts().dicts() if row["policy"] == 2)
    block(opened, [f"{bad['name']}:{bad['index']}"], "wrong answer")

    again = script.make(tmp_path / "a", "twice", updates=4)
    account(again, tmp_path / "run").train(resume_from_checkpoint=str(tmp_path / "a" / "checkpoint-2"))
    never = script.make(tmp_path / "b", "twice", updates=4)
    account(never, tmp_path / "never", blocked={"data": [bad["index"]]}).train()

    assert script.weights(again) == script.weights(never) != script.weights(first)
    assert bad["index"] not in open_run(tmp_path / "run").rollouts()["index"]


def test_a_changed_shape_is_refused_by_name(trained):
    """Another number of generations, batches a generation, iterations, or rows."""
    with pytest.raises(ResumeError, match=r"num_generations 4 -> 2"):
        resumed(trained, 1, num_generations=2)
    with pytest.raises(ResumeError, match=r"steps_per_generation 2 -> 4, num_iterations 2 -> 1"):
        resumed(trained, 1, shape=(4, 2, 4, 1, 4))


def test_a_buffer_that_is_not_what_was_saved_is_refused(trained):
    """Cut, of another checkpoint, missing, and one that brings code with it."""
    mine, other = (file_of(trained[0] / "trainer" / f"checkpoint-{n}", 0) for n in (1, 3))
    content = mine.read_bytes()
    code = pickle.dumps({"buffer": [{"x": subprocess.Popen}], "books": {}})
    try:
        for wrong in (content[:-7], other.read_bytes(), code):
            mine.write_bytes(wrong)
            with pytest.raises(ResumeError, match="not those that were saved with checkpoint-1"):
                resumed(trained, 1)
        mine.unlink()
        with pytest.raises(ResumeError, match=r"lading_rollouts-0.pt is missing"):
            resumed(trained, 1)
    finally:
        mine.write_bytes(content)


def test_a_buffer_with_code_is_not_opened(tmp_path):
    """Even where the hash was made right: tensors only; nor one that belongs to another run."""
    import hashlib

    from lading.identity import World
    from lading.train.transformers.rollouts import _together, read_buffer

    def read(content):
        file_of(tmp_path, 0).write_bytes(content)
        sha256 = _together([hashlib.sha256(content).digest()])
        return read_buffer(tmp_path, World(), sha256, {"run": "a", "attempt": 0, "launch": "b", "step": 3})

    for code in (pickle.dumps({"buffer": [{"x": subprocess.Popen}], "books": {}}), b"", b"PK\x03\x04 cut"):
        with pytest.raises(ResumeError, match="is no file of tensors"):
            read(code)
    torch.save({"buffer": None, "books": {"run": "other", "step": 3}}, file_of(tmp_path, 0))
    with pytest.raises(ResumeError, match="belongs to another run"):
        read(file_of(tmp_path, 0).read_bytes())
    torch.save([1], file_of(tmp_path, 0))
    with pytest.raises(ResumeError, match="an object with named fields"):
        read(file_of(tmp_path, 0).read_bytes())


def test_evaluation_is_not_counted_and_an_unknown_reward_is_unknown(tmp_path):
    """Evaluation generates, too: none of it is in the books. A prompt whose reward nobody gave has none."""
    data = script.prompts().select(range(22, 24))
    trainer = script.make(
        tmp_path / "a",
        (4, 1, 2, 1, 4),
        data=data,
        updates=2,
        evaluates=script.prompts(4),
        eval_steps=1,
    )
    account(trainer, tmp_path / "run").train()

    rows = open_run(tmp_path / "run").rollouts().dicts()
    assert len(rows) == 8
    assert {row["index"]: row["reward"] is None for row in rows} == {0: False, 1: True}
    assert open_run(tmp_path / "run").verify().holds


def test_a_generator_that_is_gone_leaves_a_record_that_holds(tmp_path):
    """The server fails while the second block is made: what was used before is there, of the block nothing."""
    trainer = script.make(tmp_path / "a", "twice", updates=4)
    account(trainer, tmp_path / "run")
    generate, calls = trainer._generate, []

    def gone(prompts):
        calls.append(len(prompts))
        if len(calls) == 2:
            raise ConnectionError("the generation server is gone")
        return generate(prompts)

    trainer._generate = gone
    with pytest.raises(ConnectionError, match="gone"):
        trainer.train()
    opened = open_run(tmp_path / "run")
    assert opened.verify().holds
    assert opened.rollouts()["fate"] == ["applied"] * 8
    again = script.make(tmp_path / "a", "twice", updates=3)
    account(again, tmp_path / "run").train(resume_from_checkpoint=str(tmp_path / "a" / "checkpoint-2"))
    assert open_run(tmp_path / "run").verify().holds


def test_what_would_go_behind_the_books_is_refused_by_name(tmp_path):
    """A stream, a sampler or preparation of its own, too few prompts."""

    class Own(script.GRPOTrainer):
        def _prepare_inputs(self, generation_batch):
            return super()._prepare_inputs(generation_batch)

    with pytest.raises(ConfigError, match="Own has a _prepare_inputs of its own"):
        account(script.make(tmp_path / "a", "twice", kind=Own), tmp_path / "run")
    with pytest.raises(ConfigError, match=r"GRPOTrainer is a stream.*RolloutBooks"):
        account(script.make(tmp_path / "a", "twice", data=script.prompts().to_iterable_dataset()), tmp_path / "run")
    with pytest.raises(LadingError, match="1 samples has no complete global batch of 2"):
        account(script.make(tmp_path / "a", "twice", data=script.prompts(1)), tmp_path / "run")
