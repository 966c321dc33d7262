"""TRL's GRPO and RLOO on a tiny random GPT-2: made in code, trained on a CPU in seconds.

python rollout_trainer.py resumes FOLDER SHAPES PLACES      torchrun: resume at some updates, in some shapes
python rollout_trainer.py FOLDER RUN SHAPE STOP             train, and end at an update: -3 is kill -9 after the third
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import sys
import warnings
from pathlib import Path

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast, TrainerCallback
from trl import GRPOConfig, GRPOTrainer, RLOOConfig, RLOOTrainer  # noqa: F401 (tests take it from here)

WORDS = [f"w{i}" for i in range(40)]
# per_device_train_batch_size, gradient_accumulation_steps, steps_per_generation, num_iterations, num_generations
SHAPES = {
    "long": (2, 1, 4, 1, 4),
    "twice": (4, 2, 2, 2, 4),
    "wide": (2, 4, 4, 3, 2),
    "odd": (2, 3, 2, 2, 4),
}


def tokenizer():
    """Return a tokenizer of forty words."""
    vocabulary = {word: i for i, word in enumerate(["<pad>", "<eos>", *WORDS])}
    inner = Tokenizer(models.WordLevel(vocabulary, unk_token="<pad>"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="<pad>", eos_token="<eos>", padding_side="left")


def model():
    """Return a model of some thousand weights, the same every time."""
    torch.manual_seed(7)
    config = GPT2Config(vocab_size=42, n_positions=64, n_embd=16, n_layer=1, n_head=2, bos_token_id=1, eos_token_id=1)
    return GPT2LMHeadModel(config)


def prompts(count=24):
    """Return the prompts."""
    return Dataset.from_list([{"prompt": f"w{i % 40} w{(3 * i) % 40}", "number": i} for i in range(count)])


def reward(completions, number, **others):
    """Reward some words more than others; what the last prompt deserves is nobody's to say."""
    assert not any(name.startswith("lading") for name in others), "our columns reach no reward"
    words = [sum(int(word[1:]) for word in text.split() if word[0] == "w") for text in completions]
    return [total % 17 + n / 100 if n != 23 else None for total, n in zip(words, number, strict=True)]


class StopAt(TrainerCallback):
    """End the process without a word after an update."""

    def __init__(self, update):
        self.update = update

    def on_step_end(self, args, state, control, **_):
        """Stop training, or (negative) kill the process."""
        if state.global_step == abs(self.update):
            if self.update < 0:
                os.kill(os.getpid(), 9)
            control.should_training_stop = True


def make(folder, shape, *, kind=GRPOTrainer, data=None, stop=0, updates=14, evaluates=None, **options):
    """Return a trainer."""
    batch, accumulation, steps, iterations, generations = SHAPES[shape] if isinstance(shape, str) else shape
    config = GRPOConfig if issubclass(kind, GRPOTrainer) else RLOOConfig
    values = {
        "output_dir": str(folder),
        "per_device_train_batch_size": batch,
        "gradient_accumulation_steps": accumulation,
        "steps_per_generation": steps,
        "num_iterations": iterations,
        "num_generations": generations,
        "max_completion_length": 6,
        "learning_rate": 1e-2,
        "max_steps": updates,
        "save_steps": 1,
        "save_only_model": False,
        "report_to": [],
        "use_cpu": True,
        "disable_tqdm": True,
        "logging_steps": 1000,
        "dataloader_pin_memory": False,
        "bf16": False,
        "seed": 3,
        "beta": 0.0,  # no reference model: it would be looked for by name
        "eval_strategy": "no" if evaluates is None else "steps",
        **options,
    }
    quiet()
    trainer = kind(
        model=model(),
        reward_funcs=reward,
        args=config(**values),
        train_dataset=prompts() if data is None else data,
        eval_dataset=evaluates,
        processing_class=tokenizer(),
        callbacks=[StopAt(stop)] if stop else [],
    )
    return trainer


def quiet():
    """Leave out what TRL, transformers and torch say of a tiny model."""
    warnings.simplefilter("ignore")
    for name in ("transformers", "trl", "accelerate", "datasets"):
        logging.getLogger(name).setLevel(logging.ERROR)


def weights(trainer):
    """Return a hash of the weights."""
    inner = trainer.accelerator.unwrap_model(trainer.model)
    content = b"".join(value.detach().cpu().numpy().tobytes() for value in inner.state_dict().values())
    return hashlib.sha256(content).hexdigest()


def resumes(folder, shape, places, updates=7):
    """Resume a run at some updates, accounted for and as TRL does: whether the weights, and the uses, are the same.

    Every process calls it; what it returns is the first one's to use.
    """
    from lading import open_run
    from lading.train.transformers import account

    def trained(name, run, resume=None):
        data = prompts(5 if shape == "twice" else 24)
        into = name if resume is None else f"{name}-{resume}"  # or it would replace the checkpoints after this one
        trainer = make(Path(folder, into), shape, updates=updates, data=data)
        if run is not None:
            account(trainer, Path(folder, run))
        trainer.train(
            resume_from_checkpoint=None if resume is None else str(Path(folder, name, f"checkpoint-{resume}"))
        )
        trainer.accelerator.wait_for_everyone()
        if run is None or not trainer.accelerator.is_main_process:
            return weights(trainer), None
        opened = open_run(Path(folder, run))
        verdict = opened.verify()
        assert verdict.holds, verdict
        uses = opened.rollout_history.uses
        return weights(trainer), sorted(
            zip(*(uses[n].tolist() for n in ("step", "slot", "rollout", "update", "weight")), strict=True)
        )

    whole, again = trained("plain", None), trained("again", None)
    found = {"repeats": whole[0] == again[0], "plain": [], "weights": [], "uses": []}
    for place in places:
        found["plain"].append(trained("plain", None, place)[0] == whole[0])
    whole = trained("ours", "run")
    for place in places:
        ended = trained("ours", "run", place)
        found["weights"].append(ended[0] == whole[0])
        found["uses"].append(ended[1] == whole[1])
    return found


if __name__ == "__main__":
    quiet()
    if sys.argv[1] == "resumes":
        folder, shapes, places = sys.argv[2], sys.argv[3].split(","), [int(p) for p in sys.argv[4].split(",")]
        for shape in shapes:
            answer = resumes(Path(folder, shape), shape, places)
            if os.environ.get("RANK", "0") == "0":
                Path(folder, f"{shape}.json").write_text(json.dumps(answer))
        sys.exit(0)
    from lading.train.transformers import account

    folder, run, shape, stop = sys.argv[1:]
    account(make(Path(folder), shape, stop=int(stop), updates=7), run).train()
