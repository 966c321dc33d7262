/* The tree of a weighted mixture: twin of order/mixture/tree.

   Positions are cut as x = q·n + r, so that no product leaves 64 bits: |a·r + phase| stays below 2**63 for weights that
   sum to 2**31. A phase is kept cut by the weight into a whole part and a rest of 0 or more, so that every division on
   the way is one of unsigned integers. A child is the number of a node, or ~d for the leaf of dataset d. */

#include "kernels.h"

#include <stdlib.h>
#include <string.h>

enum { SHIFT = 31, DEPTH = 64, MOST_ROUND = 4096, FEW_KEYS = 20, FEW_BITS = 8, SPARSE = 3 };
#define TOTAL (INT64_C(1) << SHIFT)
#define HALF (TOTAL - 1)
#define MOST_POSITION (INT64_C(1) << 60)
#define MOST_PHASE (INT64_C(1) << 61)
#define LOW UINT64_C(4095)
#define NO_PARENT (-1)

typedef struct {
    int64_t weight, left_weight, phase, left, right, parent, whole, rest;
} Node;

typedef struct {
    PyObject_HEAD
    int64_t datasets, count, root, leaf_count; /* count: of nodes, one less than leaves */
    Node *nodes;
    int64_t *leaf_parent; /* of each dataset; NO_PARENT where it is not in the tree, or is all of it */
    int64_t *leaves;      /* the datasets in the tree, from left to right */
} Tree;

/* Draws before the stage, length, side and key of each dataset: what turns draws into indices. */
typedef struct {
    uint64_t already, length, side, key;
} Pass;

/* Slots of a round that lie side by side and are one dataset's. */
typedef struct {
    int32_t dataset, slot, size;
} Run;

/* Memory that rounds work in. */
typedef struct {
    int64_t *start, *size, *slot;      /* of each node and leaf, where every node is visited */
    int64_t (*queue)[4], queue_length; /* nodes that wait, where only those are visited that receive something */
    int32_t *labels;
    int64_t *upcoming;
    uint64_t *keys, *ordered;
    int32_t *starts;
    Run *runs;
    int32_t run_count;
} Scratch;

INLINE int64_t over(int64_t x, int64_t n) { return (int64_t)((uint64_t)x / (uint64_t)n); }

INLINE int64_t floor_div(int64_t x, int64_t n) {
    int64_t q = x / n;
    return q - (x % n < 0);
}

/* F(x), and what it rises by over the next k positions. */
INLINE int64_t go_left(const Node *node, int64_t x, int64_t k, int64_t *taken) {
    int64_t n = node->weight, a = node->left_weight;
    int64_t q = x >= n ? over(x, n) : 0; /* deep in the tree it is often 0 */
    int64_t reach = a * (x - q * n) + node->rest;
    int64_t first = over(reach, n);
    int64_t whole = q * a + node->whole + first;
    int64_t before = least(most(whole, 0), x);
    *taken = least(most(whole + over(reach - first * n + a * k, n), 0), x + k) - before;
    return before;
}

/* Join the lightest two again and again, by two queues: joined nodes come out in the order of (weight, least dataset). */
static void join(Tree *tree, const int64_t *weights, const int64_t *owed_by, const int64_t *by_weight, int64_t *owed,
                 int64_t *least_of) {
    int64_t next_leaf = 0, next_node = 0;
    for (int64_t made = 0; made < tree->count; made++) {
        int64_t pair[2], weight[2], debt[2], lowest[2];
        for (int side = 0; side < 2; side++) {
            int take_leaf = next_leaf < tree->leaf_count;
            if (take_leaf && next_node < made) {
                int64_t d = by_weight[next_leaf], w = tree->nodes[next_node].weight;
                take_leaf = weights[d] < w || (weights[d] == w && d < least_of[next_node]);
            }
            if (take_leaf) {
                int64_t d = by_weight[next_leaf++];
                pair[side] = ~d, weight[side] = weights[d], debt[side] = owed_by[d], lowest[side] = d;
                tree->leaf_parent[d] = made;
            } else {
                pair[side] = next_node, weight[side] = tree->nodes[next_node].weight;
                debt[side] = owed[next_node], lowest[side] = least_of[next_node];
                tree->nodes[next_node++].parent = made;
            }
        }
        Node *node = &tree->nodes[made];
        int64_t b = weight[0], a = weight[1], n = a + b;
        /* floor((b * owed_left - a * owed_right) / 2**31), each owed cut into high and low bits */
        int64_t carry = b * (debt[1] >> SHIFT) - a * (debt[0] >> SHIFT);
        carry += (b * (debt[1] & HALF) - a * (debt[0] & HALF)) >> SHIFT;
        node->weight = n, node->left_weight = a, node->phase = n / 2 + carry;
        node->whole = floor_div(node->phase, n), node->rest = node->phase - node->whole * n;
        node->left = pair[1], node->right = pair[0], node->parent = NO_PARENT;
        owed[made] = debt[0] + debt[1], least_of[made] = least(lowest[0], lowest[1]);
    }
    tree->root = tree->count ? tree->count - 1 : ~by_weight[0];
}

