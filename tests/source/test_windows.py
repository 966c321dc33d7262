"""Windows of a stream: nanoGPT's train.bin."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from tests.documentation import blocks

from lading.errors import SourceError
from lading.kits.formats.convert import StreamDocuments, store_tokens
from lading.loader import NumpyLoader
from lading.source.windows import Windows
from lading.testing import SourceContract

TOKENS = np.random.default_rng(0).integers(0, 1000, 5000).astype(np.uint16)


class TestSideBySide(SourceContract):
    """As every source."""

    def make(self):
        """Windows of an array."""
        return Windows(TOKENS, 16)


class TestRandom(SourceContract):
    """As every source."""

    def make(self):
        """Windows anywhere."""
        return Windows(TOKENS, 16, at="random", num_samples=100)


def test_side_by_side_every_token_once():
    """Inputs of all windows are the stream; targets are one further."""
    windows = Windows(TOKENS, 16)
    inputs, targets = windows.take(np.arange(len(windows)))

    assert len(windows) == 312 and (inputs.ravel() == TOKENS[: 312 * 16]).all()
    assert (targets.ravel() == TOKENS[1 : 312 * 16 + 1]).all() and inputs.dtype == np.int64


def test_random_offsets_are_a_function_of_the_plan():
    """The same for any number of workers and after a resume; other in another epoch; anywhere in the stream."""

    def batches(state=None, count=None, **options):
        loader = NumpyLoader(Windows(TOKENS, 16, at="random", num_samples=96), batch_size=8, seed=5, **options)
        if state is not None:
            loader.load_state_dict(state)
        found = []
        for _ in range(2):
            for batch in loader:
                found.append(np.asarray(batch[0]).copy())
                if len(found) == count:
                    return found, loader.state_dict()
        return found, None

    whole, _ = batches()
    head, state = batches(count=7)
    rest, _ = batches(state=state, num_workers=2)

    assert np.array_equal(np.stack(whole[:7]), np.stack(head)) and np.array_equal(
        np.stack(whole[7:24]), np.stack(rest[:17])
    )
    first = [np.stack(whole[:12]).reshape(-1, 16), np.stack(whole[12:]).reshape(-1, 16)]
    assert not np.array_equal(np.sort(first[0], axis=0), np.sort(first[1], axis=0))
    starts = Windows(TOKENS, 16, at="random").starts(
        np.arange(4000), np.random.default_rng(1).integers(0, 1 << 63, 4000, dtype=np.uint64) * np.uint64(2)
    )
    assert starts.min() < 50 and starts.max() > 4930 and starts.max() < 5000 - 16


def test_a_file_travels_by_its_name(tmp_path):
    """By name or as a memory map: mapped again in a worker, the same fingerprint; a copy is the same data."""
    TOKENS.tofile(tmp_path / "train.bin")
    TOKENS.tofile(tmp_path / "copy.bin")
    named = Windows(tmp_path / "train.bin", 16)
    mapped = Windows(np.memmap(tmp_path / "train.bin", np.uint16, "r"), 16)

    assert named.fingerprint() == mapped.fingerprint() == Windows(tmp_path / "copy.bin", 16).fingerprint()
    assert len(pickle.dumps(mapped)) < 1000 and (pickle.loads(pickle.dumps(mapped)).tokens == TOKENS).all()
    changed = TOKENS.copy()
    changed[0] += 1
    changed.tofile(tmp_path / "copy.bin")
    assert named.fingerprint() != Windows(tmp_path / "copy.bin", 16).fingerprint()
    assert named.file_of(3) == str(tmp_path / "train.bin")


def test_wrong_use_is_refused(tmp_path):
    """Too few tokens, another type, a number of windows where the tokens say it."""
    (tmp_path / "odd.bin").write_bytes(b"abc")
    for make, message in [
        (lambda: Windows(TOKENS[:16], 16), "there are 16 tokens, and a window of 16 needs 17"),
        (lambda: Windows(tmp_path / "odd.bin", 1), "has 3 bytes, which are no uint16"),
        (lambda: Windows(tmp_path / "none.bin", 1), "is no file"),
        (lambda: Windows(TOKENS, 16, num_samples=3), "num_samples is for at='random'"),
        (lambda: Windows(TOKENS, 16, at="anywhere"), "expected one of 'side by side', 'random'"),
        (lambda: Windows(TOKENS, 0), "expected integers from 1"),
        (lambda: Windows(TOKENS.astype(float), 16), "expected a sequence of integers"),
    ]:
        with pytest.raises(SourceError, match=message):
            make()


def test_a_stream_becomes_a_store(tmp_path):
    """Documents end at the end-of-text token, which is left out."""
    stream = np.array([5, 6, 999, 999, 7, 999, 8], np.uint16)
    stream.tofile(tmp_path / "train.bin")

    documents = StreamDocuments(tmp_path / "train.bin", eod_token_id=999)
    store = store_tokens(documents, tmp_path / "out", vocab_size=1000, eod_token_id=999)

    assert [store[d].tolist() for d in range(len(store))] == [[5, 6], [], [7], [8]]
    with pytest.raises(SourceError, match=r"has the ids 0 to 999, and 1000 is to end documents"):
        store_tokens(documents, tmp_path / "more", vocab_size=1000, eod_token_id=1000)
    with pytest.raises(SourceError, match=r"train\.bin/out cannot be made \(.*: Not a directory\)"):
        store_tokens(documents, tmp_path / "train.bin" / "out", vocab_size=1000, eod_token_id=999)


GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "from-nanogpt.md"


@pytest.fixture
def script(tmp_path):
    """The guide's own script after the change, with its data."""
    shown = {block.title: block.text for block in blocks(GUIDE)}
    (tmp_path / "train.py").write_text(shown["after.py"])
    TOKENS.tofile(tmp_path / "train.bin")
    return tmp_path


