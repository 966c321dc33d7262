"""Compiled twins of ``tree`` and ``rounds``, bit for bit the same.

A tree is one int64 table, a row per node: weight, left weight, phase, left child, right child, parent, and the phase
cut by the weight into a whole part and a rest of 0 or more, so that every division is one of unsigned integers; and the
parent of each dataset's leaf. Positions are cut as x = q·n + r, so that no product leaves 64 bits: |a·r + φ| stays
below 2**63 for weights that sum to 2**31. The passes of a stage are one uint64 table, a row per dataset: draws before
the stage, length, side and key.

Numba's cache looks at this file alone: a change of what is called from here (``order.kernels``, now ORDER_VERSION 2)
needs a change of a line here, too.
"""

from __future__ import annotations

import numpy as np

from lading.identity.hashing import FOLD
from lading.identity.kernels import fold, mix64
from lading.order.kernels import permute_each
from lading.runtime import splitmix
from lading.runtime.kernels import cached

kernel = cached(nogil=True, error_model="numpy")  # no weight is 0, so no division is checked

WEIGHT, LEFT_WEIGHT, PHASE, LEFT, RIGHT, PARENT, WHOLE, REST = range(8)
NO_PARENT = -1
DEPTH = 64  # a Huffman tree over weights that sum to 2**31 is at most 45 deep

ALREADY, LENGTH, SIDE, KEY = range(4)

_SPARSE = 3  # nodes for each sample of a round above which a walk that skips empty ones is faster
_QUEUED = 4  # numbers that are kept of a node that waits; fewer than any table of all nodes has columns
_FEW = 20  # keys that are sorted by insertion alone

_SHIFT, _HALF, _LOW = 31, (1 << 31) - 1, np.uint64(4095)
_64 = np.uint64(64)
_FOLD = np.uint64(FOLD)
_SLOTS = np.arange(4096, dtype=np.uint64)
_MIXED_SLOTS = splitmix.mix64(_SLOTS + np.uint64(splitmix.GOLDEN))  # the half of fold(key, slot) that no key changes


@kernel
def build(weights, residuals, by_weight):  # type: ignore[no-untyped-def]
    """Return the table, the leaves' parents and the root; ``by_weight`` lists the live datasets, lightest first.

    Joined nodes come out in the order of (weight, least dataset), so two queues replace the heap.
    """
    leaves = by_weight.shape[0]
    nodes = np.empty((max(leaves - 1, 0), 8), dtype=np.int64)
    owed, least = np.empty(leaves, dtype=np.int64), np.empty(leaves, dtype=np.int64)
    leaf_parent = np.full(weights.shape[0], NO_PARENT, dtype=np.int64)
    next_leaf, next_node = 0, 0
    pair, pair_weight = np.empty(2, dtype=np.int64), np.empty(2, dtype=np.int64)
    pair_owed, pair_least = np.empty(2, dtype=np.int64), np.empty(2, dtype=np.int64)
    for made in range(leaves - 1):
        for side in range(2):
            take_leaf = next_leaf < leaves
            if take_leaf and next_node < made:
                d, w = by_weight[next_leaf], nodes[next_node, WEIGHT]
                take_leaf = weights[d] < w or (weights[d] == w and d < least[next_node])
            if take_leaf:
                d = by_weight[next_leaf]
                pair[side], pair_weight[side], pair_owed[side], pair_least[side] = ~d, weights[d], residuals[d], d
                leaf_parent[d] = made
                next_leaf += 1
            else:
                pair[side], pair_weight[side] = next_node, nodes[next_node, WEIGHT]
                pair_owed[side], pair_least[side] = owed[next_node], least[next_node]
                nodes[next_node, PARENT] = made
                next_node += 1
        b, a, n = pair_weight[0], pair_weight[1], pair_weight[0] + pair_weight[1]
        owed_right, owed_left = pair_owed[0], pair_owed[1]
        # floor((b * owed_left - a * owed_right) / 2**31), each owed cut into high and low bits
        carry = b * (owed_left >> _SHIFT) - a * (owed_right >> _SHIFT)
        carry += (b * (owed_left & _HALF) - a * (owed_right & _HALF)) >> _SHIFT
        phase = n // 2 + carry
        nodes[made, WEIGHT], nodes[made, LEFT_WEIGHT], nodes[made, PHASE] = n, a, phase
        nodes[made, WHOLE], nodes[made, REST] = phase // n, phase % n
        nodes[made, LEFT], nodes[made, RIGHT], nodes[made, PARENT] = pair[1], pair[0], NO_PARENT
        owed[made], least[made] = owed_left + owed_right, min(pair_least[0], pair_least[1])
    root = leaves - 2 if leaves > 1 else ~by_weight[0]
    return nodes, leaf_parent, root