static void list_leaves(Tree *tree) {
    int64_t waiting[DEPTH], depth = 1;
    waiting[0] = tree->root;
    for (int64_t k = 0; k < tree->leaf_count; k++) {
        int64_t child = waiting[--depth];
        while (child >= 0) {
            waiting[depth++] = tree->nodes[child].right;
            child = tree->nodes[child].left;
        }
        tree->leaves[k] = ~child;
    }
}

/* Give a dataset's slots, which lie side by side, its label. */
INLINE void fill_labels(Scratch *s, int64_t d, int64_t slot, int64_t size) {
    if (size <= 0)
        return;
    s->runs[s->run_count++] = (Run){(int32_t)d, (int32_t)slot, (int32_t)size};
    for (int64_t i = slot; i < slot + size; i++)
        s->labels[i] = (int32_t)d;
}

/* Labels of the round [lo, lo + m) leaf by leaf, and each dataset's first draw in it. Every node is visited, parents
   (higher numbers) first; without a branch that depends on the data, a processor works on several at once. */
static void every_label(const Tree *tree, int64_t lo, int64_t m, Scratch *s) {
    int64_t count = tree->count, top = tree->root >= 0 ? tree->root : count + ~tree->root;
    s->start[top] = lo, s->size[top] = m, s->slot[top] = 0;
    for (int64_t i = count - 1; i >= 0; i--) {
        const Node *node = &tree->nodes[i];
        int64_t x = s->start[i], k = s->size[i], taken, before = go_left(node, x, k, &taken);
        int64_t left = node->left >= 0 ? node->left : count + ~node->left;
        int64_t right = node->right >= 0 ? node->right : count + ~node->right;
        s->start[left] = before, s->size[left] = taken, s->slot[left] = s->slot[i];
        s->start[right] = x - before, s->size[right] = k - taken, s->slot[right] = s->slot[i] + taken;
    }
    s->run_count = 0;
    for (int64_t i = 0; i < tree->leaf_count; i++) {
        int64_t leaf = count + tree->leaves[i];
        s->upcoming[tree->leaves[i]] = s->start[leaf];
        fill_labels(s, tree->leaves[i], s->slot[leaf], s->size[leaf]);
    }
}

/* The same for many datasets and few samples: only nodes that receive something, level by level. Nodes wait in a queue,
   leaves are listed from its end; both are appended to without a branch that depends on the data. */
static void sparse_labels(const Tree *tree, int64_t lo, int64_t m, Scratch *s) {
    int64_t last = s->queue_length - 1, head = 0, tail = tree->root >= 0, leaf = tree->root >= 0 ? last : last - 1;
    int64_t *top = s->queue[tree->root >= 0 ? 0 : last];
    top[0] = tree->root, top[1] = lo, top[2] = m, top[3] = 0;
    while (head < tail) {
        const int64_t *waiting = s->queue[head++];
        const Node *node = &tree->nodes[waiting[0]];
        int64_t x = waiting[1], k = waiting[2], slot = waiting[3], taken, before = go_left(node, x, k, &taken);
        for (int side = 0; side < 2; side++) {
            int64_t child = side ? node->right : node->left, size = side ? k - taken : taken;
            int64_t *place = s->queue[child >= 0 ? tail : leaf];
            place[0] = child, place[1] = side ? x - before : before, place[2] = size, place[3] = slot + side * taken;
            tail += (size > 0) & (child >= 0);
            leaf -= (size > 0) & (child < 0);
        }
    }
    s->run_count = 0;
    for (int64_t i = leaf + 1; i <= last; i++) {
        int64_t d = ~s->queue[i][0];
        s->upcoming[d] = s->queue[i][1];
        fill_labels(s, d, s->queue[i][3], s->queue[i][2]);
    }
}

/* What the hash of each slot begins with, the same in all rounds. */
static uint64_t mixed_slots[MOST_ROUND];

/* Keys of a round's slots: a hash with its low 12 bits replaced by the slot. */
CLONED static void slot_keys(uint64_t round_key, int size, uint64_t *restrict keys) {
    uint64_t folded = round_key * FOLD;
    for (int i = 0; i < size; i++)
        keys[i] = (mix64(folded + mixed_slots[i]) & ~LOW) | (uint64_t)i;
}

CLONED static int64_t count_below(const uint64_t *keys, int64_t count, uint64_t border) {
    int64_t below = 0;
    for (int64_t i = 0; i < count; i++)
        below += keys[i] < border;
    return below;
}

/* The keys that stand at the places [first, stop) of a round, in order: buckets by the top bits, of which those that hold
   these places are filled and sorted by insertion. ordered[0] stands at the place that is returned; *border is the
   smallest key that may stand there. */
