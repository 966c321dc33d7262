/* Which pieces of which documents make up which row, and filling rows with tokens: twins of order/packing/plain and
   order/packing/fill.

   First fit looks for a row in a tree with 16 children a node (one cache line of rooms), best fit in a bitmap of the rooms
   that have rows: both a few steps, whatever the number of open rows. Only the row of each piece is kept between the two
   passes, so that 10^8 documents fit into memory. */

#include "kernels.h"

#include <stdlib.h>
#include <string.h>

enum { FAN = 16, MOST_LEVELS = 20 };
#define MOST_LENGTH (INT64_C(1) << 60)

/* How documents are cut: what every function here is told first. */
typedef struct {
    const Column *lengths, *order; /* order: NULL where documents come in their own */
    int64_t row_length;
    int cut, eod;
} Rules;

INLINE int64_t name_of(const Rules *rules, Py_ssize_t i) { return rules->order ? at(rules->order, i) : i; }

INLINE int64_t kept_of(const Rules *rules, int64_t name) {
    int64_t length = at(rules->lengths, (Py_ssize_t)name);
    return rules->cut && length > rules->row_length ? rules->row_length : length;
}

/* Size of the piece at start, its end-of-document token counted. */
INLINE int64_t size_of(const Rules *rules, int64_t kept, int64_t start) {
    int64_t tokens = least(rules->row_length, kept - start);
    return rules->eod && tokens < rules->row_length ? tokens + 1 : tokens;
}

/* Borrow (lengths, order or None, row_length, cut, eod), the first five arguments of several kernels, and check them. */
static int read_rules(Loan *loan, PyObject *const *args, Rules *rules) {
    int64_t cut, eod;
    if (!(rules->lengths = borrow(loan, args[0], "lengths", FOUR_OR_EIGHT, READ)))
        return 0;
    if (args[1] != Py_None && !(rules->order = borrow(loan, args[1], "order", FOUR_OR_EIGHT, READ)))
        return 0;
    if (!as_int64(args[2], &rules->row_length) || !as_int64(args[3], &cut) || !as_int64(args[4], &eod))
        return 0;
    rules->cut = cut != 0, rules->eod = eod != 0;
    Py_ssize_t count = rules->lengths->length;
    if (rules->row_length < 1 || rules->row_length >= INT32_MAX || (rules->order && rules->order->length != count))
        return refuse("row_length is 1 to 2**31 - 2, and order has a place for each document."), 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        int64_t name = name_of(rules, i);
        if (name < 0 || name >= count || at(rules->lengths, (Py_ssize_t)name) < 0 ||
            at(rules->lengths, (Py_ssize_t)name) > MOST_LENGTH)
            return refuse("a document of the order is not there, or has no possible length."), 0;
    }
    return 1;
}

static int64_t count_pieces(const Rules *rules) {
    int64_t total = 0;
    for (Py_ssize_t i = 0; i < rules->lengths->length; i++)
        total += (kept_of(rules, i) + rules->row_length - 1) / rules->row_length;
    return total;
}

/* num_pieces(lengths, order, row_length, cut, eod) */
KERNEL(kernel_num_pieces) {
    Loan loan;
    loan.count = 0;
    Rules rules = {0};
    if (!expect_arguments(given, 5, "num_pieces"))
        return NULL;
    if (!read_rules(&loan, args, &rules))
        return give_back(&loan, NULL);
    return give_back(&loan, PyLong_FromLongLong(count_pieces(&rules)));
}

typedef struct {
    int32_t *rooms; /* leaves first: the room of each row, then the most room below each node */
    int64_t base[MOST_LEVELS + 1];
    int levels;
} RoomTree;

static int make_rooms(RoomTree *tree, int64_t rows) {
    int64_t size = most((rows + FAN - 1) / FAN, 1) * FAN;
    tree->levels = 1, tree->base[0] = 0, tree->base[1] = size;
    while (size > FAN) {
        size = (size / FAN + FAN - 1) / FAN * FAN;
        tree->base[tree->levels + 1] = tree->base[tree->levels] + size;
        tree->levels++;
    }
    tree->rooms = calloc((size_t)tree->base[tree->levels], sizeof *tree->rooms); /* touched only where rows open */
    return tree->rooms != NULL;
}

