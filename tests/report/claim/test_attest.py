"""Claims: about exactly these files, by somebody who is trusted; what is not known is said."""

from __future__ import annotations

import base64
import dataclasses
import json
import shutil

import pytest
from tests.report.checkpoint.models import plan_of, trained
from tests.report.claim.claimed import keys

from lading.errors import CorruptLedgerError, LedgerError
from lading.ledger import Ledger
from lading.report import open_checkpoint
from lading.report.checkpoint.stamp import stamp
from lading.report.claim.attest import attest, check_claims, claims_path, newest_claim
from lading.report.claim.cryptography import new_key, private_key, public_key
from lading.report.claim.envelope import compact, sealed_in
from lading.report.claim.proof import check_proof, proof_of

PLAN = plan_of(0)


@pytest.fixture
def model(tmp_path):
    """A checkpoint that was trained for five steps."""
    trained(tmp_path / "runs" / "a", tmp_path / "model", range(5), plan=PLAN)
    return tmp_path / "model"


def test_a_claim_is_an_in_toto_statement_about_the_files(model, tmp_path):
    """Anyone who reads DSSE and in-toto finds files, run, head, seal, plan, spans, totals, and no path of ours."""
    key, public = keys(tmp_path)
    before = model.stat()

    attest(model, key)

    line = json.loads(claims_path(model).read_text().splitlines()[0])
    statement = json.loads(base64.b64decode(line["payload"]))
    assert line["payloadType"] == "application/vnd.in-toto+json"
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    waybill = open_checkpoint(model).waybill
    assert statement["subject"][0] == {"name": "model.bin", "digest": {"sha256": waybill.files["model.bin"].sha256}}
    (run,) = statement["predicate"]["runs"]
    log = tmp_path / "runs" / "a" / "log"
    assert run["head"] == list(json.loads((log / "head.json").read_text()).values())
    assert (run["step"], run["spans"][0]["steps"]) == (5, [[0, 5]])
    assert run["seal"] is not None and not statement["predicate"]["notes"]
    assert statement["predicate"]["totals"][0]["samples"] == 20
    assert str(tmp_path).encode() not in base64.b64decode(line["payload"])
    assert check_claims(model, [public]).holds
    assert model.stat().st_mtime_ns == before.st_mtime_ns  # trainers choose by it what to delete


def test_a_single_file_has_its_claims_beside_it(tmp_path):
    """As it has its waybill; a claim is no file of the checkpoint."""
    key, public = keys(tmp_path)
    trained(tmp_path / "runs" / "a", tmp_path / "model", range(5), plan=PLAN)
    (tmp_path / "last.ckpt").write_bytes(b"weights")
    stamp(tmp_path / "last.ckpt", made="conversion", parents=[tmp_path / "model"])

    attest(tmp_path / "last.ckpt", key)

    assert (tmp_path / "last.ckpt.claims.jsonl").exists()
    assert check_claims(tmp_path / "last.ckpt", [public]).holds


def test_a_claim_by_an_unknown_key_or_about_other_files_does_not_hold(model, tmp_path):
    """Neither does one whose text was changed; each is said by its line."""
    key, public = keys(tmp_path)
    new_key(tmp_path / "stranger")
    attest(model, private_key(tmp_path / "stranger"))
    verdict = check_claims(model, [public])
    assert not verdict.holds
    assert verdict.faults == ["no claim about these files is by a trusted key"]
    assert "is by an unknown key" in verdict.remarks[0]

    attest(model, key)
    assert check_claims(model, [public]).holds

    trained(tmp_path / "runs" / "b", tmp_path / "other", range(4), plan=plan_of(1))
    shutil.copy(claims_path(model), claims_path(tmp_path / "other"))
    found = check_claims(tmp_path / "other", [public]).faults
    assert "line 3: the claim is about another checkpoint, with waybill" in found[0]

    lines = claims_path(model).read_text().splitlines()
    changed = json.loads(lines[2])
    changed["payload"] = json.loads(lines[0])["payload"].replace("A", "B")
    claims_path(model).write_text("\n".join([*lines[:2], json.dumps(changed), lines[3]]))
    assert not check_claims(model, [public]).holds

    (model / "model.bin").write_bytes(b"other weights")
    assert "model.bin was changed" in check_claims(model, [public]).faults[0]
    with pytest.raises(CorruptLedgerError, match=r"nothing is claimed of .*model.bin was changed"):
        attest(model, key)


def test_nothing_is_claimed_of_a_run_that_does_not_hold(model, tmp_path):
    """Nor of one that is not at hand."""
    key, _ = keys(tmp_path)
    part = next((tmp_path / "runs").rglob("part-*.parquet"))
    part.write_bytes(part.read_bytes()[:-9] + b"123456789")

    with pytest.raises(CorruptLedgerError, match="nothing is claimed"):
        attest(model, key)
    shutil.move(tmp_path / "runs", tmp_path / "elsewhere")
    with pytest.raises(LedgerError, match=r"nothing can be claimed of .*was not found"):
        attest(model, key)
    assert not claims_path(model).exists()


