"""How a sample looks: a line that describes it, and a preview as text, picture or sound.

    describe(index)    a text, or {"text": ..., "label": ..., "file": ...}
    preview(index)     a text, bytes (picture or sound), or {"kind": "text" | "image" | "sound", ...}

A source may offer either itself. Without them files, folders of pictures, audio, token stores, packed rows,
Hugging Face datasets, dicts, arrays and texts are understood as they are.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from lading.errors import ConfigError, LadingError
from lading.runtime.arrays import host
from lading.runtime.loaded import is_a
from lading.runtime.shown import found as found_text
from lading.source.protocol import InFiles

LONGEST_LINE = 160
MOST_TEXT = 20_000
MOST_BYTES = 4 << 20
_TEXT_KEYS = ("text", "content", "prompt", "question", "instruction", "sentence", "title", "source", "caption")
_LABEL_KEYS = ("label", "labels", "class", "target", "y", "fine_label", "category")
_MEDIA = (
    (b"\x89PNG\r\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"BM", "image/bmp"),
    (b"fLaC", "audio/flac"),
    (b"OggS", "audio/ogg"),
    (b"ID3", "audio/mpeg"),
    (b"\xff\xfb", "audio/mpeg"),
)

Look = dict[str, Any]


class SourceLooks:
    """Describes the samples of some sources.

    Args:
        sources: A dict of datasets by name, or one dataset.
        what: What named them, for errors.
    """

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


def _guarded(look: Any) -> Look | None:
    try:
        found: Look | None = look()
        return found
    except LadingError:
        raise
    except Exception as error:  # it is the user's code and data: a page says what happened
        return {"kind": "text", "media_type": "text/plain", "text": f"cannot be read: {type(error).__name__}: {error}"}


def described(source: Any, index: int) -> Look:
    """Return a line about a sample of a source: ``text``, and where they are known ``label`` and ``file``."""
    own = getattr(source, "describe", None)
    if callable(own) and not _is_hugging_face(source):
        return _checked_description(own(index), type(source).__name__)
    if _is_tokens(source):
        return _described_tokens(source, index)
    file, label = _file_and_label(source, index)
    if file:
        return {"text": os.path.basename(file), "label": label, "file": file}
    return _described_value(_raw(source, index), source)


def previewed(source: Any, index: int) -> Look | None:
    """Return a preview of a sample: ``kind``, ``media_type``, and ``text`` or ``data``."""
    own = getattr(source, "preview", None)
    if callable(own):
        return _checked_preview(own(index), type(source).__name__)
    if _is_tokens(source):
        return _text(_tokens_text(source, index))
    file, _ = _file_and_label(source, index)
    if file:
        return _preview_of_file(file)
    return _preview_of_value(_raw(source, index))


def _checked_description(value: Any, who: str) -> Look:
    if isinstance(value, str):
        return {"text": _line(value)}
    if isinstance(value, Mapping) and isinstance(value.get("text", value.get("file")), str):
        text = value.get("text") or os.path.basename(value["file"])
        return {"text": _line(text), "label": _known(value.get("label")), "file": _known(value.get("file"))}
    raise ConfigError(
        f"{who}.describe returned {found_text(value)}: expected a text, or a dict with text, label and file."
    )


def _known(value: Any) -> str | None:
    return None if value is None else str(value)


def _checked_preview(value: Any, who: str) -> Look | None:
    if value is None or isinstance(value, str | bytes | bytearray | np.ndarray):
        return None if value is None else _preview_of_value(value)
    if isinstance(value, Mapping) and value.get("kind") in ("text", "image", "sound"):
        if isinstance(value.get("text"), str):
            return _text(value["text"])
        if isinstance(value.get("data"), bytes | bytearray):
            return _media(bytes(value["data"]))
    raise ConfigError(
        f"{who}.preview returned {found_text(value)}: expected a text, the bytes of a picture or a sound, or a dict "
        "with kind (text, image, sound) and text or data."
    )


def _is_tokens(source: Any) -> bool:
    return hasattr(source, "eod_token_id") and (hasattr(source, "offsets") or hasattr(source, "rows_of_document"))


def _described_tokens(source: Any, index: int) -> Look:
    if hasattr(source, "rows_of_document"):  # packed rows
        pieces = source.index.pieces(index)
        documents = ", ".join(str(piece.document) for piece in pieces[:4]) + (" …" if len(pieces) > 4 else "")
        label = f"document{'s' * (len(pieces) != 1)} {documents}"
    else:
        label = f"{len(source[index])} tokens"
    return {"text": _line(_tokens_text(source, index, LONGEST_LINE * 4)), "label": label, "file": None}


def _tokens_text(source: Any, index: int, most: int = MOST_TEXT) -> str:
    packed = hasattr(source, "rows_of_document")
    ids = np.asarray(source[index]["inputs"] if packed else source[index])[:most]
    store = getattr(source, "tokens", source) if packed else source
    if getattr(store, "tokenizer", "") == "byte":
        return bytes(ids[ids < 256].astype(np.uint8)).decode(errors="replace")
    return " ".join(map(str, ids[: most // 4].tolist()))


def _file_and_label(source: Any, index: int) -> tuple[str, str | None]:
    """Return the file of a sample, and its label: of ``file_of``, or of torchvision's folders."""
    if isinstance(source, InFiles):
        return str(source.file_of(index) or ""), None
    for name in ("samples", "imgs"):
        listed = getattr(source, name, None)
        if isinstance(listed, list | tuple) and index < len(listed):
            entry = listed[index]
            if isinstance(entry, list | tuple) and len(entry) == 2 and isinstance(entry[0], str | os.PathLike):
                classes = getattr(source, "classes", None)
                named = isinstance(entry[1], int) and isinstance(classes, list | tuple) and entry[1] < len(classes)
                return os.fspath(entry[0]), str(classes[entry[1]] if named and classes else entry[1])
    for name in ("files", "paths"):
        listed = getattr(source, name, None)
        if isinstance(listed, list | tuple) and index < len(listed) and isinstance(listed[index], str | os.PathLike):
            return os.fspath(listed[index]), None
    return "", None


