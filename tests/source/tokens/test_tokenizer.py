"""Tokenizers people have: tokenizer.json, fast tokenizers of transformers, functions."""

from __future__ import annotations

import sys

import pytest

from lading.errors import ConfigError, MissingExtraError, SourceError
from lading.source.tokens.build import build_tokens
from lading.source.tokens.tokenizer import TokenizerRef, load_tokenizer

tokenizers = pytest.importorskip("tokenizers")

TEXTS = ["the cat sat on the mat", "the dog sat", "a cat and a dog"]


@pytest.fixture
def trained(tmp_path):
    """A small byte-level BPE that truncates, pads and adds special tokens, as saved ones may do."""
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.train_from_iterator(
        TEXTS * 10, tokenizers.trainers.BpeTrainer(vocab_size=300, special_tokens=["<|endoftext|>", "[CLS]"])
    )
    made.post_processor = tokenizers.processors.TemplateProcessing(single="[CLS] $A", special_tokens=[("[CLS]", 1)])
    made.enable_truncation(3)
    made.enable_padding()
    made.save(str(tmp_path / "tokenizer.json"))
    made.no_truncation()
    made.no_padding()
    return made


def test_a_tokenizer_json_adds_and_cuts_nothing(trained, tmp_path):
    """Truncation, padding and special tokens of the file are not for a corpus."""
    (tmp_path / "a.txt").write_text("\n".join(TEXTS))

    store = build_tokens(tmp_path / "a.txt", tmp_path / "out", str(tmp_path / "tokenizer.json"), split="line")

    assert [store[d].tolist() for d in range(3)] == [trained.encode(t, add_special_tokens=False).ids for t in TEXTS]
    assert (store.eod_token_id, store.vocab_size, store.tokenizer) == (0, trained.get_vocab_size(), "tokenizer.json")


def test_transformers_by_folder_and_as_an_object(trained, tmp_path):
    """The same ids as the file; the tokenizer's own end of a text."""
    transformers = pytest.importorskip("transformers")
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=trained, eos_token="[CLS]")
    fast.save_pretrained(tmp_path / "saved")
    expected = trained.encode(TEXTS[0], add_special_tokens=False).ids

    for tokenizer in (load_tokenizer(f"transformers:{tmp_path / 'saved'}"), TokenizerRef(fast).get()):
        assert list(tokenizer.encode(TEXTS[0])) == expected and tokenizer.eod_token_id == 1
    assert TokenizerRef(trained).get().encode(TEXTS[0]) == expected
    with pytest.raises(ConfigError, match=r"tokenizer .*nowhere cannot be loaded"):
        load_tokenizer(f"transformers:{tmp_path / 'nowhere'}")


def test_what_ends_a_document_can_be_chosen(trained, tmp_path):
    """By token or by id; one that is not there is named."""
    path = str(tmp_path / "tokenizer.json")

    assert [load_tokenizer(path, eod=eod).eod_token_id for eod in (None, "[CLS]", "7", 5)] == [0, 1, 7, 5]
    with pytest.raises(ConfigError, match=r"tokenizer\.json has no token '<s>'. Pass --eod"):
        load_tokenizer(path, eod="<s>")
    (tmp_path / "bad.json").write_text("{}")
    with pytest.raises(SourceError, match=r"bad\.json is no tokenizer"):
        load_tokenizer(str(tmp_path / "bad.json"))
    with pytest.raises(ConfigError, match=r"missing\.json is no file"):
        load_tokenizer(str(tmp_path / "missing.json"))


def letters(text):
    """A function of a text."""
    return [ord(c) % 26 for c in text]


def test_what_a_tokenizer_says_itself_cannot_be_asked_otherwise(trained, tmp_path):
    """An end or a vocabulary that would be ignored is refused, and an end that is no id."""
    (tmp_path / "a.txt").write_text("text")
    with pytest.raises(ConfigError, match="eod=77 was asked for, and tokenizer byte has 256"):
        TokenizerRef("byte", eod="77").get()
    with pytest.raises(ConfigError, match="vocab_size=12 was asked for, and tokenizer Tokenizer has"):
        TokenizerRef(trained, vocab_size=12)
    assert TokenizerRef("byte", eod="256", vocab_size=257).get().eod_token_id == 256
    with pytest.raises(SourceError, match=r"has the ids 0 to \d+, and 9999 is to end documents"):
        build_tokens(tmp_path / "a.txt", tmp_path / "out", TokenizerRef(trained, eod=9999))


def test_a_function_needs_a_vocabulary(tmp_path):
    """Given beside it, or as its attributes."""
    (tmp_path / "a.txt").write_text("abc")
    with pytest.raises(ConfigError, match=r"does not say how many ids .* Pass --vocab-size and --eod"):
        build_tokens(tmp_path / "a.txt", tmp_path / "out", letters)

    store = build_tokens(tmp_path / "a.txt", tmp_path / "out", TokenizerRef(letters, vocab_size=27, eod=26))

    assert store[0].tolist() == letters("abc") and store.tokenizer == "letters"


def test_missing_packages_are_named(tmp_path, monkeypatch):
    """One line says what to install."""
    for module in ("tokenizers", "transformers"):
        monkeypatch.setitem(sys.modules, module, None)

    with pytest.raises(MissingExtraError, match=r"tokenizer\.json needs tokenizers, .* pip install 'lading\[tokens\]'"):
        load_tokenizer("tokenizer.json")
    with pytest.raises(MissingExtraError, match=r"gpt2 needs transformers, .* 'lading\[transformers\]'"):
        load_tokenizer("transformers:gpt2")
