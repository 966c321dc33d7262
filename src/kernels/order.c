/* Hashes, digests and the permutation: twins of identity/hashing and order/permutation. */

#include "kernels.h"
#include <string.h>

enum { ROUNDS = 8, MORE_ROUNDS = 12, OWNED = 256 };

#define ROUND_KEY(k) (GOLDEN * (uint64_t)((k) + 1))

/* fold(h, x): a hash with one more part. */
KERNEL(kernel_fold) {
    uint64_t h, x;
    if (!expect_arguments(given, 2, "fold") || !as_uint64(args[0], &h) || !as_uint64(args[1], &x))
        return NULL;
    return PyLong_FromUnsignedLongLong(fold(h, x));
}

KERNEL(kernel_key_of_three) {
    uint64_t parts[4];
    if (!expect_arguments(given, 4, "key_of_three"))
        return NULL;
    for (int i = 0; i < 4; i++)
        if (!as_uint64(args[i], &parts[i]))
            return NULL;
    return PyLong_FromUnsignedLongLong(fold(fold(fold(parts[0], parts[1]), parts[2]), parts[3]));
}

INLINE uint64_t sample_hash(int64_t position, int64_t dataset, int64_t index) {
    uint64_t name = (uint64_t)index * FOLD + (uint64_t)dataset * GOLDEN;
    return mix64(mix64((uint64_t)position + GOLDEN) ^ mix64(name + 1));
}

INLINE uint64_t sum_of_hashes(int64_t position, const Column *places, const Column *datasets, const Column *indices,
                              const uint8_t *is_left_out) {
    uint64_t total = 0;
    for (Py_ssize_t i = 0; i < places->length; i++) {
        uint64_t hash = sample_hash(position + at(places, i), at(datasets, i), at(indices, i));
        total += is_left_out && is_left_out[i] ? 0 : hash;
    }
    return total;
}

/* Columns of a bill have 4 or 8 bytes a number: a loop for each of the usual pairs, which the compiler works out. */
CLONED static uint64_t add_hashes(int64_t position, const Column *places, const Column *datasets,
                                  const Column *indices, const uint8_t *is_left_out) {
    Column p = *places, d = *datasets, x = *indices;
    if (p.width == 8 && d.width == 4 && x.width == 8) {
        p.width = 8, d.width = 4, x.width = 8;
        return sum_of_hashes(position, &p, &d, &x, is_left_out);
    }
    if (p.width == 8 && d.width == 8 && x.width == 8) {
        p.width = 8, d.width = 8, x.width = 8;
        return sum_of_hashes(position, &p, &d, &x, is_left_out);
    }
    return sum_of_hashes(position, &p, &d, &x, is_left_out);
}

INLINE Py_ssize_t count_kept(const Column *is_left_out) {
    Py_ssize_t count = 0;
    for (Py_ssize_t i = 0; i < is_left_out->length; i++)
        count += !((const uint8_t *)is_left_out->data)[i];
    return count;
}

static PyObject *digest_of(Loan *loan, int64_t position, PyObject *const *args, PyObject *left_out) {
    Column *places = borrow(loan, args[0], "places", FOUR_OR_EIGHT, READ);
    Column *datasets = places ? borrow(loan, args[1], "datasets", FOUR_OR_EIGHT, READ) : NULL;
    Column *indices = datasets ? borrow(loan, args[2], "indices", FOUR_OR_EIGHT, READ) : NULL;
    Column *is_left_out = indices && left_out ? borrow(loan, left_out, "is_left_out", 1, READ) : NULL;
    if (!indices || (left_out && !is_left_out))
        return give_back(loan, NULL);
    Py_ssize_t count = places->length;
    if (datasets->length != count || indices->length != count || (is_left_out && is_left_out->length != count))
        return give_back(loan, refuse("the columns of a digest have different lengths."));
    uint64_t total;
    if (count < LONG_WORK)
        total = add_hashes(position, places, datasets, indices, is_left_out ? is_left_out->data : NULL);
    else {
        Py_BEGIN_ALLOW_THREADS;
        total = add_hashes(position, places, datasets, indices, is_left_out ? is_left_out->data : NULL);
        Py_END_ALLOW_THREADS;
    }
    PyObject *found = is_left_out ? Py_BuildValue("(Kn)", (unsigned long long)total, count_kept(is_left_out))
                                  : PyLong_FromUnsignedLongLong(total);
    return give_back(loan, found);
}

