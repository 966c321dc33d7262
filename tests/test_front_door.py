"""Names that people guess: each is there, and does what its name says."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import numpy as np
import pytest
from torch.utils.data import DataLoader

import lading
from lading import Ledger, Loader, track
from lading.errors import ArgumentError, ResumeError, SourceError

pytestmark = pytest.mark.needs("torch")
SOURCES = {"code": np.arange(60), "prose": np.arange(40)}


@pytest.mark.parametrize("name", ["JaxLoader", "PackingRules", "WeightedConcatChatDataset", "Loader", "Ledger"])
def test_the_front_door_has_it(name):
    """It is listed, so that editors offer it, whether or not its framework is installed."""
    assert name in lading.__all__ and name in dir(lading)


def test_a_bill_has_ids_by_name():
    """Dataset and index of each row that counts, as ``where`` takes them."""
    loader = Loader(SOURCES, batch_size=8)
    bill = loader.plan.bill(3)

    assert len(bill.ids) == 8
    assert bill.ids[0] == (bill.name_of(0), int(bill.idx[0]))
    assert [use for use in loader.plan.where(*bill.ids[0], 0, 12) if use.step == 3]


def test_loader_and_ledger_show_themselves_in_notebooks(tmp_path):
    """A table of datasets; a table of the run. Looking plans nothing and changes nothing."""
    ledger = Ledger(tmp_path / "run", config={"lr": 3e-4, "note": "<b>"})
    loader = Loader(SOURCES, batch_size=8, tracker=ledger)

    before = loader._repr_html_()
    for _, bill in loader.with_bills():
        ledger.commit(bill, loss=1.0)
        break

    assert "<td>code</td><td>60</td>" in before and "Loader" in before
    assert "<td>last step used</td><td>0</td>" in ledger._repr_html_()
    assert "&lt;b&gt;" in ledger._repr_html_()
    ledger.close()


def test_a_run_remembers_its_configuration(tmp_path):
    """What was said when the run began; a resume does not change it. Values that JSON lacks are kept as texts."""
    for lr, warns in ((0.1, contextlib.nullcontext()), (0.2, pytest.warns(UserWarning, match="second root"))):
        with Ledger(tmp_path / "run", config={"lr": lr, "where": Path("a"), "odd": float("inf")}) as ledger, warns:
            for _, bill in Loader(SOURCES, batch_size=50, tracker=ledger).with_bills():
                ledger.commit(bill)

    assert json.loads((tmp_path / "run" / "run.json").read_text())["config"] == {"lr": 0.1, "where": "a", "odd": "inf"}
    assert lading.open_run(tmp_path / "run").verify().holds


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")  # torchdata calls it
@pytest.mark.parametrize("make", [Loader, lambda data, size: track(DataLoader(data, size))])
def test_a_state_of_torchdata_names_the_way(make):
    """``load_state_dict`` of a StatefulDataLoader's state says which function takes it."""
    stateful = pytest.importorskip("torchdata.stateful_dataloader")
    old = stateful.StatefulDataLoader(list(range(20)), batch_size=4)
    next(iter(old))

    with pytest.raises(ResumeError, match=r"lading.observe.import_stateful\(state, loader\)"):
        make(list(range(20)), 4).load_state_dict(old.state_dict())


def test_chats_say_the_name_of_their_dataset():
    """phyagi's dataset of chats: labels, or numbers as texts; a label short is refused."""
    from torch.utils.data import ConcatDataset

    data = lading.WeightedConcatChatDataset([[{"x": 1}, {"x": 2}], [{"x": 7}]], [1.5, 1], labels=["a", "b"])

    assert [sample["dataset_name"] for sample in map(data.__getitem__, range(len(data)))] == ["a", "a", "a", "b"]
    assert data[-1] == {"x": 7, "idx": 0, "dataset_idx": 1, "dataset_name": "b"}
    assert isinstance(data, ConcatDataset)
    assert lading.WeightedConcatChatDataset([[{"x": 1}]], [1])[0]["dataset_name"] == "0"
    with pytest.raises(SourceError, match="1 labels for 2 datasets"):
        lading.WeightedConcatChatDataset([[1], [2]], [1, 1], labels=["a"])


@pytest.mark.needs("deepspeed")
def test_phyagi_s_handler_calls_callbacks_and_folders_are_paths(tmp_path):
    """``DsCallbackHandler`` as phyagi's suite uses it; ``output_dir`` can be divided by a name."""
    from lading.kits.deepspeed import DsCallback, DsCallbackHandler, DsTrainingArguments

    class Kept(DsCallback):
        saved = 0

        def on_save(self, engine, args, state, **kwargs):
            self.saved += 1

    kept, args = Kept(), DsTrainingArguments(str(tmp_path))
    handler = DsCallbackHandler([kept, Kept])

    handler.on_save(object(), args, {})
    handler.on_evaluate(object(), args, {})

    assert [one.saved for one in handler.all] == [1, 1]
    assert args.output_dir / "checkpoint-1" == tmp_path / "checkpoint-1"
    assert json.loads(json.dumps(args.to_dict()))["output_dir"] == str(tmp_path)
    with pytest.raises(ArgumentError, match="was added before"):
        handler.add_callback(kept)


