"""Tokenizers of Hugging Face: a ``tokenizer.json``, or what is inside a fast tokenizer of transformers."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from lading.errors import ConfigError, SourceError, missing_extra
from lading.runtime.fields import shown
from lading.runtime.processes import environment

# What ends a document in the tokenizers people have, where a file does not say it.
_ENDS = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|eos|>", "[EOS]", "[SEP]")


class FastTokenizer:
    """A ``tokenizers.Tokenizer`` that adds nothing to a text, cuts nothing off, and uses one thread.

    Args:
        inner: The tokenizer; a copy is used.
        eod: Token or id that ends a document; None: the usual names are looked for.
        name: What it is called in the store.
    """

    def __init__(self, inner: Any, *, eod: str | int | None = None, name: str = "tokenizer.json") -> None:
        self.inner = type(inner).from_str(inner.to_str())
        self.inner.no_truncation()
        self.inner.no_padding()
        self.name = name
        vocabulary = self.inner.get_vocab(with_added_tokens=True)
        self.vocab_size = max(vocabulary.values(), default=0) + 1
        self.eod_token_id = _end(vocabulary, eod, name)

    def encode(self, text: str) -> list[int]:
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: list[str]) -> list[list[int]]:
        """Return the ids of several texts."""
        with environment(TOKENIZERS_PARALLELISM="false"):  # as many threads as there are workers run at once already
            # The fast variant leaves out what nobody asks for here: where in the text each token was.
            encode = getattr(self.inner, "encode_batch_fast", self.inner.encode_batch)
            return [encoding.ids for encoding in encode(texts, add_special_tokens=False)]

    def decode(self, ids: list[int]) -> str:
        return str(self.inner.decode(ids, skip_special_tokens=False))

    def content(self) -> str:
        """Return what identifies the tokenizer, whatever it is called."""
        return hashlib.blake2b(self.inner.to_str().encode(), digest_size=16).hexdigest()


def read_tokenizer_json(path: Path, *, eod: str | int | None = None) -> FastTokenizer:
    """Return the tokenizer of a ``tokenizer.json`` file."""
    try:
        import tokenizers
    except ImportError as error:
        raise missing_extra("tokenizers", "tokens", f"reading {path}") from error
    if not path.is_file():
        raise ConfigError(f"{shown(str(path))} is no file: expected a tokenizer.json. Check the name.")
    try:
        inner = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # it raises bare Exceptions
        raise SourceError(f"{shown(str(path))} is no tokenizer ({shown(str(error))}). Save it again.") from error
    return FastTokenizer(inner, eod=eod, name=path.name)


def adapted_fast(given: Any, *, eod: str | int | None = None) -> FastTokenizer:
    """Return a tokenizer of tokenizers, or a fast one of transformers, as ours."""
    inner = getattr(given, "backend_tokenizer", given)
    if not hasattr(inner, "to_str"):
        raise ConfigError(
            f"{type(given).__name__} is no fast tokenizer: expected one with a backend of tokenizers. Load it with "
            "use_fast=True, or pass a function of a text."
        )
    end = eod if eod is not None else getattr(given, "eos_token_id", None)
    name = str(getattr(given, "name_or_path", "") or type(given).__name__)
    return FastTokenizer(inner, eod=end, name=Path(name).name)


def _end(vocabulary: dict[str, int], eod: str | int | None, name: str) -> int:
    """Return the id that ends a document."""
    if eod is None:
        found = next((vocabulary[token] for token in _ENDS if token in vocabulary), None)
    elif eod in vocabulary:
        found = vocabulary[str(eod)]
    else:
        found = int(eod) if str(eod).isdigit() else None
    if found is None:
        asked = "does not say which token ends a document" if eod is None else f"has no token {shown(repr(eod))}"
        raise ConfigError(f"tokenizer {shown(name)} {asked}. Pass --eod with a token of it, or its id.")
    return found
