/* Splitting text into pieces with PCRE2 (the one file that uses it). The rules are the regular
 * expressions that published tokenizers carry; any other one is refused by the caller, because
 * engines differ in corners and a silent difference would be a wrong token. \s is spelled out:
 * PCRE2 counts U+180E as white space, Unicode does not. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

#include "tokenizer_impl.h"

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define UPPER        "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER        "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"

/* As tokenizer.json files spell them. */
static const char *const rules[SL_SPLIT_COUNT] = {
    [SL_SPLIT_GPT2] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+"
                      "|\\s+(?!\\S)|\\s+",
    [SL_SPLIT_LLAMA3] = CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}"
                                     "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+"
                                     "|\\s+(?!\\S)|\\s+",
    [SL_SPLIT_QWEN2] = CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}"
                                    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+"
                                    "|\\s+(?!\\S)|\\s+",
    [SL_SPLIT_QWEN35] = CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}"
                                     "| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+"
                                     "|\\s+(?!\\S)|\\s+",
    [SL_SPLIT_GPT4O] = "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" CONTRACTIONS "?"
                       "|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER "*" CONTRACTIONS "?"
                       "|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+"
                       "|\\s+(?!\\S)|\\s+",
    [SL_SPLIT_DIGIT] = "\\p{N}",
    [SL_SPLIT_DIGITS] = "\\p{N}+",
    [SL_SPLIT_DIGITS_3] = "\\p{N}{1,3}",
    [SL_SPLIT_DEEPSEEK_CJK] = "[\xe4\xb8\x80-\xe9\xbe\xa5\xe3\x81\x80-\xe3\x82\x9f"
                              "\xe3\x82\xa0-\xe3\x83\xbf]+",
    [SL_SPLIT_DEEPSEEK] = "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+"
                          "|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
                          "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
};

#define SPACES                                                                                     \
    "\\x09-\\x0d\\x20\\x85\\xa0\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}"   \
    "\\x{3000}"

/* Text that no rule of these should need so much for ends as an error, not as a hang. */
enum { MATCH_LIMIT = 200000000, DEPTH_LIMIT = 100000, HEAP_LIMIT_KIB = 64 << 10 };

sl_split_rule sl_split_rule_of(const char *regex)
{
    for (int i = 0; i < SL_SPLIT_COUNT; i++)
        if (strcmp(rules[i], regex) == 0)
            return (sl_split_rule)i;
    return SL_SPLIT_UNKNOWN;
}

enum { PATTERN_BYTES = 2048 };

static void append(char *out, size_t *n, const char *s)
{
    size_t len = strlen(s);
    if (*n + len < PATTERN_BYTES) {
        memcpy(out + *n, s, len + 1);
        *n += len;
    }
}

/* The rule with \s and \S spelled out. */
static void spell_spaces(const char *rule, char *out)
{
    bool in_class = false;
    size_t n = 0;
    out[0] = '\0';
    for (const char *p = rule; *p; p++) {
        if (p[0] == '\\' && (p[1] == 's' || p[1] == 'S')) {
            append(out, &n, in_class ? SPACES : p[1] == 's' ? "[" SPACES "]" : "[^" SPACES "]");
            p++;
            continue;
        }
        char one[3] = {p[0], p[0] == '\\' ? p[1] : '\0', '\0'};
        if (one[1])
            p++;
        else if (one[0] == '[')
            in_class = true;
        else if (one[0] == ']')
            in_class = false;
        append(out, &n, one);
    }
}

sl_status sl_pretoken_add(sl_pretoken *p, sl_split_rule rule, bool matches_only, sl_err *err)
{
    if (p->n == SL_MAX_SPLITS)
        return sl_fail(err, SL_EUNSUPPORTED, "pre_tokenizer: more than %d splits", SL_MAX_SPLITS);
    char pattern[PATTERN_BYTES];
    spell_spaces(rules[rule], pattern);
    int code = 0;
    PCRE2_SIZE at = 0;
    pcre2_code *re = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED,
                                   PCRE2_UTF | PCRE2_UCP, &code, &at, NULL);
    if (!re)
        return sl_fail(err, code == PCRE2_ERROR_NOMEMORY ? SL_ENOMEM : SL_EUNSUPPORTED,
                       "pre_tokenizer: PCRE2 error %d at %zu of the split rule", code, (size_t)at);
    /* Without executable memory the interpreter does it, slower. */
    size_t size = 0, jit_size = 0;
    if (pcre2_jit_compile(re, PCRE2_JIT_COMPLETE) == 0)
        pcre2_pattern_info(re, PCRE2_INFO_JITSIZE, &jit_size);
    pcre2_pattern_info(re, PCRE2_INFO_SIZE, &size);
    p->bytes += size + jit_size;
    p->code[p->n] = re;
    p->matches_only[p->n++] = matches_only;
    return SL_OK;
}