static int sort_slots(uint64_t round_key, int size, int first, int stop, Scratch *s, uint64_t *border) {
    uint64_t *keys = s->keys, *ordered = s->ordered;
    int bits = 1, low = 0, high, before = 0, count = size;
    slot_keys(round_key, size, keys);
    *border = 0;
    if (size <= FEW_KEYS)
        memcpy(ordered, keys, (size_t)size * sizeof *keys);
    else {
        int finest = stop - first < size / 2 ? FEW_BITS : SHIFT; /* of a few places, large buckets are sorted sooner */
        while ((1 << bits) < size && bits < finest)
            bits++;
        memset(s->starts, 0, sizeof *s->starts * ((1u << bits) + 1));
        for (int i = 0; i < size; i++)
            s->starts[(keys[i] >> (64 - bits)) + 1]++;
        for (int b = 0; b < 1 << bits; b++)
            s->starts[b + 1] += s->starts[b];
        while (s->starts[low + 1] <= first)
            low++;
        for (high = low; s->starts[high + 1] < stop;)
            high++;
        before = s->starts[low], count = s->starts[high + 1] - before;
        *border = (uint64_t)low << (64 - bits);
        uint64_t widest = ((uint64_t)(high - low + 1) << (64 - bits)) - 1; /* one comparison, which is seldom true */
        for (int i = 0; i < size; i++)
            if (keys[i] - *border <= widest)
                ordered[s->starts[keys[i] >> (64 - bits)]++ - before] = keys[i];
    }
    for (int i = 1; i < count; i++) {
        uint64_t key = ordered[i];
        int j = i;
        for (; j > 0 && ordered[j - 1] > key; j--)
            ordered[j] = ordered[j - 1];
        ordered[j] = key;
    }
    return before;
}

/* Count what each dataset draws at places before those that were sorted. */
static void draw_below(uint64_t border, Scratch *s) {
    for (int32_t r = 0; r < s->run_count; r++)
        s->upcoming[s->runs[r].dataset] += count_below(s->keys + s->runs[r].slot, s->runs[r].size, border);
}

/* Dataset and draw at the places [first, stop) of the round [lo, lo + m); draws count from the stage's start. */
static void one_round(const Tree *tree, int64_t lo, int m, int first, int stop, uint64_t round_key, Scratch *s,
                      int32_t *datasets, int64_t *draws) {
    if (s->queue)
        sparse_labels(tree, lo, m, s);
    else
        every_label(tree, lo, m, s);
    if (s->labels[0] == s->labels[m - 1]) { /* one dataset alone: nothing to permute */
        int64_t upcoming = s->upcoming[s->labels[0]];
        for (int i = first; i < stop; i++)
            datasets[i - first] = s->labels[0], draws[i - first] = upcoming + i;
        return;
    }
    uint64_t border;
    int place = sort_slots(round_key, m, first, stop, s, &border);
    const uint64_t *ordered = s->ordered;
    if (border)
        draw_below(border, s);
    for (; place < first; place++)
        s->upcoming[s->labels[*ordered++ & LOW]]++;
    for (int i = 0; i < stop - first; i++) {
        int32_t d = s->labels[ordered[i] & LOW];
        datasets[i] = d, draws[i] = s->upcoming[d]++;
    }
}

static void *part_of(char **memory, size_t bytes) {
    void *found = *memory;
    *memory += (bytes + 15) & ~(size_t)15;
    return found;
}

/* One allocation for all of a scratch; the caller frees what is returned. */
static char *make_scratch(const Tree *tree, int64_t most_samples, Scratch *s) {
    int is_sparse = tree->count > SPARSE * most_samples;
    int64_t places = tree->count + tree->datasets, bits = 1;
    int64_t queued = least(tree->count, most_samples * DEPTH) + most_samples + 2;
    while ((INT64_C(1) << bits) < most_samples)
        bits++;
    size_t size = is_sparse ? (size_t)queued * sizeof *s->queue : (size_t)places * 3 * sizeof(int64_t);
    size += (size_t)tree->datasets * sizeof(int64_t) + (size_t)most_samples * (4 + 8 + 8 + sizeof(Run)) + ((size_t)4 << bits) + 256;
    char *memory = malloc(size), *rest = memory;
    if (!memory)
        return NULL;
    memset(s, 0, sizeof *s);
    if (is_sparse)
        s->queue = part_of(&rest, (size_t)queued * sizeof *s->queue), s->queue_length = queued;
    else {
        s->start = part_of(&rest, (size_t)places * 8);
        s->size = part_of(&rest, (size_t)places * 8);
        s->slot = part_of(&rest, (size_t)places * 8);
    }
    s->upcoming = part_of(&rest, (size_t)tree->datasets * 8);
    s->labels = part_of(&rest, (size_t)most_samples * 4);
    s->keys = part_of(&rest, (size_t)most_samples * 8);
    s->ordered = part_of(&rest, (size_t)most_samples * 8);
    s->runs = part_of(&rest, (size_t)most_samples * sizeof(Run));
    s->starts = part_of(&rest, ((size_t)4 << bits) + 4);
    return memory;
}

