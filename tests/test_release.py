"""What stands between this tree and a release, and the habits that a project is expected to have."""

from __future__ import annotations

import importlib.util
import re
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def script(name: str):
    """Return a script of CI's as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / ".ci" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_placeholders_are_found_before_a_release():
    """Addresses and contacts are the owner's to fill in; a tag without them is refused, each file named."""
    found = script("release").problems("v9.9.9")

    for file in ("pyproject.toml", "CITATION.cff", "SECURITY.md", "CODE_OF_CONDUCT.md"):
        wants = "PLACEHOLDER" in (ROOT / file).read_text()
        assert any(line.startswith(f"{file}: ") and "placeholder" in line for line in found) == wants
    assert "CHANGELOG.md: no section 9.9.9" in found and any("__version__" in line for line in found)


def test_a_tree_that_is_ready_is_ready(tmp_path):
    """With everything filled in nothing is left."""
    for file in ("pyproject.toml", "CITATION.cff", "SECURITY.md", "CODE_OF_CONDUCT.md", "CHANGELOG.md"):
        text = (ROOT / file).read_text().replace("PLACEHOLDER", "owner")
        (tmp_path / file).write_text(re.sub(r"^version: .*", "version: 9.9.9", text, flags=re.MULTILINE))
    (tmp_path / "CHANGELOG.md").write_text("## 9.9.9 (2030-01-01)\n")
    (tmp_path / "changelog.d").mkdir()
    (tmp_path / "src/lading").mkdir(parents=True)
    (tmp_path / "src/lading/__init__.py").write_text('__version__ = "9.9.9"\n')

    assert script("release").problems("v9.9.9", tmp_path) == []


def test_every_requirement_has_one_lower_bound():
    """``make test-lowest`` installs exactly these; a requirement without one, or with two, is refused."""
    lowest = script("lowest").lowest

    found = lowest(PROJECT["project"])

    assert found["pyarrow"] == "20" and found["typer"] == "0.16" and len(found) > 20
    for needs in (["numpy"], ["numpy>=1", "numpy>=2"]):
        with pytest.raises(SystemExit, match="lower bound"):
            lowest({"dependencies": needs, "optional-dependencies": {}})


def test_classifiers_are_the_pythons_of_the_matrix():
    """What is promised is what CI runs."""
    jobs = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())["jobs"]
    run = {"3.11", *jobs["pythons"]["strategy"]["matrix"]["python"]}
    promised = {c.rpartition(" ")[2] for c in PROJECT["project"]["classifiers"] if "Python :: 3." in c}

    assert run == promised
    assert PROJECT["project"]["requires-python"] == f">={min(promised)}"


def test_workflows_say_only_words_of_the_makefile():
    """What fails there can be run at home: every ``make`` of a workflow is a target."""
    targets = set(re.findall(r"^([\w-]+)(?=[ \w-]*:)", (ROOT / "Makefile").read_text(), re.MULTILINE))
    targets |= {"test-lowest", "test-newest", "types", "docs"}
    for path in (ROOT / ".github/workflows").glob("*.yml"):
        said = re.findall(r"make ([\w-]+)", path.read_text())
        assert said and {word for word in said if not word.endswith("-")} <= targets, path


def test_wheels_that_are_built_elsewhere_have_kernels_and_a_tag_that_an_index_takes():
    """Without the variable a compiler that fails makes a plain wheel; PyPI refuses the tag ``linux_x86_64``."""
    for name in ("ci", "release"):
        jobs = yaml.safe_load((ROOT / f".github/workflows/{name}.yml").read_text())["jobs"]
        said = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
        made = [n for n, line in enumerate(said) if "make package" in line]
        assert made and all("LADING_COMPILED=1 make package" in said[n] for n in made), name
    assert "auditwheel repair" in said[made[0] + 1] and "rm dist/*-linux_*" in said[made[0] + 1]


def test_the_hooks_have_the_versions_of_ci():
    """A commit is formatted as CI expects it."""
    pinned = re.search(r"^ruff==(\S+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE)[1]

    assert set(re.findall(r"ruff==([\d.]+)", (ROOT / ".pre-commit-config.yaml").read_text())) == {pinned}


def test_fragments_have_a_kind():
    """towncrier leaves out, without a word, what it does not know."""
    kinds = {kind["directory"] for kind in PROJECT["tool"]["towncrier"]["type"]}
    named = [path.name.split(".") for path in (ROOT / "changelog.d").glob("*.md") if path.name != "README.md"]

    assert all(len(parts) == 3 and parts[1] in kinds for parts in named), named


def test_forms_and_workflows_are_yaml():
    """What nobody runs here is at least well formed."""
    for path in [*(ROOT / ".github").rglob("*.yml"), ROOT / ".pre-commit-config.yaml", ROOT / "CITATION.cff"]:
        assert yaml.safe_load(path.read_text()), path
