"""How a sample looks: a line that describes it, and a preview as text, picture or sound.

    describe(index)    a text, or {"text": ..., "label": ..., "file": ...}
    preview(index)     a text, bytes (picture or sound), or {"kind": "text" | "image" | "sound", ...}

A source may say either itself. Else the file of a sample is shown, or its value: pictures where Pillow is installed,
sounds where soundfile is, everything else as text.
"""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from lading.errors import ConfigError, LadingError
from lading.runtime.arrays import host
from lading.runtime.fields import brief
from lading.runtime.imports import is_a
from lading.source.protocol import InFiles

LONGEST_LINE = 160
MOST_TEXT = 20_000
MOST_BYTES = 4 << 20
_MOST_PIXELS = 1024
_PICTURES = ("PNG", "JPEG", "GIF", "BMP", "WEBP")  # what browsers show, and nothing that Pillow has to run

Look = dict[str, Any]


class SourceLooks:
    """Describes the samples of some sources: a dict of datasets by name, or one; errors say ``what`` named them."""

    def __init__(self, sources: Any, what: str = "sources") -> None:
        datasets = list(sources.values()) if isinstance(sources, Mapping) else [sources]
        wrong = [d for d in datasets if not hasattr(d, "__getitem__") and not hasattr(d, "describe")]
        if not datasets or wrong:
            found = type(wrong[0]).__name__ if wrong else "empty dict"
            raise ConfigError(
                f"{what} is a {found}: expected a dict of datasets by name, one dataset (anything with [index]), or a "
                "function that returns either. Pass the sources that the loader was given."
            )
        self._sources, self._what = sources, what

    def describe(self, dataset: str, index: int) -> Look | None:
        """Return a line about a sample; what cannot be read says why."""
        return _guarded(lambda: described(self._source(dataset), index))

    def preview(self, dataset: str, index: int) -> Look | None:
        """Return a preview of a sample; what cannot be read says why."""
        return _guarded(lambda: previewed(self._source(dataset), index))

    def line(self, dataset: str, index: int) -> str:
        """Return a line about a sample with everything that is known."""
        look = self.describe(dataset, index) or {"text": ""}
        parts = [look["text"], look.get("label"), look.get("file")]
        return _line("  ".join(part for part in parts if part))

    def length(self, dataset: str, index: int) -> int | None:
        """Return how long a sample is: of several fields the longest; None where it has none, or cannot be read."""
        source = self._source(dataset)
        try:
            return _length(_stored(source, index))
        except Exception:  # it is the user's code and data: ``describe`` says what happened
            return None

    def _source(self, dataset: str) -> Any:
        if not isinstance(self._sources, Mapping):
            return self._sources
        if dataset in self._sources:
            return self._sources[dataset]
        owner = dataset.rpartition("[")[0]  # a part of a source is called source[0]
        if owner in self._sources:
            return self._sources[owner]
        names = ", ".join(map(repr, self._sources))
        raise ConfigError(f"{self._what} has no dataset {dataset!r}: it has {names}. Pass the run's own sources.")


def _guarded(look: Callable[[], Look | None]) -> Look | None:
    try:
        return look()
    except LadingError:
        raise
    except Exception as error:  # it is the user's code and data: a page says what happened
        return {"kind": "text", "media_type": "text/plain", "text": f"cannot be read: {type(error).__name__}: {error}"}


def described(source: Any, index: int) -> Look:
    """Return a line about a sample of a source: ``text``, and where they are known ``label`` and ``file``."""
    own = getattr(source, "describe", None)
    if callable(own):
        return _checked_description(own(index), type(source).__name__)
    file, label = _file_and_label(source, index)
    line = os.path.basename(file) if file else _short(_stored(source, index))
    return {"text": _line(line), "label": label, "file": file or None}


