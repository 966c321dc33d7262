"""Publish and fetch, over an S3 server on loopback and a folder: broken off and resumed, changed objects named."""

from __future__ import annotations

import hashlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import boto3
import numpy as np
import pytest
from moto.server import ThreadedMotoServer
from tests.report.checkpoint.models import plan_of, trained
from tests.report.runs import record

from lading.cli import main
from lading.errors import ConfigError, CorruptLedgerError, LedgerError
from lading.ledger import Ledger
from lading.report import open_checkpoint, open_run
from lading.report.checkpoint.check import check
from lading.report.checkpoint.stamp import stamp
from lading.report.publish.contents import INDEX, index_from
from lading.report.publish.obstore import ObjectStore
from lading.report.publish.transfer import fetch, publish
from lading.source.tokens.build import build_tokens
from lading.source.tokens.tokenizer import TokenizerRef


@pytest.fixture(scope="module")
def s3():
    """An S3 server of this process, on loopback; every address in it is new."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    keys = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "y", "AWS_REGION": "us-east-1", "AWS_ALLOW_HTTP": "true"}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**keys, "AWS_ENDPOINT_URL": f"http://{host}:{port}"}.items():
            patch.setenv(name, value)
        boto3.client("s3", region_name="us-east-1", endpoint_url=f"http://{host}:{port}").create_bucket(Bucket="bucket")
        yield "s3://bucket"
    server.stop()


@pytest.fixture(params=["s3", "file"])
def url(request, tmp_path):
    """An address with nothing under it."""
    if request.param == "file":
        return f"file://{tmp_path}/objects"
    return f"{request.getfixturevalue('s3')}/{tmp_path.name}"


def everything(folder: Path) -> dict[str, bytes]:
    """Return the content of every file below a folder."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_a_run_is_the_same_after_publish_and_fetch(url, tmp_path):
    """Byte for byte, killed attempts included; it verifies with the same head."""
    state = record(tmp_path / "run", range(20), close=False)
    record(tmp_path / "run", range(20, 40), loaded=state)
    (tmp_path / "run" / "checkpoint.pt").write_bytes(b"not of the run")

    assert publish(tmp_path / "run", url).there == 0
    fetch(url, tmp_path / "fetched")

    found = everything(tmp_path / "fetched")
    assert found == {name: content for name, content in everything(tmp_path / "run").items() if name in found}
    assert "checkpoint.pt" not in found and "run.json" in found
    verdict = open_run(tmp_path / "fetched").verify()
    assert verdict.holds and verdict.head == open_run(tmp_path / "run").verify().head
    again = publish(tmp_path / "run", url)
    assert (again.moved, fetch(url, tmp_path / "fetched").moved) == (0, 0)
    record(tmp_path / "run", range(40, 50), loaded={**state, **open_state(tmp_path / "run")})
    more = publish(tmp_path / "run", url)
    assert 0 < more.moved < more.there + more.moved
    fetch(url, tmp_path / "newer")
    assert open_run(tmp_path / "newer").num_steps == 50 and open_run(tmp_path / "newer").verify().holds


def open_state(run: Path) -> dict[str, object]:
    """Return what a state at the end of a run says."""
    found = open_run(run)
    launch = found.evidence.launches[found.evidence.leaf]
    return {"launch": launch.sha256, "attempt": launch.attempt, "step": found.num_steps}


def test_a_checkpoint_is_the_same_whether_folder_or_file(url, tmp_path):
    """With waybill and claims; names that addresses would have to quote, too."""
    trained(tmp_path / "runs" / "a", tmp_path / "model", range(5), plan=plan_of(0))
    (tmp_path / "model" / "claims.jsonl").write_text("{}\n")
    publish(tmp_path / "model", url)
    fetch(url, tmp_path / "fetched")
    assert everything(tmp_path / "fetched") == everything(tmp_path / "model")
    assert check(open_checkpoint(tmp_path / "fetched")).holds

    (tmp_path / "a b#%ü.ckpt").write_bytes(b"weights")
    stamp(tmp_path / "a b#%ü.ckpt", made="import")
    publish(tmp_path / "a b#%ü.ckpt", f"{url}-single")
    fetch(f"{url}-single", tmp_path / "single")
    assert check(open_checkpoint(tmp_path / "single" / "a b#%ü.ckpt")).holds
    (tmp_path / "model" / "model.bin").write_bytes(b"changed since")
    with pytest.raises(CorruptLedgerError, match=r"model.bin is missing, or not what .*waybill.json says"):
        publish(tmp_path / "model", f"{url}-other")


def test_a_changed_object_is_named(url, tmp_path):
    """Cut, longer, or of the same size; the others are kept, and the folder is not taken for a run."""
    record(tmp_path / "run", range(20))
    publish(tmp_path / "run", url)
    store = ObjectStore(url)
    names = [name for name in store.sizes() if name.endswith((".parquet", "manifest.jsonl"))]
    for number, name in enumerate(names):
        content, folder = store.read(name, 1 << 20), tmp_path / f"fetched{number}"
        for changed in (content[:-1], content + b"x", bytes([content[0] ^ 1]) + content[1:]):
            store.put(name, changed)
            with pytest.raises(CorruptLedgerError, match=f"not what was published: {name}"):
                fetch(url, folder)
            assert not (folder / "run.json").exists()
        store.put(name, content)
        assert fetch(url, folder).there > 0 and open_run(folder).verify().holds
    store.delete(names[0])
    with pytest.raises(LedgerError, match=f"has no object '{names[0]}'"):
        fetch(url, tmp_path / "another")


