"""Windows of a stream of tokens: nanoGPT's ``train.bin``, or any array.

    side by side   | 0 1 2 3 | 4 5 6 7 | 8 ...     window k starts at k * length; every token is seen once a pass
    random         a window starts anywhere: where is a function of the plan (seed, epoch, dataset, index)

A sample is (inputs, targets): ``length`` tokens, and the same one further.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lading.errors import SourceError
from lading.identity.hashing import key64
from lading.runtime.arrays import read_ahead
from lading.runtime.fields import is_whole
from lading.runtime.paths import local_path
from lading.source.tokens.store import TokenStore

PLACES = ("side by side", "random")
IGNORED = -100  # as torch's cross entropy knows it

I64 = NDArray[np.int64]


class Windows:
    """Windows of equal length of a stream of tokens, as (inputs, targets).

    >>> windows = Windows(np.arange(9), 4)
    >>> len(windows), windows[1]
    (2, (array([4, 5, 6, 7]), array([5, 6, 7, 8])))

    Args:
        tokens: A file of tokens, a memory map, or an array of integers.
        length: Tokens in a window.
        at: Where windows start: ``"side by side"``, or ``"random"``.
        num_samples: Windows in a pass, with ``at="random"``; None: as many as side by side.
        dtype: Type of the tokens in a file that is given by its name; nanoGPT writes ``uint16``.
    """

    random_free = True

    def __init__(
        self,
        tokens: str | Path | NDArray[Any],
        length: int,
        *,
        at: str = "side by side",
        num_samples: int | None = None,
        dtype: Any = np.uint16,
    ) -> None:
        if at not in PLACES:
            raise SourceError(f"at={at!r}: expected one of {', '.join(map(repr, PLACES))}.")
        if not is_whole(length, 1) or not (num_samples is None or is_whole(num_samples, 1)):
            raise SourceError(f"length={length!r}, num_samples={num_samples!r}: expected integers from 1.")
        if num_samples is not None and at != "random":
            raise SourceError("num_samples is for at='random': side by side the tokens say how many windows there are.")
        self.tokens, self.path = _opened(tokens, np.dtype(dtype))
        self.length, self.at = length, at
        self._masked: I64 = np.zeros((2, 0), np.int64)  # where documents begin and end that are left out
        if len(self.tokens) <= length:
            raise SourceError(
                f"there are {len(self.tokens)} tokens, and a window of {length} needs {length + 1}. Take shorter ones."
            )
        self._num_samples = (len(self.tokens) - 1) // length if num_samples is None else num_samples

    def without(self, documents: Sequence[int]) -> Windows:
        """Return the same windows with nothing to read (0) or to learn (-100) where some documents were.

        Only windows of a whole token store (``tokens.bin``) know where documents are.
        """
        beside = None if self.path is None else self.path.parent
        if beside is None or self.path != beside / "tokens.bin" or not (beside / "offsets.bin").exists():
            raise SourceError("these tokens are no token store: nothing says where a document begins. Block windows.")
        offsets = TokenStore(beside, validate=False).offsets
        wanted = np.unique(np.asarray(documents, np.int64))
        if len(wanted) and not 0 <= wanted[0] <= wanted[-1] < len(offsets) - 1:
            raise SourceError(
                f"documents {wanted.tolist()[:5]} are to be masked: {beside} has {len(offsets) - 1}, from 0."
            )
        masked = copy.copy(self)
        masked._masked = np.stack([offsets[wanted], offsets[wanted + 1]])
        return masked

    @property
    def wants_keys(self) -> bool:
        """Whether a sample depends on its key."""
        return self.at == "random"

    @property
    def mean_tokens(self) -> float:
        """Tokens of a window, for weights by tokens."""
        return float(self.length)

    def __len__(self) -> int:
        """Return the number of windows in a pass."""
        return self._num_samples

    def __getitem__(self, index: int) -> tuple[I64, I64]:
        """Return a window; of random ones that of the index's own key, for a look: a plan gives others."""
        if not 0 <= index < len(self):
            raise IndexError(f"window {index} out of range [0, {len(self)})")
        return self.item_keyed(index, epoch=0, key=key64("windows", index))

    def item_keyed(self, index: int, *, epoch: int, key: int) -> tuple[I64, I64]:
        """Return the window of an index and a key."""
        inputs, targets = self.take_keyed(np.array([index]), epoch=epoch, keys=np.array([key], np.uint64))
        return inputs[0], targets[0]

    def take(self, indices: I64) -> tuple[I64, I64]:
        """Gather windows that lie side by side."""
        return self.take_keyed(indices, epoch=0, keys=np.array([key64("windows", int(i)) for i in indices], np.uint64))

    def take_keyed(self, indices: I64, *, epoch: int, keys: NDArray[np.uint64]) -> tuple[I64, I64]:
        """Gather windows into two arrays of int64."""
        starts = self.starts(indices, keys)
        read_ahead(self.tokens, starts * self.tokens.itemsize, (self.length + 1) * self.tokens.itemsize)
        rows = self.tokens[starts[:, None] + np.arange(self.length + 1)].astype(np.int64)
        inputs, targets = rows[:, :-1], rows[:, 1:]
        if self._masked.size:
            places = starts[:, None] + np.arange(self.length + 1)
            nearest = np.searchsorted(self._masked[0], places, side="right") - 1
            is_masked = (nearest >= 0) & (places < self._masked[1][nearest])
            inputs, targets = np.where(is_masked[:, :-1], 0, inputs), np.where(is_masked[:, 1:], IGNORED, targets)
        return inputs, targets

    def starts(self, indices: I64, keys: NDArray[np.uint64]) -> I64:
        """Return where windows start, in tokens; only random ones need their keys."""
        if self.at != "random":
            return np.asarray(indices, np.int64) * self.length
        places = len(self.tokens) - self.length
        return np.array([key * places >> 64 for key in keys.tolist()], np.int64)

    def fingerprint(self) -> dict[str, Any]:
        """Return what identifies the windows: the tokens, and how they are cut."""
        if self.path is None:
            content = hashlib.blake2b(self.tokens.tobytes(), digest_size=16).hexdigest()
        else:
            content = sampled_digest(self.path)
        return {
            "tokens": content,
            "dtype": self.tokens.dtype.str,
            "length": self.length,
            **({"masked": self._masked.tolist()} if self._masked.size else {}),
            "at": self.at,
            "samples": len(self),
        }

    def name(self, index: int) -> str:
        """Return the file and the tokens of a window; empty where it lies at random, or in no file."""
        start = index * self.length
        return "" if self.path is None or self.wants_keys else f"{self.path.name}:{start}-{start + self.length - 1}"

    def file_of(self, index: int) -> str:
        """Return the file that holds the tokens, where there is one."""
        return str(self.path or "")

    def __getstate__(self) -> dict[str, Any]:
        # A worker maps the file again; sending its pages would copy it.
        return {**vars(self), "tokens": self.tokens if self.path is None else self.tokens.dtype}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        if self.path is not None:
            self.tokens, _ = _opened(self.path, self.tokens)  # type: ignore[arg-type]