KERNEL(kernel_digest) {
    Loan loan;
    loan.count = 0;
    return expect_arguments(given, 3, "digest") ? digest_of(&loan, 0, args, NULL) : NULL;
}

/* digest_of_slots(position, slots, datasets, indices, is_left_out): the digest of those that are not, and how many. */
KERNEL(kernel_digest_of_slots) {
    Loan loan;
    loan.count = 0;
    int64_t position;
    if (!expect_arguments(given, 5, "digest_of_slots") || !as_int64(args[0], &position))
        return NULL;
    return digest_of(&loan, position, args + 1, args[4]);
}

CLONED static void add_digests(int64_t position, const int32_t *datasets, const int64_t *indices, const int64_t *starts,
                               Py_ssize_t steps, Py_ssize_t count, uint64_t *out) {
    for (Py_ssize_t step = 0; step < steps; step++) {
        int64_t stop = step + 1 < steps ? starts[step + 1] : count;
        uint64_t total = 0;
        for (int64_t i = starts[step]; i < stop; i++)
            total += sample_hash(position + i, datasets[i], indices[i]);
        out[step] = total;
    }
}

/* digests(position, datasets, indices, starts, out): the digest of each step of samples that lie side by side from a
   position on; starts has where each step begins, the first at 0. */
KERNEL(kernel_digests) {
    Loan loan;
    loan.count = 0;
    int64_t position;
    Column *datasets, *indices, *starts, *out;
    if (!expect_arguments(given, 5, "digests") || !as_int64(args[0], &position))
        return NULL;
    if (!(datasets = borrow(&loan, args[1], "datasets", 4, READ)) ||
        !(indices = borrow(&loan, args[2], "indices", 8, READ)) ||
        !(starts = borrow(&loan, args[3], "starts", 8, READ)) || !(out = borrow(&loan, args[4], "out", 8, WRITE)))
        return give_back(&loan, NULL);
    const int64_t *edges = starts->data;
    int fit = datasets->length == indices->length && starts->length == out->length;
    for (Py_ssize_t step = 0; fit && step < starts->length; step++)
        fit = edges[step] >= (step ? edges[step - 1] : 0) && edges[step] <= indices->length;
    if (!fit)
        return give_back(&loan, refuse("the columns of digests do not fit together."));
    PyThreadState *waiting = indices->length >= LONG_WORK ? PyEval_SaveThread() : NULL;
    add_digests(position, datasets->data, indices->data, edges, out->length, indices->length, out->data);
    if (waiting)
        PyEval_RestoreThread(waiting);
    Py_INCREF(Py_None);
    return give_back(&loan, Py_None);
}

CLONED static void find_owners(const int64_t *starts, int64_t stretches, int64_t *elements, Py_ssize_t count,
                               int32_t *owners) {
    int64_t base[OWNED];
    for (Py_ssize_t first = 0; first < count; first += OWNED) {
        int some = (int)least(OWNED, count - first);
        int64_t *element = elements + first;
        for (int i = 0; i < some; i++)
            base[i] = 0;
        for (int64_t left = stretches; left > 1; left -= left / 2) /* halves, of many elements at once */
            for (int i = 0; i < some; i++)
                base[i] += (left / 2) & -(int64_t)(starts[base[i] + left / 2] <= element[i]);
        for (int i = 0; i < some; i++) {
            owners[first + i] = (int32_t)base[i];
            element[i] -= starts[base[i]];
        }
    }
}

/* owners(starts, elements, owners): the last of some ascending stretches that begins at or before each element; the
   element becomes its place in it. */
