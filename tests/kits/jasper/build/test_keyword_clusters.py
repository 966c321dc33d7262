"""Building from CSV files and a cluster JSON, as users of the original do."""

from __future__ import annotations

import json

import numpy as np
import pytest
from tests.kits.jasper.jasper_directory import table

from lading.errors import SourceError
from lading.kits.jasper.build.builder import build_jasper_dataset
from lading.kits.jasper.build.inputs import read_pairs
from lading.kits.jasper.build.keyword_clusters import KeywordClusters
from lading.kits.jasper.dataset import JASPERSteeringDataset

CLUSTERS = {
    "metadata": {"algorithm": "kmeans", "n_clusters": 3, "embedding_dim": 4},
    "cluster_assignments": {"sea": 0, "fish": 0, "star": 1, "night": 1},
    "clusters": {"0": ["sea", "fish"], "1": ["star", "night"], "2": []},
    "centroids": [[1.0, 0, 0, 0], [0, 1.0, 0, 0], [0, 0, 1.0, 0]],
}


def letters(texts):
    """Embed texts by what they are about."""
    about = ("sea fish", "star night", "bread bake", "")
    return np.array([[sum(word in text for word in topic.split()) + 0.1 for topic in about] for text in texts])


def write_csv(path, rows, header="question_text,source_text,keywords,score"):
    """Write a CSV by hand, as the original's users have them."""
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def rows():
    """Many-to-many pairs about three things, one of them twice."""
    topics = [("sea fish", "sea;fish"), ("star night", '"[""star"", ""night""]"'), ("bread bake", "")]
    made = [
        f"what of {topics[i % 3][0]} {i % 9},chapter {i} on {topics[i % 3][0]},{topics[i % 3][1]},0.{i % 9 + 1}"
        for i in range(36)
    ]
    return [*made, "what of sea fish 0,chapter 0 on sea fish,salt,0.9"]


def test_csv_files_and_a_cluster_json_make_a_directory(tmp_path):
    """Column aliases, keywords by ';' and as JSON, duplicates merged, clusters by keyword, question and source."""
    first = write_csv(tmp_path / "a.csv", rows()[:20])
    second = write_csv(tmp_path / "b.csv", rows()[20:])
    clusters = tmp_path / "clusters.json"
    clusters.write_text(json.dumps(CLUSTERS))

    made = build_jasper_dataset(
        tmp_path / "made", [first, second], embed=letters, clusters=clusters, n_neg=4, progress=False
    )

    assert table(made, "centroid_embs").tolist() == CLUSTERS["centroids"]
    assert table(made, "pair_cluster_id").tolist() == [i % 3 for i in range(36)]
    assert table(made, "pair_relevance")[0].item() == pytest.approx(0.9)
    assert table(made, "pair_keyword_ids")[0] == [0, 1, 4]
    assert len(table(made, "keyword_embs")) == 5
    assert len(JASPERSteeringDataset(made, "train", validate=True)) > 20


def test_vectors_of_keywords_come_from_the_file_where_it_has_them(tmp_path):
    """No embedding function is needed for keywords then."""
    words = {"sea": [9.0, 0, 0, 0], "fish": [8.0, 0, 0, 0], "star": [0, 7.0, 0, 0], "night": [0, 6.0, 0, 0]}
    pairs = read_pairs(write_csv(tmp_path / "a.csv", rows()[:36]))
    made = build_jasper_dataset(
        tmp_path / "made", pairs, letters, letters, clusters={**CLUSTERS, "embeddings": words}, n_neg=4, progress=False
    )

    assert table(made, "keyword_embs").tolist() == list(words.values())


def test_a_keyword_without_an_assignment_goes_to_the_most_similar_centroid():
    """Exact match first, cosine otherwise; sources follow their pairs, or their own vector without any."""
    clusters = KeywordClusters.read(CLUSTERS)
    vectors = (np.eye(1, 4, 3), np.eye(3, 4), np.array([[0, 0, 1, 0], [0, 0, 1, 0]]))

    found = clusters.of(np.array([[0, 0], [0, 1]]), ["sea", "loaf"], [[0], [1]], tuple(map(np.float32, vectors)))

    assert found.pairs.tolist() == [0, 2]
    assert found.sources.tolist() == [0, 2, 2]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"centroids": None}, "centroids: expected a value, found none"),
        ({"centroids": [[1.0], [1.0, 2.0]]}, "centroids: expected rows of equally many finite numbers"),
        ({"cluster_assignments": {"sea": 3}}, r"cluster_assignments\['sea'\]: expected a cluster from 0 to 2, found 3"),
        ({"cluster_assignments": [1]}, "cluster_assignments: expected an object, found list"),
    ],
)
def test_a_wrong_cluster_json_is_refused_with_its_place(tmp_path, change, words):
    """File, key, what was expected, what was found."""
    file = tmp_path / "clusters.json"
    file.write_text(json.dumps({**CLUSTERS, **change}))

    with pytest.raises(SourceError, match=rf"clusters\.json: {words}"):
        KeywordClusters.read(file)


def test_keywords_of_a_csv_of_numbers_are_numbers(tmp_path):
    """'3; 5' and a lone 3 are rows of the embeddings where questions are rows, too."""
    several = read_pairs(write_csv(tmp_path / "a.csv", ["0,1,3; 5", "1,2,"], "question,source,keywords"))
    lone = read_pairs(write_csv(tmp_path / "b.csv", ["0,1,3", "1,2,4"], "question,source,keywords"))

    assert several.keywords == [[3, 5], []]
    assert lone.keywords == [[3], [4]]


def test_clusters_of_keywords_need_words(tmp_path):
    """Keyword numbers have no assignment; another model's centroids do not fit."""
    vectors = [np.ones((3, 4), np.float32)] * 3
    pairs = [(i, i, 1.0, [0]) for i in range(3)]
    with pytest.raises(SourceError, match="need keywords as texts, found numbers"):
        build_jasper_dataset(tmp_path / "a", pairs, *vectors, clusters=CLUSTERS, n_neg=1, progress=False)
    with pytest.raises(SourceError, match="have 4 dimensions, expected 2 as the questions"):
        build_jasper_dataset(
            tmp_path / "a", pairs, *[v[:, :2] for v in vectors], clusters=CLUSTERS, n_neg=1, progress=False
        )
