"""Rows are counted: a table of collate functions, each right, refused, not counted or saying what it kept.

The same table stands in docs/guides/rows.md; a test compares them.
"""

from __future__ import annotations

import dataclasses
import functools
import warnings
from collections import namedtuple
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import default_collate

from lading.batch.llm import collate_llm
from lading.errors import LoaderError, SourceError
from lading.identity import Bill
from lading.identity.bill import LEFT_OUT
from lading.kits.chunked.audio.torch import collate_audio
from lading.kits.chunked.datamodule.sequence import collate_sequences
from lading.loader.numpy import NumpyArrays
from lading.loader.torch.collate import Collate
from lading.source.counting import RowCounter, check_columns, check_samples, has_rows, kept_rows

ROWS = 6
PAGE = Path(__file__).parents[2] / "docs" / "guides" / "rows.md"
Pair = namedtuple("Pair", "x y")


@dataclasses.dataclass
class Boxed:
    """A batch as a dataclass."""

    x: torch.Tensor
    scale: float = 1.0


class Graph:
    """A graph of some library: nothing of it can be looked into."""


def images():
    """Return samples of images of different sizes, with a label."""
    return [(torch.zeros(3, 10 + i, 12), i) for i in range(ROWS)]


def tokens():
    """Return samples of token ids of different lengths."""
    return [{"input_ids": list(range(2, 5 + i)), "labels": list(range(2, 5 + i))} for i in range(ROWS)]


def pairs():
    """Return samples of numbers."""
    return [(torch.full((4,), float(i)), i) for i in range(ROWS)]


def dicts():
    """Return samples of dicts."""
    return [{"x": torch.full((4,), float(i)), "y": i} for i in range(ROWS)]


def preferences():
    """Return samples of chosen and rejected token ids, with all that TRL's collators look for."""
    both = {"prompt_ids": [1, 2, 3], "chosen_ids": [4, 5], "rejected_ids": [6]}
    return [{**both, "completion_ids": [4, 5], "label": i % 2 == 0} for i in range(ROWS)]


def llm_rows():
    """Return rows as ``PackedRows`` gives them."""
    names = ("inputs", "targets", "inputs_position", "targets_position", "inputs_segmentation", "targets_segmentation")
    return [{name: np.arange(8, dtype=np.int32) for name in names} for _ in range(ROWS)]


def a_tokenizer():
    """Return a tokenizer of ten words, made here."""
    tokenizers, transformers = pytest.importorskip("tokenizers"), pytest.importorskip("transformers")
    words = {word: i for i, word in enumerate(["[PAD]", "[MASK]", *"abcdefgh"])}
    model = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[PAD]"))
    return transformers.PreTrainedTokenizerFast(tokenizer_object=model, pad_token="[PAD]", mask_token="[MASK]")


def from_transformers(name, **options):
    """Return a collator of transformers."""
    transformers = pytest.importorskip("transformers")
    found = getattr(transformers, name)
    return found if name == "default_data_collator" else found(**options)


def with_tokenizer(name, **options):
    """Return a collator of transformers that has a tokenizer."""
    return from_transformers(name, tokenizer=a_tokenizer(), **options)


def from_trl(module, name, **options):
    """Return a collator of TRL."""
    pytest.importorskip("trl")
    return getattr(pytest.importorskip(f"trl.trainer.{module}"), name)(pad_token_id=0, **options)


def stacked(samples):
    """Return the first parts of samples, one below another."""
    return torch.stack([sample[0] for sample in samples])


def doubled(samples):
    """Return two views of each sample in one array."""
    return torch.cat([stacked(samples)] * 2)


def two_each(samples):
    """Do the same, and say so."""
    return doubled(samples)


two_each.rows = 2


class LongEnough:
    """Leaves samples out, and says which it kept."""

    def __call__(self, samples):
        self.kept = [place for place, sample in enumerate(samples) if sample[1] % 2]
        return default_collate([samples[place] for place in self.kept])

    def rows(self, batch):
        """Return the places of the samples in a batch."""
        return self.kept


def anything(samples):
    """Return what nobody can count."""
    return torch.cat([sample[0] for sample in samples])


anything.rows = "any"


