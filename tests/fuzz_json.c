/* JSON: the reader over memory, the reader over a file, and the tree take and refuse the same texts
 * (the tree alone refuses NUL in strings and documents with very many values), in the same words.
 * What the tree took is written, and read back. */
#include <stdlib.h>
#include <string.h>

#include "../stream/json.h"
#include "lib_fuzz.h"
#include "lib_fuzz_file.h"

static sl_status read_all(sl_json_reader *r)
{
    sl_json_skip(r);
    sl_status status = sl_json_read_end(r);
    sl_json_reader_close(&r);
    return status;
}

static void write_node(sl_json_writer *w, const sl_json *j)
{
    const char *key = sl_json_key(j);
    double d;
    bool b;
    switch (sl_json_type_of(j)) {
    case SL_JSON_NUMBER:
        sl_json_number(j, &d);
        sl_json_write_double(w, key, d);
        break;
    case SL_JSON_BOOL:
        sl_json_bool(j, &b);
        sl_json_write_bool(w, key, b);
        break;
    case SL_JSON_OBJECT:
    case SL_JSON_ARRAY:
        if (sl_json_type_of(j) == SL_JSON_OBJECT)
            sl_json_write_object(w, key);
        else
            sl_json_write_array(w, key);
        for (const sl_json *k = sl_json_first(j); k; k = sl_json_next(k))
            write_node(w, k);
        sl_json_write_close(w);
        break;
    default:
        sl_json_write_string(w, key, sl_json_text(j));
    }
}

/* The text of the tree; the caller frees it. */
static char *print(const sl_json *tree)
{
    char *text = NULL;
    sl_json_writer *w = sl_json_writer_new();
    if (w) {
        write_node(w, tree);
        sl_json_write_end(w, false, &text, NULL);
    }
    sl_json_writer_free(&w);
    if (!text)
        abort();
    return text;
}

static void write_and_read(const sl_json *tree)
{
    sl_json *again;
    char *text = print(tree);
    if (sl_json_parse(text, strlen(text), "again", &again, NULL) != SL_OK)
        abort();
    char *same = print(again);
    if (strcmp(text, same) != 0)
        abort();
    free(text);
    free(same);
    sl_json_free(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[FUZZ_PATH];
    sl_err err[3] = {{0}};
    sl_json_reader *r;
    sl_file *f;
    sl_json *tree;
    if (sl_json_reader_of_text((const char *)data, size, "t", &r, &err[0]) != SL_OK)
        abort();
    sl_status by_text = read_all(r);
    fuzz_file("x.json", data, size, path);
    if (sl_file_open(path, &f, NULL) != SL_OK ||
        sl_json_reader_of_file(f, 0, size, "t", &r, &err[1]) != SL_OK)
        abort();
    sl_status by_file = read_all(r);
    sl_file_close(&f);
    if (by_text != by_file || strcmp(err[0].text, err[1].text) != 0)
        abort();
    sl_status by_tree = sl_json_parse((const char *)data, size, "t", &tree, &err[2]);
    if ((by_tree == SL_OK) != (tree != NULL) || (by_tree == SL_OK && by_text != SL_OK))
        abort();
    if (by_tree != by_text && !strstr(err[2].text, "NUL") && !strstr(err[2].text, "more than"))
        abort();
    if (tree)
        write_and_read(tree);
    sl_json_free(&tree);
    return 0;
}
