"""Building JASPER directories: negatives, steering, splits, inputs, and nothing half-written."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import torch
from hypothesis import given, strategies as st
from tests.kits.jasper.jasper_directory import table

from lading.errors import SourceError
from lading.kits.jasper.build import write
from lading.kits.jasper.build.builder import JASPERBuilder, build_jasper_dataset
from lading.kits.jasper.build.negatives import Pools, mine, most_similar, tier_sizes
from lading.kits.jasper.build.splits import split_pairs
from lading.kits.jasper.build.vectors import steering_tables, unit
from lading.kits.jasper.dataset import JASPERSteeringDataset
from lading.kits.jasper.inspect import faults, summary


def example(pairs=60, questions=20, sources=40, keywords=6, dim=8, seed=0):
    """Random pairs and vectors, as arguments of ``build``."""
    random = np.random.default_rng(seed)
    rows = [
        (
            int(random.integers(questions)) if p >= questions else p,
            int(random.integers(sources)),
            float(random.random()),
            random.integers(0, keywords, random.integers(0, 4)).tolist(),
        )
        for p in range(pairs)
    ]
    vectors = [random.normal(size=(n, dim)).astype(np.float32) for n in (questions, sources, keywords)]
    return rows, *vectors


def build(path, *arguments, **settings):
    """Build quietly."""
    return build_jasper_dataset(path, *arguments, progress=False, **settings)


def saved(path):
    """All tables of a directory."""
    return {file.stem: table(path, file.stem) for file in path.glob("*.pt")}


@given(st.integers(1, 40))
def test_tiers_share_the_negatives(n_neg):
    """A quarter each, the remainder to tiers 1, 2, 3 first."""
    sizes = tier_sizes(n_neg)

    assert sum(sizes) == n_neg
    assert list(sizes) == sorted(sizes, reverse=True)
    assert sizes[0] - sizes[3] <= 1
    assert sizes[3] == n_neg // 4


@given(
    n_neg=st.integers(1, 12),
    n_clusters=st.integers(1, 6),
    sources=st.integers(13, 40),
    adjacent_k=st.integers(0, 4),
    seed=st.integers(0, 10**6),
)
def test_negatives_obey_their_tiers(n_neg, n_clusters, sources, adjacent_k, seed):
    """Any clusters, empty ones too: right tier, no one twice, never the true source, tier 3 by brute force."""
    random = np.random.default_rng(seed)
    questions, vectors = random.normal(size=(10, 5)), random.normal(size=(sources, 5))
    centroids = random.normal(size=(n_clusters, 5)).astype(np.float32)
    of_source, of_pair = random.integers(0, n_clusters, sources), random.integers(0, n_clusters, 25)
    index = np.column_stack([random.integers(0, 10, 25), random.integers(0, sources, 25)])
    pools = Pools.make(of_source, centroids, adjacent_k)
    similar = most_similar(questions, vectors, index, of_pair, pools, tier_sizes(n_neg)[2])

    negatives, tiers = mine(index, of_pair, similar, pools, tier_sizes(n_neg), seed)

    cosine = unit(questions) @ unit(vectors).T
    closeness = unit(centroids) @ unit(centroids).T
    for pair, (question, true) in enumerate(index):
        row, labels, cluster = negatives[pair], tiers[pair], of_pair[pair]
        assert len(set(row.tolist())) == n_neg
        assert true not in row
        assert set(labels) <= {1, 2, 3, 4}
        others = [c for c in np.argsort(-closeness[cluster], kind="stable") if c != cluster]
        assert (of_source[row[labels == 1]] == cluster).all()
        assert set(of_source[row[labels == 2]]) <= set(others[:adjacent_k])
        candidates = [s for s in range(sources) if of_source[s] != cluster and s != true]
        best = sorted(candidates, key=lambda s: -cosine[question, s])[: tier_sizes(n_neg)[2]]
        assert np.allclose(np.sort(cosine[question, row[labels == 3]]), np.sort(cosine[question, best]), atol=1e-6)


def test_full_tiers_are_labelled_as_promised(tmp_path):
    """Where every cluster has enough, the labels are 1 1 2 2 3 3 4 4 and tier 4 is outside the cluster."""
    rows, *vectors = example(pairs=200, questions=50, sources=200)
    made = saved(build(tmp_path / "d", rows, *vectors, n_clusters=4))
    clusters = np.array([made["pair_cluster_id"].numpy()]).T

    assert made["negative_tiers"].unique(dim=0).tolist() == [[1, 1, 2, 2, 3, 3, 4, 4]]
    half = ((vectors[1][:, None] - made["centroid_embs"].numpy()[None]) ** 2).sum(-1).argmin(1)
    of_negatives = half[made["hard_negatives"].numpy()]
    assert (of_negatives[:, :2] == clusters).all()
    assert (of_negatives[:, 2:] != clusters).all()


def test_an_empty_tier_is_filled_from_others_and_labelled_4():
    """One cluster has nobody beside it or outside of it; a cluster of one has nobody else in it."""
    index = np.column_stack([np.arange(6), np.arange(6)])
    alone = Pools.make(np.zeros(12, dtype=np.int64), np.eye(1, 3, dtype=np.float32), 3)
    nobody = np.full((6, 2), -1)
    negatives, tiers = mine(index, np.zeros(6, dtype=np.int64), nobody, alone, (2, 2, 2, 2), 0)

    assert tiers.tolist() == [[1, 1, 4, 4, 4, 4, 4, 4]] * 6
    assert all(len({*row.tolist(), true}) == 9 for true, row in enumerate(negatives))

    lonely = Pools.make(np.array([0] + [1] * 11), np.eye(2, 3, dtype=np.float32), 3)
    negatives, tiers = mine(index[:1], np.zeros(1, dtype=np.int64), nobody[:1], lonely, (2, 2, 2, 2), 0)
    assert sorted(tiers[0].tolist()) == [2, 2, 4, 4, 4, 4, 4, 4] and 0 not in negatives


def test_random_tiers_are_random():
    """Tiers 1 and 4 use every source of their pool about equally often."""
    of_source, pairs = np.repeat([0, 1], 20), 4000
    pools = Pools.make(of_source, np.eye(2, dtype=np.float32), 0)
    index = np.zeros((pairs, 2), dtype=np.int64)
    similar = np.full((pairs, 1), -1)
    negatives, _ = mine(index, np.zeros(pairs, dtype=np.int64), similar, pools, (1, 1, 1, 1), 7)

    same, far = np.bincount(negatives[:, 0], minlength=40), np.bincount(negatives[:, 3], minlength=40)
    assert same[0] == same[20:].sum() == far[:20].sum() == 0
    assert abs(same[1:20] - pairs / 19).max() < 5 * np.sqrt(pairs / 19)
    assert abs(far[20:] - pairs / 20).max() < 5 * np.sqrt(pairs / 20)


def test_tier_proportions_are_numbers_or_shares(tmp_path):
    """[3, 4, 3, 2] of 12 as the original has it; shares are rounded so that they sum to n_neg."""
    rows, *vectors = example(pairs=200, questions=50, sources=200)
    made = build(tmp_path / "d", rows, *vectors, n_clusters=4, n_neg=12, tier_proportions=[3, 4, 3, 2])

    assert table(made, "negative_tiers").unique(dim=0).tolist() == [[1] * 3 + [2] * 4 + [3] * 3 + [4] * 2]
    assert json.loads((made / "config.json").read_text())["tier_proportions"] == [3, 4, 3, 2]
    assert tier_sizes(7, [0.5, 0.5, 0, 0]) == (4, 3, 0, 0)
    for wrong in ([1, 2, 3], [3, 4, 3, 3], [-1, 5, 5, 3]):
        with pytest.raises(SourceError, match="expected four numbers for tiers 1 to 4 that sum to n_neg=12"):
            JASPERBuilder(n_neg=12, tier_proportions=wrong)


def test_too_few_sources_are_refused(tmp_path):
    """Negatives must be different."""
    with pytest.raises(SourceError, match=r"n_neg=8 needs at least 9 sources, found 8. Lower n_neg"):
        build(tmp_path / "d", *example(sources=8))


def test_steering_follows_its_formulas():
    """Towards the centroid, towards the keywords, away from the centroid, and the cosine distance."""
    questions = np.array([[1, 0], [0, 2], [3, 4], [0, 0]], dtype=np.float32)
    centroids = np.array([[1, 0], [2, 2], [-3, -4], [1, 0]], dtype=np.float32)
    keywords = np.array([[0, 3], [4, 0], [0, -3]], dtype=np.float32)

    rows = np.arange(4), np.arange(4)
    made = steering_tables(questions, centroids, keywords, rows, [[0, 1], [], [0, 2], [1]])

    towards = np.array([[0, 0], [1, 0], [-0.6, -0.8], [1, 0]])
    assert np.allclose(made["steering_centroid"], towards)
    words = np.array([[0.8, 0.6], towards[1], towards[2], [1, 0]])  # no keywords, or keywords that cancel out
    assert np.allclose(made["steering_keyword_weighted"], words)
    assert np.allclose(made["steering_residual"], questions - centroids)
    assert np.allclose(made["centroid_distances"], [0, 1 - np.sqrt(0.5), 2, 1])
    assert {array.dtype for array in made.values()} == {np.dtype(np.float32)}


def test_a_direction_shorter_than_1e_8_is_none():
    """The question lies at its centroid; its keywords fall back to the same rule."""
    questions = np.zeros((2, 2), dtype=np.float32)
    centroids = np.array([[0, 9e-9], [0, 2e-8]], dtype=np.float32)
    keywords = np.array([[9e-9, 0]], dtype=np.float32)

    made = steering_tables(questions, centroids, keywords, (np.arange(2), np.arange(2)), [[0], [0]])

    assert made["steering_centroid"].tolist() == made["steering_keyword_weighted"].tolist() == [[0, 0], [0, 1]]
    assert np.array_equal(made["steering_residual"], -centroids)


@given(
    questions=st.integers(3, 60),
    clusters=st.integers(1, 6),
    seed=st.integers(0, 10**6),
    shares=st.sampled_from([(0.8, 0.1, 0.1), (0.34, 0.33, 0.33), (0.5, 0.4, 0.1), (0.9, 0.1, 0.0), (1.0, 0.0, 0.0)]),
)
def test_splits_part_questions_and_leave_nobody_out(questions, clusters, seed, shares):
    """Every pair in one split, no question on two sides, a split empty where its share is 0 and only there."""
    random = np.random.default_rng(seed)
    asked = np.concatenate([np.arange(questions), random.integers(0, questions, questions)])
    of_pair = random.integers(0, clusters, questions)[asked]

    splits = split_pairs(asked, of_pair, shares, seed)

    assert sorted(np.concatenate(list(splits.values())).tolist()) == list(range(len(asked)))
    sides = [set(asked[numbers].tolist()) for numbers in splits.values()]
    assert [bool(side) for side in sides] == [share > 0 for share in shares]
    assert sum(map(len, sides)) == questions


def test_splits_hold_their_shares_in_every_cluster():
    """.8/.1/.1 over all and inside each cluster, to a few pairs."""
    random = np.random.default_rng(1)
    asked = random.integers(0, 4000, 10_000)
    of_pair = random.integers(0, 10, 4000)[asked]
    splits = split_pairs(asked, of_pair, (0.8, 0.1, 0.1), 3)
    for share, numbers in zip((0.8, 0.1, 0.1), splits.values(), strict=True):
        assert abs(len(numbers) / 10_000 - share) < 0.002
        in_cluster = np.bincount(of_pair[numbers]) / np.bincount(of_pair)
        assert abs(in_cluster - share).max() < 0.015
    assert {k: v.tolist() for k, v in splits.items()} != {
        k: v.tolist() for k, v in split_pairs(asked, of_pair, (0.8, 0.1, 0.1), 4).items()
    }


@pytest.mark.parametrize("shares", [(0.8, 0.2), (0.0, 0.5, 0.5), (1.1, -0.1, 0.0), (0.8, 0.1, 0.2)])
def test_impossible_shares_are_refused(shares):
    """Three that sum to one, the first above zero."""
    with pytest.raises(SourceError, match=r"expected three shares that sum to 1, the first above 0"):
        split_pairs(np.arange(9), np.zeros(9, dtype=np.int64), shares, 0)
    with pytest.raises(SourceError, match=r"2 questions cannot be split into train, val, test, expected at least 3"):
        split_pairs(np.array([0, 1, 1]), np.zeros(3, dtype=np.int64), (0.8, 0.1, 0.1), 0)


def test_a_built_directory_is_complete_and_checks(tmp_path):
    """Every split opens with every check on; the tables are what was given."""
    rows, questions, sources, keywords = example()
    path = build(tmp_path / "d", rows, questions, sources, keywords, curriculum={"epochs_total": 5}, n_neg=6)

    splits = JASPERSteeringDataset.create_combined_splits(path, validate=True)
    made, config = saved(path), json.loads((path / "config.json").read_text())
    assert sum(map(len, splits.values())) == 60
    assert made["pair_index"].tolist() == [[q, s] for q, s, _, _ in rows]
    assert splits["train"].pair_keyword_ids == [ids for *_, ids in rows]
    assert torch.equal(made["question_embs"], torch.from_numpy(questions))
    assert torch.equal(made["pair_relevance"], torch.tensor([r for *_, r, _ in rows]))
    assert (config["embedding_dim"], config["n_neg"], config["curriculum"]) == (8, 6, {"epochs_total": 5})
    assert (config["n_pairs"], config["n_questions"], config["n_sources"], config["n_keywords"]) == (60, 20, 40, 6)
    assert config["n_clusters"] == len(made["centroid_embs"]) == 3
    assert config["split_sizes"] == {name: len(split) for name, split in splits.items()}


def test_equal_builds_are_equal_and_seeds_matter(tmp_path):
    """Same inputs and settings, same directory."""
    one, two, other = (saved(build(tmp_path / str(i), *example(), seed=seed)) for i, seed in enumerate((1, 1, 2)))

    assert all(torch.equal(one[name], two[name]) for name in one if name != "pair_keyword_ids")
    assert not torch.equal(one["hard_negatives"], other["hard_negatives"])


def test_given_clusters_and_centroids_are_used(tmp_path):
    """For pairs and sources; centroids default to the mean of the questions."""
    rows, questions, sources, keywords = example()
    clusters = np.arange(60) % 2
    made = saved(build(tmp_path / "a", rows, questions, sources, keywords, clusters=clusters))
    members = questions[[row[0] for row, c in zip(rows, clusters, strict=True) if c == 1]]
    assert made["pair_cluster_id"].tolist() == clusters.tolist()
    assert np.allclose(made["centroid_embs"][1], members.mean(axis=0), atol=1e-6)

    centroids, of_sources = np.eye(3, 8), np.arange(40) % 3
    made = saved(
        build(
            tmp_path / "b", rows, questions, sources, keywords,
            clusters=clusters, source_clusters=of_sources, centroids=centroids,
        )
    )  # fmt: skip
    assert made["centroid_embs"].tolist() == centroids.tolist()
    first = made["hard_negatives"][:, 0].numpy()
    assert (of_sources[first] == clusters).all()


def words(texts):
    """A function that embeds texts: letters counted."""
    return np.array([[text.count(letter) + len(text) / 50 for letter in "aeiost"] for text in texts], dtype=np.float32)


TEXTS = [
    {
        "question": f"question {i % 12} of things",
        "source": f"source {i} says {'so ' * (i % 7)}",
        "relevance": (i % 5) / 4,
        "keywords": [f"word{i % 4}", "common"][: i % 3],
    }
    for i in range(36)
]


def write_pairs(path, kind):
    """TEXTS as a file of some kind."""
    file = path / f"pairs.{kind}"
    if kind == "parquet":
        pyarrow.parquet.write_table(pa.Table.from_pylist(TEXTS), file)
    elif kind == "jsonl":
        file.write_text("".join(json.dumps(row) + "\n" for row in TEXTS))
    else:
        lines = [f"{r['question']},{r['source']},{r['relevance']},{'; '.join(r['keywords'])}" for r in TEXTS]
        file.write_text("\n".join(["question,source,relevance,keywords", *lines]) + "\n")
    return file


@pytest.mark.parametrize("kind", ["parquet", "csv", "jsonl"])
def test_pairs_come_from_files_of_three_kinds(tmp_path, kind):
    """The same directory as from the list itself; texts are numbered as they first appear."""
    expected = saved(build(tmp_path / "list", TEXTS, embed=words, n_clusters=2))
    made = saved(build(tmp_path / "file", write_pairs(tmp_path, kind), embed=words, n_clusters=2))

    assert made["pair_keyword_ids"] == expected["pair_keyword_ids"]
    assert all(torch.equal(made[name], expected[name]) for name in made if name != "pair_keyword_ids")
    assert made["pair_index"][:13, 0].tolist() == [*range(12), 0]
    assert torch.equal(made["question_embs"][1], torch.from_numpy(words(["question 1 of things"])[0]))


@pytest.mark.parametrize("kind", ["npy", "pt", "parquet", "tensor"])
def test_embeddings_come_from_files_of_three_kinds(tmp_path, kind):
    """Arrays, tensors, .npy, .pt, and Parquet columns of vectors."""
    rows, *vectors = example()
    given = []
    for name, array in zip(("q", "s", "k"), vectors, strict=True):
        file = tmp_path / f"{name}.{kind}"
        if kind == "npy":
            np.save(file, array)
        elif kind == "pt":
            torch.save(torch.from_numpy(array), file)
        elif kind == "parquet":
            pyarrow.parquet.write_table(pa.table({"row": range(len(array)), "vector": list(array)}), file)
        given.append(torch.from_numpy(array).double() if kind == "tensor" else file)

    made = saved(build(tmp_path / "d", rows, *given))
    assert torch.equal(made["source_embs"], torch.from_numpy(vectors[1]))


def test_parquet_columns_of_the_pairs_hold_embeddings(tmp_path):
    """question_emb and source_emb beside each pair; a text column names vectors in any order."""
    rows = [
        {**row, "question_emb": words([row["question"]])[0].tolist(), "source_emb": words([row["source"]])[0].tolist()}
        for row in TEXTS
    ]
    file = tmp_path / "pairs.parquet"
    pyarrow.parquet.write_table(pa.Table.from_pylist(rows), file)
    names = ["common", "word3", "word2", "word1", "word0"]
    vocabulary = tmp_path / "words.parquet"
    pyarrow.parquet.write_table(pa.table({"text": names, "vector": words(names).tolist()}), vocabulary)
    made = saved(build(tmp_path / "d", file, keyword_embs=vocabulary, n_clusters=2))
    expected = saved(build(tmp_path / "e", TEXTS, embed=words, n_clusters=2))

    assert all(torch.equal(made[name], expected[name]) for name in made if name != "pair_keyword_ids")


def test_keywords_are_optional(tmp_path):
    """Without any, keyword steering is the centroid's."""
    rows, questions, sources, _ = example()
    made = saved(build(tmp_path / "d", [row[:3] for row in rows], questions, sources))

    assert made["keyword_embs"].shape == (0, 8)
    assert torch.equal(made["steering_keyword_weighted"], made["steering_centroid"])
    assert len(JASPERSteeringDataset(tmp_path / "d", "train", validate=True))


