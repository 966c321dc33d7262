"""Training arguments: defaults, checks, YAML, and what DeepSpeed's configuration is made of them."""

from __future__ import annotations

import json

import pytest

from lading.errors import ConfigError
from lading.kits.deepspeed import DsTrainingArguments
from lading.kits.deepspeed.arguments import updates_of
from lading.kits.deepspeed.config import deepspeed_config, learning_rate_factor, scheduled


def test_arguments_are_read_from_yaml(tmp_path):
    """Numbers in scientific notation are numbers; keywords win over the file."""
    path = tmp_path / "train.yaml"
    path.write_text("output_dir: runs/7\nlearning_rate: 3e-4\nmax_steps: 100\nweights: {code: 2, prose: 1}\n")

    args = DsTrainingArguments.from_yaml(path, max_steps=5)

    assert (args.learning_rate, args.max_steps, args.weights) == (3e-4, 5, {"code": 2, "prose": 1})
    assert DsTrainingArguments.from_dict(args.to_dict()) == args


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "output_dir: a\nlearning_rat: 1\n",
            "train.yaml: learning_rat: there is no such argument. Did you mean learning_",
        ),
        (
            "output_dir: a\nqqqq: 1\n",
            "qqqq: there is no such argument. Known are output_dir, per_device_train_batch_size",
        ),
        ("max_steps: 3\n", "train.yaml: output_dir: expected the folder of the run, found nothing"),
        (
            "output_dir: a\nmax_steps: many\n",
            "train.yaml: max_steps is 'many': expected an integer from 1 up, or -1",
        ),
    ],
)
def test_wrong_files_are_refused_with_file_and_key(tmp_path, text, words):
    """A slip of the pen is named, with the nearest name there is."""
    path = tmp_path / "train.yaml"
    path.write_text(text)

    with pytest.raises(ConfigError, match=words):
        DsTrainingArguments.from_yaml(path)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"per_device_train_batch_size": 0}, "per_device_train_batch_size is 0: expected an integer from 1 up"),
        ({"global_batch_size": 2.5}, "global_batch_size is 2.5: expected an integer from 1 up, or nothing"),
        ({"zero_stage": 3}, "zero_stage is 3: expected 0, 1 or 2"),
        ({"precision": "fp8"}, "precision is 'fp8': expected one of fp32, bf16, fp16"),
        ({"pipe_parallel_size": 2}, "pipe_parallel_size is 2: expected 1: this trainer offers no pipeline parallelism"),
        ({"tensor_parallel_size": 4}, "tensor_parallel_size is 4: .* no tensor parallelism"),
        ({"context_parallel_size": 2}, "context_parallel_size is 2: .* no context parallelism"),
        ({"pipe_parallel_partition_method": "uniform"}, "is 'uniform': expected 'parameters': .* no pipeline"),
        ({"pipe_parallel_activation_checkpoint_steps": 1}, "is 1: expected 0: this trainer offers no pipeline"),
        ({"wandb_api_key": "secret"}, "expected nothing: these arguments are written to disk.*WANDB_API_KEY"),
        ({"wandb_host": "https://wandb.corp"}, "expected nothing. Set the environment variable WANDB_BASE_URL"),
        ({"load_checkpoint_num_tries": 3}, "load_checkpoint_num_tries is 3: expected 1: a checkpoint that is not"),
        ({"rampup_steps": -1}, "rampup_steps is -1: expected an integer from 0 up"),
        (
            {"train_batch_size_init_rampup": 8, "rampup_steps": 5},
            "train_batch_size_per_rampup is 0 and rampup_steps is 5: expected both from 1 up, or no ramp-up",
        ),
        ({"timeout": 0}, "timeout is 0: expected a number of seconds above 0"),
        ({"logging_steps": 0}, "logging_steps is 0: expected an integer of updates from 1 up, or a share"),
        ({"batch_tracker_save_steps": 1.5}, "batch_tracker_save_steps is 1.5: expected an integer of updates"),
        ({"learning_rate": float("nan")}, "learning_rate is nan: expected a number from 0 up"),
        ({"batch_tracker": "yes"}, "batch_tracker is 'yes': expected true or false"),
    ],
)
def test_impossible_arguments_are_refused(changes, words):
    """Each with what was expected and what was found."""
    with pytest.raises(ConfigError, match=words):
        DsTrainingArguments("runs/7", **changes)


def test_what_is_not_said_is_as_in_the_document():
    """Records go with the log, every 10 updates; nothing is tracked unless asked for."""
    args = DsTrainingArguments("runs/7")

    assert (args.batch_tracker, args.batch_tracker_save_steps, args.logging_steps) == (False, None, 10)


def test_intervals_are_updates_or_shares_of_all_updates():
    """A share is rounded up, so that it is never nothing."""
    assert [updates_of(interval, 250) for interval in (None, 7, 0.1, 0.0001)] == [None, 7, 25, 1]


def test_the_learning_rate_rises_then_falls():
    """Warm-up by number or share; linear, cosine or level after it."""
    linear = learning_rate_factor(DsTrainingArguments("runs/7", warmup_steps=0.2), total=10)
    cosine = learning_rate_factor(DsTrainingArguments("runs/7", lr_scheduler_type="cosine"), total=10)
    level = learning_rate_factor(DsTrainingArguments("runs/7", lr_scheduler_type="constant"), total=10)

    assert [linear(update) for update in (0, 1, 2, 6, 10, 20)] == [0.5, 1.0, 1.0, 0.5, 0.0, 0.0]
    assert [round(cosine(update), 6) for update in (0, 5, 10)] == [1.0, 0.5, 0.0]
    assert {level(update) for update in range(12)} == {1.0}


