"""lading jasper build, info and validate: answers, exit codes and errors."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest
import torch
from tests.kits.jasper.jasper_directory import make_directory, put, table

from lading.cli import main
from lading.kits.jasper.dataset import JASPERSteeringDataset


@pytest.fixture
def lading(capsys):
    """Run the command; give exit code, output and errors."""

    def run(*arguments):
        with pytest.raises(SystemExit) as left:
            main(["jasper", *map(str, arguments)])
        captured = capsys.readouterr()
        return left.value.code or 0, captured.out, captured.err

    return run


@pytest.fixture
def pairs(tmp_path):
    """Texts about three things, as JSONL."""
    things = ["the sea and its fish", "stars and planets at night", "bread and how to bake it"]
    rows = [
        {
            "question": f"what about {things[i % 3]} number {i % 15}",
            "source": f"in chapter {i} we learn of {things[i % 3]}",
            "relevance": 0.5,
            "keywords": things[i % 3].split()[:2],
        }
        for i in range(60)
    ]
    file = tmp_path / "pairs.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def test_build_writes_a_directory_that_validates(lading, pairs, tmp_path):
    """From texts alone, with TF-IDF vectors; info tells what is in it."""
    made = tmp_path / "made"
    code, out, _ = lading("build", pairs, "--out", made, "--embed", "tfidf", "--dimensions", 8, "--clusters", 3,
                          "--hdf5", "--curriculum", "0.5,0.1,10", "--n-neg", 4, "--json")  # fmt: skip
    said = json.loads(out)

    assert code == 0
    assert (said["pairs"], said["clusters"], said["n_neg"], said["embedding_dim"]) == (60, 3, 4, 8)
    assert said["storage"] == ["pt", "hdf5"]
    assert said["steering"]["10"]["zero"] == 0.1
    code, out, _ = lading("validate", made)
    assert code == 0
    assert " ".join(out.split()).endswith("holds: every check passed")
    assert json.loads(lading("info", made, "--json")[1]) == said
    code, text, _ = lading("info", made)
    assert code == 0
    assert "train: 48" in text


def test_build_takes_files_of_vectors(lading, tmp_path):
    """Numbers in a CSV, .npy and .pt beside it."""
    file = tmp_path / "pairs.csv"
    file.write_text("question,source,relevance,keywords\n" + "\n".join(f"{i % 9},{i},1,[{i % 2}]" for i in range(30)))
    random = np.random.default_rng(0)
    np.save(tmp_path / "q.npy", random.normal(size=(9, 4)))
    torch.save(torch.randn(30, 4), tmp_path / "s.pt")
    np.save(tmp_path / "k.npy", random.normal(size=(2, 4)).astype(np.float32))
    code, *_ = lading("build", file, "--out", tmp_path / "d", "--questions", tmp_path / "q.npy",
                      "--sources", tmp_path / "s.pt", "--keywords", tmp_path / "k.npy",
                      "--splits", "0.6,0.2,0.2")  # fmt: skip

    assert code == 0
    assert lading("validate", tmp_path / "d")[0] == 0


def test_build_takes_any_function(lading, pairs, tmp_path, monkeypatch):
    """module:function of the current directory."""
    (tmp_path / "lading_test_letters.py").write_text(
        "import numpy as np\ndef count(texts): return np.array([[t.count(c) for c in 'aeio'] for t in texts], float)\n"
    )
    monkeypatch.chdir(tmp_path)

    assert (
        lading("build", pairs, "--out", tmp_path / "d", "--embed", "lading_test_letters:count", "--clusters", 2)[0] == 0
    )
    assert table(tmp_path / "d", "question_embs").shape == (15, 4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--splits", "0.8,0.2"], "--splits is '0.8,0.2', expected 3 numbers separated by commas"),
        (["--curriculum", "a,b,c"], "--curriculum is 'a,b,c', expected 3 numbers separated by commas"),
        (["--embed", "nowhere:nothing"], "--embed 'nowhere:nothing': nowhere cannot be imported"),
        ([], "no embeddings for question, source, keyword: pass question_embs="),
    ],
)
def test_wrong_use_is_exit_code_2_and_one_line(lading, pairs, tmp_path, arguments, message):
    """Readable, no traceback, nothing written."""
    code, _, err = lading("build", pairs, "--out", tmp_path / "d", *arguments)

    assert code == 2
    assert message in err
    assert err.count("\n") == 1
    assert not (tmp_path / "d").exists()


def test_validate_finds_what_is_wrong(lading, tmp_path):
    """Exit code 1, the fault with file, row and value; in JSON too."""
    directory = make_directory(tmp_path / "d")
    assert lading("validate", directory)[0] == 0
    put(directory, "pair_relevance", 3, 7.0)
    code, out, _ = lading("validate", directory)
    assert code == 1
    assert "pair_relevance is 7, expected 0 to 1" in " ".join(out.split())

    code, out, _ = lading("validate", directory, "--json")
    assert code == 1
    assert json.loads(out)["holds"] is False
    assert len(json.loads(out)["faults"]) == 1


def test_validate_looks_at_every_storage_and_at_the_splits(lading, tmp_path):
    """A good HDF5 file does not hide a bad .pt file; overlapping splits are a fault."""
    directory = make_directory(tmp_path / "d")
    JASPERSteeringDataset.convert_pt_to_hdf5(directory)
    torch.save(torch.tensor([0, 1, 1, 2]), directory / "val_idx.pt")
    said = json.loads(lading("validate", directory, "--json")[1])

    assert said["faults"] == [
        "pair 1 stands 2 times in split 'val'. List every pair once.",
        "splits 'train' and 'val' share 3 pairs, pair 0 first. Split again.",
    ]


def test_a_directory_that_is_not_there_is_wrong_use(lading, tmp_path):
    """For info and validate alike."""
    for verb in ("info", "validate"):
        code, _, err = lading(verb, tmp_path / "nowhere")
        assert code == 2
        assert "Dataset directory not found" in err


def test_negatives_and_steering_are_worked_out_anew(lading, pairs, tmp_path):
    """mine-negatives and build-steering on a directory that exists; it still checks."""
    made = tmp_path / "made"
    lading("build", pairs, "--out", made, "--embed", "tfidf", "--dimensions", 8, "--n-neg", 4, "--splits", "0.9,0.1,0")

    code, out, _ = lading("mine-negatives", made, "--tier-proportions", "1,1,2,0", "--json")
    assert code == 0
    assert json.loads(out)["splits"]["test"] == 0
    assert table(made, "negative_tiers").shape == (60, 4)
    assert lading("build-steering", made)[0] == 0
    assert lading("validate", made)[0] == 0
    code, _, err = lading("mine-negatives", made, "--tier-proportions", "1,2")
    assert (code, err) == (2, "lading: --tier-proportions is '1,2', expected 4 numbers separated by commas.\n")


def test_without_torch_one_line_says_how_to_install_it(lading, tmp_path, monkeypatch):
    """No traceback from any of its verbs."""
    monkeypatch.setitem(sys.modules, "torch", None)

    for arguments in (("info", tmp_path), ("validate", tmp_path), ("build", "a.csv", "--out", tmp_path)):
        code, out, err = lading(*arguments)
        assert (code, out) == (2, "")
        assert err == "lading: lading jasper needs torch, which is not installed: pip install 'lading[jasper]'\n"
