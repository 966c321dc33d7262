/* Rows of a batch copied from many arrays into ready ones, their content hashed, and the tracker's counting: twins of
   loader/gather, identity/content and ledger/tracker/log.

   Rows lie anywhere in memory, and each is waited for. So the heads of several rows are copied first, which memory
   fetches at once; where a row is long, the processor guesses the rest of it meanwhile.

       rows        7 ####........   2 ####........   9 ####........       first all heads, then all tails */

#include "kernels.h"

#include <stdlib.h>
#include <string.h>

enum { TOGETHER = 16, HEAD = 256 };

typedef struct {
    const int64_t *addresses; /* of each column of each source, source by source */
    int64_t columns;
    const Column *sources, *rows;
} From;

INLINE const char *row_of(const From *from, Py_ssize_t i, int64_t column, int64_t size) {
    return (const char *)(intptr_t)from->addresses[at(from->sources, i) * from->columns + column] +
           at(from->rows, i) * size;
}

INLINE void copy_heads(const From *from, char *target, int64_t size, int64_t column) {
    Py_ssize_t count = from->rows->length;
    int64_t head = least(size, HEAD);
    for (Py_ssize_t first = 0; first < count; first += TOGETHER) {
        Py_ssize_t stop = (Py_ssize_t)least(first + TOGETHER, count);
        for (Py_ssize_t i = first; i < stop; i++)
            memcpy(target + i * size, row_of(from, i, column, size), (size_t)head);
        for (Py_ssize_t i = first; i < stop && size > head; i++)
            memcpy(target + i * size + head, row_of(from, i, column, size) + head, (size_t)(size - head));
    }
}

/* Numbers of the usual sizes are moved without a call. */
static void copy_rows(const From *from, char *target, int64_t size, int64_t column) {
    switch (size) {
    case 1: copy_heads(from, target, 1, column); break;
    case 2: copy_heads(from, target, 2, column); break;
    case 4: copy_heads(from, target, 4, column); break;
    case 8: copy_heads(from, target, 8, column); break;
    case 16: copy_heads(from, target, 16, column); break;
    default: copy_heads(from, target, size, column);
    }
}

/* gather(addresses, lengths, sizes, sources, rows, targets): copy rows of several sources to their places in a batch,
   column by column. Return the first row that its source does not have, or -1; nothing is copied then. Addresses and
   sizes are the caller's word: they are memory. */
KERNEL(kernel_gather) {
    Loan loan;
    loan.count = 0;
    Column *columns[6];
    const char *names[6] = {"addresses", "lengths", "sizes", "sources", "rows", "targets"};
    if (!expect_arguments(given, 6, "gather"))
        return NULL;
    for (int c = 0; c < 6; c++)
        if (!(columns[c] = borrow(&loan, args[c], names[c], c == 3 ? FOUR_OR_EIGHT : 8, READ)))
            return give_back(&loan, NULL);
    Column *lengths = columns[1], *sizes = columns[2], *sources = columns[3], *rows = columns[4], *targets = columns[5];
    if (columns[0]->length != lengths->length * sizes->length || sizes->length != targets->length ||
        sources->length != rows->length)
        return give_back(&loan, refuse("the columns of a gather do not fit together."));
    int64_t bytes = 0;
    for (Py_ssize_t i = 0; i < rows->length; i++) {
        int64_t source = at(sources, i), row = at(rows, i);
        if (source < 0 || source >= lengths->length || row < 0 || row >= at(lengths, source))
            return give_back(&loan, PyLong_FromSsize_t(i));
    }
    for (Py_ssize_t c = 0; c < targets->length; c++)
        bytes += at(sizes, c) * rows->length;
    From from = {columns[0]->data, sizes->length, sources, rows};
    PyThreadState *waiting = bytes >= 1 << 16 ? PyEval_SaveThread() : NULL;
    for (Py_ssize_t c = 0; c < targets->length; c++)
        copy_rows(&from, (char *)(intptr_t)at(targets, c), at(sizes, c), c);
    if (waiting)
        PyEval_RestoreThread(waiting);
    return give_back(&loan, PyLong_FromLong(-1));
}

enum { KEYS = 512 };