def packed(enforce_sorted):
    """Return a collate function that packs sequences."""
    return lambda samples: torch.nn.utils.rnn.pack_sequence(
        [torch.zeros(9 - i, 2) for i in range(len(samples))], enforce_sorted=enforce_sorted
    )


RIGHT, REFUSED, NOT, SOME = "right", "refused", "not counted", "some left out"
# What the documentation calls it: how it is made, its samples, and what is found of it.
CASES = {
    "`default_collate` of dicts": (lambda: default_collate, dicts, RIGHT),
    "`default_collate` of tuples": (lambda: default_collate, pairs, RIGHT),
    "`default_collate` of (dict, label)": (lambda: default_collate, lambda: [(d, 1) for d in dicts()], RIGHT),
    "`default_collate` of nested tuples": (lambda: default_collate, lambda: [((1, 2), (3, 4))] * ROWS, RIGHT),
    "`Loader` without a `collate_fn`": (Collate, dicts, RIGHT),
    "`NumpyLoader`, `JaxLoader` without a `collate_fn`": (lambda: NumpyArrays().collate, dicts, RIGHT),
    "`collate_llm`": (lambda: collate_llm, llm_rows, RIGHT),
    "`collate_sequences`": (lambda: collate_sequences, pairs, RIGHT),
    "`collate_audio`": (
        lambda: functools.partial(collate_audio, zero=0),
        lambda: [(torch.zeros(9 + i, 1, dtype=torch.long),) * 2 for i in range(ROWS)],
        RIGHT,
    ),
    "transformers `default_data_collator`": (
        lambda: from_transformers("default_data_collator"),
        lambda: [{"input_ids": [1, 2], "label": 0}] * ROWS,
        RIGHT,
    ),
    "transformers `DataCollatorWithPadding`": (
        lambda: with_tokenizer("DataCollatorWithPadding"),
        lambda: [{"input_ids": t["input_ids"]} for t in tokens()],
        RIGHT,
    ),
    "transformers `DataCollatorForSeq2Seq`": (lambda: with_tokenizer("DataCollatorForSeq2Seq"), tokens, RIGHT),
    "transformers `DataCollatorForTokenClassification`": (
        lambda: with_tokenizer("DataCollatorForTokenClassification"),
        tokens,
        RIGHT,
    ),
    "transformers `DataCollatorForLanguageModeling`": (
        lambda: with_tokenizer("DataCollatorForLanguageModeling", mlm=False),
        lambda: [{"input_ids": t["input_ids"]} for t in tokens()],
        RIGHT,
    ),
    "transformers `DataCollatorForMultipleChoice`": (
        lambda: with_tokenizer("DataCollatorForMultipleChoice"),
        lambda: [{"input_ids": [[1, 2], [3]], "attention_mask": [[1, 1], [1]], "label": 1} for _ in range(ROWS)],
        RIGHT,
    ),
    "transformers `DataCollatorWithFlattening`": (lambda: from_transformers("DataCollatorWithFlattening"), tokens, NOT),
    "TRL `DataCollatorForLanguageModeling`": (
        lambda: from_trl("sft_trainer", "DataCollatorForLanguageModeling"),
        tokens,
        RIGHT,
    ),
    "TRL `DataCollatorForLanguageModeling(padding_free=True)`": (
        lambda: from_trl("sft_trainer", "DataCollatorForLanguageModeling", padding_free=True),
        tokens,
        NOT,
    ),
    "TRL `DataCollatorForPreference` (DPO, 2 rows a sample)": (
        lambda: from_trl("dpo_trainer", "DataCollatorForPreference"),
        preferences,
        RIGHT,
    ),
    "TRL `DataCollatorForPreference` (reward, 2 rows a sample)": (
        lambda: from_trl("reward_trainer", "DataCollatorForPreference"),
        preferences,
        RIGHT,
    ),
    "TRL `DataCollatorForUnpairedPreference` (KTO)": (
        lambda: from_trl("kto_trainer", "DataCollatorForUnpairedPreference"),
        preferences,
        RIGHT,
    ),
    "a dataclass": (lambda: lambda samples: Boxed(stacked(samples)), pairs, RIGHT),
    "a named tuple": (lambda: lambda samples: Pair(stacked(samples), 1), pairs, RIGHT),
    "a nested tensor": (lambda: lambda samples: {"x": nested(samples)}, images, RIGHT),
    "a list of texts": (lambda: lambda samples: ["a"] * len(samples), pairs, RIGHT),
    "one text": (lambda: lambda samples: "a", pairs, NOT),
    "a graph": (lambda: lambda samples: Graph(), pairs, NOT),
    "(graph, labels)": (lambda: lambda samples: (Graph(), torch.zeros(len(samples))), pairs, RIGHT),
    "a graph as a dict of nodes and edges": (
        lambda: lambda samples: {"nodes": torch.zeros(19, 3), "edges": torch.zeros(2, 40)},
        pairs,
        REFUSED,
    ),
    "images in a list": (lambda: lambda samples: [image for image, _ in samples], images, RIGHT),
    "images in a list, labels in another": (
        lambda: lambda samples: [list(c) for c in zip(*samples, strict=True)],
        images,
        RIGHT,
    ),
    "`tuple(zip(*samples))`": (lambda: lambda samples: tuple(zip(*samples, strict=True)), images, RIGHT),
    "images in a list, one left out": (lambda: lambda samples: [image for image, _ in samples[1:]], images, REFUSED),
    "time first, one array": (lambda: lambda samples: stacked(samples).T, pairs, RIGHT),
    "time first, a tuple": (lambda: lambda samples: (stacked(samples).T, stacked(samples).T), pairs, RIGHT),
    "time first, alone in a dict": (lambda: lambda samples: {"x": stacked(samples).T}, pairs, REFUSED),
    "time first in a dict, with labels": (
        lambda: lambda samples: {"x": stacked(samples).T, "y": torch.zeros(len(samples))},
        pairs,
        RIGHT,
    ),
    "two crops, (first, second)": (lambda: lambda samples: (stacked(samples), stacked(samples)), pairs, RIGHT),
    "two crops in one array": (lambda: doubled, pairs, REFUSED),
    "two crops in one array, `rows = 2`": (lambda: two_each, pairs, RIGHT),
    "`pack_sequence(enforce_sorted=False)`": (lambda: packed(False), pairs, RIGHT),
    "`pack_sequence`, sorted, without labels": (lambda: packed(True), pairs, REFUSED),
    "leaves samples out": (lambda: lambda samples: default_collate(samples[2:]), dicts, REFUSED),
    "leaves samples out, `rows` a function": (LongEnough, pairs, SOME),
    "cuts a batch": (lambda: lambda samples: default_collate(samples)["x"][:5], dicts, REFUSED),
    "doubles rows": (lambda: lambda samples: default_collate(samples * 2), dicts, REFUSED),
    "joins samples, `rows = 'any'`": (lambda: anything, pairs, NOT),
    "nothing at all": (lambda: lambda samples: [], pairs, REFUSED),
}


