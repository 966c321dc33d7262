"""Write MDS shards with mosaicml-streaming itself: ``.venv-mds/bin/python mds_writer.py OUT``.

Run in an environment of its own. Streaming imports torchvision and transformers on its way to the writer and uses
neither there: modules without content stand in for them.

    OUT/plain, OUT/zstd, ...   the same samples, several shards each, packed in the way of that name
    OUT/expected.pickle        the samples as streaming's own reader decodes them
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import pickle
import sys
import types
from decimal import Decimal
from pathlib import Path

import numpy as np

PACKED = ("zstd", "gz", "bz2", "br", "snappy")
COLUMNS = {
    "id": "int",
    "text": "str",
    "blob": "bytes",
    "tokens": "ndarray:int32",
    "any": "ndarray",
    "square": "ndarray:float32:2,2",
    "small": "uint8",
    "score": "float32",
    "half": "float16",
    "large": "uint64",
    "huge": "str_int",
    "ratio": "str_float",
    "price": "str_decimal",
    "record": "json",
}


class _Empty(types.ModuleType):
    """A module that has any class asked for."""

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


class StandIns(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds what is not installed here on purpose."""

    def find_spec(self, name, path=None, target=None):
        """Return a module without content for anything of these packages."""
        if name.partition(".")[0] in ("torchvision", "transformers"):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        """Return the module."""
        return _Empty(spec.name)

    def exec_module(self, module):
        """Have nothing to run."""


def sample(number: int) -> dict:
    """Return one sample: every encoding that our reader decodes, sizes that vary."""
    draw = np.random.default_rng(number)
    return {
        "id": number - 100,
        "text": f"text {number} ☃" * (number % 4),
        "blob": draw.bytes(number % 7),
        "tokens": draw.integers(0, 90, 1 + number % 30).astype(np.int32),
        "any": draw.integers(0, 9, (number % 3 + 1, 2)).astype(("uint8", "int16", "float64")[number % 3]),
        "square": draw.random((2, 2)).astype(np.float32),
        "small": number % 256,
        "score": np.float32(number / 3),
        "half": np.float16(number / 4),
        "large": 2**63 + number,
        "huge": 10**25 + number,
        "ratio": number / 7,
        "price": Decimal(number) / 8,
        "record": {"number": number, "list": [1, "two", None]},
    }


def main(out: Path) -> None:
    """Write each way of packing."""
    sys.meta_path.insert(0, StandIns())
    from streaming import LocalDataset, MDSWriter

    for name in ("plain", *PACKED):
        compression = None if name == "plain" else name
        with MDSWriter(out=str(out / name), columns=COLUMNS, compression=compression, size_limit=8192) as writer:
            for number in range(120):
                writer.write(sample(number))
    theirs = LocalDataset(str(out / "plain"))
    (out / "expected.pickle").write_bytes(pickle.dumps([theirs[number] for number in range(len(theirs))]))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