@kernel
def over(x, n):  # type: ignore[no-untyped-def]
    """Return x // n for integers of 0 or more."""
    return np.int64(np.uint64(x) // np.uint64(n))


@kernel
def split(row, lo, m):  # type: ignore[no-untyped-def]
    """Return F(lo) and F(lo + m) of a node; m is at most a round, or lo is 0."""
    n, a = row[WEIGHT], row[LEFT_WEIGHT]
    q = over(lo, n)
    reach = a * (lo - q * n) + row[REST]
    first = over(reach, n)
    rest = reach - first * n + a * m
    whole = q * a + row[WHOLE] + first
    before = min(max(whole, 0), lo)
    after = min(max(whole + (over(rest, n) if rest >= n else 0), 0), lo + m)
    return before, after


@kernel
def leaf_order(nodes, root, leaves):  # type: ignore[no-untyped-def]
    """Return the datasets in the tree, from left to right."""
    found, waiting = np.empty(leaves, dtype=np.int64), np.empty(DEPTH, dtype=np.int64)
    waiting[0] = root
    depth = 1
    for k in range(leaves):
        depth -= 1
        child = waiting[depth]
        while child >= 0:
            waiting[depth] = nodes[child, RIGHT]
            depth += 1
            child = nodes[child, LEFT]
        found[k] = ~child
    return found


@kernel
def every_label(nodes, root, leaves, lo, m, work, labels, upcoming):  # type: ignore[no-untyped-def]
    """Write the labels of the round ``[lo, lo + m)`` leaf by leaf, and each dataset's first draw in it.

    Every node is visited, parents (higher numbers) first; without a branch that depends on the data, a processor
    works on several at once.
    """
    count = nodes.shape[0]
    start, size, slot = work[0], work[1], work[2]
    top = root if root >= 0 else count + ~root
    start[top], size[top], slot[top] = lo, m, 0
    for node in range(count - 1, -1, -1):
        n, a = nodes[node, WEIGHT], nodes[node, LEFT_WEIGHT]
        x, k = start[node], size[node]
        q = over(x, n)
        reach = a * (x - q * n) + nodes[node, REST]
        first = over(reach, n)
        whole = q * a + nodes[node, WHOLE] + first
        before = min(max(whole, 0), x)
        taken = min(max(whole + over(reach - first * n + a * k, n), 0), x + k) - before
        left, right = nodes[node, LEFT], nodes[node, RIGHT]
        left, right = left if left >= 0 else count + ~left, right if right >= 0 else count + ~right
        start[left], size[left], slot[left] = before, taken, slot[node]
        start[right], size[right], slot[right] = x - before, k - taken, slot[node] + taken
    labels[:m] = -1
    for i in range(leaves.shape[0]):
        leaf = count + leaves[i]
        upcoming[leaves[i]] = start[leaf]
        if size[leaf] > 0:
            labels[slot[leaf]] = leaves[i]
    fill(labels, m)


@kernel
def sparse_labels(nodes, root, lo, m, work, labels, upcoming):  # type: ignore[no-untyped-def]
    """``every_label`` for many datasets and few samples: visits only the nodes that receive something.

    Level by level: nodes wait in a queue, leaves that receive something are listed from its end. Both are appended to
    without a branch that depends on the data, so that a processor works on several nodes at once.
    """
    last = work.shape[0] - 1
    top = 0 if root >= 0 else last
    work[top, 0], work[top, 1], work[top, 2], work[top, 3] = root, lo, m, 0
    head, tail, leaf = 0, 1 if root >= 0 else 0, last if root >= 0 else last - 1
    while head < tail:
        node, x, k, slot = work[head, 0], work[head, 1], work[head, 2], work[head, 3]
        head += 1
        n, a = nodes[node, WEIGHT], nodes[node, LEFT_WEIGHT]
        q = over(x, n) if x >= n else 0  # deep in the tree it is often 0
        reach = a * (x - q * n) + nodes[node, REST]
        first = over(reach, n)
        whole = q * a + nodes[node, WHOLE] + first
        before = min(max(whole, 0), x)
        taken = min(max(whole + over(reach - first * n + a * k, n), 0), x + k) - before
        for side in range(2):
            child = nodes[node, LEFT + side]
            place = tail if child >= 0 else leaf
            size = taken + side * (k - 2 * taken)
            work[place, 0], work[place, 1] = child, before + side * (x - 2 * before)
            work[place, 2], work[place, 3] = size, slot + side * taken
            tail += (size > 0) & (child >= 0)
            leaf -= (size > 0) & (child < 0)
    labels[:m] = -1
    for i in range(leaf + 1, last + 1):
        d = ~work[i, 0]
        upcoming[d], labels[work[i, 3]] = work[i, 1], d
    fill(labels, m)


@kernel
def fill(labels, m):  # type: ignore[no-untyped-def]
    """Give every slot the label of the last one before it that has one."""
    d = labels[0]
    for i in range(m):
        d = labels[i] if labels[i] >= 0 else d
        labels[i] = d


@kernel
def sort_slots(round_key, size, keys, ordered):  # type: ignore[no-untyped-def]
    """Sort the keys of a round's slots into ``ordered``: buckets by the top bits, then by insertion."""
    folded = round_key * _FOLD
    if size <= _FEW:
        for i in range(size):
            ordered[i] = (mix64(folded + _MIXED_SLOTS[i]) & ~_LOW) | np.uint64(i)
    else:
        bits = 1
        while (1 << bits) < size:
            bits += 1
        shift = _64 - np.uint64(bits)
        starts = np.zeros((1 << bits) + 1, dtype=np.int64)
        for i in range(size):
            keys[i] = (mix64(folded + _MIXED_SLOTS[i]) & ~_LOW) | np.uint64(i)
            starts[np.int64(keys[i] >> shift) + 1] += 1
        for b in range(1 << bits):
            starts[b + 1] += starts[b]
        for i in range(size):
            bucket = np.int64(keys[i] >> shift)
            ordered[starts[bucket]] = keys[i]
            starts[bucket] += 1
    for i in range(1, size):
        key, j = ordered[i], i
        while j > 0 and ordered[j - 1] > key:
            ordered[j] = ordered[j - 1]
            j -= 1
        ordered[j] = key


@kernel
def one_round(nodes, root, leaves, lo, m, round_key, scratch, datasets, draws):  # type: ignore[no-untyped-def]
    """Write dataset and draw at each place of the round ``[lo, lo + m)``; draws count from the stage's start."""
    work, labels, upcoming, keys, ordered = scratch
    if work.shape[1] == _QUEUED:
        sparse_labels(nodes, root, lo, m, work, labels, upcoming)
    else:
        every_label(nodes, root, leaves, lo, m, work, labels, upcoming)
    if labels[0] == labels[m - 1]:  # one dataset alone: nothing to permute
        first = upcoming[labels[0]]
        for i in range(m):
            datasets[i] = labels[0]
            draws[i] = first + i
        return
    sort_slots(round_key, m, keys, ordered)
    for i in range(m):
        d = labels[np.int64(ordered[i] & _LOW)]
        datasets[i] = d
        draws[i] = upcoming[d]
        upcoming[d] += 1


@kernel
def scratch_of(nodes, datasets, most):  # type: ignore[no-untyped-def]
    """Return the memory that rounds of at most so many samples work in."""
    is_sparse = nodes.shape[0] > _SPARSE * most
    rows = min(nodes.shape[0], most * DEPTH) + most + 2 if is_sparse else 3
    work = np.empty((rows, _QUEUED if is_sparse else nodes.shape[0] + datasets), dtype=np.int64)
    labels, upcoming = np.empty(most, dtype=np.int32), np.empty(datasets, dtype=np.int64)
    return work, labels, upcoming, np.empty(most, dtype=np.uint64), np.empty(most, dtype=np.uint64)


@kernel
def rounds(nodes, root, leaves, num_datasets, start, starts, sizes, key):  # type: ignore[no-untyped-def]
    """Return dataset and draw at each place of some rounds of a stage that began at ``start``."""
    total = sizes.sum()
    datasets, draws = np.empty(total, dtype=np.int32), np.empty(total, dtype=np.int64)
    if total == 0:
        return datasets, draws
    scratch = scratch_of(nodes, num_datasets, sizes.max())
    place = 0
    for r in range(starts.shape[0]):
        lo, m = starts[r], sizes[r]
        stop = place + m
        labelled, drawn = datasets[place:stop], draws[place:stop]
        one_round(nodes, root, leaves, lo - start, m, fold(key, np.uint64(lo)), scratch, labelled, drawn)
        place = stop
    return datasets, draws


@kernel
def in_passes(datasets, draws, passes):  # type: ignore[no-untyped-def]
    """Turn draws since the stage's start into indices, in place: each pass has a shuffle of its own."""
    table = np.empty((4, datasets.shape[0]), dtype=np.uint64)
    n, side, key, x = table[0], table[1], table[2], table[3]
    for i in range(datasets.shape[0]):
        row = passes[datasets[i]]
        n[i], side[i], draw = row[LENGTH], row[SIDE], np.uint64(draws[i]) + row[ALREADY]
        turn = draw // n[i]
        key[i], x[i] = fold(row[KEY], turn), draw - turn * n[i]
    draws[:] = permute_each(n, side, key, x)


@kernel
def samples(nodes, root, leaves, start, starts, sizes, key, passes):  # type: ignore[no-untyped-def]
    """Return dataset and index at each place of some rounds."""
    datasets, draws = rounds(nodes, root, leaves, passes.shape[0], start, starts, sizes, key)
    in_passes(datasets, draws, passes)
    return datasets, draws


@kernel
def round_samples(nodes, root, leaves, start, key, passes, lo, datasets, indices):  # type: ignore[no-untyped-def]
    """Write dataset and index at each place of one round, from ``lo`` on, of a stage that began at ``start``."""
    m = datasets.shape[0]
    scratch = scratch_of(nodes, passes.shape[0], m)
    one_round(nodes, root, leaves, lo - start, m, fold(key, np.uint64(lo)), scratch, datasets, indices)
    in_passes(datasets, indices, passes)


@kernel
def in_order(nodes, root, lo, m):  # type: ignore[no-untyped-def]
    """Return dataset and draw at each of some positions, unshuffled: each node parts its places in two."""
    datasets, numbers = np.empty(m, dtype=np.int32), np.empty(m, dtype=np.int64)
    places, parted = np.arange(m), np.empty(m, dtype=np.int64)
    child_of, lo_of, cut_of = np.empty(DEPTH, np.int64), np.empty(DEPTH, np.int64), np.empty((DEPTH, 2), np.int64)
    child_of[0], lo_of[0], cut_of[0, 0], cut_of[0, 1] = root, lo, 0, m
    depth = 1
    while depth > 0:
        depth -= 1
        child, lo, first, stop = child_of[depth], lo_of[depth], cut_of[depth, 0], cut_of[depth, 1]
        if child < 0:
            for k in range(first, stop):
                datasets[places[k]] = ~child
                numbers[places[k]] = lo + k - first
            continue
        before, cut = _part(nodes[child], lo, places[first:stop], parted)
        for turn in range(2):
            side = RIGHT if turn == 0 else LEFT
            child_of[depth], lo_of[depth] = nodes[child, side], lo - before if turn == 0 else before
            cut_of[depth, 0], cut_of[depth, 1] = (first + cut, stop) if turn == 0 else (first, first + cut)
            depth += cut_of[depth, 1] > cut_of[depth, 0]
    return datasets, numbers


@kernel
def _part(row, lo, places, parted):  # type: ignore[no-untyped-def]
    """Put the places that go left before those that go right; return F(lo) and the number that go left."""
    n, a = row[WEIGHT], row[LEFT_WEIGHT]
    q = over(lo, n)
    reach = a * (lo - q * n) + row[REST]
    first = over(reach, n)
    rest, whole = reach - first * n, q * a + row[WHOLE] + first
    before = now = min(max(whole, 0), lo)
    left, right = 0, 0
    for k in range(places.shape[0]):
        rest += a
        if rest >= n:
            rest, whole = rest - n, whole + 1
        after = min(max(whole, 0), lo + k + 1)
        if after > now:
            places[left] = places[k]
            left += 1
        else:
            parted[right] = places[k]
            right += 1
        now = after
    places[left:] = parted[:right]
    return before, left


@kernel
def counts(nodes, root, position, drawn):  # type: ignore[no-untyped-def]
    """Add to ``drawn`` how many of the first positions of the stream each dataset receives."""
    if root < 0:
        drawn[~root] += position
        return
    reach = np.zeros(nodes.shape[0], dtype=np.int64)
    reach[root] = position
    for node in range(nodes.shape[0] - 1, -1, -1):  # a parent has a higher number than its children
        x, n, a = reach[node], nodes[node, WEIGHT], nodes[node, LEFT_WEIGHT]
        q = over(x, n)
        left = min(max(q * a + nodes[node, WHOLE] + over(a * (x - q * n) + nodes[node, REST], n), 0), x)
        for child, number in ((nodes[node, LEFT], left), (nodes[node, RIGHT], x - left)):
            if child >= 0:
                reach[child] = number
            else:
                drawn[~child] += number


@kernel
def stream_position(nodes, leaf_parent, root, dataset, draw):  # type: ignore[no-untyped-def]
    """``SplitTree.position``: walk up from a leaf; the caller knows that the answer fits."""
    child, k, node = ~dataset, draw, leaf_parent[dataset]
    while child != root:
        n, a, phi = nodes[node, WEIGHT], nodes[node, LEFT_WEIGHT], nodes[node, PHASE]
        if nodes[node, LEFT] == child:
            s, f = a, phi
        else:
            s, f = n - a, n - 1 - phi
        q = k // s
        k = max(q * n - ((f - (k - q * s + 1) * n) // s), k + 1) - 1
        child, node = node, nodes[node, PARENT]
    return k


@kernel
def slots(nodes, leaf_parent, dataset, lo, m):  # type: ignore[no-untyped-def]
    """``SplitTree.slots``: walk down the leaf's own path, adding what goes left of it."""
    path = np.empty(DEPTH, dtype=np.int64)
    depth = 0
    node = leaf_parent[dataset]
    while node != NO_PARENT:
        path[depth] = node
        depth += 1
        node = nodes[node, PARENT]
    passed = 0
    for level in range(depth - 1, -1, -1):
        node = path[level]
        below = path[level - 1] if level > 0 else ~dataset
        before, after = split(nodes[node], lo, m)
        if nodes[node, LEFT] == below:
            lo, m = before, after - before
        else:
            passed += after - before
            lo, m = lo - before, m - (after - before)
    return passed, lo, m


@kernel
def smallest(keys, k):  # type: ignore[no-untyped-def]
    """Return the k-th smallest of some hashes, which are reordered. (np.partition takes ten seconds to compile.)"""
    low, high = 0, keys.shape[0] - 1
    while low < high:
        border, i, j = keys[(low + high) // 2], low, high
        while i <= j:
            while keys[i] < border:
                i += 1
            while keys[j] > border:
                j -= 1
            if i <= j:
                keys[i], keys[j] = keys[j], keys[i]
                i, j = i + 1, j - 1
        if k <= j:
            high = j
        elif k >= i:
            low = i
        else:
            break
    return keys[k]


@kernel
def place_of(round_key, size, first, number, k):  # type: ignore[no-untyped-def]
    """``rounds.place_of``: choose the k-th smallest key of the label, count the smaller ones of the round."""
    folded = round_key * _FOLD
    keys = np.empty(size, dtype=np.uint64)
    for i in range(size):
        keys[i] = (mix64(folded + _MIXED_SLOTS[i]) & ~_LOW) | np.uint64(i)
    mine = smallest(keys[first : first + number].copy(), k)
    smaller = 0
    for i in range(size):
        smaller += keys[i] < mine
    return smaller


@kernel
def positions(nodes, leaf_parent, root, dataset, draws):  # type: ignore[no-untyped-def]
    """Return the position in the stream of each of a dataset's draws."""
    found = np.empty(draws.shape[0], dtype=np.int64)
    for i in range(draws.shape[0]):
        found[i] = stream_position(nodes, leaf_parent, root, dataset, draws[i])
    return found


@kernel
def places_of(round_key, size, first, number):  # type: ignore[no-untyped-def]
    """Return the places of all slots of a label, ascending: ``place_of`` for every k at once."""
    keys, ordered = np.empty(size, dtype=np.uint64), np.empty(size, dtype=np.uint64)
    sort_slots(round_key, size, keys, ordered)
    found, k = np.empty(number, dtype=np.int64), 0
    for place in range(size):
        slot = np.int64(ordered[place] & _LOW)
        if first <= slot < first + number:
            found[k] = place
            k += 1
    return found


@kernel
def places(nodes, leaf_parent, dataset, draws, start, starts, sizes, key):  # type: ignore[no-untyped-def]
    """Return the position after the shuffle of each of a dataset's draws, given the rounds they are in.

    Draws of one round that stand together, as those of a dataset with few samples do, cost one sort.
    """
    found = np.empty(draws.shape[0], dtype=np.int64)
    i = 0
    while i < draws.shape[0]:
        lo, m, stop = starts[i], sizes[i], i + 1
        while stop < draws.shape[0] and starts[stop] == lo:
            stop += 1
        slot, first, number = slots(nodes, leaf_parent, dataset, lo - start, m)
        round_key = fold(key, np.uint64(lo))
        if stop - i == 1:
            found[i] = lo + place_of(round_key, m, slot, number, draws[i] - first)
        else:
            mine = places_of(round_key, m, slot, number)
            for j in range(i, stop):
                found[j] = lo + mine[draws[j] - first]
        i = stop
    return found
