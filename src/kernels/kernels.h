/* What the compiled kernels share: hashes, columns of numbers that Python lends, and clones for newer processors.

   Each function here has a plain twin in Python with the same result to the last bit. Arguments are checked: whatever
   Python passes, no kernel reads or writes beyond the columns it was given. Integers wrap (-fwrapv), as NumPy's do. */

#ifndef LADING_KERNELS_H
#define LADING_KERNELS_H

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <stdint.h>

/* The same source for several generations of processors; the loader of the system picks one. */
#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__) && !defined(LADING_NO_CLONES)
#define CLONED __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define CLONED
#endif
#define INLINE static inline __attribute__((always_inline, unused))

#define GOLDEN UINT64_C(0x9E3779B97F4A7C15)
#define MULTIPLY_1 UINT64_C(0xBF58476D1CE4E5B9)
#define MULTIPLY_2 UINT64_C(0x94D049BB133111EB)
#define FOLD UINT64_C(0xD6E8FEB86659FD93)

INLINE uint64_t mix64(uint64_t x) {
    x = (x ^ (x >> 30)) * MULTIPLY_1;
    x = (x ^ (x >> 27)) * MULTIPLY_2;
    return x ^ (x >> 31);
}

INLINE uint64_t fold(uint64_t h, uint64_t x) { return mix64(h * FOLD + mix64(x + GOLDEN)); }

INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
INLINE int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

/* A column of numbers side by side that Python lends for the time of a call. */
typedef struct {
    Py_buffer view;
    void *data;
    Py_ssize_t length;
    Py_ssize_t width; /* bytes of a number */
} Column;

/* Number i of a column of 4 or 8 bytes a number. */
INLINE int64_t at(const Column *column, Py_ssize_t i) {
    return column->width == 4 ? ((const int32_t *)column->data)[i] : ((const int64_t *)column->data)[i];
}

INLINE void put(const Column *column, Py_ssize_t i, int64_t value) {
    if (column->width == 4)
        ((int32_t *)column->data)[i] = (int32_t)value;
    else
        ((int64_t *)column->data)[i] = value;
}

/* What a call lent: columns that are given back together, whatever happened. */
#define MOST_COLUMNS 16
typedef struct {
    Column columns[MOST_COLUMNS];
    int count;
} Loan;

enum { READ = 0, WRITE = 1 };
enum { FOUR_OR_EIGHT = 0, ANY_WIDTH = -1 };

Column *borrow(Loan *loan, PyObject *lender, const char *name, int width, int writes);
PyObject *give_back(Loan *loan, PyObject *result);
int as_int64(PyObject *value, int64_t *number);
int as_uint64(PyObject *value, uint64_t *number);
int expect_arguments(Py_ssize_t given, Py_ssize_t wanted, const char *name);
PyObject *refuse(const char *text);

/* Work of so many numbers and more lets other threads run meanwhile; less is done before they woke. */
#define LONG_WORK (1 << 15)

enum { TABLE = 64, BLOCK = 1024 };
#define FEW (UINT64_C(1) << 16)

/* Replace positions by elements, at most BLOCK of them; the sizes are folded into the keys here. */
void permute_block(const uint64_t *n, const uint64_t *side, const uint64_t *keys, uint64_t *x, int count);
/* Whether a square of this side, and no smaller one, holds n elements, n of at least one: then walks in it are short. */
INLINE int fits(uint64_t n, uint64_t side) {
    return n > 0 && side > 0 && side < (UINT64_C(1) << 32) && side * side >= n && (side - 1) * (side - 1) < n;
}

#define KERNEL(name) PyObject *name(PyObject *module, PyObject *const *args, Py_ssize_t given)
KERNEL(kernel_fold);
KERNEL(kernel_key_of_three);
KERNEL(kernel_digest);
KERNEL(kernel_digest_of_slots);
KERNEL(kernel_digests);
KERNEL(kernel_owners);
KERNEL(kernel_owner_counts);
KERNEL(kernel_permute);
KERNEL(kernel_unpermute);
KERNEL(kernel_gather);
KERNEL(kernel_arrow_rows);
KERNEL(kernel_hash_rows);
KERNEL(kernel_fold_rows);
KERNEL(kernel_digest_of_content);
KERNEL(kernel_extent);
KERNEL(kernel_integers);
KERNEL(kernel_counts);
KERNEL(kernel_group);
KERNEL(kernel_num_pieces);
KERNEL(kernel_first_fit);
KERNEL(kernel_best_fit);
KERNEL(kernel_group_pieces);
KERNEL(kernel_stream_counts);
KERNEL(kernel_stream);
KERNEL(kernel_fill);
KERNEL(kernel_pack_row);
KERNEL(kernel_pack_names);
KERNEL(kernel_pack_columns);
KERNEL(kernel_check_rows);
int add_tree(PyObject *module);

#endif