/* Turn draws since the stage's start into indices, in place: each pass has a shuffle of its own. */
static int in_passes(const Pass *passes, const int32_t *datasets, int64_t *draws, int64_t total) {
    uint64_t n[BLOCK], side[BLOCK], key[BLOCK];
    for (int64_t first = 0; first < total; first += BLOCK) {
        int count = (int)least(BLOCK, total - first);
        uint64_t *x = (uint64_t *)draws + first;
        for (int i = 0; i < count; i++) {
            const Pass *pass = &passes[datasets[first + i]];
            if (!fits(pass->length, pass->side))
                return 0;
            uint64_t draw = x[i] + pass->already, turn = draw / pass->length;
            n[i] = pass->length, side[i] = pass->side, key[i] = fold(pass->key, turn);
            x[i] = draw - turn * pass->length;
        }
        permute_block(n, side, key, x, count);
    }
    return 1;
}

typedef struct {
    int64_t start;
    uint64_t key;
    const Column *starts, *sizes, *passes, *datasets, *draws;
    int64_t first, stop; /* places of the only round; a stop of 0: all places of all rounds */
} Asked;

enum { DONE, NO_MEMORY, WRONG_PASSES };

static int all_rounds(const Tree *tree, const Asked *asked, int64_t most_samples) {
    Scratch scratch;
    int32_t *datasets = asked->datasets->data;
    int64_t *draws = asked->draws->data, place = 0;
    char *memory = make_scratch(tree, most_samples, &scratch);
    if (!memory)
        return NO_MEMORY;
    for (Py_ssize_t r = 0; r < asked->starts->length; r++) {
        int64_t lo = at(asked->starts, r), m = at(asked->sizes, r);
        uint64_t round_key = fold(asked->key, (uint64_t)lo);
        int64_t stop = asked->stop ? asked->stop : m;
        one_round(tree, lo - asked->start, (int)m, (int)asked->first, (int)stop, round_key, &scratch, datasets + place,
                  draws + place);
        place += stop - asked->first;
    }
    free(memory);
    return asked->passes && !in_passes(asked->passes->data, datasets, draws, place) ? WRONG_PASSES : DONE;
}

/* Check what is asked for; return the samples of the largest round, or 0 with an error set. */
static int64_t checked(const Tree *tree, const Asked *asked) {
    int64_t total = 0, largest = 0;
    if (asked->starts->length != asked->sizes->length || asked->start < 0 || asked->start > MOST_POSITION)
        return refuse("rounds need a start and a size each, and a stage a start."), 0;
    for (Py_ssize_t r = 0; r < asked->starts->length; r++) {
        int64_t lo = at(asked->starts, r), m = at(asked->sizes, r);
        if (m < 1 || m > MOST_ROUND || lo < asked->start || lo > MOST_POSITION)
            return refuse("a round has 1 to 4096 samples and begins in its stage, below 2**60."), 0;
        total += m, largest = most(largest, m);
    }
    if (asked->stop) {
        if (asked->first < 0 || asked->first >= asked->stop || asked->stop > total)
            return refuse("the places asked for are not in the round."), 0;
        total = asked->stop - asked->first;
    }
    if (asked->datasets->length != total || asked->draws->length != total)
        return refuse("the columns for datasets and draws do not have the size of all rounds."), 0;
    if (asked->passes && asked->passes->length != 4 * tree->datasets)
        return refuse("the passes are not those of the tree's datasets."), 0;
    return largest;
}

static PyObject *worked_out(const Tree *tree, Loan *loan, const Asked *asked) {
    int64_t largest = asked->starts->length ? checked(tree, asked) : 0;
    int ended = DONE;
    if (PyErr_Occurred())
        return give_back(loan, NULL);
    if (!largest) {
        if (asked->datasets->length || asked->draws->length)
            return give_back(loan, refuse("no rounds, but columns to fill."));
    } else if (asked->draws->length < LONG_WORK)
        ended = all_rounds(tree, asked, largest);
    else {
        Py_BEGIN_ALLOW_THREADS;
        ended = all_rounds(tree, asked, largest);
        Py_END_ALLOW_THREADS;
    }
    if (ended == NO_MEMORY)
        return give_back(loan, PyErr_NoMemory());
    if (ended == WRONG_PASSES)
        return give_back(loan, refuse("a pass has no length, or a side that does not hold it."));
    Py_INCREF(Py_None);
    return give_back(loan, Py_None);
}

/* rounds(start, starts, sizes, key, passes or None, datasets, draws): samples of some rounds of a stage. */
static PyObject *tree_rounds(Tree *tree, PyObject *const *args, Py_ssize_t given) {
    Loan loan;
    loan.count = 0;
    Asked asked = {0};
    if (!expect_arguments(given, 7, "rounds") || !as_int64(args[0], &asked.start) || !as_uint64(args[3], &asked.key))
        return NULL;
    if (!(asked.starts = borrow(&loan, args[1], "starts", 8, READ)) ||
        !(asked.sizes = borrow(&loan, args[2], "sizes", 8, READ)) ||
        (args[4] != Py_None && !(asked.passes = borrow(&loan, args[4], "passes", 8, READ))) ||
        !(asked.datasets = borrow(&loan, args[5], "datasets", 4, WRITE)) ||
        !(asked.draws = borrow(&loan, args[6], "draws", 8, WRITE)))
        return give_back(&loan, NULL);
    return worked_out(tree, &loan, &asked);
}

