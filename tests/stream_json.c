/* Proves: one JSON grammar for reader and tree. Texts that must be taken and texts that must be
 * refused, with line and column; exact integers; escapes; the reader over a file whose strings
 * cross block borders; duplicate keys; what the writer writes is read back as it was. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../stream/json.h"
#include "lib_test.h"

static char last_warning[512];

static void hear(void *ctx, sl_log_level level, const char *text)
{
    snprintf(last_warning, sizeof last_warning, "%s", text);
}

/* Through the reader and through the tree; error "": must be taken. */
static void check_text(const char *text, uint64_t len, const char *error)
{
    sl_err err[2] = {{0}};
    sl_json_reader *r;
    sl_json *tree;
    test_case("'%.60s'", text);
    CHECK(sl_json_reader_of_text(text, len, "t", &r, &err[0]) == SL_OK);
    sl_json_skip(r);
    sl_status status[2] = {sl_json_read_end(r)};
    sl_json_reader_close(&r);
    status[1] = sl_json_parse(text, len, "t", &tree, &err[1]);
    CHECK((tree != NULL) == (status[1] == SL_OK));
    sl_json_free(&tree);
    for (int i = 0; i < 2; i++) {
        CHECK(status[i] == err[i].code);
        if (*error)
            CHECK(status[i] == SL_EFORMAT && strstr(err[i].text, error), "wanted '%s', found '%s'",
                  error, err[i].text);
        else
            CHECK(status[i] == SL_OK, "%s", err[i].text);
    }
}

