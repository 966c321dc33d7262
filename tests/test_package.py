"""The package: what is in wheel and sdist, and that the wheel works without any framework."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

import lading
from conftest import marks

ROOT = Path(__file__).parents[1]
# Frameworks that a bare installation does not have.
OPTIONAL = ["torch", "jax", "lightning", "deepspeed", "accelerate", "plotly", "h5py", "sklearn", "soundfile"]
HIDE = f"""
import sys
for name in {OPTIONAL!r}:
    sys.modules[name] = None  # importing it now fails, as where it is not installed
"""


@pytest.fixture(scope="module")
def dist(tmp_path_factory):
    """Return a folder with the wheel and the sdist of this tree."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return folder


@pytest.fixture(scope="module")
def ledger_of_a_run(tmp_path_factory):
    """Return the folder of a small run."""
    from lading import Ledger, Plan

    folder = tmp_path_factory.mktemp("run")
    plan = Plan.make({"code": 40}, batch_size=10)
    with Ledger(folder, plan) as ledger:
        for step in range(4):
            ledger.deliver(plan.bill(step))
            ledger.commit(plan.bill(step), loss=1.0)
    return folder


def test_wheel_holds_the_package_and_nothing_else(dist):
    """Every module, the type marker, the page's style and script; no tests, no examples."""
    (wheel,) = dist.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    packaged = {name for name in names if not name.split("/")[0].endswith(".dist-info")}
    wanted = {str(p.relative_to(ROOT / "src")) for p in (ROOT / "src" / "lading").rglob("*") if p.is_file()}

    assert re.fullmatch(rf"lading-{re.escape(lading.__version__)}-cp311-abi3-\w+\.whl", wheel.name)
    assert packaged == {name for name in wanted if "__pycache__" not in name} and "lading/_kernels.abi3.so" in packaged
    assert {"lading/py.typed", "lading/__init__.pyi", "lading/loader/__init__.pyi"} <= packaged
    assert any(name.endswith("licenses/LICENSE") for name in names)


def unpacked(dist: Path, folder: Path) -> Path:
    """Unpack the sdist and return its folder."""
    (sdist,) = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    (found,) = folder.iterdir()
    return found


@pytest.mark.needs("build", "hatchling")
def test_without_a_compiler_the_wheel_is_plain_and_says_so(dist, tmp_path):
    """Its tag fits every machine, it holds no kernels, and where kernels are demanded it is not made at all.

    It is made of a copy: this tree, where all other tests run, lost its kernels here.
    """
    kernels, source = ROOT / "src" / "lading" / "_kernels.abi3.so", unpacked(dist, tmp_path / "source")
    there = kernels.exists()
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(source)]
    broken = {**os.environ, "CC": "no-such-compiler", "LADING_COMPILED": ""}

    done = subprocess.run(command, env=broken, capture_output=True, text=True, timeout=600)
    demanded = subprocess.run(
        command, env={**broken, "LADING_COMPILED": "1"}, capture_output=True, text=True, timeout=600
    )

    (wheel,) = tmp_path.glob("*.whl")
    assert done.returncode == 0 and wheel.name == f"lading-{lading.__version__}-py3-none-any.whl"
    assert not [name for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".so")]
    assert demanded.returncode != 0 and "no-such-compiler" in demanded.stdout + demanded.stderr
    assert kernels.exists() == there


def test_metadata_names_the_extras_and_the_command(dist):
    """What pip needs to know."""
    (wheel,) = dist.glob("*.whl")
    archive = zipfile.ZipFile(wheel)
    metadata = next(archive.read(n).decode() for n in archive.namelist() if n.endswith("/METADATA"))
    entries = next(archive.read(n).decode() for n in archive.namelist() if n.endswith("/entry_points.txt"))

    for extra in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]:
        assert f"Provides-Extra: {extra}\n" in metadata
    assert "Requires-Python: >=3.11" in metadata and "License-Expression: Apache-2.0" in metadata
    assert "lading = lading.cli:main" in entries