static void set_room(RoomTree *tree, int64_t row, int64_t room) {
    int32_t *rooms = tree->rooms;
    int64_t place = row;
    rooms[row] = (int32_t)room;
    for (int level = 1; level < tree->levels; level++) {
        place /= FAN;
        const int32_t *below = rooms + tree->base[level - 1] + place * FAN;
        int32_t roomiest = below[0];
        for (int i = 1; i < FAN; i++)
            roomiest = below[i] > roomiest ? below[i] : roomiest;
        if (rooms[tree->base[level] + place] == roomiest)
            return;
        rooms[tree->base[level] + place] = roomiest;
    }
}

static int64_t find_room(const RoomTree *tree, int64_t size) {
    int64_t place = 0;
    for (int level = tree->levels - 1; level >= 0; level--) {
        const int32_t *rooms = tree->rooms + tree->base[level] + place * FAN;
        int child = 0;
        while (child < FAN && rooms[child] < size)
            child++;
        if (child == FAN)
            return -1;
        place = place * FAN + child;
    }
    return place;
}

enum { NO_MEMORY = -1, TOO_FEW_ROWS = -2 };

static int64_t pack_first_fit(const Rules *rules, int64_t open_rows, int64_t bound, const Column *rows) {
    RoomTree tree;
    int64_t made = 0, open = 0, oldest = 0, piece = 0, length = rules->row_length;
    if (!make_rooms(&tree, bound))
        return NO_MEMORY;
    for (Py_ssize_t i = 0; i < rules->lengths->length; i++) {
        int64_t kept = kept_of(rules, name_of(rules, i));
        for (int64_t start = 0; start < kept; start += length) {
            int64_t size = size_of(rules, kept, start), row = size < length ? find_room(&tree, size) : -1;
            if (row >= 0) {
                int64_t left = tree.rooms[row] - size;
                set_room(&tree, row, left);
                open -= left == 0;
            } else if (made == bound) {
                free(tree.rooms);
                return TOO_FEW_ROWS;
            } else {
                row = made++;
                if (size < length) {
                    if (open_rows > 0 && open == open_rows) {
                        while (tree.rooms[oldest] == 0)
                            oldest++;
                        set_room(&tree, oldest, 0);
                        open--;
                    }
                    set_room(&tree, row, length - size);
                    open++;
                }
            }
            put(rows, (Py_ssize_t)piece++, row);
        }
    }
    free(tree.rooms);
    return made;
}

typedef struct {
    int32_t *room;    /* of each row */
    int64_t *below;   /* the row below each on its stack */
    int64_t *top;     /* of the stack of the rows with as much room */
    uint64_t *filled; /* which stacks have rows */
    int64_t words;
} Stacks;

static void free_stacks(Stacks *stacks) {
    free(stacks->room), free(stacks->below), free(stacks->top), free(stacks->filled);
}

static int make_stacks(Stacks *stacks, int64_t bound, int64_t row_length) {
    stacks->words = (row_length >> 6) + 1;
    stacks->room = calloc((size_t)bound + 1, sizeof *stacks->room);
    stacks->below = malloc(((size_t)bound + 1) * sizeof *stacks->below);
    stacks->top = malloc(((size_t)row_length + 1) * sizeof *stacks->top);
    stacks->filled = calloc((size_t)stacks->words, sizeof *stacks->filled);
    if (stacks->room && stacks->below && stacks->top && stacks->filled) {
        memset(stacks->top, 0xFF, ((size_t)row_length + 1) * sizeof *stacks->top);
        return 1;
    }
    free_stacks(stacks);
    return 0;
}

static void push_row(Stacks *stacks, int64_t row, int64_t left) {
    stacks->room[row] = (int32_t)left;
    if (left > 0) {
        stacks->below[row] = stacks->top[left];
        stacks->top[left] = row;
        stacks->filled[left >> 6] |= UINT64_C(1) << (left & 63);
    }
}