/* step(start, key, passes, lo, size, first, datasets, indices): samples at some places of one round, from the first on;
   what every batch of a mixture asks for. */
static PyObject *tree_step(Tree *tree, PyObject *const *args, Py_ssize_t given) {
    Loan loan;
    loan.count = 0;
    Asked asked = {0};
    int64_t lo, size;
    if (!expect_arguments(given, 8, "step") || !as_int64(args[0], &asked.start) || !as_uint64(args[1], &asked.key) ||
        !as_int64(args[3], &lo) || !as_int64(args[4], &size) || !as_int64(args[5], &asked.first))
        return NULL;
    if (!(asked.passes = borrow(&loan, args[2], "passes", 8, READ)) ||
        !(asked.datasets = borrow(&loan, args[6], "datasets", 4, WRITE)) ||
        !(asked.draws = borrow(&loan, args[7], "indices", 8, WRITE)))
        return give_back(&loan, NULL);
    if (asked.first < 0 || asked.first > MOST_ROUND || !asked.draws->length)
        return give_back(&loan, refuse("the places asked for are not in the round."));
    asked.stop = asked.first + asked.draws->length;
    Column starts = {.data = &lo, .length = 1, .width = 8}, sizes = {.data = &size, .length = 1, .width = 8};
    asked.starts = &starts, asked.sizes = &sizes;
    return worked_out(tree, &loan, &asked);
}

/* counts(position, drawn): add how many of the first positions of the stream each dataset receives. */
static PyObject *tree_counts(Tree *tree, PyObject *const *args, Py_ssize_t given) {
    Loan loan;
    loan.count = 0;
    int64_t position, *reach, *found;
    Column *drawn;
    if (!expect_arguments(given, 2, "counts") || !as_int64(args[0], &position))
        return NULL;
    if (position < 0 || position > MOST_POSITION)
        return refuse("a position is 0 to 2**60.");
    if (!(drawn = borrow(&loan, args[1], "drawn", 8, WRITE)))
        return give_back(&loan, NULL);
    if (drawn->length != tree->datasets)
        return give_back(&loan, refuse("drawn has not one number for each dataset."));
    if (!(reach = calloc((size_t)tree->count + 1, sizeof *reach)))
        return give_back(&loan, PyErr_NoMemory());
    found = drawn->data;
    if (tree->root < 0)
        found[~tree->root] += position;
    else
        reach[tree->root] = position;
    for (int64_t i = tree->count - 1; i >= 0; i--) {
        const Node *node = &tree->nodes[i];
        int64_t ignored, left = go_left(node, reach[i], 0, &ignored);
        *(node->left >= 0 ? &reach[node->left] : &found[~node->left]) += left;
        *(node->right >= 0 ? &reach[node->right] : &found[~node->right]) += reach[i] - left;
    }
    free(reach);
    Py_INCREF(Py_None);
    return give_back(&loan, Py_None);
}

/* Put the places that go left before those that go right; return F(lo), and the number that go left in *cut. */
static int64_t part(const Node *node, int64_t lo, int64_t *places, int64_t count, int64_t *parted, int64_t *cut) {
    int64_t n = node->weight, a = node->left_weight, q = over(lo, n);
    int64_t reach = a * (lo - q * n) + node->rest, first = over(reach, n);
    int64_t rest = reach - first * n, whole = q * a + node->whole + first;
    int64_t before = least(most(whole, 0), lo), now = before, left = 0, right = 0;
    for (int64_t k = 0; k < count; k++) {
        rest += a;
        if (rest >= n)
            rest -= n, whole++;
        int64_t after = least(most(whole, 0), lo + k + 1);
        if (after > now)
            places[left++] = places[k];
        else
            parted[right++] = places[k];
        now = after;
    }
    memcpy(places + left, parted, (size_t)right * sizeof *places);
    *cut = left;
    return before;
}

static void unshuffled_walk(const Tree *tree, int64_t lo, int64_t m, int64_t *places, int64_t *parted,
                            int32_t *datasets, int64_t *numbers) {
    struct {
        int64_t child, lo, first, stop;
    } waiting[DEPTH + 2] = {{tree->root, lo, 0, m}};
    for (int depth = 1; depth > 0;) {
        int64_t child = waiting[--depth].child, cut;
        lo = waiting[depth].lo;
        int64_t first = waiting[depth].first, stop = waiting[depth].stop;
        if (child < 0) {
            for (int64_t k = first; k < stop; k++)
                datasets[places[k]] = (int32_t)~child, numbers[places[k]] = lo + k - first;
            continue;
        }
        const Node *node = &tree->nodes[child];
        int64_t before = part(node, lo, places + first, stop - first, parted, &cut);
        waiting[depth].child = node->right, waiting[depth].lo = lo - before;
        waiting[depth].first = first + cut, waiting[depth].stop = stop;
        depth += stop > first + cut;
        waiting[depth].child = node->left, waiting[depth].lo = before;
        waiting[depth].first = first, waiting[depth].stop = first + cut;
        depth += cut > 0;
    }
}