/* Add the hash of the words [first, stop) of each row; a row's last word is filled up with zeros. */
CLONED static void add_words(const unsigned char *content, Py_ssize_t rows, int64_t width, int64_t first, int64_t stop,
                             const uint64_t *keys, uint64_t *out) {
    for (Py_ssize_t row = 0; row < rows; row++) {
        const unsigned char *start = content + row * width;
        int64_t whole = least(stop, width / 8);
        uint64_t sum = 0, word;
        for (int64_t w = first; w < whole; w++) {
            memcpy(&word, start + 8 * w, 8);
            sum += mix64(word ^ keys[w - first]);
        }
        if (stop > whole) {
            word = 0;
            memcpy(&word, start + 8 * whole, (size_t)(width - 8 * whole));
            sum += mix64(word ^ keys[whole - first]);
        }
        out[row] += sum;
    }
}

/* hash_rows(content, key, begin, out): the content hash of each of len(out) rows that lie side by side. */
KERNEL(kernel_hash_rows) {
    Loan loan;
    loan.count = 0;
    uint64_t key, begin, keys[KEYS];
    Column *content, *out;
    if (!expect_arguments(given, 4, "hash_rows") || !as_uint64(args[1], &key) || !as_uint64(args[2], &begin))
        return NULL;
    if (!(content = borrow(&loan, args[0], "content", ANY_WIDTH, READ)) ||
        !(out = borrow(&loan, args[3], "out", 8, WRITE)))
        return give_back(&loan, NULL);
    Py_ssize_t bytes = content->view.len;
    if (out->length ? bytes % out->length : bytes)
        return give_back(&loan, refuse("content is not so many rows of one size."));
    int64_t width = out->length ? bytes / out->length : 0, words = width / 8 + (width % 8 != 0);
    uint64_t *found = out->data;
    PyThreadState *waiting = bytes >= 8 * LONG_WORK ? PyEval_SaveThread() : NULL;
    memset(found, 0, (size_t)out->length * 8);
    for (int64_t first = 0; first < words; first += KEYS) {
        int64_t stop = least(first + KEYS, words);
        for (int64_t w = first; w < stop; w++)
            keys[w - first] = mix64((uint64_t)(w + 1) * key);
        add_words(content->data, out->length, width, first, stop, keys, found);
    }
    for (Py_ssize_t row = 0; row < out->length; row++)
        found[row] = fold(begin, found[row]);
    if (waiting)
        PyEval_RestoreThread(waiting);
    Py_INCREF(Py_None);
    return give_back(&loan, Py_None);
}

/* fold_rows(totals, name, parts): add a part to the hash of each row; first its name, unless that is None. */
KERNEL(kernel_fold_rows) {
    Loan loan;
    loan.count = 0;
    uint64_t name = 0;
    Column *totals, *parts;
    if (!expect_arguments(given, 3, "fold_rows") || (args[1] != Py_None && !as_uint64(args[1], &name)))
        return NULL;
    if (!(totals = borrow(&loan, args[0], "totals", 8, WRITE)) || !(parts = borrow(&loan, args[2], "parts", 8, READ)))
        return give_back(&loan, NULL);
    if (totals->length != parts->length)
        return give_back(&loan, refuse("totals and parts have different lengths."));
    for (Py_ssize_t row = 0; row < totals->length; row++) {
        uint64_t total = ((uint64_t *)totals->data)[row];
        total = args[1] == Py_None ? total : fold(total, name);
        ((uint64_t *)totals->data)[row] = fold(total, ((const uint64_t *)parts->data)[row]);
    }
    Py_INCREF(Py_None);
    return give_back(&loan, Py_None);
}

/* digest_of_content(position, slots, content, is_left_out): the sum of the content of rows, each bound to its place. */
KERNEL(kernel_digest_of_content) {
    Loan loan;
    loan.count = 0;
    int64_t position;
    Column *slots, *content, *is_left_out;
    if (!expect_arguments(given, 4, "digest_of_content") || !as_int64(args[0], &position))
        return NULL;
    if (!(slots = borrow(&loan, args[1], "slots", FOUR_OR_EIGHT, READ)) ||
        !(content = borrow(&loan, args[2], "content", 8, READ)) ||
        !(is_left_out = borrow(&loan, args[3], "is_left_out", 1, READ)))
        return give_back(&loan, NULL);
    if (content->length != slots->length || is_left_out->length != slots->length)
        return give_back(&loan, refuse("the columns of a digest have different lengths."));
    uint64_t total = 0;
    for (Py_ssize_t row = 0; row < slots->length; row++)
        if (!((const uint8_t *)is_left_out->data)[row])
            total += fold((uint64_t)(position + at(slots, row)), ((const uint64_t *)content->data)[row]);
    return give_back(&loan, PyLong_FromUnsignedLongLong(total));
}