def test_what_is_not_known_is_claimed_as_unknown_and_proves_no_absence(tmp_path):
    """An imported parent may have seen anything; uses can be proven all the same."""
    key, public = keys(tmp_path)
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "weights").write_bytes(b"from somewhere")
    stamp(tmp_path / "base", made="import")
    trained(tmp_path / "runs" / "a", tmp_path / "tuned", range(5), plan=PLAN, base=[tmp_path / "base"])

    claim = attest(tmp_path / "tuned", key)

    assert "learned from is not recorded" in claim.unknown[0]
    envelope = newest_claim(tmp_path / "tuned")
    used = PLAN.bill(2).samples[0].index
    unused = PLAN.bill(7).samples[0].index
    assert check_proof(proof_of(envelope, "corpus", used).to_bytes(), [public]).proof.answer == "used"
    with pytest.raises(LedgerError, match=r"cannot be proven: no use of sample .* follows from a plan, and not all"):
        proof_of(envelope, "corpus", unused)
    assert check_claims(tmp_path / "tuned", [public]).notes == [*claim.unknown]


def test_rows_of_a_run_that_goes_on_are_in_no_seal_and_the_claim_says_so(tmp_path):
    """Nothing is refused: a checkpoint of a running training can be given away."""
    key, public = keys(tmp_path)
    with Ledger(tmp_path / "runs" / "a", PLAN) as ledger:
        ledger.begin(0)
        for step in range(5):
            ledger.deliver(PLAN.bill(step))
            ledger.commit(PLAN.bill(step), update=step)
        ledger.flush()
        (tmp_path / "model").mkdir()
        (tmp_path / "model" / "weights").write_bytes(b"weights")
        ledger.checkpoint(tmp_path / "model", {**ledger.mark(5), "step": 5})
        ledger._waybills.settle(wait=True)

        claim = attest(tmp_path / "model", key)

        assert "rows of attempt 0" in claim.notes[0] and "are in no seal: its ranks have not ended" in claim.notes[0]
        assert check_claims(tmp_path / "model", [public]).notes == [*claim.notes]
    assert not attest(tmp_path / "model", key).notes


def test_without_a_plan_nothing_can_be_proven(tmp_path):
    """``track`` and streams record names: nothing shows that there were no others."""
    key, _ = keys(tmp_path)
    with Ledger(tmp_path / "runs" / "a") as ledger:
        ledger.begin(0)
        for step in range(3):
            ledger.deliver(PLAN.bill(step))
            ledger.commit(PLAN.bill(step), update=step)
        ledger.flush()
        (tmp_path / "model").mkdir()
        (tmp_path / "model" / "weights").write_bytes(b"weights")
        ledger.checkpoint(tmp_path / "model", {**ledger.mark(3), "step": 3})
    used, unused = PLAN.bill(0).samples[0].index, PLAN.bill(8).samples[0].index
    attest(tmp_path / "model", key)

    for index in (used, unused):
        with pytest.raises(LedgerError, match=r"cannot be proven.*no plan predicts its order \(track, or a stream\)"):
            proof_of(newest_claim(tmp_path / "model"), "corpus", index)


def test_a_claim_is_compared_with_the_runs_where_they_are_at_hand(model, tmp_path):
    """A signer who leaves steps out is caught by whoever has the run; without it, the remark says so."""
    key, public = keys(tmp_path)
    claim = attest(model, key)
    lines = claims_path(model).read_text().splitlines()
    (run,) = claim.runs
    (span,) = run.spans
    lied = dataclasses.replace(run, spans=(dataclasses.replace(span, steps=((0, 2),)),))
    false = dataclasses.replace(claim, runs=(lied,), subject={"waybill.json": claim.waybill})
    line = compact(sealed_in(false.to_bytes(), public.keyid, key.sign).to_dict()).decode()
    claims_path(model).write_text("\n".join([*lines, line]))
    assert "line 3: run" in check_claims(model, [public]).faults[0]
    assert "now says something else" in check_claims(model, [public]).faults[0]

    shutil.move(tmp_path / "runs", tmp_path / "elsewhere")
    away = check_claims(model, [public])
    assert away.holds
    assert "is not at hand: what it used is not compared" in away.remarks[0]


def test_damaged_lines_are_named(model, tmp_path):
    """Too deep, keys twice, no JSON, another type: each by its line; no claims at all, by the verb that makes one."""
    key, public = keys(tmp_path)
    with pytest.raises(LedgerError, match=r"has no claims: expected .*claims.jsonl. Make one with"):
        check_claims(model, [public])
    attest(model, key)
    good = claims_path(model).read_text()
    first = json.loads(good.splitlines()[0])
    bad = ["{", '{"payload": 1, "payload": 2}', "[" * 100 + "]" * 100, json.dumps({**first, "payloadType": "x"})]
    claims_path(model).write_text(good + "\n".join(bad))

    verdict = check_claims(model, [public])

    assert [n for n in range(3, 7) if any(f"line {n}" in fault for fault in verdict.faults)] == [3, 4, 5, 6]
    assert public_key(tmp_path / "key.pub").keyid == verdict.claims[0]["key"]