def previewed(source: Any, index: int) -> Look | None:
    """Return a preview of a sample: ``kind``, ``media_type``, and ``text`` or ``data``."""
    own = getattr(source, "preview", None)
    if callable(own):
        return _checked_preview(own(index), type(source).__name__)
    return _media_of_file(_file_and_label(source, index)[0]) or _preview_of_value(_stored(source, index))


def _checked_description(value: Any, who: str) -> Look:
    if isinstance(value, str):
        return {"text": _line(value)}
    if isinstance(value, Mapping) and isinstance(value.get("text", value.get("file")), str):
        text = value.get("text") or os.path.basename(value["file"])
        return {"text": _line(text), "label": _known(value.get("label")), "file": _known(value.get("file"))}
    raise ConfigError(f"{who}.describe returned {brief(value)}: expected a text, or a dict with text, label and file.")


def _known(value: Any) -> str | None:
    return None if value is None else str(value)


def _checked_preview(value: Any, who: str) -> Look | None:
    if value is None:
        return None
    if isinstance(value, str | bytes | bytearray | np.ndarray):
        return _preview_of_value(value)
    if isinstance(value, Mapping) and value.get("kind") in ("text", "image", "sound"):
        shown = value.get("text", value.get("data"))
        if isinstance(shown, str | bytes | bytearray):
            return _preview_of_value(shown)
    raise ConfigError(
        f"{who}.preview returned {brief(value)}: expected a text, the bytes of a picture or a sound, or a dict "
        "with kind (text, image, sound) and text or data."
    )


def _file_and_label(source: Any, index: int) -> tuple[str, str | None]:
    """Return the file of a sample, and its label: of ``file_of``, or of the ``samples`` of torchvision's folders."""
    if isinstance(source, InFiles):
        return str(source.file_of(index) or ""), None
    samples, classes = getattr(source, "samples", None), getattr(source, "classes", None)
    if not isinstance(samples, list) or not isinstance(classes, list | tuple):
        return "", None
    file, label = samples[index]
    return os.fspath(file), str(classes[label])


def _stored(source: Any, index: int) -> Any:
    """Return a sample; of a Hugging Face dataset as it is stored: bytes of pictures and sounds, names of classes."""
    if not is_a(source, "datasets:Dataset"):
        return source[index]
    features = source.features
    for name in [name for name, feature in features.items() if hasattr(feature, "decode")]:
        source = source.cast_column(name, type(features[name])(decode=False))
    row = source.with_format(None)[index]
    classes = [name for name, feature in features.items() if hasattr(feature, "int2str") and row[name] is not None]
    return {**row, **{name: features[name].int2str(row[name]) for name in classes if row[name] >= 0}}


def _short(value: Any) -> str:
    """Return a value in a few words: of an array its type, shape and first numbers."""
    if isinstance(value, Mapping):
        if {"bytes", "path"} == set(value):  # as Hugging Face stores pictures and sounds
            return os.path.basename(value["path"] or "") or _short(value["bytes"])
        return ", ".join(f"{key} {_short(item)}" for key, item in value.items())
    if isinstance(value, list | tuple):
        return "; ".join(map(_short, value[:64]))
    if isinstance(value, bytes | bytearray):
        return f"{len(value)} bytes"
    array = None if isinstance(value, str) else _array(value)
    if array is None:
        return str(value)
    first = ", ".join(f"{v:.4g}" if isinstance(v, float) else str(v) for v in array.reshape(-1)[:6].tolist())
    more = " …" if array.size > 6 else ""
    return f"{array.dtype}{list(array.shape)} {first}{more}" if array.ndim else first


def _length(value: Any) -> int | None:
    """Return the characters of a text, the elements of a sequence; of several fields those of the longest."""
    if isinstance(value, Mapping):
        return max((n for n in map(_length, value.values()) if n is not None), default=None)
    if isinstance(value, str | bytes | bytearray | list | tuple):
        return len(value)
    array = _array(value)
    return None if array is None or not array.ndim else len(array)


