"""Laws of proofs: one of use exists where a sample was seen, one of absence where not; nothing changed is accepted."""

from __future__ import annotations

import random
import warnings
from pathlib import Path

import pytest
from hypothesis import Phase, given, settings, strategies as st
from tests.report.checkpoint.test_laws_family import GENERATION, Model, World4
from tests.report.claim.claimed import keys, train

from lading.errors import LadingError
from lading.order import Plan
from lading.report import open_checkpoint
from lading.report.claim.attest import attest, newest_claim
from lading.report.claim.consumption import _written
from lading.report.claim.envelope import sealed_in
from lading.report.claim.proof import check_proof, proof_of
from lading.report.claim.statement import Claim, ClaimedRun, ClaimedSpan

LENGTHS = {"code": 31, "prose": 17}


def compare(checkpoint: Path, runs: Path, folder: Path, lengths: dict[str, int]) -> int:
    """Prove samples, bad and blocked ones among them, and compare with what was seen; return the longest proof."""
    key, public = keys(folder)
    attest(checkpoint, key, [runs])
    claim, opened, longest = newest_claim(checkpoint), open_checkpoint(checkpoint, [runs]), 0
    for dataset, index in ((d, i) for d, n in lengths.items() for i in range(n) if i < 9 or not i % 5):
        seen = opened.seen(dataset, index)
        content = proof_of(claim, dataset, index).to_bytes()
        shown = check_proof(content, [public])
        assert shown.proof.answer == ("used" if seen.answer else "not used")
        rows = [(row["run"], row["attempt"], row["step"], row["epoch"], row["slot"]) for row in seen.uses.dicts()]
        assert [tuple(use) for use in shown.uses] == sorted(rows)
        longest = max(longest, len(content))
    return longest


@pytest.mark.filterwarnings("ignore:.*a second root.*:UserWarning")
@settings(max_examples=4, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(st.lists(GENERATION, min_size=2, max_size=4))
def test_a_proof_of_use_exists_where_a_sample_was_seen_and_of_absence_where_not(
    tmp_path_factory: pytest.TempPathFactory, generations
):
    """Law 5, over families: resume, fork, base, merge, skipped steps, replays, kills, two ranks."""
    folder = tmp_path_factory.mktemp("family")
    world = World4(folder)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for generation in generations:
            world.grow(*generation)
        for model in world.models[-2:]:
            if model.uses:
                check_known(world, model, folder)


def check_known(world: World4, model: Model, folder: Path) -> None:
    """Prove every sample of a model, and compare with the record that the test kept."""
    key, public = keys(folder)
    attest(model.path, key, [folder / "runs"])
    claim = newest_claim(model.path)
    held = [(sample, step) for run, _, step in model.uses for sample in world.plans[run].bill(step).samples]
    for number, (name, length) in enumerate((("code", 23), ("prose", 11))):
        for index in range(length):
            steps = sorted(step for sample, step in held if sample == (number, index))
            shown = check_proof(proof_of(claim, name, index).to_bytes(), [public])
            assert shown.proof.answer == ("used" if steps else "not used")
            assert sorted(use.step for use in shown.uses) == steps


@pytest.mark.filterwarnings("ignore:.*could not be read.*:UserWarning")
@pytest.mark.parametrize("bad", ["skip", "substitute"])
def test_events_and_exceptions_are_part_of_the_arithmetic(tmp_path: Path, bad: str):
    """Law 5, over what a loader does to its plan: blocks, weights, sizes, bad samples, skipped steps; and length."""
    run, options = tmp_path / "runs/7", {"weights": {"code": 0.7, "prose": 0.3}, "bad": bad}
    state, used = train(run, tmp_path / "a", 40, skipped={4}, change=_reweight, **options)
    state, more = train(run, tmp_path / "b", 40, state=state, change=_block, **options)
    train(run, tmp_path / "c", 5, state=state, batch_size=6, skipped={82}, **options)

    sizes = [compare(tmp_path / name, tmp_path / "runs", tmp_path, LENGTHS) for name in "abc"]

    claim = newest_claim(tmp_path / "b")
    for name, index, step in [*used, *more]:
        shown = check_proof(proof_of(claim, name, index).to_bytes(), [keys(tmp_path)[1]])
        assert step in [use.step for use in shown.uses]
    assert max(sizes) <= 4096


def _reweight(loader):
    loader.reweight({"code": 0.2, "prose": 0.8})


def _block(loader):
    loader.block("code", [5, 6, 7])


def test_a_thousand_flipped_bits_are_refused(tmp_path: Path):
    """Every one, by an error that says so; those of the question, too."""
    train(tmp_path / "runs/7", tmp_path / "model", 4)
    key, public = keys(tmp_path)
    attest(tmp_path / "model", key)
    content = proof_of(newest_claim(tmp_path / "model"), "code", 3).to_bytes()
    dice = random.Random(0)

    for _ in range(1000):
        changed = bytearray(content)
        changed[dice.randrange(len(changed))] ^= 1 << dice.randrange(8)
        with pytest.raises(LadingError):
            check_proof(bytes(changed), [public])
    check_proof(content, [public])


def test_absence_in_a_plan_of_a_trillion_samples_is_arithmetic(tmp_path: Path):
    """As short as any, and checked as fast."""
    key, public = keys(tmp_path)
    plan = Plan.make({"web": 10**12}, batch_size=4096, seed=1)
    span = ClaimedSpan(0, plan.fingerprint, (), ((0, 2_000_000),), ())
    zero = "0" * 64
    run = ClaimedRun("0" * 32, 0, zero, 2_000_000, (0, zero), zero, (span,), "")
    plans = {plan.fingerprint: _written(plan)}
    claim = Claim({"waybill.json": zero}, zero, "training", (), (run,), plans, (), (), (), "0")
    envelope = sealed_in(claim.to_bytes(), public.keyid, key.sign)
    first = plan.bill(1_999_999).samples[0].index
    later = plan.bill(2_000_000).samples[0].index

    proofs = [proof_of(envelope, "web", index).to_bytes() for index in (first, later)]

    assert [check_proof(proof, [public]).proof.answer for proof in proofs] == ["used", "not used"]
    assert max(map(len, proofs)) < 2048
