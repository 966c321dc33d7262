"""``lading jasper``: make a JASPER directory, say what is in it, check every value, mine its negatives anew.

lading jasper build pairs.csv --out corpus/ --cluster-json clusters.json --embed my_models:embed
lading jasper mine-negatives corpus/ --tier-proportions 1,2,4,1
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from lading.cli.output import Json, answer, facts_table
from lading.errors import ConfigError, missing_extra
from lading.runtime.imports import imported

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None)

Directory = Annotated[Path, typer.Argument(help="The JASPER directory.", metavar="DIR", show_default=False)]
Tiers = Annotated[str | None, typer.Option(help="Negatives of tiers 1 to 4, or shares.", metavar="1,2,4,1")]
File = Annotated[str | None, typer.Option(help="Vectors: .npy, .pt or .parquet.", show_default=False)]


@app.callback()
def needs_torch() -> None:
    """Refuse in one line where torch is not installed."""
    if importlib.util.find_spec("torch") is None:
        raise missing_extra("torch", "jasper", "lading jasper")


@app.command()
def build(
    pairs: Annotated[list[Path], typer.Argument(help="Pairs: .parquet, .csv or .jsonl files.", show_default=False)],
    out: Annotated[Path, typer.Option("--out", "-o", help="Directory to make.", show_default=False)],
    questions: File = None,
    sources: File = None,
    keywords: File = None,
    embed: Annotated[str | None, typer.Option(help="Embed texts: 'tfidf', or module:function.")] = None,
    dimensions: Annotated[int, typer.Option(help="Size of tfidf vectors.")] = 128,
    n_neg: Annotated[int, typer.Option(help="Hard negatives of a pair.")] = 8,
    clusters: Annotated[int | None, typer.Option(help="Clusters to find where none are given.")] = None,
    cluster_json: Annotated[Path | None, typer.Option(help="Clusters of keywords, as KeywordClusterer saved.")] = None,
    adjacent_k: Annotated[int, typer.Option(help="Nearest clusters that tier 2 draws from.")] = 3,
    tier_proportions: Tiers = None,
    splits: Annotated[str, typer.Option(help="Shares of train, val and test; 0: none.")] = "0.8,0.1,0.1",
    curriculum: Annotated[str | None, typer.Option(help="Zero steering: start,end,epochs.")] = None,
    seed: Annotated[int, typer.Option(help="Same seed, same directory.")] = 42,
    hdf5: Annotated[bool, typer.Option("--hdf5", help="Write dataset.h5 as well.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a directory that is there.")] = False,
    as_json: Json = False,
) -> None:
    """Build a directory from pairs (question, source, relevance, keywords) and embeddings."""
    from lading.kits.jasper.build.builder import JASPERBuilder
    from lading.kits.jasper.build.inputs import read_pairs

    train, val, test = _floats("--splits", splits, 3)
    zero = dict(
        zip(("zero_prob_start", "zero_prob_end", "epochs_total"), _floats("--curriculum", curriculum, 3), strict=False)
    )
    builder = JASPERBuilder(
        n_neg=n_neg,
        n_clusters=clusters,
        adjacent_k=adjacent_k,
        tier_proportions=_tiers(tier_proportions),
        splits=(train, val, test),
        seed=seed,
        curriculum=zero or None,
        hdf5=hdf5,
        overwrite=overwrite,
        progress=not as_json and sys.stderr.isatty(),
    )
    read = read_pairs([str(file) for file in pairs])
    embedding = _embedding(embed, read.texts, dimensions, seed)
    builder.build(out, read, questions, sources, keywords, embed=embedding, clusters=cluster_json)
    _tell(out, as_json)


@app.command()
def info(directory: Directory, as_json: Json = False) -> None:
    """Say what is in a directory."""
    _tell(directory, as_json)


@app.command()
def validate(directory: Directory, as_json: Json = False) -> None:
    """Check every value of a directory. Exit code 1: something is wrong."""
    from lading.kits.jasper.inspect import faults

    found = faults(directory)
    verdict = {"directory": str(directory), "holds": not found, "faults": found}
    answer(
        verdict, lambda: "\n".join(found) or f"{directory} holds: every check passed", as_json=as_json, holds=not found
    )


@app.command("mine-negatives")
def negatives(
    directory: Directory,
    tier_proportions: Tiers = None,
    adjacent_k: Annotated[int | None, typer.Option(help="Nearest clusters that tier 2 draws from.")] = None,
    seed: Annotated[int | None, typer.Option(help="Same seed, same negatives; none: other ones each time.")] = None,
    as_json: Json = False,
) -> None:
    """Mine the hard negatives of a directory anew."""
    from lading.kits.jasper.build.refresh import mine_negatives

    mine_negatives(directory, tier_proportions=_tiers(tier_proportions), adjacent_k=adjacent_k, seed=seed)
    _tell(directory, as_json)


@app.command("build-steering")
def steering(directory: Directory, as_json: Json = False) -> None:
    """Work out the steering tables of a directory anew."""
    from lading.kits.jasper.build.refresh import build_steering

    build_steering(directory)
    _tell(directory, as_json)


def _tell(directory: Path, as_json: bool) -> None:
    from lading.kits.jasper.inspect import summary

    found = summary(directory)
    answer(found, lambda: facts_table(found), as_json=as_json)


def _tiers(text: str | None) -> list[int | float] | None:
    numbers = _floats("--tier-proportions", text, 4)
    return [int(n) if n == int(n) else n for n in numbers] or None


def _floats(option: str, text: str | None, count: int) -> list[float]:
    if text is None:
        return []
    try:
        values = [float(part) for part in text.split(",")]
    except ValueError:
        values = []
    if len(values) != count:
        raise ConfigError(f"{option} is {text!r}, expected {count} numbers separated by commas.")
    return values


def _embedding(name: str | None, texts: Mapping[str, list[str] | None], dimensions: int, seed: int) -> Any:
    """Return the function that embeds texts: ours, or the one the user names."""
    if name is None:
        return None
    if name == "tfidf":
        from lading.kits.jasper.build.sklearn import TfidfEmbedding

        return TfidfEmbedding([text for some in texts.values() for text in some or ()], dimensions, seed)
    return imported(name, "--embed", example="tfidf, or embeddings:embed", from_here=True)
