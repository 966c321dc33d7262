"""Proofs from the far end: a process that has neither data nor run, and what it opens."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys

import pytest
from tests.report.checkpoint.models import held, plan_of, trained
from tests.report.claim.claimed import keys

from lading.errors import ConfigError, CorruptLedgerError, LedgerError, PlanError
from lading.report.claim.attest import attest, newest_claim
from lading.report.claim.cryptography import new_key, public_key
from lading.report.claim.proof import check_proof, proof_of

PLAN = plan_of(0)
USED, UNUSED = min(held(PLAN, range(5))), min(set(range(40)) - held(PLAN, range(5)))
# What a Python opens to run is no part of the question: modules, shared libraries, the machine's own files.
WATCHED = """
import sys
opened, connected = [], []
def watch(event, arguments):
    if event == "open" and isinstance(arguments[0], str):
        opened.append(arguments[0])
    elif event.startswith("socket.") and event != "socket.gethostname":
        connected.append(event)
sys.addaudithook(watch)
from lading.cli import main
try:
    main(sys.argv[1:])
except SystemExit as end:
    code = end.code or 0
else:
    code = 0
homes = tuple({sys.prefix, sys.base_prefix, *[p for p in sys.path if p]})
foreign = [p for p in opened if not p.startswith((*homes, "/proc/", "/sys/", "/dev/", "/etc/", "/usr/"))]
print("WATCHED", code, sorted(set(foreign)), connected)
"""


@pytest.fixture
def claim(tmp_path):
    """The claim of a model that was trained for five steps."""
    trained(tmp_path / "runs" / "a", tmp_path / "model", range(5), plan=PLAN)
    attest(tmp_path / "model", keys(tmp_path)[0])
    return newest_claim(tmp_path / "model")


@pytest.mark.parametrize(("index", "answer"), [(USED, "used"), (UNUSED, "not used")])
def test_a_third_party_opens_the_proof_and_the_key_and_nothing_else(claim, tmp_path, index, answer):
    """In a fresh process, with data and run gone: shown by an audit hook."""
    alone = tmp_path / "alone"
    alone.mkdir()
    (alone / "proof.json").write_bytes(proof_of(claim, "corpus", index).to_bytes())
    shutil.copy(tmp_path / "key.pub", alone / "them.pub")
    for name in ("runs", "model", "key"):
        os.rename(tmp_path / name, tmp_path / f"gone-{name}")

    words = ["check-proof", "proof.json", "--trust", "them.pub", "--json"]
    done = subprocess.run(
        [sys.executable, "-c", WATCHED, *words], cwd=alone, capture_output=True, text=True, check=True, timeout=300
    )

    said, _, watched = done.stdout.partition("WATCHED ")
    assert json.loads(said)["answer"] == answer
    assert watched.strip() == "0 ['proof.json', 'them.pub'] []"


def test_who_trusts_nobody_is_shown_nothing(claim, tmp_path):
    """The key is named that one would have to trust."""
    new_key(tmp_path / "stranger")
    content = proof_of(claim, "corpus", USED).to_bytes()

    with pytest.raises(CorruptLedgerError, match="not signed by a key that you trust: it names key"):
        check_proof(content, [public_key(tmp_path / "stranger.pub")])


def test_another_question_is_refused_with_the_answer_to_the_first(claim, tmp_path):
    """Whoever makes the checksum right again needs the right answer, too."""
    proof = proof_of(claim, "corpus", UNUSED)
    other = dataclasses.replace(proof, index=USED)

    with pytest.raises(CorruptLedgerError, match=r"answer: expected 'used', 1 times.*found 'not used', 0"):
        check_proof(other.to_bytes(), [keys(tmp_path)[1]])


def test_questions_that_make_no_sense_are_refused(claim, tmp_path):
    """A dataset that nobody has, an index beyond it, no claim, a claim about an older waybill."""
    with pytest.raises(ConfigError, match="no dataset 'talk' taught this model: its family has 'corpus'"):
        proof_of(claim, "talk", 0)
    with pytest.raises(PlanError, match="40"):
        proof_of(claim, "corpus", 40)
    trained(tmp_path / "runs" / "b", tmp_path / "other", range(3), plan=PLAN)
    with pytest.raises(LedgerError, match="has no claims"):
        newest_claim(tmp_path / "other")
    shutil.copy(tmp_path / "model" / "claims.jsonl", tmp_path / "other" / "claims.jsonl")
    with pytest.raises(LedgerError, match="holds no claim about this checkpoint that a proof could rest on"):
        newest_claim(tmp_path / "other")