def test_a_share_of_zero_leaves_a_split_empty(tmp_path):
    """The directory is complete and checks; only opening the empty split by its name is refused."""
    path = build(tmp_path / "d", *example(), splits=(0.9, 0.1, 0.0), hdf5=True)
    splits = JASPERSteeringDataset.create_combined_splits(path, validate=True)

    assert len(splits["train"]) + len(splits["val"]) == 60 and len(splits["test"]) == 0
    assert list(torch.utils.data.DataLoader(splits["test"], batch_size=4)) == []
    assert faults(path) == [] and summary(path)["splits"]["test"] == 0
    with pytest.raises(SourceError, match=r"Split 'test' is empty .* give this split a share above 0"):
        JASPERSteeringDataset(path, "test")


def test_hdf5_is_written_on_request(tmp_path):
    """Beside the .pt files."""
    path = build(tmp_path / "d", *example(), hdf5=True)

    assert JASPERSteeringDataset(path, "val", validate=True).storage_format == "hdf5"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"question_embs": None}, r"no embeddings for question: pass question_embs="),
        ({"keyword_embs": None}, r"no embeddings for keyword: pass keyword_embs="),
        ({"question_embs": words}, r"a function was given to embed each question, but pairs hold question numbers"),
        ({"source_embs": np.zeros((40, 7))}, r"source embeddings have 7 dimensions, expected 8"),
        ({"source_embs": np.zeros(40)}, r"source embeddings are float64 of shape \(40,\), expected numbers of shape"),
        ({"source_embs": np.full((40, 8), np.nan)}, r"source embedding 0 holds NaN or Inf"),
        ({"question_embs": np.zeros((5, 8))}, r"pair_index references question 19, but only 5 questions exist"),
        ({"source_embs": "gone.npy"}, r"source embeddings not found: gone.npy"),
        ({"source_embs": __file__}, r"holds no embeddings, expected .npy, .pt or .parquet"),
        ({"pairs": []}, r"pairs have 0 rows"),
        ({"pairs": [{"question": 1}]}, r"pairs have 1 rows and columns question; expected"),
        ({"pairs": "pairs.txt"}, r"pairs.txt is no pairs file, expected one of .parquet, .csv, .jsonl"),
        ({"pairs": "pairs.csv"}, r"pairs file not found: pairs.csv"),
        ({"pairs": [(0, 0, 1.5, []), (1, 1, 0.5, [])]}, r"relevance is 1.5 in row 0 of the pairs, expected 0 to 1"),
        ({"pairs": [(0, 0, 0.5, [9])]}, r"pair_keyword_ids references keyword 9, but only 6 keywords exist"),
        ({"pairs": [(0, -1, 0.5, [])]}, r"pair_index references source -1, but source numbers start at 0"),
        ({"pairs": [(0, 0.5, 0.5, [])]}, r"column 'source' of the pairs is double, expected texts or integers"),
        ({"pairs": [(None, 1, 0.5, []), (1, 1, 0.5, [])]}, r"question is empty in row 0 of the pairs"),
        ({"clusters": [0, 1]}, r"clusters are int64 of shape \(2,\), expected 60 integers"),
        ({"clusters": [0] * 59 + [-1]}, r"clusters references cluster -1, but cluster numbers start at 0"),
        ({"clusters": [0] * 59 + [2]}, r"cluster 1 has no pair, so it has no centroid"),
        ({"clusters": [3] * 60, "centroids": np.eye(2, 8)}, r"clusters references cluster 3, but only 2 clusters"),
        ({"clusters": [0] * 60, "centroids": np.eye(2, 7)}, r"centroids have shape \(2, 7\), expected \[Nc, 8\]"),
        ({"n_clusters": 21}, r"n_clusters=21, expected 1 to 20"),
        ({"n_neg": 0}, r"n_neg=0, adjacent_k=3: expected n_neg >= 1"),
        ({"curriculum": {"zero_prob_end": 7}}, r"zero_prob_end'\] is 7, expected a probability"),
    ],
)
def test_wrong_inputs_are_named_before_anything_is_written(tmp_path, change, message):
    """Each with what was found and expected."""
    names = ("pairs", "question_embs", "source_embs", "keyword_embs")
    with pytest.raises(SourceError, match=message):
        build(tmp_path / "d", **(dict(zip(names, example(), strict=True)) | change))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("stop_at", [0, 7, 16])