/* Take the row with the least room that suffices off its stack, of those opened at or after the oldest; or -1. */
static int64_t pop_least(Stacks *stacks, int64_t size, int64_t oldest) {
    int64_t word = size >> 6;
    uint64_t bits = stacks->filled[word] & ~((UINT64_C(1) << (size & 63)) - 1);
    while (1) {
        while (!bits) {
            if (++word == stacks->words)
                return -1;
            bits = stacks->filled[word];
        }
        int64_t left = (word << 6) + __builtin_ctzll(bits), row = stacks->top[left];
        stacks->top[left] = stacks->below[row];
        if (stacks->top[left] < 0) {
            stacks->filled[word] &= ~(UINT64_C(1) << (left & 63));
            bits &= ~(UINT64_C(1) << (left & 63));
        }
        if (row >= oldest)
            return row;
    }
}

static int64_t pack_best_fit(const Rules *rules, int64_t open_rows, int64_t bound, const Column *rows) {
    Stacks stacks;
    int64_t made = 0, open = 0, oldest = 0, piece = 0, length = rules->row_length;
    if (!make_stacks(&stacks, bound, length))
        return NO_MEMORY;
    for (Py_ssize_t i = 0; i < rules->lengths->length; i++) {
        int64_t kept = kept_of(rules, name_of(rules, i));
        for (int64_t start = 0; start < kept; start += length) {
            int64_t size = size_of(rules, kept, start), row = size < length ? pop_least(&stacks, size, oldest) : -1;
            if (row >= 0) {
                push_row(&stacks, row, stacks.room[row] - size);
                open -= stacks.room[row] == 0;
            } else if (made == bound) {
                free_stacks(&stacks);
                return TOO_FEW_ROWS;
            } else {
                row = made++;
                if (size < length) {
                    if (open_rows > 0 && open == open_rows) {
                        while (stacks.room[oldest] == 0)
                            oldest++;
                        oldest++;
                        open--;
                    }
                    push_row(&stacks, row, length - size);
                    open++;
                }
            }
            put(rows, (Py_ssize_t)piece++, row);
        }
    }
    free_stacks(&stacks);
    return made;
}

/* (lengths, order, row_length, cut, eod, open_rows, bound, rows): write the row of each piece, return how many rows. */
static PyObject *packed(PyObject *const *args, Py_ssize_t given, const char *name,
                        int64_t (*way)(const Rules *, int64_t, int64_t, const Column *)) {
    Loan loan;
    loan.count = 0;
    Rules rules = {0};
    int64_t open_rows, bound, made;
    Column *rows;
    if (!expect_arguments(given, 8, name) || !as_int64(args[5], &open_rows) || !as_int64(args[6], &bound))
        return NULL;
    if (!read_rules(&loan, args, &rules) || !(rows = borrow(&loan, args[7], "rows", FOUR_OR_EIGHT, WRITE)))
        return give_back(&loan, NULL);
    if (rows->length != count_pieces(&rules) || bound < 0 || bound > rows->length ||
        (rows->width == 4 && bound > INT32_MAX))
        return give_back(&loan, refuse("rows has not one place for each piece, or there are more rows than pieces."));
    Py_BEGIN_ALLOW_THREADS;
    made = way(&rules, open_rows, bound, rows);
    Py_END_ALLOW_THREADS;
    if (made == NO_MEMORY)
        return give_back(&loan, PyErr_NoMemory());
    return give_back(&loan, made < 0 ? refuse("the pieces need more rows than the bound.") : PyLong_FromLongLong(made));
}

KERNEL(kernel_first_fit) { return packed(args, given, "first_fit", pack_first_fit); }
KERNEL(kernel_best_fit) { return packed(args, given, "best_fit", pack_best_fit); }

/* Columns of an index: borrowed together, for all pieces. */
typedef struct {
    Column *offsets, *document, *start, *size;
} Index;

static int borrow_index(Loan *loan, PyObject *const *args, Index *index) {
    return (index->offsets = borrow(loan, args[0], "offsets", 8, WRITE)) &&
           (index->document = borrow(loan, args[1], "document", FOUR_OR_EIGHT, WRITE)) &&
           (index->start = borrow(loan, args[2], "start", FOUR_OR_EIGHT, WRITE)) &&
           (index->size = borrow(loan, args[3], "size", 4, WRITE));
}

static int has_places(const Index *index, int64_t rows, int64_t pieces) {
    return index->offsets->length == rows + 1 && index->document->length == pieces &&
           index->start->length == pieces && index->size->length == pieces;
}