def test_chunks_have_the_names_of_s4():
    """``reset``, ``is_chunked``, ``samples_in_current_chunk``: of the sampler and of the loader."""
    sampler = lading.ChunkedSampler(10, 4)
    sampler.set_chunk(2)
    loader = lading.ChunkedDataLoader(range(10), batch_size=4, chunk_size=2)

    assert sampler.get_chunk_info()["samples_in_current_chunk"] == 2
    sampler.reset()
    assert sampler.current_chunk == 0 and sampler.get_chunk_info()["samples_in_current_chunk"] == 4
    assert loader.is_chunked and not lading.ChunkedDataLoader(range(10), batch_size=4).is_chunked
    assert loader.get_chunk_info()["samples_in_current_chunk"] == 8
    list(loader)
    assert loader.get_chunk_info()["samples_in_current_chunk"] == 2


class Model:
    """What sentence-transformers has: ``encode``."""

    def encode(self, texts):
        """Return a vector of each text."""
        return np.stack([np.random.default_rng(len(t) * 31 + ord(t[-1])).normal(size=8) for t in texts])


def built(folder: Path, **settings):
    """Build a small JASPER directory; every third pair has no keywords."""
    pairs = [(f"question {i % 10}", f"source {i}", 0.5, [] if i % 3 == 0 else [f"word {i % 4}"]) for i in range(30)]
    return lading.build_jasper_dataset(folder, pairs, embed=Model(), n_clusters=3, progress=False, **settings)


@pytest.mark.needs("sklearn")
def test_jasper_embeds_with_a_model_and_takes_its_own_names(tmp_path):
    """``embed=model``, ``normalize_residual``, ``fallback``, splitting by pairs; built again they stay as chosen."""
    import torch

    plain = built(tmp_path / "plain")
    chosen = built(tmp_path / "chosen", normalize_residual=True, fallback="zero", split_by="pair")
    tables = {
        name: {t: torch.load(d / f"{t}.pt") for t in ("steering_residual", "steering_keyword_weighted", "train_idx")}
        for name, d in (("plain", plain), ("chosen", chosen))
    }
    words = tables["chosen"]["steering_keyword_weighted"]

    assert torch.allclose(tables["chosen"]["steering_residual"].norm(dim=1), torch.ones(30), atol=1e-5)
    assert not torch.allclose(tables["plain"]["steering_residual"].norm(dim=1), torch.ones(30), atol=1e-2)
    assert not words[::3].any() and words[1::3].any(dim=1).all()
    assert tables["plain"]["steering_keyword_weighted"][::3].any(dim=1).all()
    config = json.loads((chosen / "config.json").read_text())
    assert (config["normalize_residual"], config["fallback"], config["split_by"]) == (True, "zero", "pair")
    lading.build_steering(chosen)
    assert torch.equal(torch.load(chosen / "steering_keyword_weighted.pt"), words)
    lading.build_steering(chosen, fallback="random")
    assert torch.load(chosen / "steering_keyword_weighted.pt")[::3].any(dim=1).all()
    with pytest.raises(SourceError, match="expected one of centroid, zero, random"):
        built(tmp_path / "wrong", fallback="nothing")
    with pytest.raises(SourceError, match="split_by is 'word', expected 'question' or 'pair'"):
        built(tmp_path / "wrong", split_by="word")


def test_mlflow_gets_what_a_run_is_fed(tmp_path, monkeypatch):
    """Real MLflow on files: metrics with their steps, the plan among the tags, the run among the artifacts."""
    mlflow = pytest.importorskip("mlflow")
    from lading.train.loggers import MLflow, logged

    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri((tmp_path / "mlruns").as_uri())
    mlflow.set_experiment(experiment_id=mlflow.create_experiment("door", (tmp_path / "artifacts").as_uri()))
    with mlflow.start_run() as run, logged(Ledger(tmp_path / "run"), MLflow(), every=5) as ledger:
        loader = Loader(SOURCES, batch_size=5, tracker=ledger)
        for _, bill in loader.with_bills():
            ledger.commit(bill, loss=1.0)

    found = mlflow.MlflowClient().get_run(run.info.run_id)
    losses = mlflow.MlflowClient().get_metric_history(run.info.run_id, "lading/loss")
    assert [one.step for one in losses] == [4, 9, 14, 19]
    assert found.data.tags["lading/plan"] == loader.plan.fingerprint
    assert list((tmp_path / "artifacts").rglob("run.json"))