def test_an_interrupted_build_leaves_nothing(tmp_path, monkeypatch, stop_at):
    """Ctrl-C while files are written: no directory, no leftovers."""
    written = []

    def interrupted(*arguments):
        if len(written) == stop_at:
            raise KeyboardInterrupt
        written.append(arguments)

    monkeypatch.setattr(write.torch, "save", interrupted)
    with pytest.raises(KeyboardInterrupt):
        build(tmp_path / "d", *example())
    assert list(tmp_path.iterdir()) == []


def test_existing_directories_are_replaced_only_on_request(tmp_path):
    """And nothing but a JASPER directory ever is."""
    path = build(tmp_path / "d", *example(), n_neg=4)
    with pytest.raises(SourceError, match=r"exists already. Pass overwrite=True"):
        build(path, *example())
    build(path, *example(), n_neg=5, overwrite=True)
    assert table(path, "hard_negatives").shape == (60, 5)

    (tmp_path / "home").mkdir()
    with pytest.raises(SourceError, match=r"It is no JASPER directory; choose another"):
        build(tmp_path / "home", *example(), overwrite=True)


def test_progress_is_shown(tmp_path, capsys):
    """Bars for the long steps."""
    JASPERBuilder(progress=True).build(tmp_path / "d", *example())

    assert (tmp_path / "d").is_dir()
    assert "Traceback" not in capsys.readouterr().out
