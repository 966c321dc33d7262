"""Tokenizers: anything that turns a text into ids and knows how many there are.

"byte"                  the bytes of the text; needs nothing
"path/tokenizer.json"   a file of Hugging Face's tokenizers
"transformers:NAME"     a fast tokenizer of transformers, by name or folder
"package:name"          an object of your own: a tokenizer, a function that makes one, or a function of a text
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from lading.errors import ConfigError
from lading.runtime.imports import imported, is_a

_HUGGING_FACE = (
    "tokenizers:Tokenizer",
    "tokenizers.implementations:BaseTokenizer",
    "transformers.tokenization_utils_base:PreTrainedTokenizerBase",  # not of transformers, which would import it
)


@runtime_checkable
class Tokenizer(Protocol):
    """What the builder of a token store asks of a tokenizer."""

    vocab_size: int
    eod_token_id: int

    def encode(self, text: str, /) -> Sequence[int] | Any: ...


@runtime_checkable
class BatchTokenizer(Tokenizer, Protocol):
    """A tokenizer that is quicker with several texts at once; it uses one thread, blocks are what runs in parallel."""

    def encode_batch(self, texts: list[str], /) -> Sequence[Any]: ...


class ByteTokenizer:
    """UTF-8 bytes as ids 0 to 255; 256 ends a document.

    >>> ByteTokenizer().encode("é!").tolist()
    [195, 169, 33]
    """

    name = "byte"
    vocab_size = 257
    eod_token_id = 256

    def encode(self, text: str) -> Any:
        """Return the bytes of a text."""
        return np.frombuffer(text.encode(), dtype=np.uint8)

    def decode(self, ids: Any) -> str:
        """Return the text of some ids; what ends documents is left out."""
        array = np.asarray(ids)
        return bytes(array[array < self.eod_token_id].astype(np.uint8)).decode(errors="replace")


@dataclass
class FunctionTokenizer:
    """A function of a text as a tokenizer."""

    encode: Callable[[str], Any]
    vocab_size: int
    eod_token_id: int
    name: str


def name_of(tokenizer: Tokenizer) -> str:
    """Return what a tokenizer is called in the store."""
    return str(getattr(tokenizer, "name", type(tokenizer).__qualname__))


class TokenizerRef:
    """A tokenizer that travels to other processes by its name, where it has one, and is loaded once in each.

    Args:
        given: A name, a tokenizer (also of tokenizers or transformers), or a function of a text; None: bytes.
        vocab_size: Size of the vocabulary, where the tokenizer does not say it.
        eod: Token or id that ends a document, where the tokenizer does not say it.
    """

    def __init__(self, given: Any = None, *, vocab_size: int | None = None, eod: str | int | None = None) -> None:
        given = "byte" if given is None else given
        self._named = (given, vocab_size, eod) if isinstance(given, str) else None
        self._made = None if self._named else _adapted(given, vocab_size, eod, f"tokenizer {type(given).__name__}")

    def get(self) -> Tokenizer:
        return _loaded(*self._named) if self._named else self._made  # type: ignore[return-value]

    def identity(self) -> list[Any]:
        """Return what a block that was encoded with it depends on."""
        tokenizer = self.get()
        content = getattr(tokenizer, "content", None)
        return [name_of(tokenizer), int(tokenizer.vocab_size), content() if callable(content) else None]


def load_tokenizer(name: str, *, vocab_size: int | None = None, eod: str | int | None = None) -> Tokenizer:
    """Return the tokenizer of a name: see the head of this file, and ``TokenizerRef`` for the rest."""
    if name == "byte":
        return _as_asked(ByteTokenizer(), vocab_size, eod)
    if name.endswith(".json") and ":" not in name:
        from lading.source.tokens.tokenizers import read_tokenizer_json  # here: only those who name such a file need it

        return _as_asked(read_tokenizer_json(Path(name), eod=eod), vocab_size)
    if name.startswith("transformers:") or Path(name).is_dir():
        from lading.source.tokens.transformers import load_fast_tokenizer  # here, for the same reason

        return _as_asked(load_fast_tokenizer(name.removeprefix("transformers:"), eod=eod), vocab_size)
    if ":" not in name:
        raise ConfigError(
            f"tokenizer {name!r} is unknown: expected 'byte', a tokenizer.json, 'transformers:NAME', or "
            "'package.module:object' for one of your own."
        )
    found = imported(name, "tokenizer", example="package.module:object", from_here=True)
    return _adapted(_made(found), vocab_size, eod, f"tokenizer {name!r}")


_loaded = functools.lru_cache(maxsize=4)(
    lambda name, vocab_size, eod: load_tokenizer(name, vocab_size=vocab_size, eod=eod)
)


def _as_asked(tokenizer: Tokenizer, vocab_size: int | None, eod: str | int | None = None) -> Tokenizer:
    """Return a tokenizer that says all of this itself; refuse to be asked for something else."""
    both = (("vocab_size", vocab_size, tokenizer.vocab_size), ("eod", eod, tokenizer.eod_token_id))
    for name, asked, has in both:
        if asked is not None and str(asked) != str(has):
            raise ConfigError(
                f"{name}={asked} was asked for, and tokenizer {name_of(tokenizer)} has {has}. Leave it out: it is for "
                "tokenizers that do not say it."
            )
    return tokenizer


def _made(found: Any) -> Any:
    """Call what makes a tokenizer: a class, or a function without arguments."""
    if isinstance(found, type):
        return found()
    is_maker = inspect.isroutine(found) and not hasattr(found, "encode") and not _required(found)
    return found() if is_maker else found


def _required(function: Callable[..., Any]) -> list[str]:
    """Return the positional arguments that a function cannot do without."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # built in
        return ["text"]
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [p.name for p in parameters if p.kind in positional and p.default is inspect.Parameter.empty]


def _adapted(given: Any, vocab_size: int | None, eod: str | int | None, what: str) -> Tokenizer:
    """Return a tokenizer as ours: one of Hugging Face's, one with all that is asked, or a function of a text."""
    if is_a(given, *_HUGGING_FACE):
        from lading.source.tokens.tokenizers import FastTokenizer, adapted_fast  # here: those who have one have it

        fast: FastTokenizer = adapted_fast(given, eod=eod)
        return _as_asked(fast, vocab_size)
    if isinstance(given, Tokenizer):
        return _as_asked(given, vocab_size, eod)
    if callable(given) and not isinstance(given, type):
        size = vocab_size if vocab_size is not None else getattr(given, "vocab_size", None)
        end = eod if eod is not None else getattr(given, "eod_token_id", None)
        if size is None or end is None or not str(end).isdigit():
            raise ConfigError(
                f"{what} is a function of a text that does not say how many ids it has and which one ends a document. "
                "Pass --vocab-size and --eod (a number), or give it attributes vocab_size and eod_token_id."
            )
        return FunctionTokenizer(given, int(size), int(end), getattr(given, "__qualname__", type(given).__name__))
    raise ConfigError(
        f"{what} is a {type(given).__name__} without encode, vocab_size or eod_token_id: expected all three. Wrap it "
        "in a class that has them."
    )
