"""How samples look: of every kind of source, and when something is wrong with one."""

from __future__ import annotations

import io
import struct
import sys
import wave
import zlib

import numpy as np
import pytest
import torch

from lading import Columns, PackedRows, TokenStore, Windows, build_tokens
from lading.errors import ConfigError
from lading.source.looks import SourceLooks, described, previewed


def png() -> bytes:
    """A picture of one pixel."""
    chunk = lambda n, d: struct.pack(">I", len(d)) + n + d + struct.pack(">I", zlib.crc32(n + d))  # noqa: E731
    head = struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"\0\7")) + chunk(b"IEND", b"")


class Folder:
    """A folder of pictures, as torchvision has it."""

    classes = ("cat", "dog")

    def __init__(self, path):
        self.samples = [(str(path / "a.png"), 0), (str(path / "b.png"), 1)]
        for file, _ in self.samples:
            with open(file, "wb") as opened:
                opened.write(png())

    def __len__(self):
        return 2

    def __getitem__(self, index):
        raise AssertionError("a picture need not be decoded to be shown")


def test_pictures_of_a_folder(tmp_path):
    """File, label, and the bytes on disk, not decoded."""
    source = Folder(tmp_path)

    assert described(source, 1) == {"text": "b.png", "label": "dog", "file": str(tmp_path / "b.png")}
    look = previewed(source, 1)
    assert (look["kind"], look["media_type"], look["data"]) == ("image", "image/png", png())


def test_arrays_that_are_pictures(tmp_path):
    """Bytes of height, width and channels in either order become a PNG that a decoder reads."""
    image = pytest.importorskip("PIL.Image")
    pixels = np.arange(16 * 12 * 3, dtype=np.uint8).reshape(16, 12, 3)
    for value in (pixels, torch.from_numpy(pixels).permute(2, 0, 1), pixels[:, :, 0]):
        look = previewed([{"image": value, "label": 3}], 0)
        shown = np.asarray(image.open(io.BytesIO(look["data"])))
        assert np.array_equal(shown, pixels if shown.ndim == 3 else pixels[:, :, 0])
    assert described(Columns(x=np.arange(6.0).reshape(3, 2), y=np.array([7, 8, 9])), 1)["text"] == (
        "x float64[2] 2, 3, y 8"
    )


def test_pictures_inside_a_row_are_found():
    """Pillow's own pictures, and files kept as bytes; what is too large for a page is made smaller."""
    image = pytest.importorskip("PIL.Image")

    assert previewed([{"label": 3, "jpg": png()}], 0)["data"] == png()
    assert previewed([(image.new("P", (9, 9)), 3)], 0)["media_type"] == "image/png"
    assert image.open(io.BytesIO(previewed([image.new("L", (5000, 50))], 0)["data"])).size == (1024, 10)


@pytest.mark.parametrize(("missing", "data"), [("PIL", png()), ("soundfile", b"RIFF")])
def test_without_the_package_that_knows_them_media_are_text(monkeypatch, missing, data):
    """Nothing is guessed, and nothing fails."""
    monkeypatch.setitem(sys.modules, missing, None)
    monkeypatch.delitem(sys.modules, "lading.source.soundfile", raising=False)

    assert previewed([data], 0)["kind"] == "text"
    assert previewed([np.zeros((16, 12, 3), np.uint8)], 0)["kind"] == ("text" if missing == "PIL" else "image")


def test_a_file_that_holds_many_samples_is_not_shown_as_one(tmp_path):
    """Its name is; the content is the sample's."""
    np.arange(100, dtype=np.uint16).tofile(tmp_path / "train.bin")
    source = Windows(tmp_path / "train.bin", 8, dtype=np.uint16)

    assert described(source, 1)["file"] == str(tmp_path / "train.bin")
    assert "9, 10, 11" in previewed(source, 1)["text"]