void sl_pretoken_free(sl_pretoken *p)
{
    while (p->n)
        pcre2_code_free(p->code[--p->n]);
    *p = (sl_pretoken){0};
}

typedef struct splitter {
    const sl_pretoken *p;
    pcre2_match_data *match;
    pcre2_match_context *limits;
    sl_piece_fn *fn;
    void *ctx;
    sl_err *err;
} splitter;

static sl_status match_failed(int code, sl_err *err)
{
    if (code == PCRE2_ERROR_NOMEMORY || code == PCRE2_ERROR_HEAPLIMIT)
        return sl_fail(err, SL_ENOMEM, "out of memory while splitting text");
    return sl_fail(err, SL_EUNSUPPORTED, "the split rule gives up on this text (PCRE2 error %d)",
                   code);
}

/* Finds the next match from at on; found: whether there is one. */
static sl_status next_match(const splitter *s, uint32_t stage, sl_text text, uint64_t at,
                            uint64_t *start, uint64_t *end, bool *found)
{
    const pcre2_code *re = s->p->code[stage];
    PCRE2_SPTR subject = (PCRE2_SPTR)text.data;
    int n = pcre2_match(re, subject, text.len, at, PCRE2_NO_UTF_CHECK, s->match, s->limits);
    if (n == PCRE2_ERROR_JIT_STACKLIMIT)
        n = pcre2_match(re, subject, text.len, at, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, s->match,
                        s->limits);
    *found = n >= 0;
    if (n < 0)
        return n == PCRE2_ERROR_NOMATCH ? SL_OK : match_failed(n, s->err);
    const PCRE2_SIZE *place = pcre2_get_ovector_pointer(s->match);
    *start = place[0];
    *end = place[1];
    return *end > *start ? SL_OK : match_failed(PCRE2_ERROR_INTERNAL, s->err);
}

/* Splits a piece of stage - 1; recursion is as deep as there are stages. */
static sl_status split_stage(const splitter *s, uint32_t stage, sl_text text)
{
    if (stage == s->p->n)
        return text.len ? s->fn(s->ctx, text.data, text.len, s->err) : SL_OK;
    sl_status st = SL_OK;
    bool found = true;
    for (uint64_t at = 0; !st && found && at < text.len;) {
        uint64_t start = text.len, end = text.len;
        st = next_match(s, stage, text, at, &start, &end, &found);
        if (!st && start > at && !s->p->matches_only[stage])
            st = split_stage(s, stage + 1, (sl_text){text.data + at, start - at});
        if (!st && found)
            st = split_stage(s, stage + 1, (sl_text){text.data + start, end - start});
        at = end;
    }
    return st;
}

sl_status sl_pretoken_split(const sl_pretoken *p, const char *text, uint64_t len, sl_piece_fn *fn,
                            void *ctx, sl_err *err)
{
    splitter s = {.p = p, .fn = fn, .ctx = ctx, .err = err};
    s.match = pcre2_match_data_create(1, NULL);
    s.limits = pcre2_match_context_create(NULL);
    sl_status st;
    if (s.match && s.limits) {
        pcre2_set_match_limit(s.limits, MATCH_LIMIT);
        pcre2_set_depth_limit(s.limits, DEPTH_LIMIT);
        pcre2_set_heap_limit(s.limits, HEAP_LIMIT_KIB);
        st = split_stage(&s, 0, (sl_text){text, len});
    } else {
        st = sl_fail(err, SL_ENOMEM, "out of memory while splitting text");
    }
    pcre2_match_context_free(s.limits);
    pcre2_match_data_free(s.match);
    return st;
}