def test_the_audio_extra_brings_torch():
    """Audio datasets return tensors: whoever installs the extra can use them at once."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]

    assert {re.split(r"[^\w-]", need)[0] for need in extras["audio"]} == {"torch", "soundfile", "soxr"}


def test_sdist_holds_everything_that_is_tracked(dist):
    """Source, tests and what they need, documentation, the commands to use them; no runs, no caches."""
    (sdist,) = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {item.name.split("/", 1)[1] for item in archive.getmembers() if item.isfile()}
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False).stdout.split()

    if not tracked:  # this is an sdist itself
        tracked = ["pyproject.toml", "conftest.py", "Makefile", "constraints.txt", "tests/conftest.py", ".ci/run"]
    assert set(tracked) <= names
    assert not [name for name in names if "__pycache__" in name or name.startswith(("runs/", "site/", ".venv"))]
    assert sdist.stat().st_size < 5_000_000


def test_sdist_tests_itself(dist, tmp_path):
    """Unpacked elsewhere, its own tests run on its own sources; ``conftest.py`` was missing."""
    source = unpacked(dist, tmp_path)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--jax=without", "tests/identity"]
    env = {**os.environ, "PYTHONPATH": str(source / "src"), "HYPOTHESIS_PROFILE": "brief"}

    done = subprocess.run(command, cwd=source, env=env, capture_output=True, text=True, timeout=600)

    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]


def bare(code: str, folder: Path) -> subprocess.CompletedProcess:
    """Run code in a process that finds no framework."""
    return subprocess.run([sys.executable, "-c", HIDE + code], capture_output=True, text=True, timeout=600, cwd=folder)


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import lading; print(lading.Plan.make({'code': 10}, batch_size=2).bill(3).batch_id[:5])", "e0-s3"),
        ("from lading.cli import main; main(['--help'])", "What was in a step, and what became of it."),
        ("from lading.cli import main; main(['show', RUN])", "steps applied"),
        ("from lading.cli import main; main(['verify', RUN])", "holds: 4 steps"),
        (
            "import runpy, sys; sys.argv = ['lading', '--version']; runpy.run_module('lading', run_name='__main__')",
            "lading 0.",
        ),
    ],
)
def test_without_frameworks_plans_and_ledgers_work(code, said, ledger_of_a_run, tmp_path):
    """The quick twin of the empty environment: the frameworks are hidden, not absent."""
    done = bare(f"RUN = {str(ledger_of_a_run)!r}\n{code}", tmp_path)

    assert said in done.stdout, done.stdout[-1500:] + done.stderr[-1500:]


@pytest.mark.parametrize(
    ("code", "hint"),
    [
        ("import lading; lading.Loader", "pip install 'lading[torch]'"),
        ("import lading; lading.track", "pip install 'lading[torch]'"),
        ("import lading; lading.DsTrainer", "pip install 'lading[deepspeed]'"),
        ("import lading.loader.jax.loader", "pip install 'lading[jax]'"),
        ("import lading.train.lightning", "pip install 'lading[lightning]'"),
    ],
)
def test_a_missing_framework_is_one_line_with_the_command(code, hint, tmp_path):
    """No one has to read a traceback to learn what to install."""
    wrapped = f"try:\n    {code}\nexcept ImportError as error:\n    print(error)"

    done = bare(wrapped, tmp_path)

    assert hint in done.stdout, done.stdout[-1500:] + done.stderr[-1500:]
    assert len(done.stdout.strip().splitlines()) == 1


@pytest.mark.slow
def test_wheel_in_an_empty_environment(dist, ledger_of_a_run, tmp_path):
    """Installed with what it needs and nothing more: help, show, import, and the hint."""
    (wheel,) = dist.glob("*.whl")
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    install = [
        python,
        "-m",
        "pip",
        "install",
        "-q",
        "--disable-pip-version-check",
        "-c",
        ROOT / "constraints.txt",
        wheel,
    ]
    subprocess.run(install, check=True, timeout=600)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}

    def run(*command):
        return subprocess.run(
            command, capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=600, check=False
        )

    command = tmp_path / "venv" / "bin" / "lading"
    assert "What was in a step" in run(command, "--help").stdout
    assert "steps applied" in run(command, "show", ledger_of_a_run).stdout
    assert run(python, "-c", "import lading, importlib.util as u; print(u.find_spec('torch'))").stdout.strip() == "None"
    assert "pip install 'lading[torch]'" in run(python, "-c", "import lading; lading.Loader").stderr
    assert "pip install 'lading[torch]'" in run(command, "demo").stderr


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import pytest\npytestmark = pytest.mark.jax", {"jax"}),
        ("import pytest\npytestmark = [pytest.mark.launch, pytest.mark.jax]", {"launch", "jax"}),
        ('"""Of jax and JaxLoader."""\nimport pytest\npytestmark = pytest.mark.launch', {"launch"}),
        ("jax = 1", set()),
    ],
)
def test_files_about_jax_are_chosen_by_their_marker(source, found):
    """The word in a comment no longer sends a file to the processes of JAX."""
    assert marks(source) == found