/* in_order(lo, datasets, draws): samples of some positions, unshuffled: each node parts its places in two. */
static PyObject *tree_in_order(Tree *tree, PyObject *const *args, Py_ssize_t given) {
    Loan loan;
    loan.count = 0;
    int64_t lo, *places;
    Column *datasets, *draws;
    if (!expect_arguments(given, 3, "in_order") || !as_int64(args[0], &lo))
        return NULL;
    if (!(datasets = borrow(&loan, args[1], "datasets", 4, WRITE)) ||
        !(draws = borrow(&loan, args[2], "draws", 8, WRITE)))
        return give_back(&loan, NULL);
    int64_t m = draws->length;
    if (datasets->length != m || lo < 0 || lo > MOST_POSITION)
        return give_back(&loan, refuse("datasets and draws have different lengths, or begin outside 0 to 2**60."));
    if (!(places = malloc(sizeof *places * 2 * (size_t)(m + 1))))
        return give_back(&loan, PyErr_NoMemory());
    for (int64_t k = 0; k < m; k++)
        places[k] = k;
    if (m) {
        Py_BEGIN_ALLOW_THREADS;
        unshuffled_walk(tree, lo, m, places, places + m, datasets->data, draws->data);
        Py_END_ALLOW_THREADS;
    }
    free(places);
    Py_INCREF(Py_None);
    return give_back(&loan, Py_None);
}

/* Position in the stream of a draw: walk up from a leaf. Whoever calls knows that the answer is below 2**60. */
static int64_t stream_position(const Tree *tree, int64_t dataset, int64_t draw) {
    int64_t child = ~dataset, k = draw, i = tree->leaf_parent[dataset];
    while (child != tree->root) {
        const Node *node = &tree->nodes[i];
        int64_t n = node->weight, a = node->left_weight, is_left = node->left == child;
        int64_t s = is_left ? a : n - a, f = is_left ? node->phase : n - 1 - node->phase, q = k / s;
        k = most(q * n - floor_div(f - (k - q * s + 1) * n, s), k + 1) - 1;
        child = i, i = node->parent;
    }
    return k;
}

static int is_in_tree(const Tree *tree, int64_t dataset) {
    return dataset >= 0 && dataset < tree->datasets &&
           (tree->leaf_parent[dataset] != NO_PARENT || tree->root == ~dataset);
}

/* positions(dataset, draws, out): position in the stream of each of a dataset's draws. */
static PyObject *tree_positions(Tree *tree, PyObject *const *args, Py_ssize_t given) {
    Loan loan;
    loan.count = 0;
    int64_t dataset;
    Column *draws, *out;
    if (!expect_arguments(given, 3, "positions") || !as_int64(args[0], &dataset))
        return NULL;
    if (!(draws = borrow(&loan, args[1], "draws", 8, READ)) || !(out = borrow(&loan, args[2], "out", 8, WRITE)))
        return give_back(&loan, NULL);
    if (!is_in_tree(tree, dataset) || draws->length != out->length)
        return give_back(&loan, refuse("the dataset is not in the tree, or the columns have different lengths."));
    for (Py_ssize_t i = 0; i < draws->length; i++) {
        int64_t draw = at(draws, i);
        if (draw < 0 || draw > MOST_POSITION)
            return give_back(&loan, refuse("a draw is 0 to 2**60."));
        put(out, i, stream_position(tree, dataset, draw));
    }
    Py_INCREF(Py_None);
    return give_back(&loan, Py_None);
}

/* First slot, first draw and number of draws of a dataset in a round: down the leaf's own path, adding what goes left. */
static void own_slots(const Tree *tree, int64_t dataset, int64_t lo, int64_t m, int64_t found[3]) {
    int64_t path[DEPTH], depth = 0, passed = 0;
    for (int64_t i = tree->leaf_parent[dataset]; i != NO_PARENT; i = tree->nodes[i].parent)
        path[depth++] = i;
    for (int64_t level = depth - 1; level >= 0; level--) {
        const Node *node = &tree->nodes[path[level]];
        int64_t below = level > 0 ? path[level - 1] : ~dataset, taken, before = go_left(node, lo, m, &taken);
        if (node->left == below)
            lo = before, m = taken;
        else
            passed += taken, lo -= before, m -= taken;
    }
    found[0] = passed, found[1] = lo, found[2] = m;
}

static uint64_t smallest(uint64_t *keys, int64_t count, int64_t k) {
    int64_t low = 0, high = count - 1;
    while (low < high) {
        uint64_t border = keys[(low + high) / 2];
        int64_t i = low, j = high;
        while (i <= j) {
            while (keys[i] < border)
                i++;
            while (keys[j] > border)
                j--;
            if (i <= j) {
                uint64_t kept = keys[i];
                keys[i++] = keys[j], keys[j--] = kept;
            }
        }
        if (k <= j)
            high = j;
        else if (k >= i)
            low = i;
        else
            break;
    }
    return keys[k];
}

