/* Rows of an Arrow column, whose chunks lie anywhere in memory, as numbers of the type that a batch has: twin of
   source/arrow.

       firsts    0         3       5      rows before each chunk, and of all
       chunk     [a b c]   [d e]          of each: where its values lie, how many, the first of them that is its own,
                                          and where its offsets lie (lists of any length) */

#include "kernels.h"

#include <string.h>

enum { ADDRESS, COUNT, FIRST, OFFSETS, FIELDS };
enum { BITS, I8, U8, I16, U16, I32, U32, I64, U64, F32, F64, KINDS };
enum { TO_BOOL, TO_I64, TO_F32, TO_F64, TARGETS };
static const int target_bytes[TARGETS] = {1, 8, 4, 8};

#define EACH(S, T)                                                                                                     \
    for (int64_t j = 0; j < count; j++)                                                                                \
        ((T *)out)[j] = (T)((const S *)values)[j];                                                                     \
    return 1;

/* Copy numbers as another type; say whether that can be done. The first two kinds are those of source and target. */
CLONED static int convert(int from, int to, const void *values, void *out, int64_t count) {
    switch (from * TARGETS + to) {
    case I8 * TARGETS + TO_I64: EACH(int8_t, int64_t)
    case U8 * TARGETS + TO_I64: EACH(uint8_t, int64_t)
    case I16 * TARGETS + TO_I64: EACH(int16_t, int64_t)
    case U16 * TARGETS + TO_I64: EACH(uint16_t, int64_t)
    case I32 * TARGETS + TO_I64: EACH(int32_t, int64_t)
    case U32 * TARGETS + TO_I64: EACH(uint32_t, int64_t)
    case I64 * TARGETS + TO_I64:
    case U64 * TARGETS + TO_I64:
    case F64 * TARGETS + TO_F64: memcpy(out, values, (size_t)count * 8); return 1;
    case F32 * TARGETS + TO_F32: memcpy(out, values, (size_t)count * 4); return 1;
    case F32 * TARGETS + TO_F64: EACH(float, double)
    case F64 * TARGETS + TO_F32: EACH(double, float)
    default: return 0;
    }
}

static void unpack(const uint8_t *bits, int64_t first, uint8_t *out, int64_t count) {
    for (int64_t j = 0; j < count; j++)
        out[j] = (bits[(first + j) >> 3] >> ((first + j) & 7)) & 1;
}

/* The chunk that holds a row: the last that begins at or before it. */
INLINE int64_t chunk_of(const int64_t *firsts, int64_t chunks, int64_t row) {
    int64_t low = 0, high = chunks;
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        if (firsts[middle] <= row)
            low = middle;
        else
            high = middle;
    }
    return low;
}

typedef struct {
    const int64_t *firsts, *places;
    int64_t chunks, length, width; /* numbers of a row; bytes of an offset, or 0: all rows have the length */
    int from, to;
} Rows;

/* Copy one row; say whether it is there and has the length that all rows of the batch have. */
INLINE int copy_row(const Rows *from, int64_t row, char *out) {
    if (row < 0 || row >= from->firsts[from->chunks])
        return 0;
    int64_t chunk = chunk_of(from->firsts, from->chunks, row), inside = row - from->firsts[chunk];
    const int64_t *place = from->places + chunk * FIELDS;
    if (inside < 0 || row >= from->firsts[chunk + 1])
        return 0;
    int64_t start = inside * from->length, stop = start + from->length;
    if (from->width == 4) {
        const int32_t *offsets = (const int32_t *)(intptr_t)place[OFFSETS];
        start = offsets[inside], stop = offsets[inside + 1];
    } else if (from->width == 8) {
        const int64_t *offsets = (const int64_t *)(intptr_t)place[OFFSETS];
        start = offsets[inside], stop = offsets[inside + 1];
    }
    if (start < 0 || stop < start || stop - start != from->length || stop > place[COUNT])
        return 0;
    static const int bytes[KINDS] = {0, 1, 1, 2, 2, 4, 4, 8, 8, 4, 8};
    const char *values = (const char *)(intptr_t)place[ADDRESS];
    if (from->from == BITS) {
        unpack((const uint8_t *)values, place[FIRST] + start, (uint8_t *)out, from->length);
        return 1;
    }
    return convert(from->from, from->to, values + (place[FIRST] + start) * bytes[from->from], out, from->length);
}

/* arrow_rows(firsts, places, from, to, width, length, rows, out): copy rows. Return the first row that is not there or
   has another length, or -1. Addresses and what lies there are the caller's word: they are memory. */
KERNEL(kernel_arrow_rows) {
    Loan loan;
    loan.count = 0;
    int64_t from, to, width, length;
    Column *firsts, *places, *rows, *out;
    if (!expect_arguments(given, 8, "arrow_rows") || !as_int64(args[2], &from) || !as_int64(args[3], &to) ||
        !as_int64(args[4], &width) || !as_int64(args[5], &length))
        return NULL;
    if (!(firsts = borrow(&loan, args[0], "firsts", 8, READ)) || !(places = borrow(&loan, args[1], "places", 8, READ)) ||
        !(rows = borrow(&loan, args[6], "rows", 8, READ)) || !(out = borrow(&loan, args[7], "out", ANY_WIDTH, WRITE)))
        return give_back(&loan, NULL);
    if (from < 0 || from >= KINDS || to < 0 || to >= TARGETS || (from == BITS) != (to == TO_BOOL) ||
        (from >= F32) != (to >= TO_F32) || (width != 0 && width != 4 && width != 8))
        return give_back(&loan, refuse("numbers of this kind are not copied as that kind."));
    int64_t chunks = places->length / FIELDS;
    if (chunks < 1 || places->length != chunks * FIELDS || firsts->length != chunks + 1 || length < 0 ||
        out->width != target_bytes[to] || (uintptr_t)out->data % (uintptr_t)out->width ||
        (length ? out->length % length || out->length / length != rows->length : out->length != 0))
        return give_back(&loan, refuse("the chunks, rows and places of a column do not fit together."));
    Rows table = {firsts->data, places->data, chunks, length, width, (int)from, (int)to};
    int64_t step = length * out->width;
    Py_ssize_t done = 0;
    PyThreadState *waiting = step * rows->length >= 1 << 16 ? PyEval_SaveThread() : NULL;
    while (done < rows->length && copy_row(&table, at(rows, done), (char *)out->data + done * step))
        done++;
    if (waiting)
        PyEval_RestoreThread(waiting);
    return give_back(&loan, PyLong_FromSsize_t(done < rows->length ? done : -1));
}