KERNEL(kernel_owners) {
    Loan loan;
    loan.count = 0;
    Column *starts, *elements, *owners;
    if (!expect_arguments(given, 3, "owners"))
        return NULL;
    if (!(starts = borrow(&loan, args[0], "starts", 8, READ)) ||
        !(elements = borrow(&loan, args[1], "elements", 8, WRITE)) ||
        !(owners = borrow(&loan, args[2], "owners", 4, WRITE)))
        return give_back(&loan, NULL);
    if (!starts->length || elements->length != owners->length)
        return give_back(&loan, refuse("no stretches, or elements and owners of different lengths."));
    PyThreadState *waiting = elements->length >= LONG_WORK ? PyEval_SaveThread() : NULL;
    find_owners(starts->data, starts->length, elements->data, elements->length, owners->data);
    if (waiting)
        PyEval_RestoreThread(waiting);
    Py_INCREF(Py_None);
    return give_back(&loan, Py_None);
}

/* The place that Fisher-Yates swaps with each place i: hash * (i + 1) >> 64. */
static void find_partners(uint64_t key, uint8_t *partners) {
    for (int i = 0; i < TABLE; i++) {
        uint64_t h = mix64(key + ROUND_KEY(i)), places = (uint64_t)(i + 1);
        partners[i] = (uint8_t)(((h >> 32) * places + ((h & 0xFFFFFFFFu) * places >> 32)) >> 32);
    }
}

static uint64_t shuffled(int n, const uint8_t *partners, int x) {
    uint8_t y = partners[x];
    for (int i = x + 1; i < n; i++)
        y = partners[i] == y ? (uint8_t)i : y;
    return y;
}

static uint64_t unshuffled(int n, const uint8_t *partners, int y) {
    for (int i = n - 1; i > 0; i--) {
        if (i == y)
            y = partners[i];
        else if (partners[i] == y)
            return (uint64_t)i;
    }
    return (uint64_t)y;
}

INLINE uint64_t scatter(uint64_t half, uint64_t key, uint64_t side) {
    uint64_t h = (half ^ key) * MULTIPLY_1;
    h = (h ^ (h >> 32)) * MULTIPLY_2;
    return ((h >> 32) * side) >> 32;
}

INLINE uint64_t lesser(uint64_t a, uint64_t b) { return a < b ? a : b; }

INLINE void forth(uint64_t *left, uint64_t *right, uint64_t side, uint64_t key, int first, int stop) {
    uint64_t l = *left, r = *right;
    for (int k = first; k < stop; k++) {
        uint64_t total = l + scatter(r, key + ROUND_KEY(k), side);
        l = r;
        r = lesser(total, total - side); /* unsigned: the difference wraps around where it is not wanted */
    }
    *left = l, *right = r;
}

INLINE void back(uint64_t *left, uint64_t *right, uint64_t side, uint64_t key, int first, int stop) {
    uint64_t l = *left, r = *right;
    for (int k = stop - 1; k >= first; k--) {
        uint64_t moved = r - scatter(l, key + ROUND_KEY(k), side);
        r = l;
        l = lesser(moved, moved + side);
    }
    *left = l, *right = r;
}

/* The rounds that every size has, for several elements at once. */
CLONED static void rounds_forth(uint64_t *restrict left, uint64_t *restrict right, const uint64_t *restrict side,
                                const uint64_t *restrict key, int count) {
    for (int i = 0; i < count; i++)
        forth(&left[i], &right[i], side[i], key[i], 0, ROUNDS);
}

CLONED static void rounds_back(uint64_t *restrict left, uint64_t *restrict right, const uint64_t *restrict side,
                               const uint64_t *restrict key, int count) {
    for (int i = 0; i < count; i++)
        back(&left[i], &right[i], side[i], key[i], 0, ROUNDS);
}

CLONED static void fold_sizes(const uint64_t *restrict keys, const uint64_t *restrict n, uint64_t *restrict found,
                              int count) {
    for (int i = 0; i < count; i++)
        found[i] = fold(keys[i], n[i]);
}