/* Bring the pieces into the order of their rows: count, then put each in the next place of its row. */
static int group_by_row(const Rules *rules, const Column *rows, const Index *index) {
    int64_t *offsets = index->offsets->data, count = index->offsets->length - 1;
    Py_ssize_t piece = 0;
    for (Py_ssize_t i = 0; i < rows->length; i++) {
        int64_t row = at(rows, i);
        if (row < 0 || row >= count)
            return 0;
        offsets[row + 1]++;
    }
    for (int64_t row = 0; row < count; row++)
        offsets[row + 1] += offsets[row];
    for (Py_ssize_t i = 0; i < rules->lengths->length; i++) {
        int64_t name = name_of(rules, i), kept = kept_of(rules, name);
        for (int64_t start = 0; start < kept; start += rules->row_length, piece++) {
            Py_ssize_t place = (Py_ssize_t)offsets[at(rows, piece)]++; /* on to the next row; moved back below */
            put(index->document, place, name), put(index->start, place, start);
            put(index->size, place, size_of(rules, kept, start));
        }
    }
    for (int64_t row = count; row > 0; row--)
        offsets[row] = offsets[row - 1];
    offsets[0] = 0;
    return 1;
}

/* group_pieces(lengths, order, row_length, cut, eod, rows, offsets, document, start, size); offsets are zeros. */
KERNEL(kernel_group_pieces) {
    Loan loan;
    loan.count = 0;
    Rules rules = {0};
    Index index;
    Column *rows;
    int is_done;
    if (!expect_arguments(given, 10, "group_pieces"))
        return NULL;
    if (!read_rules(&loan, args, &rules) || !(rows = borrow(&loan, args[5], "rows", FOUR_OR_EIGHT, READ)) ||
        !borrow_index(&loan, args + 6, &index))
        return give_back(&loan, NULL);
    if (rows->length != count_pieces(&rules) || index.offsets->length < 1 ||
        !has_places(&index, index.offsets->length - 1, rows->length))
        return give_back(&loan, refuse("the columns have not one place for each piece."));
    memset(index.offsets->data, 0, (size_t)index.offsets->length * 8);
    Py_BEGIN_ALLOW_THREADS;
    is_done = group_by_row(&rules, rows, &index);
    Py_END_ALLOW_THREADS;
    if (!is_done)
        return give_back(&loan, refuse("a piece is in a row that is not there."));
    Py_INCREF(Py_None);
    return give_back(&loan, Py_None);
}

/* Rows and pieces of one stream, cut every row_length tokens. */
static void count_stream(const Rules *rules, int64_t *rows, int64_t *pieces) {
    int64_t row = 0, column = 0, piece = 0, length = rules->row_length;
    for (Py_ssize_t i = 0; i < rules->lengths->length; i++) {
        int64_t kept = kept_of(rules, i), end = column + kept;
        if (!kept)
            continue;
        piece += (end + length - 1) / length, row += end / length, column = end % length;
        if (column && rules->eod && kept != length && ++column == length)
            row++, column = 0;
    }
    *rows = row + (column > 0), *pieces = piece;
}

/* Write them down; the columns have room for all. */
static void cut_stream(const Rules *rules, const Index *index) {
    int64_t row = 0, column = 0, length = rules->row_length, *offsets = index->offsets->data;
    Py_ssize_t piece = 0;
    offsets[0] = 0;
    for (Py_ssize_t i = 0; i < rules->lengths->length; i++) {
        int64_t kept = kept_of(rules, i);
        for (int64_t start = 0; start < kept;) {
            int64_t size = least(length - column, kept - start);
            put(index->document, piece, i), put(index->start, piece, start);
            start += size, column += size;
            if (start == kept && rules->eod && kept != length && column < length)
                column++, size++;
            put(index->size, piece, size);
            offsets[row + 1] = ++piece;
            if (column == length)
                row++, column = 0;
        }
    }
}

/* stream_counts(lengths, None, row_length, cut, eod): the rows and pieces of one stream cut into rows. */
KERNEL(kernel_stream_counts) {
    Loan loan;
    loan.count = 0;
    Rules rules = {0};
    int64_t rows, pieces;
    if (!expect_arguments(given, 5, "stream_counts"))
        return NULL;
    if (!read_rules(&loan, args, &rules))
        return give_back(&loan, NULL);
    count_stream(&rules, &rows, &pieces);
    return give_back(&loan, Py_BuildValue("(LL)", (long long)rows, (long long)pieces));
}

