"""Batches as JAX pytrees, whichever was imported first."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, PartitionSpec

from lading.batch import LLMBatch, LLMIndexedBatch, cu_seqlens, max_seqlen, pack, to_jax

try:
    from jax import shard_map
except ImportError:  # where it was in its first versions, the lowest one here included
    from jax.experimental.shard_map import shard_map

pytestmark = pytest.mark.jax

TOKENS = np.arange(12, dtype=np.int32).reshape(2, 6)


def batch():
    """A small indexed batch on JAX."""
    return to_jax(LLMIndexedBatch.from_inputs(TOKENS, [1, 2], [0, 0]))


def test_leaves_come_in_field_order_and_an_unset_border_is_none():
    """6 leaves, 8 with document names, one more when borders are set."""
    plain, named = to_jax(LLMBatch.from_inputs(TOKENS)), batch()

    assert len(jax.tree.leaves(plain)) == 6 and len(jax.tree.leaves(named)) == 8
    assert len(jax.tree.leaves(named[:, 1:])) == 9
    assert jax.tree.leaves(named)[0] is named.inputs and jax.tree.leaves(named)[7] is named.sequence_idx
    paths = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(named)]
    assert paths[:2] == [".inputs", ".targets"]


def test_packed_rows_have_no_more_leaves():
    """What kernels ask for is worked out by functions, so that a packed batch is the same pytree as any other."""
    packed = to_jax(pack([[1, 2, 3], [4, 5]], 6))

    cu_seqlens(packed), max_seqlen(packed)

    assert len(jax.tree.leaves(packed)) == 8
    assert jax.tree.structure(packed) == jax.tree.structure(batch())


def test_jit_takes_and_gives_batches():
    """Methods and slices work under a trace."""

    @jax.jit
    def step(batch):
        return batch[:, 2:].replace(targets=batch.targets[:, 2:] * 2), batch.get_document_borders().sum(), len(batch)

    part, borders, rows = step(batch())

    assert isinstance(part, LLMIndexedBatch)
    assert part.targets.tolist() == (TOKENS[:, 2:] * 2).tolist()
    assert (int(borders), int(rows)) == (2, 2)


def test_from_inputs_works_under_jit():
    """Nothing in it looks at values."""
    made = jax.jit(lambda tokens: LLMBatch.from_inputs(tokens))(jnp.asarray(TOKENS))

    assert made.equals(LLMBatch.from_inputs(TOKENS))


def test_tree_map_keeps_the_class():
    """A batch maps to a batch."""
    doubled = jax.tree.map(lambda leaf: leaf * 2, batch())

    assert isinstance(doubled, LLMIndexedBatch) and doubled.document_idx.tolist() == [2, 4]


def test_grad_through_a_batch():
    """Gradients with respect to parameters that meet a batch."""
    grad = jax.grad(lambda weight, batch: (weight * batch.inputs).sum())(2.0, batch())

    assert float(grad) == batch().inputs.sum()


def test_grad_with_respect_to_a_batch():
    """The gradient of a batch of floats is a batch."""
    floats = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), batch())

    grad = jax.grad(lambda batch: (batch.inputs**2).sum() / 2)(floats)

    assert isinstance(grad, LLMIndexedBatch) and grad.inputs.tolist() == floats.inputs.tolist()


def test_vmap_goes_over_rows():
    """Inside vmap a batch is one row."""
    sums = jax.vmap(lambda row: row.targets.sum() + row.document_idx)(batch())

    assert sums.tolist() == (TOKENS.sum(1) + np.array([1, 2])).tolist()


def test_shard_map_takes_batches():
    """Specs may be one for the whole batch."""
    mesh = Mesh(np.array(jax.devices()[:1]), ("data",))

    doubled = shard_map(
        lambda part: jax.tree.map(lambda leaf: leaf * 2, part),
        mesh=mesh,
        in_specs=PartitionSpec("data"),
        out_specs=PartitionSpec("data"),
    )(batch())

    assert doubled.inputs.tolist() == (np.asarray(batch().inputs) * 2).tolist()


USE = "print(jax.jit(lambda b: b.inputs.sum() + b.replace(targets=b.targets).targets.sum())(batch))"
MAKE = "import numpy as np; batch = LLMBatch.from_inputs(np.ones((2, 3), np.int32))"


@pytest.mark.parametrize(
    "program",
    [
        f"import jax\nfrom lading.batch import LLMBatch\n{MAKE}\n{USE}",
        f"from lading.batch import LLMBatch\nimport jax\n{MAKE}\n{USE}",
        f"from lading.batch import LLMBatch\n{MAKE}\nimport jax.numpy\nimport jax\n{USE}",
        f"from lading.batch import LLMBatch\n{MAKE}\nimport importlib.util as u\nu.find_spec('jax')\nimport jax\n{USE}",
        """
        import sys
        import lading.batch
        from lading.batch.pytree import _JaxWatcher
        assert "jax" not in sys.modules
        assert sum(isinstance(f, _JaxWatcher) for f in sys.meta_path) == 1
        import jax
        assert not any(isinstance(f, _JaxWatcher) for f in sys.meta_path)
        assert type(jax.__spec__.loader).__name__ == "SourceFileLoader" == type(jax.__loader__).__name__
        print(10)
        """,
    ],
    ids=["jax-first", "lading-first", "batch-first", "asked-for-first", "the-watcher-goes"],
)
def test_any_order_of_imports(program):
    """A batch made before JAX was loaded works under jit as well."""
    run = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=False)

    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() == "10"


def test_a_missing_or_broken_jax_stays_what_it_is(tmp_path):
    """The watcher changes neither ModuleNotFoundError nor the error of a broken package, and continues waiting."""
    program = """
    import sys, importlib
    import lading.batch
    path = list(sys.path)
    sys.path[:] = [p for p in path if "site-packages" not in p]
    try:
        import jax
    except ModuleNotFoundError as error:
        print(error.name)
    sys.path[:] = [sys.argv[1], *path]
    importlib.invalidate_caches()
    try:
        import jax
    except RuntimeError as error:
        print(error)
    sys.path[:] = path
    importlib.invalidate_caches()
    import jax
    print(len(jax.tree.leaves(lading.batch.LLMBatch.from_inputs([[1]]))))
    """
    (tmp_path / "jax.py").write_text("raise RuntimeError('broken')")

    command = [sys.executable, "-c", textwrap.dedent(program), str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)

    assert run.stdout.split() == ["jax", "broken", "6"], run.stderr