def _is_hugging_face(source: Any) -> bool:
    return is_a(source, "datasets:Dataset")


def _raw(source: Any, index: int) -> Any:
    """Return a sample; pictures and sounds of a Hugging Face dataset as the bytes they are stored as."""
    if not _is_hugging_face(source):
        return source[index]
    source = source.with_format(None)
    for name, feature in source.features.items():
        if is_a(feature, "datasets:Image", "datasets:Audio"):
            source = source.cast_column(name, type(feature)(decode=False))
    row = source[index]
    for name, feature in source.features.items():
        if is_a(feature, "datasets:ClassLabel") and isinstance(row.get(name), int) and row[name] >= 0:
            row[name] = feature.int2str(row[name])
    return row


def _described_value(value: Any, source: Any) -> Look:
    if isinstance(value, str):
        return {"text": _line(value), "label": None, "file": None}
    if isinstance(value, Mapping):
        stored = next((v for v in value.values() if _stored(v) is not None), None)
        text = next((value[k] for k in _TEXT_KEYS if isinstance(value.get(k), str)), None)
        text = text or next((v for v in value.values() if isinstance(v, str) and len(v) > 20), None)
        label = next((value[k] for k in _LABEL_KEYS if isinstance(value.get(k), str | int)), None)
        file = stored.get("path") if stored is not None else None
        line = text or (os.path.basename(file) if file else None) or _fields(value)
        return {"text": _line(line), "label": _known(label), "file": _known(file)}
    if isinstance(value, list | tuple) and value and not isinstance(value[0], int | float):
        label = value[1] if len(value) == 2 and isinstance(value[1], str | int) else None
        first = _described_value(value[0], source)
        rest = [_short(v) for v in value[1:]] if label is None else []
        return {**first, "text": _line("; ".join([first["text"], *rest])), "label": _known(label) or first["label"]}
    return {"text": _line(_short(value)), "label": None, "file": None}


def _fields(value: Mapping[Any, Any]) -> str:
    return ", ".join(f"{key} {_short(item)}" for key, item in value.items())


def _short(value: Any) -> str:
    """Return a value in a few words: of an array its type, shape and first numbers."""
    if isinstance(value, str | int | float | bool) or value is None:
        return str(value)
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    array = _array(value)
    if array is None:
        return str(value)
    first = ", ".join(f"{v:.4g}" if isinstance(v, float) else str(v) for v in array.reshape(-1)[:6].tolist())
    more = " …" if array.size > 6 else ""
    return f"{array.dtype}{list(array.shape)} {first}{more}" if array.ndim else first