/* extent(values): the smallest and the largest of at least one number. */
KERNEL(kernel_extent) {
    Loan loan;
    loan.count = 0;
    Column *values;
    if (!expect_arguments(given, 1, "extent"))
        return NULL;
    if (!(values = borrow(&loan, args[0], "values", 8, READ)))
        return give_back(&loan, NULL);
    if (!values->length)
        return give_back(&loan, refuse("no values have no extent."));
    const int64_t *numbers = values->data;
    int64_t low = numbers[0], high = numbers[0];
    for (Py_ssize_t i = 0; i < values->length; i++)
        low = least(low, numbers[i]), high = most(high, numbers[i]);
    return give_back(&loan, Py_BuildValue("(LL)", (long long)low, (long long)high));
}

/* integers(items, found): write a list of Python's integers into a column of as many; False where an item is another
   thing, or needs more than 64 bits: no code of an item runs here. */
KERNEL(kernel_integers) {
    Loan loan;
    loan.count = 0;
    Column *found;
    if (!expect_arguments(given, 2, "integers"))
        return NULL;
    if (!(found = borrow(&loan, args[1], "found", 8, WRITE)))
        return give_back(&loan, NULL);
    if (!PyList_Check(args[0]) || PyList_Size(args[0]) != found->length)
        return give_back(&loan, refuse("items must be a list of as many as there is room for."));
    int64_t *numbers = found->data;
    int is_good = 1;
    for (Py_ssize_t i = 0; i < found->length && is_good; i++) {
        PyObject *item = PyList_GetItem(args[0], i);
        is_good = PyLong_Check(item) && as_int64(item, &numbers[i]);
    }
    PyErr_Clear();
    return give_back(&loan, PyBool_FromLong(is_good));
}

/* counts(values, low, found): add how often each integer from low on occurs. */
KERNEL(kernel_counts) {
    Loan loan;
    loan.count = 0;
    int64_t low;
    Column *values, *found;
    if (!expect_arguments(given, 3, "counts") || !as_int64(args[1], &low))
        return NULL;
    if (!(values = borrow(&loan, args[0], "values", 8, READ)) || !(found = borrow(&loan, args[2], "found", 8, WRITE)))
        return give_back(&loan, NULL);
    for (Py_ssize_t i = 0; i < values->length; i++) {
        uint64_t code = (uint64_t)(((const int64_t *)values->data)[i] - low);
        if (code >= (uint64_t)found->length)
            return give_back(&loan, refuse("a value is outside what is counted."));
        ((int64_t *)found->data)[code]++;
    }
    Py_INCREF(Py_None);
    return give_back(&loan, Py_None);
}

/* group(datasets, indices, low, places, out): move indices into out dataset by dataset, each in arrival order; places
   has where each dataset from low on begins, and moves on. */
KERNEL(kernel_group) {
    Loan loan;
    loan.count = 0;
    int64_t low;
    Column *datasets, *indices, *places, *out;
    if (!expect_arguments(given, 5, "group") || !as_int64(args[2], &low))
        return NULL;
    if (!(datasets = borrow(&loan, args[0], "datasets", 8, READ)) ||
        !(indices = borrow(&loan, args[1], "indices", 8, READ)) ||
        !(places = borrow(&loan, args[3], "places", 8, WRITE)) ||
        !(out = borrow(&loan, args[4], "out", FOUR_OR_EIGHT, WRITE)))
        return give_back(&loan, NULL);
    if (datasets->length != indices->length || out->length != indices->length)
        return give_back(&loan, refuse("datasets, indices and out have different lengths."));
    int64_t *place = places->data;
    for (Py_ssize_t i = 0; i < indices->length; i++) {
        uint64_t code = (uint64_t)(((const int64_t *)datasets->data)[i] - low);
        if (code >= (uint64_t)places->length || (uint64_t)place[code] >= (uint64_t)out->length)
            return give_back(&loan, refuse("a dataset, or its place, is outside what was given."));
        put(out, (Py_ssize_t)place[code]++, ((const int64_t *)indices->data)[i]);
    }
    Py_INCREF(Py_None);
    return give_back(&loan, Py_None);
}
