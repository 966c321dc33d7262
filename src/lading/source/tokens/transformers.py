"""Fast tokenizers of transformers, by name or folder."""

from __future__ import annotations

from lading.errors import ConfigError, missing_extra
from lading.runtime.fields import shown
from lading.source.tokens.tokenizers import FastTokenizer, adapted_fast


def load_fast_tokenizer(name: str, *, eod: str | int | None = None) -> FastTokenizer:
    """Return the fast tokenizer that ``AutoTokenizer.from_pretrained`` finds; ``eod`` is its own unless given."""
    try:
        from transformers import AutoTokenizer
    except ImportError as error:
        raise missing_extra("transformers", "transformers", f"the tokenizer {shown(name)}") from error
    try:
        found = AutoTokenizer.from_pretrained(name, use_fast=True)
    except Exception as error:  # whatever is missing: a file, a network, a package
        reason = " ".join(str(error).split())[:200]
        raise ConfigError(
            f"tokenizer {shown(name)} cannot be loaded ({shown(reason)}). Check the name, or give the folder it is "
            "saved in."
        ) from error
    return adapted_fast(found, eod=eod)