def test_the_configuration_says_what_the_arguments_say():
    """Sizes, ZeRO, precision, optimizer and clipping."""
    args = DsTrainingArguments("runs/7", gradient_accumulation_steps=4, zero_stage=2, precision="bf16")

    config = deepspeed_config(args, micro_batch_size=8)

    assert config["train_micro_batch_size_per_gpu"] == 8 and config["gradient_accumulation_steps"] == 4
    assert config["zero_optimization"] == {"stage": 2} and config["bf16"] == {"enabled": True}
    assert config["optimizer"]["params"]["torch_adam"] is True


def test_a_deepspeed_file_is_put_on_top_and_auto_means_the_arguments(tmp_path):
    """Files written for other trainers work; another optimizer's section is taken whole."""
    path = tmp_path / "ds.json"
    theirs = {
        "train_micro_batch_size_per_gpu": "auto",
        "zero_optimization": {"stage": "auto", "overlap_comm": True},
        "optimizer": {"type": "SGD", "params": {"lr": 1.0}},
    }
    path.write_text(json.dumps(theirs))

    config = deepspeed_config(DsTrainingArguments("runs/7", zero_stage=1, ds_config=str(path)), micro_batch_size=8)

    assert config["train_micro_batch_size_per_gpu"] == 8
    assert config["zero_optimization"] == {"stage": 1, "overlap_comm": True}
    assert config["optimizer"] == {"type": "SGD", "params": {"lr": 1.0}}


@pytest.mark.parametrize(
    ("theirs", "words"),
    [
        ({"train_micro_batch_size_per_gpu": 4}, "is 4, the arguments say 8: .* set per_device_train_batch_size"),
        ({"gradient_accumulation_steps": 4}, "gradient_accumulation_steps is 4, the arguments say 1"),
        ({"zero_optimization": {"stage": 3}}, "stage is 3: expected 0, 1 or 2"),
        ("nowhere.json", "nowhere.json cannot be read: .* Pass a dict or a JSON file"),
    ],
)
def test_a_configuration_that_contradicts_the_loader_is_refused(theirs, words):
    """DeepSpeed would count samples that were not delivered."""
    with pytest.raises(ConfigError, match=words):
        deepspeed_config(DsTrainingArguments("runs/7", ds_config=theirs), micro_batch_size=8)


@pytest.mark.parametrize(
    ("given", "world_size", "rows", "accumulation", "precision"),
    [
        ({}, 2, 8, 1, "fp32"),
        ({"train_micro_batch_size_per_gpu": 4, "train_batch_size": 32}, 2, 4, 4, "fp32"),
        ({"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 3}, 2, 4, 3, "fp32"),
        ({"train_batch_size": 32, "bf16": {"enabled": True}}, 1, 8, 4, "bf16"),
        ({"fp16": {"enabled": True, "initial_scale_power": 12}}, 1, 8, 1, "fp16"),
    ],
)
def test_sizes_and_precision_may_come_from_ds_config(given, world_size, rows, accumulation, precision):
    """As phyagi's users give them: train_batch_size is that of an update over all processes."""
    args = DsTrainingArguments("runs/7", ds_config=given).resolved(given, world_size)

    assert (args.per_device_train_batch_size, args.gradient_accumulation_steps) == (rows, accumulation)
    assert args.precision == precision
    config = deepspeed_config(args, rows)
    assert "train_batch_size" not in config and config["gradient_accumulation_steps"] == accumulation


def test_sizes_that_contradict_each_other_are_refused():
    """The way out names what to change."""
    given = {"train_batch_size": 30, "train_micro_batch_size_per_gpu": 4}
    with pytest.raises(ConfigError, match="train_batch_size is 30, but 4 samples on each of 2 processes and 3"):
        DsTrainingArguments("runs/7", ds_config=given).resolved(given, 2)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"train_batch_size_init_rampup": 64}, "is 64: expected at most the 32 samples of a full update"),
        ({"train_batch_size_init_rampup": 12}, "is 12, but a step has 8 samples: expected a multiple of it, such as 8"),
        ({"train_batch_size_per_rampup": 4}, "is 4, but a step has 8 samples: .* give a Loader a batch_schedule"),
    ],
)
def test_a_ramp_up_that_does_not_fit_the_steps_is_refused(changes, words):
    """Before anything is trained, with a size that would do."""
    given = {"train_batch_size": 32, "train_micro_batch_size_per_gpu": 4}
    ramp = {"train_batch_size_init_rampup": 8, "train_batch_size_per_rampup": 8, "rampup_steps": 2, **changes}

    with pytest.raises(ConfigError, match=words):
        DsTrainingArguments("runs/7", ds_config=given, **ramp).resolved(given, 2)


def test_a_scheduler_learns_how_long_the_run_is():
    """WarmupDecayLR needs the number of updates, and only that."""
    short = {"scheduler": {"type": "WarmupDecayLR", "params": {"warmup_max_lr": 1.0}}}

    assert scheduled(short, 70)["scheduler"]["params"] == {"total_num_steps": 70, "warmup_max_lr": 1.0}
    assert scheduled({"scheduler": {"type": "WarmupLR"}}, 70) == {"scheduler": {"type": "WarmupLR"}}
