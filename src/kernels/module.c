/* The door of the compiled kernels: what Python sees, and how columns are borrowed. */

#include "kernels.h"

/* Borrow a column; on failure an error is set and NULL returned, and what was borrowed before is still to be given back. */
Column *borrow(Loan *loan, PyObject *lender, const char *name, int width, int writes) {
    Column *column = &loan->columns[loan->count];
    if (PyObject_GetBuffer(lender, &column->view, writes ? PyBUF_WRITABLE : PyBUF_SIMPLE) < 0)
        return NULL;
    loan->count++;
    column->data = column->view.buf;
    column->width = column->view.itemsize;
    int is_right = width == ANY_WIDTH ? 1
                   : width == FOUR_OR_EIGHT ? column->width == 4 || column->width == 8
                                            : column->width == width;
    if (!is_right || (width != ANY_WIDTH && (uintptr_t)column->data % (uintptr_t)column->width)) {
        PyErr_Format(PyExc_ValueError, "%s has %zd bytes a number, or lies askew in memory: expected %s.", name,
                     column->width, width == FOUR_OR_EIGHT ? "4 or 8" : width == 8 ? "8" : width == 4 ? "4" : "1");
        return NULL;
    }
    column->length = column->width ? column->view.len / column->width : 0;
    return column;
}

PyObject *give_back(Loan *loan, PyObject *result) {
    while (loan->count)
        PyBuffer_Release(&loan->columns[--loan->count].view);
    return result;
}

int as_int64(PyObject *value, int64_t *number) {
    *number = PyLong_AsLongLong(value);
    return !(*number == -1 && PyErr_Occurred());
}

int as_uint64(PyObject *value, uint64_t *number) {
    *number = PyLong_AsUnsignedLongLongMask(value);
    return !(*number == UINT64_MAX && PyErr_Occurred());
}

int expect_arguments(Py_ssize_t given, Py_ssize_t wanted, const char *name) {
    if (given == wanted)
        return 1;
    PyErr_Format(PyExc_TypeError, "%s takes %zd arguments, %zd were given.", name, wanted, given);
    return 0;
}

PyObject *refuse(const char *text) {
    PyErr_SetString(PyExc_ValueError, text);
    return NULL;
}

#define ENTRY(name) {#name, (PyCFunction)(void (*)(void))kernel_##name, METH_FASTCALL, NULL}
static PyMethodDef methods[] = {
    ENTRY(fold), ENTRY(key_of_three), ENTRY(digest), ENTRY(digest_of_slots), ENTRY(digests), ENTRY(owners),
    ENTRY(permute), ENTRY(unpermute), ENTRY(gather), ENTRY(hash_rows), ENTRY(fold_rows), ENTRY(extent), ENTRY(counts),
    ENTRY(integers),
    ENTRY(group), ENTRY(num_pieces), ENTRY(first_fit), ENTRY(best_fit), ENTRY(group_pieces), ENTRY(stream_counts),
    ENTRY(stream), ENTRY(fill), ENTRY(arrow_rows), ENTRY(owner_counts), ENTRY(pack_row), ENTRY(pack_names),
    ENTRY(digest_of_content), ENTRY(pack_columns), ENTRY(check_rows),
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {{Py_mod_exec, add_tree}, {0, NULL}};

static struct PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "_kernels",
    .m_doc = "Hot loops, compiled ahead; each has a plain twin in Python with the same result to the last bit.",
    .m_methods = methods,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__kernels(void) { return PyModuleDef_Init(&definition); }