def _array(value: Any) -> np.ndarray[Any, Any] | None:
    if isinstance(value, np.ndarray) or hasattr(value, "__array__") or hasattr(value, "numpy"):
        try:
            return host(value)
        except (TypeError, ValueError, RuntimeError):
            return None
    return None


def _preview_of_value(value: Any) -> Look:
    """Return the first picture or sound of a sample, else its text."""
    parts = value.values() if isinstance(value, Mapping) else value[:64] if isinstance(value, list | tuple) else ()
    for part in (value, *parts):
        if (media := _media(part)) is not None:
            return media
    if isinstance(value, bytes | bytearray):
        return _text(_decoded(bytes(value)))
    return _text(
        "\n".join(f"{k}: {_short(v)}" for k, v in value.items()) if isinstance(value, Mapping) else _short(value)
    )


def _media(value: Any) -> Look | None:
    """Return a picture or a sound, where a value is one."""
    if isinstance(value, Mapping) and {"bytes", "path"} == set(value):
        return _media(value["bytes"]) if value["bytes"] else _media_of_file(str(value["path"]))
    if not isinstance(value, bytes | bytearray):
        data = _png(value)
        return None if data is None else {"kind": "image", "media_type": "image/png", "data": data}
    data = bytes(value)
    kind = None if len(data) > MOST_BYTES else _type_of(data)
    if kind is None:
        return None
    return {"kind": "image" if kind.startswith("image") else "sound", "media_type": kind, "data": data}


def _media_of_file(file: str) -> Look | None:
    if not os.path.isfile(file) or os.path.getsize(file) > MOST_BYTES:
        return None
    with open(file, "rb") as opened:
        return _media(opened.read())


def _type_of(data: bytes) -> str | None:
    """Return the media type of a picture or a sound, as Pillow or soundfile name it."""
    with contextlib.suppress(ImportError, OSError):
        from PIL import Image

        with Image.open(io.BytesIO(data), formats=_PICTURES) as image:
            return Image.MIME[str(image.format)]
    with contextlib.suppress(ImportError, OSError):
        from lading.source.soundfile import sound_type

        return sound_type(data)
    return None


def _png(value: Any) -> bytes | None:
    """Return a picture of Pillow's, or bytes of height and width, with channels first or last, as PNG."""
    try:
        from PIL import Image

        image = value.copy() if isinstance(value, Image.Image) else Image.fromarray(_pixels(value))
    except (ImportError, TypeError):
        return None
    image = image if image.mode in ("L", "RGB", "RGBA") else image.convert("RGB")
    image.thumbnail((_MOST_PIXELS, _MOST_PIXELS))
    written = io.BytesIO()
    image.save(written, "PNG")
    return written.getvalue()


def _pixels(value: Any) -> np.ndarray[Any, Any]:
    array = None if isinstance(value, str) else _array(value)
    if array is None or array.dtype != np.uint8 or array.ndim not in (2, 3):
        raise TypeError("no picture")
    if array.ndim == 3 and array.shape[2] not in (1, 3, 4):
        array = np.moveaxis(array, 0, 2)
    if min(array.shape[:2]) < 8 or array.shape[2:] not in ((), (1,), (3,), (4,)):
        raise TypeError("no picture")
    return np.ascontiguousarray(array.squeeze(2) if array.shape[2:] == (1,) else array)


def _decoded(data: bytes) -> str:
    try:
        return data[:MOST_TEXT].decode("utf-8")
    except UnicodeDecodeError:
        return f"{len(data)} bytes: {data[:64].hex(' ')}"


def _text(text: str) -> Look:
    more = "\n…" if len(text) > MOST_TEXT else ""
    return {"kind": "text", "media_type": "text/plain", "text": text[:MOST_TEXT] + more}


def _line(text: str) -> str:
    line = " ".join(text[: 4 * LONGEST_LINE].split())
    return line if len(line) <= LONGEST_LINE else line[: LONGEST_LINE - 1] + "…"
