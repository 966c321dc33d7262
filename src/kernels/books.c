/* Rows of the books, packed: twin of ledger/packed.

       row    a bit for each column that is there (u16) · the columns, little-endian, side by side · texts and maps

   Numbers and texts are Python's own: none of them runs code. What cannot be packed is left to the twin, which says
   why. */

#include "kernels.h"

#include <math.h>
#include <string.h>

enum { MOST_BITS = 16, MOST_BYTES = 2 + 8 * MOST_BITS };
static const double LARGEST_FLOAT32 = 3.4028235677973366e38; /* from here on a float of 4 bytes is infinite */

/* Where bytes are written; without memory they are counted. */
typedef struct {
    unsigned char *memory;
    size_t used;
} Pen;

INLINE void write_bytes(Pen *pen, const char *bytes, size_t count) {
    if (pen->memory)
        memcpy(pen->memory + pen->used, bytes, count);
    pen->used += count;
}

INLINE void write_number(Pen *pen, uint64_t number, size_t width) {
    char bytes[8];
    for (size_t i = 0; i < width; i++)
        bytes[i] = (char)(number >> (8 * i));
    write_bytes(pen, bytes, width);
}

static int write_text(Pen *pen, PyObject *text, int with_length) {
    Py_ssize_t length;
    const char *bytes = PyUnicode_Check(text) ? PyUnicode_AsUTF8AndSize(text, &length) : NULL;
    if (!bytes || (uint64_t)length > UINT32_MAX)
        return 0;
    if (with_length)
        write_number(pen, (uint64_t)length, 4);
    write_bytes(pen, bytes, (size_t)length);
    return 1;
}

/* A map is a list of pairs: its name and a float. */
static int write_map(Pen *pen, PyObject *pairs) {
    for (Py_ssize_t i = 0; i < PyList_Size(pairs); i++) {
        PyObject *pair = PyList_GetItem(pairs, i);
        if (!PyTuple_Check(pair) || PyTuple_Size(pair) != 2 || !PyFloat_Check(PyTuple_GetItem(pair, 1)) ||
            !write_text(pen, PyTuple_GetItem(pair, 0), 1))
            return 0;
        double number = PyFloat_AsDouble(PyTuple_GetItem(pair, 1));
        uint64_t bits;
        memcpy(&bits, &number, 8);
        write_number(pen, bits, 8);
    }
    return 1;
}

static void write_narrow(Pen *pen, double number) {
    float narrow = fabs(number) >= LARGEST_FLOAT32 ? (number < 0 ? -INFINITY : INFINITY) : (float)number;
    uint32_t bits;
    memcpy(&bits, &narrow, 4);
    write_number(pen, bits, 4);
}

static int write_float(Pen *pen, PyObject *value) {
    if (value != Py_None && !PyFloat_Check(value))
        return 0;
    write_narrow(pen, value == Py_None ? 0.0 : PyFloat_AsDouble(value));
    return 1;
}

static int write_column(Pen *row, Pen *texts, char code, PyObject *value) {
    int64_t number = 0;
    size_t before = texts->used;
    if (code == 'f')
        return write_float(row, value);
    if (code == 'I') {
        if (value != Py_None && !(PyList_Check(value) ? write_map(texts, value) : write_text(texts, value, 0)))
            return 0;
        number = (int64_t)(texts->used - before);
        if (number > UINT32_MAX)
            return 0;
    } else if (value != Py_None && (!PyLong_Check(value) || !as_int64(value, &number)))
        return 0;
    if (code == 'i' && (number < INT32_MIN || number > INT32_MAX))
        return 0;
    write_number(row, (uint64_t)number, code == 'q' ? 8 : 4);
    return 1;
}

static int write_row(Pen *row, Pen *texts, const Column *codes, PyObject *values) {
    uint64_t present = 0;
    for (Py_ssize_t i = 0; i < codes->length; i++)
        present |= (uint64_t)(PyTuple_GetItem(values, i) != Py_None) << i;
    write_number(row, present, 2);
    for (Py_ssize_t i = 0; i < codes->length; i++)
        if (!write_column(row, texts, ((const char *)codes->data)[i], PyTuple_GetItem(values, i)))
            return 0;
    return 1;
}

/* pack_row(codes, values): the struct of a row and its texts; None where it is for the twin to say what is wrong.
   codes has a letter a column: q and i for integers of 8 and 4 bytes, f for floats of 4, I for texts and maps. */
