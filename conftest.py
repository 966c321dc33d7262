"""Keep JAX out of the processes that fork.

JAX runs threads, and a process with threads must not fork: torch's workers
would inherit locks that no thread releases. So files that load JAX are run in
processes of their own (``--jax=only``), all others in processes that never
load it (``--jax=without``, which fails if one does). Without the option
everything is collected.

A file loads JAX if it says ``pytestmark = pytest.mark.jax``, or if it is named
after JAX: ``jax.py``, ``test_x_jax.py``, or below a folder ``jax``. The doors
of our packages (``__init__.py``) count too: pytest, looking for fixtures beside
their doctests, asks for every name, and a name of JAX's room loads JAX.

``--missing=skip`` is for environments without some framework (another Python,
for which there is no torch): a file or a test that cannot be run without it is
skipped and counted. By default it fails: in the full environment nothing is
missing.
"""

from __future__ import annotations

import ast
import gc
import importlib.util
import os
import re
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

_TESTS = Path(__file__).parent / "tests"
_SOURCES = Path(__file__).parent / "src"
_REPORTED: list[str] = []  # the first test that found JAX loaded
_SPENT: list[float] = []  # seconds of processors before the test that runs
# What an environment may be without, and what an extra of Lading brings.
_OPTIONAL = {
    *("torch", "jax", "lightning", "deepspeed", "accelerate", "transformers", "trl", "ray", "datasets", "torchdata"),
    *("h5py", "soundfile", "soxr", "sklearn", "plotly", "jinja2", "starlette", "uvicorn", "wandb", "mlflow"),
    *(
        "tensorboard",
        "tokenizers",
        "zstandard",
        "grain",
        "orbax",
        "kaleido",
        "playwright",
        "moto",
        "boto3",
        "obstore",
        "polars",
    ),
    "cryptography",
    *("pandas", "httpx", "jsonargparse", "PIL", "mypy", "pyright", "hatchling", "build", "mkdocs", "megatron"),
    "pydivsufsort",
}
_BROUGHT = {
    "audio": "soundfile",
    "hdf5": "h5py",
    "jasper": "sklearn",
    "report": "jinja2",
    "ui": "starlette",
    "sign": "cryptography",
    "store": "obstore",
}
_SAID = re.compile(r"No module named '?([\w]+)|pip install 'lading\[(\w+)\]'|could not import '(\w+)'")

_HALF_OPEN = re.compile(r"cannot import name '\w+' from '(lading|tests)")  # asked again, after torch was not found

# torch's threads wait for each other busily, and crawl where others use the cores. What tests start inherits it.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# pytest's workers say how wide the terminal is; tables are never cut where nobody says it.
os.environ.pop("COLUMNS", None)
# One folder of compiled extensions for each environment: see Makefile.
if sys.prefix != sys.base_prefix:
    os.environ.setdefault("TORCH_EXTENSIONS_DIR", f"{sys.prefix}/torch_extensions")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that chooses between the two kinds of files."""
    parser.addoption("--jax", choices=("only", "without"), help="collect only the files that load JAX, or only others")
    parser.addoption("--missing", choices=("fail", "skip"), default="fail", help="what is a test without its framework")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out the files of the other kind, the scripts that tests start, and sources without examples."""
    choice = config.getoption("--jax")
    if collection_path.suffix != ".py" or collection_path.name == "conftest.py":
        return None
    if _TESTS in collection_path.parents and not collection_path.name.startswith("test_"):
        return True  # --doctest-modules would import it
    if _SOURCES in collection_path.parents and ">>>" not in collection_path.read_text():
        return True  # no example to run: four of five files, and with their doors every framework
    if choice is None:
        return None
    return True if loads_jax(collection_path) == (choice == "without") else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Import without looking for what can be collected: nearly all of it stays."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """Take what imports left out of the collector's sight.

    With every framework imported, to look through it all takes a second, in tests that ask for it and in each process
    that they fork. What tests themselves leave behind is found as before.
    """
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    """Let Python collect everything when it ends: some libraries count what is left then."""
    gc.unfreeze()


def loads_jax(path: Path) -> bool:
    """Say whether a file is marked as one that loads JAX, or named after it."""
    relative = path.relative_to(Path(__file__).parent)
    if relative.parts[0] == "src" and path.name == "__init__.py":
        return True
    return "jax" in relative.parts or relative.stem.split("_")[-1] == "jax" or "jax" in marks(path.read_text())


def marks(source: str) -> set[str]:
    """Return the markers that a module sets on all its tests, without importing it."""
    values = [
        node.value
        for node in ast.parse(source).body
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "pytestmark" for t in node.targets)
    ]
    return {node.attr for value in values for node in ast.walk(value) if isinstance(node, ast.Attribute)} - {"mark"}


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Fail the first test that finds JAX loaded where no file says that it loads it."""
    if item.config.getoption("--jax") != "without" or "jax" not in sys.modules or _REPORTED:
        return
    _REPORTED.append(item.nodeid)
    if not any(loads_jax(path) for path in {other.path for other in item.session.items}):  # named on the command line
        pytest.fail(
            "JAX is loaded under --jax=without, by this test or by a file that imports it. Mark the file: "
            "pytestmark = pytest.mark.jax"
        )


def missing(text: str) -> str | None:
    """Return the framework that a failure says is missing, if it really is."""
    for match in _SAID.finditer(text):
        named = next(group for group in match.groups() if group)
        name = _BROUGHT.get(named, named)
        if name in _OPTIONAL and importlib.util.find_spec(name) is None:
            return name
    if _HALF_OPEN.search(text) and importlib.util.find_spec("torch") is None:
        return "torch"
    return None


def _skip(report: pytest.TestReport | pytest.CollectReport, config: pytest.Config, place: Path) -> None:
    if report.outcome != "failed" or config.getoption("--missing") != "skip":
        return
    name = missing(report.longreprtext)
    if name is not None:
        report.outcome = "skipped"
        report.longrepr = (str(place), 0, f"Skipped: needs {name}, which is not installed")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test that says what it needs, where that is missing; it would only say that a command failed."""
    needed = [name for mark in item.iter_markers("needs") for name in mark.args]
    absent = [name for name in needed if importlib.util.find_spec(name) is None]
    if absent and item.config.getoption("--missing") == "skip":
        pytest.skip(f"needs {absent[0]}, which is not installed")


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Skip a file that cannot be imported without what is missing."""
    report = yield
    _skip(report, collector.config, collector.path)
    return report


def _processors() -> float:
    """Return the seconds that processors spent on this process and on those it waited for."""
    return sum(os.times()[:4])


def pytest_runtest_logstart(nodeid: str) -> None:
    """Note what was spent before a test."""
    _SPENT.append(_processors())


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Skip a test that needs what is missing; note what a test cost, fixtures included, for the suite's summary."""
    if call.when == "teardown":
        item.user_properties.append(("cpu", round(_processors() - _SPENT.pop(), 3)))
    report = yield
    _skip(report, item.config, item.path)
    return report
