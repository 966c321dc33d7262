"""TRL's SFTTrainer with packing: ``lading where`` finds the steps in which the model saw a document."""

from __future__ import annotations

import json

import pytest

from lading import open_run
from lading.cli import main
from lading.train.transformers import LadingTrainerMixin, account

pytest.importorskip("trl", reason="trl is not installed")
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast, logging
from trl import SFTConfig, SFTTrainer

logging.set_verbosity_error()
pytestmark = pytest.mark.filterwarnings("ignore")  # TRL's and transformers' own
DOCUMENTS, FIRST = 40, 3  # document d is made of the word w<d>, token FIRST + d


class Watched(SFTTrainer):
    """Remembers which tokens each batch held when it came to be trained on; TRL replaces the model's ``forward``."""

    def training_step(self, model, inputs, *args, **options):
        """Remember, and train."""
        self.seen = [*getattr(self, "seen", []), set(inputs["input_ids"].flatten().tolist())]
        assert "lading_rows" not in inputs
        return super().training_step(model, inputs, *args, **options)


class AccountedSFTTrainer(LadingTrainerMixin, Watched):
    """As the recipe makes it."""


def sft(out, kind, **options):
    """Return a trainer over documents of one to five words, packed into rows of 16 tokens."""
    words = ["<pad>", "<eos>", "<unk>", *(f"w{number}" for number in range(DOCUMENTS))]
    tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokens = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>"
    )
    texts = [" ".join([f"w{number}"] * (1 + number % 5)) for number in range(DOCUMENTS)]
    args = SFTConfig(
        str(out), max_length=16, per_device_train_batch_size=2, num_train_epochs=2, bf16=False, use_cpu=True,
        report_to=[], disable_tqdm=True, **options,
    )  # fmt: skip
    small = {"vocab_size": 64, "n_positions": 64, "n_embd": 16, "n_layer": 2, "n_head": 2}
    model = GPT2LMHeadModel(GPT2Config(**small, bos_token_id=1, eos_token_id=1))
    return kind(model, args, train_dataset=Dataset.from_dict({"text": texts}), processing_class=tokens)


def steps_of(run, document, capsys):
    """Return the steps that ``lading where`` names for a document."""
    with pytest.raises(SystemExit) as ended:
        main(["where", str(run), "data", "--document", str(document), "--json"])
    assert ended.value.code in (0, None)
    return sorted({row["step"] for row in json.loads(capsys.readouterr().out)})


@pytest.mark.parametrize("strategy", ["bfd", "wrapped"])
def test_where_finds_the_steps_of_a_document(tmp_path, capsys, strategy):
    """For every document: the steps whose batches held its tokens, over two epochs, and no others."""
    trainer = sft(tmp_path / "out", AccountedSFTTrainer, packing=True, packing_strategy=strategy)
    trainer.keep_books(tmp_path / "run")
    trainer.train()
    capsys.readouterr()

    assert open_run(tmp_path / "run").verify().holds
    for document in range(DOCUMENTS):
        expected = [step for step, seen in enumerate(trainer.seen) if FIRST + document in seen]
        found = steps_of(tmp_path / "run", document, capsys)
        assert set(expected) <= set(found), document
        # Wrapped rows cut documents anywhere: what is left of one may be its last token, which all of them share.
        assert not {
            step for step in found if step not in expected and (strategy == "bfd" or 1 not in trainer.seen[step])
        }
    assert expected
    assert len(trainer.seen) > 8


def test_one_line_accounts_for_a_trainer_of_trls(tmp_path):
    """``account`` on a SFTTrainer that exists; without packing a row is a document."""
    trainer = sft(tmp_path / "out", Watched)

    account(trainer, tmp_path / "run").train()

    run = open_run(tmp_path / "run")
    assert run.verify().holds
    seen = [sorted(token - FIRST for token in tokens if token >= FIRST) for tokens in trainer.seen]
    booked = [sorted(row["index"] for row in run.step(step).samples.dicts()) for step in run.history["step"]]
    assert seen == booked
