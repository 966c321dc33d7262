"""How far one choice of weights goes: shares that reach their targets, and do not go beyond.

    now ─── decided already ───▶ where a change acts ─── every_steps ───▶ where the next one acts

A change acts after what is decided already, and holds until the next one acts. What counts is what is drawn *where it
acts*: n_d of N samples (or tokens) of source d, which lacks D_d = N · target_d - n_d. Wanted are

    t_d = target_d + rate · D_d,     rate = min(1 / (horizon · N), u / max_d |D_d|)

What would be below 0 is 0; sources that lack samples share the rest. By the first term what is missing is made up for
while horizon · N samples are drawn. The second is the brake. No choice
moves a share by more than c = ``most_change``: with s the shares in force,

    w = s + min(1, c / max_d |t_d - s_d|) · (t - s)

so that shares which are u beyond their targets stay beyond them, by u, u - c, u - 2c ..., until later choices have
brought them back. ``fastest`` is the u whose sum, times the samples between two choices, is just what is missing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from lading.loader.policy import Mix
from lading.order.mixture.spec import Weights, integer_weights, named_weights, shares

ROUNDING = 5  # samples: a plan keeps every source that close to its weights, so that less is missing by chance


def drawn_by(mix: Mix) -> list[float]:
    """Return what is drawn of each source where a change would act, in the unit of the weights."""
    coming = mix.coming or [0] * len(mix.counts)
    return [(n + more) * size for n, more, size in zip(mix.counts, coming, _sizes(mix), strict=True)]


def aims(targets: Weights, names: Sequence[str]) -> list[float]:
    """Return targets as the shares that a plan can have, in the order of the sources."""
    return shares(integer_weights(named_weights(targets, names)))


def steered(
    mix: Mix, targets: Sequence[float], horizon: float, every_steps: int = 1, most_change: float = 1.0
) -> dict[str, float] | None:
    """Return the shares that bring what is drawn to the targets; None before anything is.

    Args:
        targets: Shares to reach, in the order of the mix.
        horizon: Share of what is drawn within which to get there.

    >>> mix = Mix(8, ("a", "b"), (9, 9), (None, None), counts=(300, 100), weights=(.75, .25))
    >>> steered(mix, [0.5, 0.5], horizon=1.0)
    {'a': 0.25, 'b': 0.75}
    """
    drawn = drawn_by(mix)
    whole, largest = math.fsum(drawn), max(_sizes(mix))
    if whole == 0:
        return None
    missing = [whole * aim - n for n, aim in zip(drawn, targets, strict=True)]
    furthest = max(map(abs, missing))
    if furthest <= ROUNDING * largest:
        return dict(zip(mix.names, targets, strict=True))
    between = every_steps * mix.batch * largest
    rate = 1 / (horizon * whole)
    if between:
        rate = min(rate, fastest(furthest / between, most_change) / furthest)
    taken = [min(aim, max(-rate * lacks, 0.0)) for aim, lacks in zip(targets, missing, strict=True)]
    given = math.fsum(taken) / math.fsum(lacks for lacks in missing if lacks > 0)
    wanted = [a - t + given * max(lacks, 0.0) for a, t, lacks in zip(targets, taken, missing, strict=True)]
    return dict(zip(mix.names, wanted, strict=True))


def fastest(way: float, slowing: float) -> float:
    """Return the largest u with u + (u - slowing) + (u - 2 slowing) + ... = way, as far as the terms are above 0.

    >>> fastest(0.05, 0.1), fastest(0.3, 0.1), fastest(0.6, 0.1)
    (0.05, 0.2, 0.3)
    """
    more = math.floor((math.sqrt(1 + 8 * way / slowing) - 1) / 2)  # terms after the first
    return way / (more + 1) + more * slowing / 2


def limited(mix: Mix, wanted: Mapping[str, float], most_change: float) -> dict[str, float]:
    """Return shares on the way from those in force to those wanted, none moved by more than ``most_change``.

    >>> mix = Mix(8, ("a", "b"), (9, 9), (None, None), counts=(300, 100), weights=(.5, .5))
    >>> limited(mix, {"a": 0.01, "b": 0.99}, 0.1)
    {'a': 0.4, 'b': 0.6}
    """
    whole = math.fsum(wanted.values())
    targets = [wanted[name] / whole for name in mix.names]
    furthest = max(abs(t - s) for t, s in zip(targets, mix.weights, strict=True))
    if furthest <= most_change:
        return dict(zip(mix.names, targets, strict=True))
    part = most_change / furthest
    return {name: s + part * (t - s) for name, s, t in zip(mix.names, mix.weights, targets, strict=True)}


def _sizes(mix: Mix) -> list[float]:
    """Return what a sample of each source counts: 1, or its mean tokens."""
    return [1.0] * len(mix.names) if mix.unit == "samples" else [tokens or 0.0 for tokens in mix.mean_tokens]
