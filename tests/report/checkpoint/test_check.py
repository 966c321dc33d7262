"""Law 3: whatever is put in the place of a file, of weights, of a waybill or of a parent's waybill is named."""

from __future__ import annotations

import json
import shutil

import pytest
from tests.report.checkpoint.models import plan_of, trained

from lading.report import open_checkpoint
from lading.report.checkpoint.check import check
from lading.report.checkpoint.stamp import stamp

PLAN = plan_of(0)


@pytest.fixture
def models(tmp_path):
    """Two checkpoints of a run, and one tuned from the second."""
    state = trained(tmp_path / "runs" / "a", tmp_path / "checkpoint-2", range(2), plan=PLAN)
    trained(tmp_path / "runs" / "a", tmp_path / "checkpoint-5", range(2, 5), plan=PLAN, loaded=state)
    trained(tmp_path / "runs" / "b", tmp_path / "tuned", range(3), plan=plan_of(1), base=[tmp_path / "checkpoint-5"])
    return tmp_path


def faults(path):
    """Return what a check finds."""
    return check(open_checkpoint(path)).faults


def test_what_was_not_touched_holds(models):
    """Files that were added later are not covered, and no fault."""
    (models / "tuned" / "README.md").write_text("added later")

    verdict = check(open_checkpoint(models / "tuned"))

    assert (verdict.holds, verdict.files, verdict.not_covered) == (True, 1, ["README.md"])


def test_every_byte_of_a_file_counts(models):
    """One flipped, one more, one less; a file that is gone."""
    path = models / "tuned" / "model.bin"
    content = path.read_bytes()
    for place in range(len(content)):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        assert faults(models / "tuned")[0].startswith("model.bin was changed")
    for changed in (content[:-1], content + b"\0", b""):
        path.write_bytes(changed)
        assert faults(models / "tuned")[0].startswith("model.bin was changed")
    path.unlink()
    assert faults(models / "tuned") == ["model.bin is missing"]


def test_weights_of_another_step_under_a_step_s_name_are_found(models):
    """And whose they are is said."""
    one, other = models / "checkpoint-2" / "model.bin", models / "checkpoint-5" / "model.bin"
    kept = one.read_bytes()
    one.write_bytes(other.read_bytes())
    assert "it is the file of checkpoint-5, step 5 of attempt 1" in faults(models / "checkpoint-2")[0]

    other.write_bytes(kept)
    assert "it is the file of checkpoint-2, step 2 of attempt 0" in faults(models / "checkpoint-5")[0]


def test_a_waybill_beside_other_weights_is_found(models):
    """It was copied from another checkpoint."""
    shutil.copy(models / "checkpoint-2" / "waybill.json", models / "tuned" / "waybill.json")

    assert faults(models / "tuned")[0].startswith("model.bin was changed")


def test_a_parent_s_waybill_that_was_changed_is_found(models):
    """Its own files still are as it says; its child knows another."""
    path = models / "checkpoint-5" / "waybill.json"
    values = json.loads(path.read_text())
    path.write_text(json.dumps({**values, "step": 4}))

    assert "was changed, or is another checkpoint's" in faults(models / "tuned")[0]


def test_a_parent_that_is_gone_is_a_remark(models):
    """Whoever downloaded the child alone can check it."""
    shutil.rmtree(models / "checkpoint-5")

    verdict = check(open_checkpoint(models / "tuned"))

    assert verdict.holds
    assert "a parent was not found" in verdict.remarks[0]


def test_a_hub_cache_is_links_and_can_be_stamped_and_checked(tmp_path):
    """What the links lead to is hashed and never written; a blob that was exchanged is found."""
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "8f3a"
    for folder in (blobs, snapshot):
        folder.mkdir(parents=True)
    (blobs / "abc").write_bytes(b"weights")
    (snapshot / "model.safetensors").symlink_to("../../blobs/abc")

    stamp(snapshot, made="import")

    assert check(open_checkpoint(snapshot)).holds
    assert sorted(p.name for p in blobs.iterdir()) == ["abc"]
    (blobs / "abc").write_bytes(b"others")
    assert faults(snapshot)[0].startswith("model.safetensors was changed")


def test_parents_in_a_circle_are_a_parent_that_was_changed(tmp_path):
    """A hash cannot be in a circle, a hint can: each is visited once, and the one that is another now is named."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.bin").write_bytes(name.encode())
    stamp(tmp_path / "a", made="import")
    stamp(tmp_path / "b", made="conversion", parents=[tmp_path / "a"])
    stamp(tmp_path / "a", made="conversion", parents=[tmp_path / "b"], replace=True)

    opened = open_checkpoint(tmp_path / "a")

    assert len(opened.family()) == 3
    assert "was changed, or is another checkpoint's" in check(opened).faults[0]