def test_index_and_objects_changed_together_do_not_hold(tmp_path, capsys):
    """The hashes that the run holds itself find it: exit code 1."""
    record(tmp_path / "run", range(20))
    url = f"file://{tmp_path}/objects"
    publish(tmp_path / "run", url)
    part = next((tmp_path / "objects").rglob("part-*.parquet"))
    part.write_bytes(part.read_bytes()[:-1] + b"x")
    index = json.loads((tmp_path / "objects" / INDEX).read_text())
    name = part.relative_to(tmp_path / "objects").as_posix()
    index["files"][name]["sha256"] = hashlib.sha256(part.read_bytes()).hexdigest()
    (tmp_path / "objects" / INDEX).write_text(json.dumps(index))

    with pytest.raises(SystemExit) as end:
        main(["fetch", url, str(tmp_path / "fetched")])

    assert end.value.code == 1 and "does not hold" in " ".join(capsys.readouterr().out.split())


def test_a_live_run_is_refused(tmp_path):
    """So are things that nobody can check, and addresses that are none."""
    url = f"file://{tmp_path}/objects"
    plan = plan_of(0)
    with Ledger(tmp_path / "run", plan) as ledger:
        ledger.begin(0)
        ledger.deliver(plan.bill(0))
        with pytest.raises(LedgerError, match=r"rank 0 of attempt 0 is running: process \d+.*publish it then"):
            publish(tmp_path / "run", url)
        ledger.commit(plan.bill(0))
    publish(tmp_path / "run", url)
    record(tmp_path / "other", range(3))
    with pytest.raises(LedgerError, match=r"holds something else already, says lading-published.json"):
        publish(tmp_path / "other", url)
    (tmp_path / "weights").mkdir()
    with pytest.raises(LedgerError, match="has no waybill"):
        publish(tmp_path / "weights", url)
    with pytest.raises(ConfigError, match="is no address: expected s3://bucket/prefix"):
        publish(tmp_path / "run", "bucket")
    with pytest.raises(LedgerError, match="Check address and credentials"):
        fetch("gopher://bucket/run", tmp_path / "fetched")
    with pytest.raises(LedgerError, match="nothing was published there"):
        fetch(f"file://{tmp_path}/nothing", tmp_path / "fetched")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine")
    with pytest.raises(LedgerError, match=r"holds mine.txt, which was not published there"):
        fetch(url, tmp_path / "full")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"lading_published": 1, "kind": "run", "files": {"../x": {}}}', "expected the relative path of a file"),
        (
            '{"lading_published": 1, "kind": "run", "files": {"a.lading-part": {}}}',
            "expected the relative path of a file",
        ),
        ('{"lading_published": 1, "kind": "run", "files": {"a/b/c": {}, "a/b": {}}}', "expected the relative path of"),
        ('{"lading_published": 1, "kind": "run", "files": {}}', "with the head of a run"),
        ('{"lading_published": 1, "kind": "checkpoint", "files": {}}', "expected the waybill of the checkpoint"),
        ('{"lading_published": 1, "kind": "x", "files": {}}', "expected one of run, tokens, checkpoint"),
        ('{"lading_published": 1, "lading_published": 2}', "expected every key once"),
        ("[" * 100, "expected JSON"),
    ],
)
def test_an_index_that_came_from_anyone_is_checked(text, message):
    """No way out of the folder, no key twice, nothing too deep."""
    with pytest.raises(CorruptLedgerError, match=message):
        index_from(text.encode(), "index")


@pytest.mark.launch
def test_killed_in_the_middle_it_resumes(s3, tmp_path):
    """kill -9 while objects are sent, and while they are fetched: run again, only the rest is moved."""
    corpus = tmp_path / "corpus"
    (tmp_path / "corpus.txt").write_text("a document\n" * 400)
    build_tokens([tmp_path / "corpus.txt"], corpus, TokenizerRef("byte"), split="line")
    for number in range(60):
        (corpus / f"packing-{number}").mkdir()
        (corpus / f"packing-{number}" / "rows.bin").write_bytes(np.random.default_rng(number).bytes(300_000))
    url = f"{s3}/killed"

    _kill("publish", corpus, url, until=lambda: len(ObjectStore(url).sizes()) > 8)
    with pytest.raises(LedgerError, match="a publication is under way there, or was broken off"):
        fetch(url, tmp_path / "fetched")
    done = publish(corpus, url)
    assert done.there >= 8 and done.moved > 0
    _kill("fetch", url, tmp_path / "fetched", until=lambda: len(everything(tmp_path / "fetched")) > 8)
    assert not (tmp_path / "fetched" / "tokens.json").exists()
    assert fetch(url, tmp_path / "fetched").there > 0

    assert everything(tmp_path / "fetched") == everything(corpus)


def _kill(*words: object, until: Callable[[], bool]) -> None:
    """Start a command and kill it when something is so."""
    process = subprocess.Popen([sys.executable, "-m", "lading", *map(str, words)])
    while process.poll() is None and not until():
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL, "it was done before it could be killed"