/* Place of the k-th draw of a label: choose its k-th smallest key, count the smaller ones of the round. */
static int64_t place_of(uint64_t round_key, int size, int64_t first, int64_t number, int64_t k, Scratch *s) {
    int64_t smaller = 0;
    slot_keys(round_key, size, s->keys);
    memcpy(s->ordered, s->keys + first, (size_t)number * sizeof *s->keys);
    uint64_t mine = smallest(s->ordered, number, k);
    for (int i = 0; i < size; i++)
        smaller += s->keys[i] < mine;
    return smaller;
}

/* Places of some draws that stand in one round; of several the round is sorted once. Return 0 where one is not there. */
static int places_in_round(const Tree *tree, int64_t dataset, const int64_t *draws, Py_ssize_t count, int64_t start,
                           int64_t lo, int64_t m, uint64_t round_key, Scratch *s, int64_t *found) {
    int64_t mine[3], k = 0;
    own_slots(tree, dataset, lo - start, m, mine);
    for (Py_ssize_t i = 0; i < count; i++)
        if (draws[i] < mine[1] || draws[i] - mine[1] >= mine[2])
            return 0;
    if (count == 1) {
        found[0] = lo + place_of(round_key, (int)m, mine[0], mine[2], draws[0] - mine[1], s);
        return 1;
    }
    uint64_t border;
    sort_slots(round_key, (int)m, 0, (int)m, s, &border);
    for (int64_t place = 0; place < m; place++) {
        int64_t slot = (int64_t)(s->ordered[place] & LOW);
        if (slot >= mine[0] && slot < mine[0] + mine[2])
            s->keys[k++] = (uint64_t)place;
    }
    for (Py_ssize_t i = 0; i < count; i++)
        found[i] = lo + (int64_t)s->keys[draws[i] - mine[1]];
    return 1;
}

static int all_places(const Tree *tree, int64_t dataset, const Column *draws, const Asked *asked, int64_t *found) {
    Scratch scratch;
    char *memory = make_scratch(tree, MOST_ROUND, &scratch);
    if (!memory)
        return NO_MEMORY;
    const int64_t *drawn = draws->data;
    int ended = DONE;
    for (Py_ssize_t i = 0, stop; i < draws->length && ended == DONE; i = stop) {
        int64_t lo = at(asked->starts, i), m = at(asked->sizes, i);
        for (stop = i + 1; stop < draws->length && at(asked->starts, stop) == lo && at(asked->sizes, stop) == m;)
            stop++;
        uint64_t round_key = fold(asked->key, (uint64_t)lo);
        if (!places_in_round(tree, dataset, drawn + i, stop - i, asked->start, lo, m, round_key, &scratch, found + i))
            ended = WRONG_PASSES;
    }
    free(memory);
    return ended;
}

/* places(dataset, draws, start, starts, sizes, key, out): position after the shuffle of each of a dataset's draws. */
static PyObject *tree_places(Tree *tree, PyObject *const *args, Py_ssize_t given) {
    Loan loan;
    loan.count = 0;
    Asked asked = {0};
    int64_t dataset;
    Column *draws, *out;
    if (!expect_arguments(given, 7, "places") || !as_int64(args[0], &dataset) || !as_int64(args[2], &asked.start) ||
        !as_uint64(args[5], &asked.key))
        return NULL;
    if (!(draws = borrow(&loan, args[1], "draws", 8, READ)) ||
        !(asked.starts = borrow(&loan, args[3], "starts", 8, READ)) ||
        !(asked.sizes = borrow(&loan, args[4], "sizes", 8, READ)) || !(out = borrow(&loan, args[6], "out", 8, WRITE)))
        return give_back(&loan, NULL);
    Py_ssize_t count = draws->length;
    if (!is_in_tree(tree, dataset) || asked.starts->length != count || asked.sizes->length != count ||
        out->length != count || asked.start < 0)
        return give_back(&loan, refuse("the dataset is not in the tree, or the columns have different lengths."));
    for (Py_ssize_t i = 0; i < count; i++) {
        int64_t lo = at(asked.starts, i), m = at(asked.sizes, i);
        if (m < 1 || m > MOST_ROUND || lo < asked.start || lo > MOST_POSITION)
            return give_back(&loan, refuse("a round has 1 to 4096 samples and begins in its stage, below 2**60."));
    }
    int ended = all_places(tree, dataset, draws, &asked, out->data);
    if (ended == NO_MEMORY)
        return give_back(&loan, PyErr_NoMemory());
    if (ended != DONE)
        return give_back(&loan, refuse("a draw is not in the round that is given for it."));
    Py_INCREF(Py_None);
    return give_back(&loan, Py_None);
}

/* nodes(): (weight, left weight, phase, left child, right child) of each node; for tests. */
static PyObject *tree_nodes(Tree *tree, PyObject *const *args, Py_ssize_t given) {
    if (!expect_arguments(given, 0, "nodes"))
        return NULL;
    PyObject *found = PyList_New((Py_ssize_t)tree->count);
    for (int64_t i = 0; found && i < tree->count; i++) {
        const Node *node = &tree->nodes[i];
        PyObject *row = Py_BuildValue("(LLLLL)", (long long)node->weight, (long long)node->left_weight,
                                      (long long)node->phase, (long long)node->left, (long long)node->right);
        if (!row || PyList_SetItem(found, (Py_ssize_t)i, row) < 0)
            Py_CLEAR(found);
    }
    return found;
}

