"""The same bytes from every executor, any number of workers, and a build that was killed."""

from __future__ import annotations

import errno
import gzip
import hashlib
import json
import os
import random
import signal
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.crash_points import crash_points

from lading.errors import SourceError
from lading.runtime.blocks import run as blocks
from lading.runtime.blocks.run import Task
from lading.runtime.processes import is_running
from lading.source.tokens import block as tokens_block, inputs as tokens_inputs
from lading.source.tokens.build import JoinedElsewhere, build_task, build_tokens, join_tokens, missing_blocks, token_job
from lading.source.tokens.store import TokenStore
from lading.source.tokens.tokenizer import ByteTokenizer

zstandard = pytest.importorskip("zstandard")


def digests(folder):
    """SHA-256 of every file of a store."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


@pytest.fixture
def corpus(tmp_path, monkeypatch):
    """Files of every kind, cut into blocks of 2 kB; what they hold in order."""
    monkeypatch.setattr(tokens_inputs, "_LEAST_BLOCK", 2048)
    monkeypatch.setattr(blocks, "start_method", lambda: "fork")  # whatever else is loaded
    draw = random.Random(1)
    texts = ["".join(draw.choices("abc déf ☃ ", k=draw.randrange(1, 400))).strip() or "x" for _ in range(120)]
    folder = tmp_path / "corpus"
    folder.mkdir()
    lines = [json.dumps({"text": text, "id": f"é{n}"}, ensure_ascii=False) for n, text in enumerate(texts)]
    (folder / "a.jsonl").write_text("\n".join(lines[:40]) + "\n")
    (folder / "b.jsonl.gz").write_bytes(gzip.compress("\n".join(lines[40:60]).encode()))
    frames = ["\n".join(lines[60:70]) + "\n", "\n".join(lines[70:80])]
    (folder / "c.jsonl.zst").write_bytes(b"".join(zstandard.compress(frame.encode()) for frame in frames))
    pq.write_table(pa.table({"text": texts[80:]}), folder / "d.parquet", row_group_size=7)
    return folder, texts


def test_every_way_gives_the_same_bytes(corpus, tmp_path):
    """1 and 3 workers, 4 tasks in any order, each file of the store."""
    folder, texts = corpus
    pattern = str(folder / "*")

    one = build_tokens(pattern, tmp_path / "one")
    build_tokens(pattern, tmp_path / "three", workers=3)
    job = token_job(pattern, tmp_path / "tasks")
    joined = [build_task(job, Task(i, 4)) for i in (2, 0, 3, 1)]

    assert [ByteTokenizer().decode(one[d]) for d in range(len(one))] == texts
    assert len(job.blocks) > 8 and [store is None for store in joined] == [True, True, True, False]
    assert digests(tmp_path / "one") == digests(tmp_path / "three") == digests(tmp_path / "tasks")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["corpus", "one", "tasks", "three"]


def test_a_killed_build_resumes(corpus, tmp_path):
    """kill -9 before every seventh disk call: what was finished is kept, the result is the same bytes."""
    folder, _ = corpus
    files = str(folder / "a*")
    build_tokens(files, tmp_path / "whole")
    out, kept = tmp_path / "out", []

    for _ in crash_points(lambda: build_tokens(files, out, overwrite=True), tmp_path, every=7):
        job = token_job(files, out)
        kept.append(len(job.blocks) - len(missing_blocks(job)))
        build_tokens(files, out, overwrite=True)
        assert digests(out) == digests(tmp_path / "whole")
        assert sorted(p.name for p in tmp_path.iterdir()) == ["corpus", "out", "whole"]
    assert max(kept) >= 4


def test_workers_killed_in_the_middle(corpus, tmp_path):
    """A process group that dies leaves parts; the next build uses them and ends with the same bytes."""
    folder, _ = corpus
    build_tokens(str(folder / "*"), tmp_path / "whole")
    out = tmp_path / "out"
    child = os.fork()
    if child == 0:
        try:
            build_tokens(str(folder / "*"), out, workers=2, progress=lambda share, text: time.sleep(60 * (share > 0.3)))
        finally:
            os._exit(1)
    parts = tmp_path / "out.parts"
    while is_running(child) and (not parts.exists() or len(list(parts.glob("*.json"))) < 4):
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert not out.exists()
    times = {path: path.stat().st_mtime_ns for path in parts.glob("*.json")}
    job = token_job(str(folder / "*"), out)
    assert build_task(job, Task(0, 1000)) is None  # one block; it was there
    assert all(path.stat().st_mtime_ns == at for path, at in times.items())

    build_tokens(str(folder / "*"), out, workers=2)

    assert digests(out) == digests(tmp_path / "whole") and not parts.exists()


def test_a_damaged_part_is_made_again(corpus, tmp_path):
    """Its digest says so: on resuming it is made anew, on joining it is refused."""
    folder, _ = corpus
    job = token_job(str(folder / "*"), tmp_path / "out")
    assert build_task(job, Task(0, 2)) is None
    content = bytearray(job.data(0).read_bytes())
    content[3] ^= 1
    job.data(0).write_bytes(content)

    build_tokens(str(folder / "*"), tmp_path / "out")
    build_tokens(str(folder / "*"), tmp_path / "whole")
    assert digests(tmp_path / "out") == digests(tmp_path / "whole")

    again = token_job(str(folder / "*"), tmp_path / "again")
    for number in range(len(again.blocks) - 1):
        assert build_task(again, Task(number, len(again.blocks))) is None
    again.data(1).write_bytes(bytes(len(again.data(1).read_bytes())))
    with pytest.raises(SourceError, match=r"000001\.bin is not what was written: its digest is wrong"):
        build_task(again, Task(len(again.blocks) - 1, len(again.blocks)))
    assert build_task(again, Task(1, len(again.blocks))) is not None


def test_blocks_of_changed_files_are_made_again(corpus, tmp_path):
    """A file that was corrected changes its own blocks; the others are kept."""
    folder, _ = corpus
    (folder / "z.jsonl").write_text('{"text": "fine"}\n{"tex')
    with pytest.raises(SourceError, match=r"z\.jsonl, line 2 is no JSON"):
        build_tokens(str(folder / "*"), tmp_path / "out")
    (folder / "z.jsonl").write_text('{"text": "fine"}\n')
    job = token_job(str(folder / "*"), tmp_path / "out")

    assert len(missing_blocks(job)) < len(job.blocks) / 2
    with pytest.raises(SourceError, match=r"lacks \d+ of \d+ blocks .* \(block b belongs to task b mod N\)"):
        join_tokens(job)
    store = build_tokens(str(folder / "*"), tmp_path / "out")
    assert ByteTokenizer().decode(store[len(store) - 1]) == "fine"


def test_joining_happens_once(corpus, tmp_path):
    """While one process joins, another is told so; afterwards the parts are gone."""
    folder, _ = corpus
    job = token_job(str(folder / "*"), tmp_path / "out")
    assert build_task(job, Task(0, 1)) is not None

    with pytest.raises(JoinedElsewhere, match="another process joined the parts, or nothing was built"):
        join_tokens(job, overwrite=True)
    assert len(TokenStore(tmp_path / "out")) == 120


def test_a_disk_that_refuses_is_named(corpus, tmp_path, monkeypatch):
    """A place that cannot be made; a disk that is full in the middle, which costs no finished block."""
    folder, _ = corpus
    (tmp_path / "file").write_text("")
    with pytest.raises(SourceError, match=r"file/out cannot be made \(.*file/out\.parts: Not a directory\)"):
        build_tokens(str(folder / "*"), tmp_path / "file" / "out")

    refused = {3}

    def full(job, number, write=tokens_block._write_part):
        if number in refused:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(job, number)

    monkeypatch.setattr(tokens_block, "_write_part", full)
    with pytest.raises(SourceError, match=r"No space left on device.*blocks are kept"):
        build_tokens(str(folder / "*"), tmp_path / "out")
    refused.clear()
    job = token_job(str(folder / "*"), tmp_path / "out")
    assert missing_blocks(job)[0] == 3
    assert len(build_tokens(str(folder / "*"), tmp_path / "out")) == 120


def test_progress_says_what_is_done(corpus, tmp_path):
    """From nothing to all blocks, then joining, which is long where the store is large."""
    folder, _ = corpus
    told: list[tuple[float, str]] = []

    build_tokens(str(folder / "*"), tmp_path / "out", progress=lambda share, text: told.append((share, text)))

    blocks = len(token_job(str(folder / "*"), tmp_path / "out").blocks)
    assert told[0] == (0.0, f"0 of {blocks} blocks") and len(told) == 2 * blocks + 1
    assert told[blocks][0] == told[-1][0] == 1.0
    assert told[blocks + 1][1].startswith(f"joining 1 of {blocks} blocks, ")


@pytest.mark.slow
@pytest.mark.launch
def test_ray_gives_the_same_bytes(corpus, tmp_path, monkeypatch):
    """Two Ray workers, each block its own part."""
    pytest.importorskip("ray")
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    folder, _ = corpus
    build_tokens(str(folder / "*"), tmp_path / "local", id="id")

    build_tokens(str(folder / "*"), tmp_path / "ray", id="id", workers=2, on="ray")

    assert digests(tmp_path / "ray") == digests(tmp_path / "local")