def nested(samples):
    """Return images of different sizes as torch's nested tensor."""
    with warnings.catch_warnings():  # torch warns of it once in a process
        warnings.simplefilter("ignore")
        return torch.nested.nested_tensor([image[0] for image, _ in samples])


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("name", CASES)
def test_the_table_of_collate_functions(name):
    """Right, refused, not counted or some left out: what the documentation says of each."""
    make, samples, expected = CASES[name]
    collate = make()
    counter = RowCounter(collate)
    batch = collate(samples())

    if expected == REFUSED:
        with pytest.raises(SourceError, match=r"was made of 6 samples.*nothing in it has so many rows"):
            counter(batch, ROWS)
        return
    kept, remark = counter(batch, ROWS)

    assert (kept is None) == (expected != SOME) and bool(remark) == (expected == NOT)
    assert counter.remark(batch, ROWS) == remark
    if expected == RIGHT:
        with pytest.raises(SourceError, match="nothing in it has so many rows"):
            counter(batch, 99)


def test_the_documentation_has_the_same_table():
    """Each row of the page is a case, and each case a row."""
    rows = [line.split(" | ") for line in PAGE.read_text(encoding="utf8").splitlines() if line.startswith("| ")]
    found = {row[0].removeprefix("| "): row[1].removesuffix(" |") for row in rows if len(row) == 2}

    assert {name: found.get(name) for name in CASES} == {name: case[2] for name, case in CASES.items()}