static int is_tree_possible(const int64_t *weights, int64_t datasets, const int64_t *by_weight, int64_t leaves) {
    int64_t total = 0;
    for (int64_t d = 0; d < datasets; d++) {
        if (weights[d] < 0 || weights[d] > TOTAL || (total += weights[d]) > TOTAL)
            return 0;
    }
    for (int64_t i = 0; i < leaves; i++) {
        int64_t d = by_weight[i];
        if (d < 0 || d >= datasets || weights[d] < 1)
            return 0;
        if (i && (weights[by_weight[i - 1]] > weights[d] || (weights[by_weight[i - 1]] == weights[d] && by_weight[i - 1] >= d)))
            return 0;
    }
    return leaves > 0 && datasets < INT32_MAX;
}

static int grow(Tree *tree, const Column *weights, const Column *residuals, const Column *by_weight) {
    int64_t leaves = by_weight->length;
    tree->datasets = weights->length, tree->leaf_count = leaves, tree->count = leaves - 1;
    tree->nodes = malloc(sizeof *tree->nodes * (size_t)leaves);
    tree->leaves = malloc(sizeof *tree->leaves * (size_t)leaves);
    tree->leaf_parent = malloc(sizeof *tree->leaf_parent * (size_t)tree->datasets);
    int64_t *owed = malloc(sizeof *owed * 2 * (size_t)leaves);
    if (!tree->nodes || !tree->leaves || !tree->leaf_parent || !owed) {
        free(owed);
        PyErr_NoMemory();
        return 0;
    }
    memset(tree->leaf_parent, 0xFF, sizeof *tree->leaf_parent * (size_t)tree->datasets);
    join(tree, weights->data, residuals->data, by_weight->data, owed, owed + leaves);
    free(owed);
    for (int64_t i = 0; i < tree->count; i++)
        if (tree->nodes[i].phase >= MOST_PHASE || tree->nodes[i].phase <= -MOST_PHASE) {
            PyErr_SetString(PyExc_OverflowError, "a phase leaves 64 bits");
            return 0;
        }
    list_leaves(tree);
    return 1;
}

/* Tree(weights, residuals, by_weight): by_weight lists the datasets that have a weight, lightest first. */
static PyObject *tree_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    PyObject *given[3];
    Loan loan;
    loan.count = 0;
    Column *columns[3];
    if (kwargs && PyDict_Size(kwargs))
        return refuse("a tree takes weights, residuals and by_weight, in this order.");
    if (!PyArg_ParseTuple(args, "OOO", &given[0], &given[1], &given[2]))
        return NULL;
    for (int c = 0; c < 3; c++)
        if (!(columns[c] = borrow(&loan, given[c], "a column of the tree", 8, READ)))
            return give_back(&loan, NULL);
    if (columns[1]->length != columns[0]->length ||
        !is_tree_possible(columns[0]->data, columns[0]->length, columns[2]->data, columns[2]->length))
        return give_back(&loan, refuse("weights are 0 or more and sum to at most 2**31, by_weight lists them ascending."));
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    Tree *tree = (Tree *)allocate(type, 0);
    if (tree && !grow(tree, columns[0], columns[1], columns[2]))
        Py_CLEAR(tree);
    return give_back(&loan, (PyObject *)tree);
}

static void tree_dealloc(Tree *tree) {
    PyTypeObject *type = Py_TYPE((PyObject *)tree);
    free(tree->nodes), free(tree->leaves), free(tree->leaf_parent);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(tree);
    Py_DECREF(type);
}

#define METHOD(name) {#name, (PyCFunction)(void (*)(void))tree_##name, METH_FASTCALL, NULL}
static PyMethodDef tree_methods[] = {METHOD(rounds),    METHOD(step),   METHOD(counts), METHOD(in_order),
                                     METHOD(positions), METHOD(places), METHOD(nodes),  {NULL, NULL, 0, NULL}};

static PyType_Slot tree_slots[] = {{Py_tp_new, tree_new},
                                   {Py_tp_dealloc, tree_dealloc},
                                   {Py_tp_methods, tree_methods},
                                   {Py_tp_doc, "The tree of one stage of a mixture."},
                                   {0, NULL}};

static PyType_Spec tree_spec = {
    .name = "lading._kernels.Tree", .basicsize = sizeof(Tree), .flags = Py_TPFLAGS_DEFAULT, .slots = tree_slots};

int add_tree(PyObject *module) {
    for (int i = 0; i < MOST_ROUND; i++)
        mixed_slots[i] = mix64((uint64_t)i + GOLDEN);
    PyObject *type = PyType_FromSpec(&tree_spec);
    if (!type)
        return -1;
    int failed = PyModule_AddObjectRef(module, "Tree", type);
    Py_DECREF(type);
    return failed;
}