/* Below 2^51 the quotient of two doubles is less than one rounding away from the whole number only where it is one; they
   are divided several at once. */
CLONED static void halve(const uint64_t *restrict x, const uint64_t *restrict side, uint64_t *restrict left,
                         uint64_t *restrict right, int count) {
    uint64_t all = 0;
    for (int i = 0; i < count; i++)
        all |= x[i] | side[i];
    if (all >> 51)
        for (int i = 0; i < count; i++)
            left[i] = x[i] / side[i];
    else
        for (int i = 0; i < count; i++)
            left[i] = (uint64_t)(int64_t)((double)(int64_t)x[i] / (double)(int64_t)side[i]);
    for (int i = 0; i < count; i++)
        right[i] = x[i] - left[i] * side[i];
}

/* The elements of sizes above FEW, of their halves; returns whether all of them are below their size. */
CLONED static int join(const uint64_t *restrict n, const uint64_t *restrict side, const uint64_t *restrict key,
                       const uint64_t *restrict left, const uint64_t *restrict right, uint64_t *restrict x, int count) {
    uint64_t wrong = 0;
    for (int i = 0; i < count; i++) {
        uint64_t y = left[i] * side[i] + right[i];
        wrong |= (uint64_t)(y >= n[i]) | (uint64_t)(n[i] <= FEW);
        x[i] = y < 2 ? y ^ ((key[i] * MULTIPLY_2) >> 63) : y;
    }
    return !wrong;
}

static void with_sizes(const uint64_t *n, const uint64_t *side, const uint64_t *key, uint64_t *x, int count) {
    uint64_t left[BLOCK], right[BLOCK], joined[BLOCK];
    uint8_t partners[TABLE];
    int known = -1;
    halve(x, side, left, right, count);
    rounds_forth(left, right, side, key, count);
    if (join(n, side, key, left, right, joined, count)) {
        memcpy(x, joined, (size_t)count * sizeof *x);
        return;
    }
    for (int i = 0; i < count; i++) {
        if (n[i] <= TABLE) {
            if (known < 0 || key[known] != key[i])
                find_partners(key[known = i], partners);
            x[i] = shuffled((int)n[i], partners, (int)x[i]);
            continue;
        }
        int rounds = n[i] <= FEW ? MORE_ROUNDS : ROUNDS;
        forth(&left[i], &right[i], side[i], key[i], ROUNDS, rounds);
        uint64_t y = left[i] * side[i] + right[i];
        while (y >= n[i]) {
            uint64_t l = y / side[i], r = y % side[i];
            forth(&l, &r, side[i], key[i], 0, rounds);
            y = l * side[i] + r;
        }
        x[i] = y < 2 ? y ^ ((key[i] * MULTIPLY_2) >> 63) : y;
    }
}

void permute_block(const uint64_t *n, const uint64_t *side, const uint64_t *keys, uint64_t *x, int count) {
    uint64_t key[BLOCK];
    fold_sizes(keys, n, key, count);
    with_sizes(n, side, key, x, count);
}

static void unpermute_block(const uint64_t *n, const uint64_t *side, const uint64_t *keys, uint64_t *y, int count) {
    uint64_t key[BLOCK], left[BLOCK], right[BLOCK], start[BLOCK];
    uint8_t partners[TABLE];
    int known = -1;
    fold_sizes(keys, n, key, count);
    for (int i = 0; i < count; i++)
        start[i] = y[i] < 2 ? y[i] ^ ((key[i] * MULTIPLY_2) >> 63) : y[i];
    halve(start, side, left, right, count);
    for (int i = 0; i < count; i++)
        if (n[i] <= FEW)
            back(&left[i], &right[i], side[i], key[i], ROUNDS, MORE_ROUNDS);
    rounds_back(left, right, side, key, count);
    for (int i = 0; i < count; i++) {
        if (n[i] <= TABLE) {
            if (known < 0 || key[known] != key[i])
                find_partners(key[known = i], partners);
            y[i] = unshuffled((int)n[i], partners, (int)y[i]);
            continue;
        }
        int rounds = n[i] <= FEW ? MORE_ROUNDS : ROUNDS;
        uint64_t x = left[i] * side[i] + right[i];
        while (x >= n[i]) {
            uint64_t l = x / side[i], r = x % side[i];
            back(&l, &r, side[i], key[i], 0, rounds);
            x = l * side[i] + r;
        }
        y[i] = x;
    }
}