KERNEL(kernel_pack_row) {
    Loan loan;
    loan.count = 0;
    unsigned char memory[MOST_BYTES];
    Pen row = {memory, 0}, texts = {NULL, 0};
    Column *codes;
    if (!expect_arguments(given, 2, "pack_row"))
        return NULL;
    if (!(codes = borrow(&loan, args[0], "codes", 1, READ)))
        return give_back(&loan, NULL);
    if (!PyTuple_Check(args[1]) || PyTuple_Size(args[1]) != codes->length || codes->length > MOST_BITS ||
        !write_row(&row, &texts, codes, args[1])) {
        PyErr_Clear();
        Py_INCREF(Py_None);
        return give_back(&loan, Py_None);
    }
    PyObject *found = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(row.used + texts.used));
    if (found) {
        texts = (Pen){(unsigned char *)PyBytes_AsString(found) + row.used, 0};
        memcpy(texts.memory - row.used, memory, row.used);
        row.used = 0;
        write_row(&row, &texts, codes, args[1]);
    }
    return give_back(&loan, found);
}

enum { NAME_BYTES = 2 + 8 + 4 + 4 + 8 + 8, NO_CONTENT = 15, WITH_CONTENT = 31 };

/* Write the rows that count; return how many, or -1 where a column does not hold a number. */
static Py_ssize_t write_names(Pen *pen, int64_t step, Column *const *columns) {
    const Column *slots = columns[0], *datasets = columns[1], *indices = columns[2], *content = columns[3];
    const uint8_t *is_left_out = columns[4]->data;
    for (Py_ssize_t i = 0; i < slots->length; i++) {
        int64_t slot = at(slots, i), dataset = at(datasets, i);
        if (is_left_out[i])
            continue;
        if (slot != (int32_t)slot || dataset != (int32_t)dataset)
            return -1;
        write_number(pen, content ? WITH_CONTENT : NO_CONTENT, 2);
        write_number(pen, (uint64_t)step, 8);
        write_number(pen, (uint64_t)slot, 4);
        write_number(pen, (uint64_t)dataset, 4);
        write_number(pen, (uint64_t)at(indices, i), 8);
        write_number(pen, content ? (uint64_t)at(content, i) : 0, 8);
    }
    return (Py_ssize_t)(pen->used / NAME_BYTES);
}

/* pack_names(step, slots, datasets, indices, content, is_left_out): the rows of "samples" of a batch, side by side, of
   those that are not left out; content may be None. None where it is for the twin to say what is wrong. */
KERNEL(kernel_pack_names) {
    Loan loan;
    loan.count = 0;
    int64_t step;
    const char *names[5] = {"slots", "datasets", "indices", "content", "is_left_out"};
    Column *columns[5] = {NULL, NULL, NULL, NULL, NULL};
    if (!expect_arguments(given, 6, "pack_names"))
        return NULL;
    int is_good = PyLong_Check(args[0]) && as_int64(args[0], &step);
    for (int c = 0; c < 5 && is_good; c++) {
        int width = c == 4 ? 1 : c == 3 ? 8 : FOUR_OR_EIGHT;
        if (c != 3 || args[4] != Py_None)
            is_good = (columns[c] = borrow(&loan, args[c + 1], names[c], width, READ)) != NULL;
        is_good = is_good && (!columns[c] || columns[c]->length == columns[0]->length);
    }
    PyObject *found = is_good ? PyBytes_FromStringAndSize(NULL, columns[0]->length * NAME_BYTES) : NULL;
    if (found) {
        Pen pen = {(unsigned char *)PyBytes_AsString(found), 0};
        Py_ssize_t rows = write_names(&pen, step, columns);
        if (rows != columns[0]->length) {
            PyObject *kept = rows < 0 ? NULL : PyBytes_FromStringAndSize(PyBytes_AsString(found), rows * NAME_BYTES);
            Py_DECREF(found);
            found = kept;
        }
    }
    if (!found) {
        PyErr_Clear();
        Py_INCREF(found = Py_None);
    }
    return give_back(&loan, found);
}

/* A column as Python gives it: numbers side by side (integers for q and i, floats of 8 bytes for f, NaN where there is
   none), a list with a number or None for each row, or one number or None for all. */
typedef struct {
    const Column *numbers;
    PyObject *values;
    int is_list;
} Given;

INLINE PyObject *value_of(const Given *column, Py_ssize_t row) {
    return column->is_list ? PyList_GetItem(column->values, row) : column->values;
}

enum { MOST_ROWS = 1 << 24 };

static int write_number_of(Pen *pen, char code, const Column *numbers, Py_ssize_t row, uint64_t *present, int place) {
    if (code != 'f') {
        int64_t number = at(numbers, row);
        *present |= UINT64_C(1) << place;
        write_number(pen, (uint64_t)number, code == 'q' ? 8 : 4);
        return code == 'q' || number == (int32_t)number;
    }
    double number = ((const double *)numbers->data)[row];
    *present |= (uint64_t)!isnan(number) << place;
    write_narrow(pen, isnan(number) ? 0.0 : number);
    return 1;
}

