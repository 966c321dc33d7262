"""Classes named in a configuration."""

from __future__ import annotations

import pytest

from lading.errors import ConfigError
from lading.kits.chunked import Component


def parse(value) -> Component:
    """Read a component as a configuration would."""
    return Component.parse(value, file="run.yaml", key="model")


def test_a_class_is_made_with_its_arguments():
    """By dotted path; arguments of the configuration take precedence."""
    made = parse({"class_path": "fractions.Fraction", "init_args": {"numerator": 3}}).make(numerator=1, denominator=4)

    assert str(made) == "3/4"


def test_components_nest():
    """Inside arguments, lists and sections."""
    inner = {"class_path": "fractions.Fraction", "init_args": {"numerator": 1, "denominator": 2}}

    made = parse({"class_path": "types.SimpleNamespace", "init_args": {"a": [inner], "b": {"c": inner}, "d": 1}}).make()

    assert made.a == [0.5] and made.b == {"c": 0.5} and made.d == 1


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("Fraction", r"run\.yaml: model\.class_path: expected a dotted path such as package\.Class, found 'Fraction'"),
        ("fractions.Frac", r"model\.class_path: expected a class that can be imported, found 'fractions\.Frac'"),
        ("no_such.Thing", r"expected a class that can be imported, found 'no_such\.Thing': no_such cannot be imported"),
        (
            {"class_path": "fractions.Fraction", "init_args": {"num": 1}},
            r"model\.init_args\.num: expected an argument of fractions\.Fraction \(numerator, denominator.*found 'num'",
        ),
        (
            {"class_path": "fractions.Fraction", "init_args": {"numerator": []}},
            r"model\.init_args: fractions\.Fraction cannot be made: ",
        ),
        (
            {
                "class_path": "lading.order.chunked_sampler.ChunkedSampler",
                "init_args": {"dataset_size": 1, "chunk_size": 0},
            },
            r"run\.yaml: model: chunk_size=0: expected an integer",
        ),
    ],
)
def test_what_cannot_be_made_is_named(value, message):
    """File, key, and what went wrong."""
    with pytest.raises(ConfigError, match=message):
        parse(value).make()


def test_arguments_can_be_asked_for():
    """So that a run adds only what a class takes."""
    assert parse("fractions.Fraction").takes("numerator")
    assert not parse("fractions.Fraction").takes("loader")