/* Permute a column in blocks; columns of one number are every element's. Return the first place that is wrong, or -1. */
static Py_ssize_t in_blocks(const Column *n, const Column *side, const Column *key, const Column *x, uint64_t *out,
                            int inverse) {
    uint64_t ns[BLOCK], sides[BLOCK], keys[BLOCK];
    const Column *columns[3] = {n, side, key};
    uint64_t *blocks[3] = {ns, sides, keys};
    for (Py_ssize_t first = 0; first < x->length; first += BLOCK) {
        int count = (int)least(BLOCK, x->length - first);
        const uint64_t *values = (const uint64_t *)x->data + first;
        for (int c = 0; c < 3; c++) {
            const uint64_t *from = columns[c]->data;
            if (columns[c]->length == 1 && first && count == BLOCK)
                continue; /* as it was */
            for (int i = 0; i < count; i++)
                blocks[c][i] = columns[c]->length == 1 ? from[0] : from[first + i];
        }
        for (int i = 0; i < count; i++) {
            if (values[i] >= ns[i] || !fits(ns[i], sides[i]))
                return first + i;
            out[first + i] = values[i];
        }
        if (inverse)
            unpermute_block(ns, sides, keys, out + first, count);
        else
            permute_block(ns, sides, keys, out + first, count);
    }
    return -1;
}

static PyObject *permuted(PyObject *const *args, Py_ssize_t given, int inverse) {
    Loan loan;
    loan.count = 0;
    Column *columns[5];
    const char *names[5] = {"n", "side", "key", "x", "out"};
    if (!expect_arguments(given, 5, inverse ? "unpermute" : "permute"))
        return NULL;
    for (int c = 0; c < 5; c++)
        if (!(columns[c] = borrow(&loan, args[c], names[c], 8, c == 4)))
            return give_back(&loan, NULL);
    Py_ssize_t count = columns[3]->length, wrong;
    for (int c = 0; c < 5; c++)
        if (columns[c]->length != count && (c > 2 || columns[c]->length != 1))
            return give_back(&loan, refuse("the columns of a permutation have different lengths."));
    if (count < LONG_WORK)
        wrong = in_blocks(columns[0], columns[1], columns[2], columns[3], columns[4]->data, inverse);
    else {
        Py_BEGIN_ALLOW_THREADS;
        wrong = in_blocks(columns[0], columns[1], columns[2], columns[3], columns[4]->data, inverse);
        Py_END_ALLOW_THREADS;
    }
    return give_back(&loan, PyLong_FromSsize_t(wrong));
}

KERNEL(kernel_permute) { return permuted(args, given, 0); }
KERNEL(kernel_unpermute) { return permuted(args, given, 1); }

/* How many elements at some positions each of some stretches has. Rows of the square are looked at in groups: an element
   whose group lies in one stretch is counted before its last round, the others (MIXED) one by one. */
enum { GROUPS = 1 << 13, MIXED = -1, COUNTED_AT_ONCE = 1 << 24 };
typedef struct {
    uint64_t n, side, key;
    uint64_t sizes[BLOCK], sides[BLOCK], keys[BLOCK]; /* the same for every element */
    const int64_t *starts;
    int64_t stretches;
    int64_t *counts;
} Tally;

static void count_each(const Tally *tally, uint64_t *positions, int count) {
    int32_t owners[BLOCK];
    permute_block(tally->sizes, tally->sides, tally->keys, positions, count);
    find_owners(tally->starts, tally->stretches, (int64_t *)positions, count, owners);
    for (int i = 0; i < count; i++)
        tally->counts[owners[i]]++;
}