static int write_given(Pen *pen, const Column *codes, const Given *columns, Py_ssize_t row) {
    unsigned char *start = pen->memory + pen->used;
    uint64_t present = 0;
    pen->used += 2;
    for (int c = 0; c < codes->length; c++) {
        char code = ((const char *)codes->data)[c];
        if (columns[c].numbers) {
            if (!write_number_of(pen, code, columns[c].numbers, row, &present, c))
                return 0;
        } else {
            PyObject *value = value_of(&columns[c], row);
            Pen none = {NULL, 0};
            present |= (uint64_t)(value != Py_None) << c;
            if (!write_column(pen, &none, code, value))
                return 0;
        }
    }
    start[0] = (unsigned char)present, start[1] = (unsigned char)(present >> 8);
    return 1;
}

/* Borrow a column where it is one of numbers; say whether it fits the rows and the letter. */
static int take_given(Loan *loan, Given *column, PyObject *values, char code, Py_ssize_t rows) {
    *column = (Given){NULL, values, PyList_Check(values)};
    if (code != 'q' && code != 'i' && code != 'f')
        return 0;
    if (column->is_list || values == Py_None || PyLong_Check(values) || PyFloat_Check(values))
        return !column->is_list || PyList_Size(values) == rows;
    column->numbers = borrow(loan, values, "numbers", code == 'f' ? 8 : FOUR_OR_EIGHT, READ);
    return column->numbers && column->numbers->length == rows;
}

/* pack_columns(codes, rows, columns): rows without texts, side by side, see Given; None where it is for the twin to say
   what is wrong. */
KERNEL(kernel_pack_columns) {
    Loan loan;
    loan.count = 0;
    Given columns[MOST_BITS];
    Column *codes;
    int64_t rows;
    if (!expect_arguments(given, 3, "pack_columns"))
        return NULL;
    if (!(codes = borrow(&loan, args[0], "codes", 1, READ)))
        return give_back(&loan, NULL);
    int is_good = PyLong_Check(args[1]) && as_int64(args[1], &rows) && rows >= 0 && rows <= MOST_ROWS &&
                  PyTuple_Check(args[2]) && PyTuple_Size(args[2]) == codes->length && codes->length < MOST_COLUMNS;
    Py_ssize_t size = 2;
    for (int c = 0; is_good && c < codes->length; c++) {
        char code = ((const char *)codes->data)[c];
        is_good = take_given(&loan, &columns[c], PyTuple_GetItem(args[2], c), code, (Py_ssize_t)rows);
        size += code == 'q' ? 8 : 4;
    }
    PyObject *found = is_good ? PyBytes_FromStringAndSize(NULL, (Py_ssize_t)rows * size) : NULL;
    Pen pen = {found ? (unsigned char *)PyBytes_AsString(found) : NULL, 0};
    for (Py_ssize_t row = 0; found && row < rows; row++)
        if (!write_given(&pen, codes, columns, row)) {
            Py_DECREF(found);
            found = NULL;
        }
    if (!found) {
        PyErr_Clear();
        Py_INCREF(found = Py_None);
    }
    return give_back(&loan, found);
}

/* check_rows(structs, codes, lows, highs, needed): whether every row is one that a ledger writes: no bit that there is
   no column for, nothing where a bit says so, every column whose bit is in needed, integers within their bounds. */
KERNEL(kernel_check_rows) {
    Loan loan;
    loan.count = 0;
    int64_t needed;
    Column *structs, *codes, *lows, *highs;
    if (!expect_arguments(given, 5, "check_rows") || !as_int64(args[4], &needed))
        return NULL;
    if (!(structs = borrow(&loan, args[0], "structs", 1, READ)) || !(codes = borrow(&loan, args[1], "codes", 1, READ)) ||
        !(lows = borrow(&loan, args[2], "lows", 8, READ)) || !(highs = borrow(&loan, args[3], "highs", 8, READ)))
        return give_back(&loan, NULL);
    const char *letters = codes->data;
    Py_ssize_t size = 2;
    for (Py_ssize_t c = 0; c < codes->length; c++)
        size += letters[c] == 'q' ? 8 : 4;
    if (codes->length > MOST_BITS || lows->length != codes->length || highs->length != codes->length ||
        structs->length % size)
        return give_back(&loan, refuse("structs, letters and bounds do not fit together."));
    const unsigned char *read = structs->data, *end = read + structs->length;
    int is_good = 1;
    while (is_good && read < end) {
        uint64_t present = read[0] | (uint64_t)read[1] << 8;
        is_good = !(present >> codes->length) && !(needed & (int64_t)~present);
        read += 2;
        for (Py_ssize_t c = 0; c < codes->length; c++) {
            uint64_t number = 0;
            int width = letters[c] == 'q' ? 8 : 4, is_there = present >> c & 1;
            for (int i = 0; i < width; i++)
                number |= (uint64_t)read[i] << (8 * i);
            read += width;
            int64_t value = letters[c] == 'i' ? (int32_t)(uint32_t)number : (int64_t)number;
            is_good &= is_there ? letters[c] == 'f' || (value >= at(lows, c) && value <= at(highs, c)) : !number;
        }
    }
    return give_back(&loan, PyBool_FromLong(is_good));
}