/* stream(lengths, None, row_length, cut, eod, offsets, document, start, size) */
KERNEL(kernel_stream) {
    Loan loan;
    loan.count = 0;
    Rules rules = {0};
    Index index;
    int64_t rows, pieces;
    if (!expect_arguments(given, 9, "stream"))
        return NULL;
    if (!read_rules(&loan, args, &rules) || !borrow_index(&loan, args + 5, &index))
        return give_back(&loan, NULL);
    count_stream(&rules, &rows, &pieces);
    if (!has_places(&index, rows, pieces))
        return give_back(&loan, refuse("the columns have not the size of the stream's rows and pieces."));
    Py_BEGIN_ALLOW_THREADS;
    cut_stream(&rules, &index);
    Py_END_ALLOW_THREADS;
    Py_INCREF(Py_None);
    return give_back(&loan, Py_None);
}

/* Columns that are filled, and from what. */
typedef struct {
    const Column *tokens, *offsets, *first, *last, *document, *start, *size;
    int64_t row_length, eod_token;
    int resets, is_signed;
    int32_t *inputs, *targets, *segments, *positions;
    const Column *documents, *sequences; /* NULL where nobody asks whose tokens they are */
} Filling;

#define COPY_AS(type)                                                                                                  \
    for (int64_t i = 0; i < count; i++)                                                                                \
        out[i] = (int32_t)((const type *)tokens)[begin + i];                                                           \
    break

/* Tokens of any integers, as int32. */
CLONED static void copy_tokens(const void *restrict tokens, int64_t begin, int64_t count, int64_t width, int is_signed,
                               int32_t *restrict out) {
    switch (is_signed ? -width : width) {
    case 1: COPY_AS(uint8_t);
    case -1: COPY_AS(int8_t);
    case 2: COPY_AS(uint16_t);
    case -2: COPY_AS(int16_t);
    case 4:
    case -4: memcpy(out, (const int32_t *)tokens + begin, (size_t)count * 4); break;
    default: COPY_AS(int64_t);
    }
}

CLONED static void fill_constant(int32_t *restrict out, int64_t count, int32_t value) {
    for (int64_t i = 0; i < count; i++)
        out[i] = value;
}

CLONED static void fill_rising(int32_t *restrict out, int64_t count, int32_t first) {
    for (int64_t i = 0; i < count; i++)
        out[i] = first + (int32_t)i;
}

static void fill_names(const Column *names, int64_t first, int64_t count, int64_t value) {
    if (names->width == 4)
        fill_constant((int32_t *)names->data + first, count, (int32_t)value);
    else
        for (int64_t i = 0; i < count; i++)
            ((int64_t *)names->data)[first + i] = value;
}

/* Write one piece at a place of the columns. */
static void fill_piece(const Filling *f, int64_t place, int64_t column, int64_t size, int64_t begin, int64_t found,
                       int64_t segment) {
    int32_t *targets = f->targets + place, *inputs = f->inputs + place, eod = (int32_t)f->eod_token;
    copy_tokens(f->tokens->data, begin, found, f->tokens->width, f->is_signed, targets);
    if (found < size)
        targets[found] = eod;
    inputs[0] = eod;
    memcpy(inputs + 1, targets, (size_t)(size - 1) * sizeof *inputs);
    fill_constant(f->segments + place, size, (int32_t)segment);
    fill_rising(f->positions + place, size, f->resets ? 0 : (int32_t)column);
}

static void fill_rest(const Filling *f, int64_t place, int64_t count) {
    fill_constant(f->targets + place, count, 0), fill_constant(f->inputs + place, count, 0);
    fill_constant(f->segments + place, count, 0), fill_constant(f->positions + place, count, 0);
    f->inputs[place] = (int32_t)f->eod_token;
    if (f->documents)
        fill_names(f->documents, place, count, 0), fill_names(f->sequences, place, count, 0);
}

