"""Compressed inputs, patterns, and what is missing or damaged."""

from __future__ import annotations

import gzip
import random
import subprocess
import sys

import pytest

from lading.errors import ConfigError, MissingExtraError, SourceError
from lading.source.tokens.build import build_tokens
from lading.source.tokens.inputs import cut_blocks, find_inputs
from lading.source.tokens.read import read_documents

zstandard = pytest.importorskip("zstandard")


@pytest.mark.parametrize(("suffix", "pack"), [(".gz", gzip.compress), (".zst", zstandard.compress)])
def test_damaged_archives_are_named(tmp_path, suffix, pack):
    """One that is cut off is an error, never a shorter corpus."""
    whole = pack(b'{"text": "some words"}\n' * 5000)
    path = tmp_path / f"a.jsonl{suffix}"

    for content in (whole[: len(whole) // 2], whole[:20] + b"\0\0\0\0" + whole[24:], b"something else altogether"):
        path.write_bytes(content)
        with pytest.raises(SourceError, match=rf"a\.jsonl\{suffix}.*(cannot be unpacked|is no JSON)"):
            build_tokens(path, tmp_path / "out")
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
    path.write_bytes(whole + whole)  # several members follow each other
    assert len(build_tokens(path, tmp_path / "out")) == 10_000


@pytest.mark.parametrize("split", ["line", "paragraph"])
def test_text_is_cut_where_documents_start(tmp_path, split):
    """Pieces of any size give the same documents; blank lines of every kind included."""
    draw = random.Random(2)
    ends = ["\n", "\n\n", "\r\n", "\r\n\r\n", "\n \t\n", "\n\u2003\n", "\r", "\n\n\n"]
    text = "".join("".join(draw.choices("ab é", k=draw.randrange(0, 60))) + draw.choice(ends) for _ in range(100))
    (tmp_path / "a.txt").write_bytes(text.encode())
    files = find_inputs([tmp_path / "a.txt"])

    def documents(size):
        blocks = cut_blocks(files, split, size)
        return [d.content for b in blocks for d in read_documents(b.pieces, split=split)]

    whole = documents(1 << 20)
    assert len(whole) > 40 and all(documents(size) == whole for size in (1, 2, 7, 100, 999))


def test_without_zstandard_one_line_says_what_to_install(tmp_path, monkeypatch):
    """The file and the extra are named."""
    (tmp_path / "a.txt.zst").write_bytes(zstandard.compress(b"x"))
    monkeypatch.setitem(sys.modules, "zstandard", None)

    with pytest.raises(MissingExtraError, match=r"a\.txt\.zst needs zstandard, .*: pip install 'lading\[tokens\]'"):
        build_tokens(tmp_path / "a.txt.zst", tmp_path / "out")


def test_patterns_are_expanded_in_order(tmp_path):
    """Folders at any depth, sorted; a file twice, or no file, is refused."""
    (tmp_path / "deep" / "er").mkdir(parents=True)
    for name in ("b.txt", "deep/a.txt", "deep/er/c.txt"):
        (tmp_path / name).write_text(name)

    found = find_inputs([tmp_path / "deep" / "a.txt", str(tmp_path / "*.txt"), str(tmp_path / "deep" / "er" / "**")])

    assert [file.name.removeprefix(f"{tmp_path}/") for file in found] == ["deep/a.txt", "b.txt", "deep/er/c.txt"]
    with pytest.raises(ConfigError, match=r"b\.txt is given twice"):
        find_inputs([tmp_path / "b.txt", str(tmp_path / "*.txt")])
    with pytest.raises(ConfigError, match=r"no file matches .*\.jsonl"):
        find_inputs([str(tmp_path / "*.jsonl")])
    (tmp_path / "x.parquet.gz").write_bytes(b"")
    with pytest.raises(SourceError, match="is a compressed Parquet file"):
        find_inputs([tmp_path / "x.parquet.gz"])


FOOTERS = """
import struct, sys
from pathlib import Path
import pyarrow as pa, pyarrow.parquet as pq
from lading.errors import LadingError
from lading.source.tokens.inputs import FilePiece, find_inputs
from lading.source.tokens.read import read_documents

path = Path(sys.argv[1])
pq.write_table(pa.table({"text": ["one", "two", "", "x" * 30]}), path, row_group_size=2)
good = path.read_bytes()
size = struct.unpack("<i", good[-8:-4])[0]
for place in range(len(good) - 8 - size, len(good)):
    for bit in range(8):
        bad = bytearray(good)
        bad[place] ^= 1 << bit
        path.write_bytes(bad)
        try:
            list(read_documents([FilePiece(file, 0, file.size) for file in find_inputs([path])]))
        except LadingError:
            pass
"""


def test_no_flipped_bit_of_a_parquet_footer_ends_the_process(tmp_path):
    """pyarrow ends the process when it is asked where a column begins and the footer is hostile."""
    subprocess.run([sys.executable, "-c", FOOTERS, str(tmp_path / "a.parquet")], check=True, timeout=600)