def test_what_a_collate_function_says_of_its_rows_is_checked():
    """A word, a number or a function; found behind partial and on bound methods."""
    for wrong in ("all", 0, 1.5, [3]):
        made = functools.partial(default_collate)
        made.rows = wrong
        with pytest.raises(LoaderError, match="expected 'same', 'any', a number of rows per sample, or a function"):
            RowCounter(made)
    assert RowCounter(functools.partial(two_each))(torch.zeros(4), 2).remark == ""
    for places in ([0, 0], [0, 9], [[0]], [0.5]):
        leaving = LongEnough()
        leaving.rows = lambda batch, places=places: places
        with pytest.raises(SourceError, match="expected the places of the samples it kept, each once, from 0 to 5"):
            RowCounter(leaving)(torch.zeros(2), ROWS)


def test_a_function_that_says_more_than_there_is_is_refused():
    """The places are counted, too."""
    leaving = LongEnough()
    leaving.rows = lambda batch: [0, 1, 2, 3]

    with pytest.raises(SourceError, match="6 samples, 4 rows expected, and nothing in it has so many"):
        RowCounter(leaving)(torch.zeros(3, 9), ROWS)


def test_samples_left_out_are_booked_by_name():
    """The bill has the rows of the batch in their order, and a deviation for each sample that is none of them."""
    columns = {"slots": np.arange(4), "dataset_idx": np.zeros(4, np.int32), "idx": np.array([7, 8, 9, 9])}
    bill = Bill("b", 3, 0, None, 0, is_padding=np.array([0, 0, 0, 1], bool), global_size=3, names=("a",), **columns)

    kept = kept_rows(bill, np.array([2, 0]))

    assert kept.idx.tolist() == [9, 7] and kept.slots.tolist() == [2, 0] and kept.num_samples == 2
    assert [(d.slot, d.kind, d.index, d.reason) for d in kept.deviations] == [(1, "skipped", 8, LEFT_OUT)]


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ({"x": np.zeros(4), "y": np.zeros(3)}, "gave 3 rows of 'y' where 4 were asked for"),
        ({"x": np.zeros(4), "inner": {"z": np.zeros((5, 2))}}, "gave 5 rows of 'inner.z'"),
        ((np.zeros(4), np.zeros(2)), "gave 2 rows of '1'"),
        (np.zeros(3), "gave 3 rows where 4"),
        ({"text": ["a", "b"]}, "gave 2 rows of 'text'"),
    ],
)
def test_columns_that_are_too_short_are_named(columns, text):
    """Each column of ``take()`` is counted."""
    with pytest.raises(SourceError, match=text):
        check_columns(columns, 4, "Table")


@pytest.mark.parametrize(
    "columns", [{"x": np.zeros(4), "t": list("abcd"), "scale": 0.5, "name": "a"}, [np.zeros(4)], list("abcd")]
)
def test_columns_of_the_right_length_pass(columns):
    """Arrays, texts one by one, and what is no column."""
    check_columns(columns, 4, "Table")


def test_samples_are_counted_and_none_is_no_sample():
    """Which one it is, is said."""
    check_samples([1, 2], [5, 6], "Rows")
    check_samples({"x": np.zeros(2)}, [5, 6], "Rows")
    with pytest.raises(SourceError, match="a Rows gave 1 samples where 2 were asked for"):
        check_samples([1], [5, 6], "Rows")
    with pytest.raises(SourceError, match="a Rows gave None for sample 6"):
        check_samples([1, None], [5, 6], "Rows")


def test_a_mapping_that_is_no_dict_is_looked_into():
    """transformers' BatchEncoding, and its kin."""
    encoding = pytest.importorskip("transformers").BatchEncoding({"x": torch.zeros(3, 2)})

    assert (has_rows(encoding, 3), has_rows(encoding, 2), has_rows({"a": {"b": [np.zeros(3)]}}, 3)) == (
        True,
        False,
        True,
    )