static void find_groups(const Tally *tally, int shift, int32_t *groups) {
    uint64_t size = tally->side << shift;
    for (uint64_t g = 0; g <= (tally->side - 1) >> shift; g++) {
        int64_t ends[2] = {(int64_t)(g * size), (int64_t)(g * size + size - 1)};
        int is_inside = g * size + size <= tally->n;
        int32_t owners[2];
        find_owners(tally->starts, tally->stretches, ends, 2, owners);
        groups[g] = is_inside && owners[0] == owners[1] ? owners[0] : MIXED;
    }
}

/* The row that each of some neighbours comes to lie in: the last round moves elements within their rows only. */
CLONED static void find_rows(uint64_t row, uint64_t column, uint64_t side, uint64_t key, uint64_t *restrict rows,
                             int count) {
    for (int i = 0; i < count; i++) {
        uint64_t left = row, right = column + (uint64_t)i;
        forth(&left, &right, side, key, 0, ROUNDS - 1);
        rows[i] = right;
    }
}

static void count_rows(const Tally *tally, uint64_t first, uint64_t stop) {
    int32_t groups[GROUPS];
    uint32_t found[GROUPS] = {0};
    uint64_t rows[BLOCK], kept[BLOCK], key = fold(tally->key, tally->n), side = tally->side;
    int shift = 0, count;
    while ((side - 1) >> shift >= GROUPS)
        shift++;
    find_groups(tally, shift, groups);
    for (; first < stop; first += (uint64_t)count) {
        uint64_t column = first % side;
        count = (int)lesser(BLOCK, lesser(side - column, stop - first));
        find_rows(first / side, column, side, key, rows, count);
        int some = 0;
        for (int i = 0; i < count; i++) {
            uint64_t group = rows[i] >> shift;
            found[group]++;
            kept[some] = first + (uint64_t)i;
            some += groups[group] == MIXED;
        }
        if (some)
            count_each(tally, kept, some);
    }
    for (uint64_t g = 0; g <= (side - 1) >> shift; g++)
        if (groups[g] != MIXED)
            tally->counts[groups[g]] += found[g];
}

/* owner_counts(n, side, key, starts, first, stop, counts): add to counts how many elements at the positions [first, stop)
   of a permutation belong to each of some ascending stretches, as ``owners`` says; at most COUNTED_AT_ONCE positions. */
KERNEL(kernel_owner_counts) {
    Loan loan;
    loan.count = 0;
    Tally tally;
    uint64_t first, stop;
    if (!expect_arguments(given, 7, "owner_counts") || !as_uint64(args[0], &tally.n) ||
        !as_uint64(args[1], &tally.side) || !as_uint64(args[2], &tally.key) || !as_uint64(args[4], &first) ||
        !as_uint64(args[5], &stop))
        return NULL;
    Column *starts = borrow(&loan, args[3], "starts", 8, READ);
    Column *counts = starts ? borrow(&loan, args[6], "counts", 8, WRITE) : NULL;
    if (!counts)
        return give_back(&loan, NULL);
    if (!starts->length || starts->length != counts->length || !fits(tally.n, tally.side) || first > stop ||
        stop > tally.n || stop - first > COUNTED_AT_ONCE)
        return give_back(&loan, refuse("stretches and counts of different lengths, or positions that are not there."));
    for (int i = 0; i < BLOCK; i++)
        tally.sizes[i] = tally.n, tally.sides[i] = tally.side, tally.keys[i] = tally.key;
    tally.starts = starts->data, tally.stretches = starts->length, tally.counts = counts->data;
    PyThreadState *waiting = stop - first >= LONG_WORK ? PyEval_SaveThread() : NULL;
    if (tally.n > FEW)
        count_rows(&tally, first, stop);
    else
        for (uint64_t x[BLOCK]; first < stop;) {
            int count = (int)lesser(BLOCK, stop - first);
            for (int i = 0; i < count; i++)
                x[i] = first++;
            count_each(&tally, x, count);
        }
    if (waiting)
        PyEval_RestoreThread(waiting);
    Py_INCREF(Py_None);
    return give_back(&loan, Py_None);
}