/* Fill a row; return whether its pieces stay inside the tokens and the row: an index on disk may hold anything. */
static int fill_row(const Filling *f, Py_ssize_t row) {
    int64_t column = 0, length = f->row_length, first = at(f->first, row), last = at(f->last, row);
    if (first < 0 || last < first || last > f->size->length)
        return 0;
    for (int64_t piece = first; piece < last; piece++) {
        int64_t name = at(f->document, piece), start = at(f->start, piece), size = at(f->size, piece);
        if (name < 0 || name + 1 >= f->offsets->length || start < 0 || start > MOST_LENGTH || size < 1 ||
            size > length - column)
            return 0;
        int64_t origin = at(f->offsets, name);
        if (origin < 0 || origin > MOST_LENGTH || origin + start > f->tokens->length)
            return 0;
        int64_t begin = origin + start, end = least(begin + size, at(f->offsets, name + 1));
        if (end > f->tokens->length || end - begin < size - 1) /* all tokens of the piece, or all but its last */
            return 0;
        int64_t place = row * length + column;
        fill_piece(f, place, column, size, begin, most(end - begin, 0), piece - first + 1);
        if (f->documents) {
            fill_names(f->documents, place, size, name + 1);
            fill_names(f->sequences, place, size, (start + length - 1) / length);
        }
        column += size;
    }
    if (column < length)
        fill_rest(f, row * length + column, length - column);
    return 1;
}

static Py_ssize_t fill_all(const Filling *f) {
    for (Py_ssize_t row = 0; row < f->first->length; row++)
        if (!fill_row(f, row))
            return row;
    return -1;
}

/* fill(tokens, is_signed, offsets, first, last, document, start, size, row_length, eod_token, resets, inputs, targets,
   segments, positions, documents or None, sequences or None): every place of the columns is written. Return -1, or the
   place of the first row whose pieces leave the tokens or the row. */
KERNEL(kernel_fill) {
    Loan loan;
    loan.count = 0;
    Filling f = {0};
    Column *written[4];
    int64_t is_signed, resets;
    if (!expect_arguments(given, 17, "fill") || !as_int64(args[1], &is_signed) || !as_int64(args[8], &f.row_length) ||
        !as_int64(args[9], &f.eod_token) || !as_int64(args[10], &resets))
        return NULL;
    f.is_signed = is_signed != 0, f.resets = resets != 0;
    if (!(f.tokens = borrow(&loan, args[0], "tokens", ANY_WIDTH, READ)) ||
        !(f.offsets = borrow(&loan, args[2], "offsets", 8, READ)) ||
        !(f.first = borrow(&loan, args[3], "first", 8, READ)) || !(f.last = borrow(&loan, args[4], "last", 8, READ)) ||
        !(f.document = borrow(&loan, args[5], "document", FOUR_OR_EIGHT, READ)) ||
        !(f.start = borrow(&loan, args[6], "start", FOUR_OR_EIGHT, READ)) ||
        !(f.size = borrow(&loan, args[7], "size", 4, READ)))
        return give_back(&loan, NULL);
    for (int c = 0; c < 4; c++)
        if (!(written[c] = borrow(&loan, args[11 + c], "a column of tokens", 4, WRITE)))
            return give_back(&loan, NULL);
    if (args[15] != Py_None && (!(f.documents = borrow(&loan, args[15], "documents", FOUR_OR_EIGHT, WRITE)) ||
                                !(f.sequences = borrow(&loan, args[16], "sequences", FOUR_OR_EIGHT, WRITE))))
        return give_back(&loan, NULL);
    Py_ssize_t width = f.tokens->width, rows = f.first->length;
    int fits_together = (width == 1 || width == 2 || width == 4 || width == 8) && f.row_length >= 1 &&
                        f.row_length < INT32_MAX && f.last->length == rows &&
                        f.document->length == f.size->length && f.start->length == f.size->length;
    for (int c = 0; c < 4; c++)
        fits_together &= written[c]->length == rows * f.row_length;
    if (f.documents)
        fits_together &= f.documents->length == rows * f.row_length && f.sequences->length == rows * f.row_length;
    if (!fits_together)
        return give_back(&loan, refuse("the columns of the rows do not fit together."));
    f.inputs = written[0]->data, f.targets = written[1]->data;
    f.segments = written[2]->data, f.positions = written[3]->data;
    Py_ssize_t wrong;
    Py_BEGIN_ALLOW_THREADS;
    wrong = fill_all(&f);
    Py_END_ALLOW_THREADS;
    return give_back(&loan, PyLong_FromSsize_t(wrong));
}
