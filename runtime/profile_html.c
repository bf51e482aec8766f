#include "profile_html.h"

#include <assert.h>
#include <string.h>

/* runtime/web/, byte for byte. The assembler knows how to do this for every compiler and target; it
 * looks from the folder that make runs in. */
#define EMBED(name, file)                                                                          \
    __asm__(".pushsection .rodata\n" #name ":\n.incbin \"runtime/web/" file "\"\n" #name           \
            "_end:\n.byte 0\n.popsection\n");                                                      \
    extern const char name[] __attribute__((visibility("hidden")));                                \
    extern const char name##_end[] __attribute__((visibility("hidden")))

EMBED(page_html, "profile.html");
EMBED(page_css, "profile.css");
EMBED(page_js, "page.js");
EMBED(timeline_js, "timeline.js");
EMBED(profile_js, "profile.js");

/* A '<' can only be inside a string of a JSON document, where \u003c means the same: what is left
 * holds neither an end tag nor a comment. */
static sl_status write_escaped(sl_outfile *f, const char *json, uint64_t len, sl_err *err)
{
    sl_status st = SL_OK;
    for (const char *end = json + len; !st && json < end;) {
        const char *at = memchr(json, '<', (size_t)(end - json));
        st = sl_outfile_write(f, json, (uint64_t)((at ? at : end) - json), err);
        if (!st && at)
            st = sl_outfile_write(f, "\\u003c", 6, err);
        json = at ? at + 1 : end;
    }
    return st;
}

/* profile.html says where each of the others belongs, as a comment; the order is its own. */
static const struct insert {
    const char *mark, *text, *end;
} inserts[] = {
    {"<!-- profile.css -->", page_css, page_css_end},
    {"<!-- the document -->", NULL, NULL},
    {"<!-- page.js -->", page_js, page_js_end},
    {"<!-- timeline.js -->", timeline_js, timeline_js_end},
    {"<!-- profile.js -->", profile_js, profile_js_end},
};

sl_status sl_profile_html_write(sl_outfile *f, const char *json, uint64_t len, sl_err *err)
{
    sl_status st = SL_OK;
    const char *at = page_html;
    for (size_t i = 0; !st && i < sizeof inserts / sizeof *inserts; i++) {
        const struct insert *in = &inserts[i];
        const char *mark = strstr(at, in->mark); /* a byte 0 ends the page */
        assert(mark);
        st = sl_outfile_write(f, at, (uint64_t)(mark - at), err);
        if (!st)
            st = in->text ? sl_outfile_write(f, in->text, (uint64_t)(in->end - in->text), err)
                          : write_escaped(f, json, len, err);
        at = mark + strlen(in->mark);
    }
    return st ? st : sl_outfile_write(f, at, (uint64_t)(page_html_end - at), err);
}