def test_sound_on_disk(tmp_path):
    """A WAV file plays in the browser."""
    pytest.importorskip("soundfile")
    from lading import QuantizedAudioDataset

    with wave.open(str(tmp_path / "a.wav"), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(8000)
        file.writeframes(np.arange(0, 8000, dtype=np.int16).tobytes())
    source = QuantizedAudioDataset(tmp_path, sample_len=1000)

    assert described(source, 0)["text"] == "a.wav"
    assert previewed(source, 0)["media_type"] == "audio/wav"


def test_tokens_and_packed_rows(tmp_path):
    """The text where the tokenizer is bytes; which documents a row holds."""
    for number, text in enumerate(["hello world", "second document", "third"]):
        (tmp_path / f"{number}.txt").write_text(text)
    build_tokens(sorted(tmp_path.glob("*.txt")), tmp_path / "corpus")
    store = TokenStore(tmp_path / "corpus")
    rows = PackedRows(store, 32)

    assert described(store, 1) == {"text": "second document", "label": "15 tokens", "file": None}
    assert previewed(store, 0)["text"] == "hello world"
    assert described(rows, 0)["label"].startswith("document") and "hello world" in described(rows, 0)["text"]


def test_hugging_face_rows():
    """Text and the name of the label; pictures as the bytes they are stored as."""
    datasets = pytest.importorskip("datasets")
    label = datasets.ClassLabel(names=["bad", "good"])
    texts = datasets.Dataset.from_dict(
        {"text": ["fine film", "dull"], "label": [1, 0]},
        features=datasets.Features({"text": datasets.Value("string"), "label": label}),
    )
    pictures = datasets.Dataset.from_dict(
        {"image": [{"bytes": png(), "path": "x.png"}]}, features=datasets.Features({"image": datasets.Image()})
    )

    assert described(texts, 0) == {"text": "text fine film, label good", "label": None, "file": None}
    assert described(texts.with_format("torch"), 1)["text"] == "text dull, label bad"
    assert previewed(texts, 1)["text"] == "text: dull\nlabel: bad"
    assert previewed(pictures, 0)["data"] == png()
    assert described(pictures, 0)["text"] == "image x.png"


def test_a_source_of_ones_own_says_it_itself():
    """describe and preview win over everything else; other answers are refused with what is expected."""

    class Own:
        def __init__(self, line, preview):
            self.line, self.shown = line, preview

        def __getitem__(self, index):
            raise AssertionError

        def describe(self, index):
            return self.line

        def preview(self, index):
            return self.shown

    looks = SourceLooks({"a": Own("one\nline", "a text"), "b": Own({"text": "t", "label": 3, "file": "f"}, png())})
    assert looks.describe("a", 0) == {"text": "one line"}
    assert looks.describe("b", 0) == {"text": "t", "label": "3", "file": "f"}
    assert looks.line("b", 0) == "t 3 f"
    assert looks.preview("a", 0)["text"] == "a text" and looks.preview("b", 0)["kind"] == "image"
    with pytest.raises(ConfigError, match=r"Own.describe returned 3: expected a text, or a dict"):
        SourceLooks(Own(3, None)).describe("a", 0)
    with pytest.raises(ConfigError, match=r"Own.preview returned 3: expected a text, the bytes"):
        SourceLooks(Own("x", 3)).preview("a", 0)


def test_what_cannot_be_read_says_why():
    """A page is not broken by a sample that is."""

    class Broken:
        def __getitem__(self, index):
            raise OSError("disk on fire")

    assert SourceLooks(Broken()).describe("a", 0)["text"] == "cannot be read: OSError: disk on fire"
    assert SourceLooks(["x"]).describe("a", 7)["text"].startswith("cannot be read: IndexError")


@pytest.mark.parametrize(("given", "found"), [(3, "int"), ({}, "empty dict"), ({"a": 3}, "int")])
def test_decode_says_what_it_expects(given, found):
    """Where it gets something else."""
    with pytest.raises(ConfigError, match=f"is a {found}: expected a dict of datasets by name, one dataset"):
        SourceLooks(given, "--decode 'x:y'")


def test_a_name_that_is_not_there_is_named():
    """With those that are."""
    with pytest.raises(ConfigError, match="has no dataset 'c': it has 'a', 'b'"):
        SourceLooks({"a": ["x"], "b": ["y"]}).describe("c", 0)


@pytest.mark.parametrize(
    "data", [b"<svg onload=alert(1)>", b"<html><script>1</script>", b"BM, a text", b"\xff\xfe\0binary"]
)
def test_only_pictures_and_sounds_become_media(data):
    """What could run in a browser is text."""
    assert previewed([data], 0)["kind"] == "text"
