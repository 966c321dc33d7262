"""Tokenizers: anything that turns a text into ids and knows how many there are.

"byte"             the bytes of the text; needs nothing
"package:name"     an object (or a function that makes one) of your own, imported by that name
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from lading.errors import ConfigError
from lading.runtime.imports import imported


@runtime_checkable
class Tokenizer(Protocol):
    """What the builder of a token store asks of a tokenizer."""

    vocab_size: int
    eod_token_id: int

    def encode(self, text: str, /) -> Sequence[int] | Any: ...


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


def load_tokenizer(name: str) -> Tokenizer:
    """Return the tokenizer of a name: ``byte``, or ``package.module:object``."""
    if name == "byte":
        return ByteTokenizer()
    if ":" not in name:
        raise ConfigError(
            f"tokenizer {name!r} is unknown: expected 'byte', or 'package.module:object' for one of your own."
        )
    found = imported(name, "tokenizer", example="package.module:object")
    made = found() if isinstance(found, type) or not hasattr(found, "encode") else found
    if not isinstance(made, Tokenizer):
        raise ConfigError(
            f"tokenizer {name!r} is a {type(made).__name__} without encode, vocab_size or eod_token_id: expected all "
            "three. Wrap it in a class that has them."
        )
    return made