def _opened(tokens: Any, dtype: np.dtype[Any]) -> tuple[NDArray[Any], Path | None]:
    """Return tokens as a plain array over the file, and the file where all of it is used."""
    if isinstance(tokens, str | Path):
        path = local_path(tokens)
        if not path.is_file():
            raise SourceError(f"{path} is no file. Check the name.")
        size = path.stat().st_size
        if not size or size % dtype.itemsize:
            raise SourceError(
                f"{path} has {size} bytes, which are no {dtype}. Pass dtype= as it was written, or write it again."
            )
        return np.asarray(np.memmap(path, dtype, "r")), path
    array = np.asarray(tokens)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise SourceError(f"tokens are {array.dtype} with {array.ndim} axes: expected a sequence of integers.")
    name = getattr(tokens, "filename", None)
    is_whole_file = name is not None and getattr(tokens, "offset", 0) == 0 and Path(name).stat().st_size == array.nbytes
    return array, Path(str(name)).absolute() if is_whole_file else None


_PAGES, _PAGE_BYTES = 64, 4096


def sampled_digest(path: Path) -> str:
    """Return 32 hexadecimal digits that stand for a large file, without reading all of it: of 64 pages and its size.

    A copy of a file has the same, a file that was tokenised anew has another; unlike a time it survives copying.
    """
    size = path.stat().st_size
    digest = hashlib.blake2b(str(size).encode(), digest_size=16)
    last = max(size - _PAGE_BYTES, 0)
    with open(path, "rb") as file:
        for page in range(_PAGES):
            file.seek(last * page // (_PAGES - 1))
            digest.update(file.read(_PAGE_BYTES))
    return digest.hexdigest()
