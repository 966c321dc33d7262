"""The certificate of forgetting: what it says, what it does not, and whom one has to believe."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from tests.cli.calling import call
from tests.report.test_forget import corpus, trained

from lading import NumpyLoader, open_run
from lading.errors import ConfigError
from lading.ledger import Ledger
from lading.report.forget.certificate import NOT_COVERED, certify


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A run that was made to forget document 7, replayed, and its control run."""
    rows = corpus(tmp_path)
    trained(tmp_path, rows, 18)
    found = open_run(tmp_path / "run").forget(documents=["web:7"])
    with pytest.raises(ConfigError, match="it was not replayed yet"):
        certify(open_run(tmp_path / "run"))
    trained(tmp_path, rows, 18, Path(found.clean["where"]))
    (tmp_path / "control").mkdir()
    trained(tmp_path / "control", rows, 18, masked={"web": [7]})
    return tmp_path


def test_a_signed_certificate_is_read_afresh_and_says_what_it_does_not_cover(home, capsys):
    """Zero uses left, compared with the control run, tainted artefacts named; every changed byte is refused."""
    call(capsys, "key", "new", home / "me")
    words = ["forget", home / "run", "--certify", "--against", home / "control" / "run", "--key", home / "me"]
    code, _, _ = call(capsys, *words, "-o", home / "certificate.json")
    shown, text, _ = call(capsys, "check-proof", home / "certificate.json", "--trust", home / "me.pub")
    _, value, _ = call(capsys, "check-proof", home / "certificate.json", "--trust", home / "me.pub", "--json")

    assert (code, shown) == (0, 0)
    plain = " ".join(text.split())
    assert "Forgotten in run" in plain
    assert "document 7 of web" in plain
    assert "history has left: 0 (recorded)" in plain
    assert all(" ".join(f"Not covered: {one}.".split()) in plain for one in NOT_COVERED)
    found = json.loads(value)
    assert (found["uses_left"], found["compared"], found["documents"]) == (0, 18, [["web", 7]])
    assert found["clean"][0] == found["replayed"][0] <= found["first_step"]
    assert [Path(where).name for where in found["tainted"]]
    content = (home / "certificate.json").read_bytes()
    for place in range(0, len(content), 97):
        changed = bytearray(content)
        changed[place] ^= 1
        (home / "changed.json").write_bytes(changed)
        assert call(capsys, "check-proof", home / "changed.json", "--trust", home / "me.pub")[0] != 0


def test_what_differs_or_is_not_there_is_not_certified(home, tmp_path, capsys):
    """Nothing forgotten; a control run that is another one names the first update that differs; nobody signed."""
    with pytest.raises(ConfigError, match="nothing was forgotten in this run"):
        certify(open_run(home / "control" / "run"))
    (home / "other").mkdir()
    trained(home / "other", corpus(home / "other"), 18, masked={"web": [9]}, shuffle=False)
    with pytest.raises(ConfigError, match=r"differs from the control run at step 0 \(update 0\)"):
        certify(open_run(home / "run"), open_run(home / "other" / "run"))
    code, _, _ = call(capsys, "forget", home / "run", "--certify", "-o", home / "bare.json")
    call(capsys, "key", "new", home / "me")
    refused, _, error = call(capsys, "check-proof", home / "bare.json", "--trust", home / "me.pub")
    assert (code, refused) == (0, 1)
    assert "nobody signed it" in error


def test_rows_that_came_with_the_bytes_they_had_are_not_certified(tmp_path):
    """The bytes are compared, not believed: a source that leaves nothing out when it is asked to."""
    rows = corpus(tmp_path)
    trained(tmp_path, rows, 18)
    found = open_run(tmp_path / "run").forget(documents=["web:7"])
    rows.without = lambda documents: rows
    trained(tmp_path, rows, 18, Path(found.clean["where"]))

    with pytest.raises(ConfigError, match="with the bytes that it had with document 7 of 'web'"):
        certify(open_run(tmp_path / "run"))


def test_what_no_hash_of_content_shows_is_called_worked_out(tmp_path):
    """Digests do not see masks; and a damaged record is no ground for a certificate."""
    rows = corpus(tmp_path)
    trained(tmp_path, rows, 18, record="digest")
    found = open_run(tmp_path / "run").forget(documents=["web:7"])
    trained(tmp_path, rows, 18, Path(found.clean["where"]), record="digest")

    made = certify(open_run(tmp_path / "run"))

    assert (made.evidence, made.compared) == ("worked out", None)
    assert "history has left: 0 (worked out)." in made.sentences()[2]
    for part in (tmp_path / "run").rglob("part-*.parquet"):
        part.write_bytes(part.read_bytes()[:-9] + bytes(9))
    with pytest.raises(ConfigError, match="the record does not hold, so nothing is certified"):
        certify(open_run(tmp_path / "run"))


class _Broken:
    """Numbers, one of which cannot be read."""

    def __init__(self, length: int, broken: int) -> None:
        self.length, self.broken = length, broken

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> dict[str, np.ndarray]:
        if index == self.broken:
            raise OSError("unreadable")
        return {"x": np.array([index])}


@pytest.mark.filterwarnings("ignore:sample .* could not be read:UserWarning")
@settings(max_examples=6, deadline=None)
@given(st.data())
def test_after_a_certificate_nothing_of_it_was_delivered_as_a_substitute_either(tmp_path_factory, data):
    """Law 5: what stands in for a broken sample counts as a use, before and after; a count of what came decides."""
    path = tmp_path_factory.mktemp("law")
    length, seed = data.draw(st.integers(6, 12)), data.draw(st.integers(0, 99))
    broken = data.draw(st.integers(0, length - 1))

    def train(first: Path | None = None) -> list[tuple[int, int]]:
        loader = NumpyLoader({"a": _Broken(length, broken)}, batch_size=2, seed=seed, on_bad_sample="substitute")
        if first is not None:
            loader.load_state_dict(json.loads((first / "state.json").read_text()))
        loader.tracker = ledger = Ledger(path / "run", loader.plan)
        seen: list[tuple[int, int]] = []
        while loader.engine.step < 12:
            for batch, bill in loader.with_bills():
                seen += [(bill.step, int(row)) for row in batch["x"][:, 0]]
                ledger.commit(bill, loss=1.0)
                saved = path / f"checkpoint-{bill.step + 1}"
                saved.mkdir(exist_ok=True)
                (saved / "state.json").write_text(json.dumps(loader.state_dict()))
                ledger.checkpoint(saved, loader.state_dict())
                if bill.step == 11:
                    break
        ledger.close()
        return seen

    came = train()
    sample = data.draw(st.sampled_from(sorted({row for _, row in came})))
    found = open_run(path / "run").forget(samples=[f"a:{sample}"])
    assert found.first_step == min(step for step, row in came if row == sample)

    again = train(Path(found.clean["where"]) if found.clean else None)

    assert sample not in {row for _, row in again}
    assert (found.clean or {"step": 0})["step"] == min(step for step, _ in again) == found.first_step
    assert certify(open_run(path / "run")).uses_left == 0