def _train(folder: Path, **environment: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "train.py"], cwd=folder, env={**os.environ, **environment})


@pytest.mark.launch
@pytest.mark.slow
def test_a_killed_nanogpt_script_resumes_bit_for_bit(script, tmp_path_factory):
    """kill -9 after a checkpoint, started again: the same weights as one that was never killed."""
    import torch

    whole = tmp_path_factory.mktemp("whole")
    for name in ("train.py", "train.bin"):
        (whole / name).write_bytes((script / name).read_bytes())
    assert _train(whole).wait(timeout=600) == 0
    process = _train(script, STEP_SECONDS="0.05")
    until = time.monotonic() + 600
    while not (script / "ckpt.pt").exists() and time.monotonic() < until:
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert not (script / "final.pt").exists()
    assert _train(script).wait(timeout=600) == 0

    one, other = (torch.load(folder / "final.pt", weights_only=True) for folder in (whole, script))
    assert all(torch.equal(one[name], other[name]) for name in one) and set(one) == set(other)


def test_the_nanogpt_script_stopped_and_resumed_has_the_same_weights(script, monkeypatch):
    """The small twin, in this process: stopped after its checkpoint, started again."""
    import torch

    source = (script / "train.py").read_text()
    monkeypatch.chdir(script)

    def run(stop=None):
        names = {"__name__": "train"}
        code = (
            source
            if stop is None
            else source.replace("max_iters = 60", f"max_iters = 60; stop = {stop}").replace(
                "    # end of step", "    if step + 1 == stop: raise KeyboardInterrupt"
            )
        )
        exec(compile(code, "train.py", "exec"), names)

    run()
    whole = torch.load("final.pt", weights_only=True)
    for name in ("final.pt", "ckpt.pt"):
        (script / name).unlink()
    with pytest.raises(KeyboardInterrupt):
        run(stop=33)
    run()

    again = torch.load("final.pt", weights_only=True)
    assert all(torch.equal(whole[name], again[name]) for name in whole)


def test_the_guide_changes_five_lines():
    """The diff of the page turns its script before into its script after; five lines are new."""
    import difflib

    shown = {block.title: block.text for block in blocks(GUIDE)}
    before, after = shown["before.py"].splitlines(), shown["after.py"].splitlines()
    diff = [line for line in difflib.unified_diff(before, after, lineterm="", n=0) if line[:3] not in ("---", "+++")]
    printed = next(block.text for block in blocks(GUIDE) if block.language == "diff").splitlines()

    assert [line for line in diff if line[0] == "+"] == [line for line in printed if line[0] == "+"]
    assert [line for line in diff if line[0] == "-"] == [line for line in printed if line[0] == "-"]
    assert len([line for line in diff if line[0] == "+"]) <= 5