static void check_texts(void)
{
    static const struct {
        const char *text, *error;
    } cases[] = {
        {"{}", ""},
        {"[]", ""},
        {" [1 , 2.5e-3, -0, \"a\", true, false, null, {\"a\": [[]]}] \r\n\t", ""},
        {"\xEF\xBB\xBF{\"bom\": 1}", ""},
        {"[NaN, Infinity, -Infinity]", ""},
        {"\"\\ud83d\\ude00\\u00e9\\/\\b\"", ""},
        {"1e999", ""},
        {"", "t:1:1: expected a value, the text ends here"},
        {"  \n ", "t:2:2: expected a value"},
        {"// c\n{}", "t:1:1: expected a value, found '/'"},
        {"{} {}", "t:1:4: text behind the end"},
        {"[1,]", "t:1:4: expected a value, found ']'"},
        {"[,1]", "t:1:2: expected a value, found ','"},
        {"[1 2]", "t:1:4: expected ',' or ']', found '2'"},
        {"{\"a\":1,}", "t:1:8: expected a key"},
        {"{\"a\" 1}", "t:1:6: expected ':', found '1'"},
        {"{a:1}", "t:1:2: expected a key"},
        {"{\"a\":}", "t:1:6: expected a value"},
        {"{\n \"a\": [\n  1,\n  x]}", "t:4:3: expected a value, found 'x'"},
        {"[1", "t:1:3: expected ',' or ']', the text ends here"},
        {"{\"a\": 1", "the text ends here"},
        {"\"abc", "t:1:5: the text ends inside a string"},
        {"\"a\tb\"", "control character 0x09"},
        {"\"a\nb\"", "control character 0x0a"},
        {"\"\\x\"", "unknown escape"},
        {"\"\\u12g4\"", "four hexadecimal digits"},
        {"\"\\ud800\"", "lone surrogate \\ud800"},
        {"\"\\udc00\"", "lone surrogate \\udc00"},
        {"\"\\ud800\\u0041\"", "lone surrogate \\ud800"},
        {"\"\xff\"", "invalid UTF-8"},
        {"\"\xc0\xaf\"", "invalid UTF-8"},     /* overlong */
        {"\"\xed\xa0\x80\"", "invalid UTF-8"}, /* a surrogate */
        {"\"\xf4\x90\x80\x80\"", "invalid UTF-8"},
        {"\"\xe2\x82\"", "invalid UTF-8"},
        {"\"\xe2\x82", "invalid UTF-8"},
        {"\xff", "expected a value, found the byte 0xff"},
        {"01", "leading 0"},
        {"-", "expected a digit"},
        {"1.", "expected a digit"},
        {".5", "expected a value"},
        {"1e", "expected a digit"},
        {"+1", "expected a value"},
        {"nul", "expected null"},
        {"nan", "expected null"},
        {"Nan", "expected NaN"},
        {"-NaN", "expected a digit"},
        {"tru", "expected true"},
        {"'a'", "expected a value"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_text(cases[i].text, strlen(cases[i].text), cases[i].error);
    check_text("{}\0", 3, "text behind the end");
    check_text("[\0]", 3, "expected a value, found the byte 0x00");
    check_text("\"\0\"", 3, "control character 0x00");
}

static void check_depth(void)
{
    char text[2 * SL_JSON_DEPTH + 8];
    for (size_t depth = SL_JSON_DEPTH; depth <= SL_JSON_DEPTH + 1; depth++) {
        memset(text, '[', depth);
        memset(text + depth, ']', depth);
        check_text(text, 2 * depth, depth == SL_JSON_DEPTH ? "" : "nested deeper than 64");
    }
}

static sl_json_reader *reader(const char *text, sl_err *err)
{
    sl_json_reader *r;
    *err = (sl_err){0};
    CHECK(sl_json_reader_of_text(text, strlen(text), "t", &r, err) == SL_OK);
    return r;
}

static void check_integers(void)
{
    static const struct {
        const char *text;
        bool is_int, is_uint;
        int64_t i;
        uint64_t u;
    } cases[] = {
        {"0", true, true, 0, 0},
        {"-0", true, true, 0, 0},
        {"9007199254740993", true, true, 9007199254740993, 9007199254740993},
        {"9223372036854775807", true, true, INT64_MAX, INT64_MAX},
        {"9223372036854775808", false, true, 0, 9223372036854775808u},
        {"-9223372036854775808", true, false, INT64_MIN, 0},
        {"-9223372036854775809", false, false, 0, 0},
        {"18446744073709551615", false, true, 0, UINT64_MAX},
        {"18446744073709551616", false, false, 0, 0},
        {"99999999999999999999999", false, false, 0, 0},
        {"-1", true, false, -1, 0},
        {"1.0", false, false, 0, 0},
        {"1e3", false, false, 0, 0},
        {"NaN", false, false, 0, 0},
        {"\"1\"", false, false, 0, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        sl_err err;
        int64_t v = 0;
        uint64_t u = 0;
        test_case("%s", cases[i].text);
        sl_json_reader *r = reader(cases[i].text, &err);
        CHECK(sl_json_read_int(r, &v) == cases[i].is_int && v == cases[i].i, "%s", err.text);
        CHECK((sl_json_read_end(r) == SL_OK) == cases[i].is_int);
        sl_json_reader_close(&r);
        r = reader(cases[i].text, &err);
        CHECK(sl_json_read_uint(r, &u) == cases[i].is_uint && u == cases[i].u, "%s", err.text);
        CHECK((sl_json_read_end(r) == SL_OK) == cases[i].is_uint);
        sl_json_reader_close(&r);
    }
}

static void check_reader(void)
{
    sl_err err;
    sl_text t = {0};
    double d = 0;
    test_case("reader");
    sl_json_reader *r = reader("{\"a\\u0000b\": [1.5, \"x\\u0000y\"],\n \"n\": NaN}", &err);
    CHECK(sl_json_peek(r) == SL_JSON_OBJECT && sl_json_enter_object(r));
    CHECK(sl_json_next_key(r, &t) && t.len == 3 && memcmp(t.data, "a\0b", 4) == 0);
    CHECK(sl_json_peek(r) == SL_JSON_ARRAY && sl_json_enter_array(r));
    CHECK(sl_json_next_item(r) && sl_json_read_double(r, &d) && d == 1.5);
    CHECK(sl_json_next_item(r) && sl_json_read_string(r, &t) && t.len == 3);
    CHECK(!sl_json_next_item(r) && !sl_json_failed(r));
    CHECK(sl_json_next_key(r, &t) && sl_text_is(t, "n") && !sl_text_is(t, "nn"));
    CHECK(sl_json_read_double(r, &d) && isnan(d));
    CHECK(!sl_json_next_key(r, &t) && sl_json_read_end(r) == SL_OK, "%s", err.text);
    sl_json_reader_close(&r);
    sl_json_reader_close(&r);

    test_case("findings of the caller");
    r = reader("[1,\n {\"k\": \"v\"}]", &err);
    sl_json_enter_array(r);
    CHECK(sl_json_next_item(r) && sl_json_skip(r) && sl_json_next_item(r));
    CHECK(sl_json_enter_object(r) && sl_json_next_key(r, &t) && sl_json_read_string(r, &t));
    sl_json_about(r, "token 'v'");
    CHECK(!sl_json_reject(r, SL_EUNSUPPORTED, "no %s here", "v") && sl_json_failed(r));
    CHECK(!strcmp(err.text, "t:2:8: token 'v': no v here") && err.code == SL_EUNSUPPORTED, "%s",
          err.text);
    CHECK(!sl_json_next_key(r, &t) && !sl_json_skip(r) && sl_json_peek(r) == SL_JSON_NONE);
    CHECK(sl_json_read_end(r) == SL_EUNSUPPORTED);
    sl_json_reader_close(&r);

    test_case("a type that was not expected");
    r = reader("{\"a\": {}}", &err);
    CHECK(sl_json_enter_object(r) && sl_json_next_key(r, &t) && !sl_json_read_string(r, &t));
    CHECK(strstr(err.text, "t:1:7: expected a string, found an object"), "%s", err.text);
    sl_json_reader_close(&r);
}

/* Strings of all lengths round the block size, with characters of 1 to 4 bytes across its border.
 */
static void check_file(void)
{
    enum { N = 400 };
    char path[] = "/tmp/sl_json_XXXXXX";
    int fd = mkstemp(path);
    FILE *out = fd >= 0 ? fdopen(fd, "w") : NULL;
    sl_file *f = NULL;
    sl_json_reader *r = NULL;
    sl_err err = {0};
    sl_text t = {0};
    test_case("over a file");
    if (!CHECK(out != NULL))
        return;
    fputs("junk[", out);
    for (int i = 0; i < N; i++) {
        fprintf(out, "%s\"%d:", i ? ",\n" : "", i);
        for (int k = 0; k < i; k++)
            fputs(k % 2 ? "a\xF0\x9F\x98\x80" : "\\u00e9\xE2\x82\xAC", out);
        fputs("\"", out);
    }
    fputs("]junk", out);
    long size = ftell(out);
    fclose(out);
    CHECK(sl_file_open(path, &f, &err) == SL_OK &&
              sl_json_reader_of_file(f, 4, (uint64_t)size - 8, "f", &r, &err) == SL_OK,
          "%s", err.text);
    sl_json_enter_array(r);
    int n = 0;
    for (; sl_json_next_item(r); n++) {
        char start[16];
        snprintf(start, sizeof start, "%d:", n);
        CHECK(sl_json_read_string(r, &t) && t.len == strlen(start) + 5 * (uint64_t)n &&
                  strncmp(t.data, start, strlen(start)) == 0 && sl_utf8_valid(t.data, t.len),
              "%s", err.text);
    }
    CHECK(n == N && sl_json_read_end(r) == SL_OK, "%d %s", n, err.text);
    sl_json_reader_close(&r);
    sl_file_close(&f);
    unlink(path);
}

static void check_tree(void)
{
    static const char text[] = "{\"i\": 42, \"big\": 9007199254740993, \"f\": 0.5, \"nan\": NaN, "
                               "\"s\": \"t\", \"b\": true, \"z\": null, \"a\": [1, 2], \"o\": {}}";
    sl_json *j;
    sl_err err = {0};
    int64_t i = 0;
    double d = 0;
    bool b = false;
    test_case("tree");
    CHECK(sl_json_parse(text, sizeof text - 1, "t", &j, &err) == SL_OK, "%s", err.text);
    CHECK(sl_json_int(sl_json_get(j, "i"), &i) && i == 42);
    CHECK(!sl_json_int(sl_json_get(j, "big"), &i) && !sl_json_int(sl_json_get(j, "f"), &i));
    CHECK(sl_json_number(sl_json_get(j, "f"), &d) && d == 0.5);
    CHECK(sl_json_number(sl_json_get(j, "nan"), &d) && isnan(d));
    CHECK(!sl_json_int(sl_json_get(j, "nan"), &i));
    CHECK(!strcmp(sl_json_text(sl_json_get(j, "s")), "t") && !sl_json_text(sl_json_get(j, "i")));
    CHECK(sl_json_bool(sl_json_get(j, "b"), &b) && b && !sl_json_bool(sl_json_get(j, "i"), &b));
    CHECK(sl_json_type_of(sl_json_get(j, "z")) == SL_JSON_NULL);
    CHECK(!sl_json_get(j, "absent") && !sl_json_get(j, "I") && !sl_json_get(NULL, "i"));
    CHECK(sl_json_type_of(NULL) == SL_JSON_NONE && sl_json_count(NULL) == 0);
    const sl_json *a = sl_json_get(j, "a");
    CHECK(sl_json_count(a) == 2 && sl_json_count(j) == 9 && sl_json_next(sl_json_first(a)));
    CHECK(!strcmp(sl_json_key(sl_json_first(j)), "i") && !sl_json_key(sl_json_first(a)));
    CHECK(!sl_json_next(sl_json_next(sl_json_first(a))) && !sl_json_first(sl_json_get(j, "i")));
    sl_json_free(&j);
    sl_json_free(&j);

    test_case("a key twice");
    CHECK(sl_json_parse("{\"k\":1,\"x\":3,\"k\":2}", 19, "c.json", &j, &err) == SL_OK);
    CHECK(sl_json_count(j) == 2 && sl_json_int(sl_json_get(j, "k"), &i) && i == 2);
    CHECK(strstr(last_warning, "c.json") && strstr(last_warning, "'k'"), "%s", last_warning);
    sl_json_free(&j);
    CHECK(sl_json_parse("\"\\u0000\"", 8, "c.json", &j, &err) == SL_EFORMAT && !j);
    CHECK(strstr(err.text, "NUL"), "%s", err.text);
}

static void check_writer(void)
{
    char *text = NULL;
    sl_err err = {0};
    sl_json *j;
    double d = 0;
    test_case("writer");
    sl_json_writer *w = sl_json_writer_new();
    sl_json_write_object(w, NULL);
    sl_json_write_int(w, "i", INT64_MIN);
    sl_json_write_uint(w, "u", UINT64_MAX);
    sl_json_write_double(w, "d", 0.1);
    sl_json_write_double(w, "third", 1.0 / 3);
    sl_json_write_double(w, "nan", NAN);
    sl_json_write_bool(w, "b", true);
    sl_json_write_string(w, "s", "q\"\\\n\x01\xC3\xA9");
    sl_json_write_string(w, "none", NULL);
    sl_json_write_text(w, "bad", (sl_text){"a\xff\0b", 4});
    sl_json_write_array(w, "a");
    sl_json_write_int(w, NULL, 1);
    sl_json_write_object(w, NULL);
    sl_json_write_close(w);
    sl_json_write_close(w);
    CHECK(sl_json_write_end(w, false, &text, &err) == SL_OK);
    static const char wanted[] = "{\"i\":-9223372036854775808,\"u\":18446744073709551615,\"d\":0.1,"
                                 "\"third\":0.3333333333333333,\"nan\":null,\"b\":true,"
                                 "\"s\":\"q\\\"\\\\\\n\\u0001\xC3\xA9\",\"none\":null,"
                                 "\"bad\":\"a\xEF\xBF\xBD\xEF\xBF\xBD"
                                 "b\",\"a\":[1,{}]}";
    CHECK(text && !strcmp(text, wanted), "%s", text);
    CHECK(text && sl_json_parse(text, strlen(text), "w", &j, &err) == SL_OK, "%s", err.text);
    CHECK(sl_json_number(sl_json_get(j, "third"), &d) && d == 1.0 / 3);
    sl_json_free(&j);
    free(text);
    CHECK(sl_json_write_end(w, true, &text, &err) == SL_OK && strchr(text, '\n'));
    free(text);
    sl_json_writer_free(&w);
    sl_json_writer_free(&w);

    test_case("writer misused");
    w = sl_json_writer_new();
    sl_json_write_object(w, NULL);
    sl_json_write_int(w, NULL, 1); /* no key */
    CHECK(sl_json_write_end(w, false, &text, &err) != SL_OK && !text);
    sl_json_writer_free(&w);
}

static void check_utf8(void)
{
    unsigned bad = 0;
    for (uint32_t c = 0; c <= 0x10FFFF; c++) {
        char s[4];
        uint32_t n = sl_utf8_put(c, s);
        bool surrogate = c >= 0xD800 && c <= 0xDFFF;
        bad += sl_utf8_len(s, n) != (surrogate ? 0 : n) || (n > 1 && sl_utf8_len(s, n - 1) != 0);
    }
    test_case("UTF-8");
    CHECK(bad == 0, "%u", bad);
    CHECK(sl_utf8_valid("", 0) && !sl_utf8_valid("a\x80", 2));
}

int main(void)
{
    sl_log_set(hear, NULL);
    check_texts();
    check_depth();
    check_integers();
    check_reader();
    check_file();
    check_tree();
    check_writer();
    check_utf8();
    return test_end();
}