def _array(value: Any) -> np.ndarray[Any, Any] | None:
    if isinstance(value, np.ndarray) or hasattr(value, "__array__") or hasattr(value, "numpy"):
        try:
            return host(value)
        except (TypeError, ValueError, RuntimeError):
            return None
    return None


def _stored(value: Any) -> Mapping[str, Any] | None:
    """Return a picture or sound as Hugging Face stores it, or None."""
    known = isinstance(value, Mapping) and {"bytes", "path"} <= set(value)
    return value if known else None


def _preview_of_value(value: Any) -> Look | None:
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, bytes | bytearray):
        return _media(bytes(value))
    if isinstance(value, Mapping):
        if (stored := _stored(value)) is not None:
            return _media(stored["bytes"]) if stored["bytes"] else _preview_of_file(str(stored["path"]))
        inner = [v for v in value.values() if _stored(v) is not None or _is_picture(v)]
        return _preview_of_value(inner[0]) if inner else _text("\n".join(f"{k}: {_long(v)}" for k, v in value.items()))
    if isinstance(value, list | tuple) and value and _is_picture(value[0]):
        return _preview_of_value(value[0])
    array = _array(value)
    if array is not None and _is_picture(array):
        return {"kind": "image", "media_type": "image/png", "data": _png(array)}
    return _text(_long(value))


def _long(value: Any) -> str:
    if isinstance(value, list | tuple):
        return "; ".join(map(_long, value[:64]))
    return value[:MOST_TEXT] if isinstance(value, str) else _short(value)


def _is_picture(value: Any) -> bool:
    array = _array(value)
    if array is None or array.dtype != np.uint8 or array.ndim not in (2, 3) or min(array.shape[:2], default=0) < 1:
        return False
    if array.ndim == 2:
        return bool(8 <= min(array.shape) <= max(array.shape) <= 4096)
    return bool({array.shape[0], array.shape[2]} & {1, 3, 4}) and max(array.shape) <= 4096


def _png(array: np.ndarray[Any, Any]) -> bytes:
    """Return a picture of bytes as PNG."""
    if array.ndim == 3 and array.shape[2] not in (1, 3, 4):
        array = np.moveaxis(array, 0, 2)
    pixels = array.reshape(*array.shape[:2], -1)
    height, width, channels = pixels.shape
    rows = np.concatenate([np.zeros((height, 1), np.uint8), pixels.reshape(height, -1)], axis=1)
    colour = {1: 0, 3: 2, 4: 6}[channels]
    header = struct.pack(">IIBBBBB", width, height, 8, colour, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes())), (b"IEND", b"")]
    body = b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in chunks
    )
    return b"\x89PNG\r\n\x1a\n" + body


def _preview_of_file(file: str) -> Look:
    size = os.path.getsize(file)
    with open(file, "rb") as opened:
        head = opened.read(MOST_BYTES if size <= MOST_BYTES else 16)
    if size > MOST_BYTES and _media_type(head) is not None:
        return _text(f"{os.path.basename(file)}: {size / 1e6:.0f} MB, too large to show here")
    return _media(head if size <= MOST_BYTES else _beginning(file))


def _beginning(file: str) -> bytes:
    with open(file, "rb") as opened:
        return opened.read(MOST_TEXT)


def _media(data: bytes) -> Look:
    kind = _media_type(data)
    if kind is not None and len(data) <= MOST_BYTES:
        return {"kind": "image" if kind.startswith("image") else "sound", "media_type": kind, "data": data}
    try:
        return _text(data[:MOST_TEXT].decode("utf-8"))
    except UnicodeDecodeError:
        return _text(f"{len(data)} bytes: {data[:64].hex(' ')}")


def _media_type(data: bytes) -> str | None:
    if data[:4] == b"RIFF":
        return {b"WEBP": "image/webp", b"WAVE": "audio/wav"}.get(data[8:12])
    return next((kind for magic, kind in _MEDIA if data.startswith(magic)), None)


def _text(text: str) -> Look:
    more = "\n…" if len(text) > MOST_TEXT else ""
    return {"kind": "text", "media_type": "text/plain", "text": text[:MOST_TEXT] + more}


def _line(text: str) -> str:
    line = " ".join(text[: 4 * LONGEST_LINE].split())
    return line if len(line) <= LONGEST_LINE else line[: LONGEST_LINE - 1] + "…"
