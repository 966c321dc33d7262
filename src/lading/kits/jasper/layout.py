"""What lies in a JASPER directory: every table with its file, its HDF5 twin, its type and its shape.

    question_embs ─┐                       ┌─ source_embs
                   └── pair_index [P, 2] ──┘        ▲
    pair_cluster_id, pair_relevance, steering_* [P] │
    hard_negatives, negative_tiers [P, n_neg] ──────┘
    train_idx, val_idx, test_idx ──▶ pair numbers

One table of facts that reading, checking, converting and building share.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lading.errors import SourceError
from lading.runtime.fields import Origin, brief, is_whole, listed

CONFIG_FILE = "config.json"
HDF5_FILE = "dataset.h5"
SPLITS = ("train", "val", "test")


@dataclass(frozen=True)
class JasperTable:
    """One tensor of the directory.

    Attributes:
        name: File name without ``.pt``; also the attribute of the dataset.
        hdf5: Path inside ``dataset.h5``.
        dtype: What its elements are.
        shape: Sizes; "D" and "n_neg" come from the config, any other word is free.
    """

    name: str
    hdf5: str
    dtype: str
    shape: tuple[int | str, ...]

    @property
    def file(self) -> str:
        """Name of the file that ``torch.save`` wrote."""
        return f"{self.name}.pt"

    def expected_shape(self, embedding_dim: int, n_neg: int) -> tuple[int | None, ...]:
        """Return the sizes the config fixes; None where any size will do."""
        sizes = {"D": embedding_dim, "n_neg": n_neg}
        return tuple(size if isinstance(size, int) else sizes.get(size) for size in self.shape)


TABLES = (
    JasperTable("question_embs", "embeddings/questions", "float32", ("questions", "D")),
    JasperTable("source_embs", "embeddings/sources", "float32", ("sources", "D")),
    JasperTable("keyword_embs", "embeddings/keywords", "float32", ("keywords", "D")),
    JasperTable("centroid_embs", "embeddings/centroids", "float32", ("clusters", "D")),
    JasperTable("pair_index", "pair_data/index", "int64", ("pairs", 2)),
    JasperTable("pair_cluster_id", "pair_data/cluster_id", "int64", ("pairs",)),
    JasperTable("pair_relevance", "pair_data/relevance", "float32", ("pairs",)),
    JasperTable("hard_negatives", "negatives/hardnegatives", "int64", ("pairs", "n_neg")),
    JasperTable("negative_tiers", "negatives/tiers", "int64", ("pairs", "n_neg")),
    JasperTable("steering_centroid", "steering/centroid", "float32", ("pairs", "D")),
    JasperTable("steering_keyword_weighted", "steering/keyword_weighted", "float32", ("pairs", "D")),
    JasperTable("steering_residual", "steering/residual", "float32", ("pairs", "D")),
    JasperTable("centroid_distances", "steering/distances", "float32", ("pairs",)),
)
BY_NAME = {table.name: table for table in TABLES}
NEGATIVES = (BY_NAME["hard_negatives"], BY_NAME["negative_tiers"])
STEERING_TABLES = tuple(table for table in TABLES if table.hdf5.startswith("steering/"))
KEYWORDS_FILE = "pair_keyword_ids.pt"
KEYWORDS_HDF5 = "pair_data/keyword_ids"


def split_table(split: str) -> JasperTable:
    """Return the table of pair numbers of one split."""
    return JasperTable(f"{split}_idx", f"splits/{split}", "int64", ("samples",))


def check_directory(directory: Path) -> None:
    """Refuse a directory that is not there."""
    if not directory.is_dir():
        raise SourceError(f"Dataset directory not found: {directory}. Build one with 'lading jasper build'.")


def read_config(directory: Path) -> dict[str, Any]:
    """Read ``config.json``; unknown keys are kept.

    Raises:
        SourceError: No such directory, "Config file not found: ..." or a text that is not a JSON object.
    """
    check_directory(directory)
    path = directory / CONFIG_FILE
    if not path.is_file():
        raise SourceError(
            f"Config file not found: {path}. A JASPER directory needs one; 'lading jasper build' writes it."
        )
    origin = Origin(path, SourceError, "Write it again with json.dump.")
    try:
        config = origin.json(origin.read())
    except SourceError as error:
        raise SourceError(f"Config file {path} is not JSON: {error}") from error
    if not isinstance(config, dict):
        raise SourceError(f"Config file {path} holds a {type(config).__name__}, expected an object with keys.")
    return config


def config_size(config: dict[str, Any], key: str, path: Path) -> int:
    """Return a size that the config must give, or name the key that is missing or wrong."""
    if key not in config:
        raise SourceError(
            f"Config file {path} has no key {key!r}; it has {listed(map(repr, config)) or 'no keys'}. Add it."
        )
    value = config[key]
    if not is_whole(value, 1) or value >= 1 << 40:
        raise SourceError(f"Config file {path} has {key!r} = {brief(value)}, expected an integer above 0.")
    return value
