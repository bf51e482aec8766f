/* The page of a profile: one file that holds everything, to be opened from disk in a browser. What
 * it shows is the document of docs/profile-format.md; how it shows it is in runtime/web/, which the
 * build puts into the program. Not here: what is in the document (run_profile.h).
 *
 * Any thread. */
#ifndef SL_PROFILE_HTML_H
#define SL_PROFILE_HTML_H

#include "../stream/outfile.h"

/* Writes the page, and the document in it, behind what f holds; the caller commits or aborts f.
 * json: len bytes, a whole JSON document in UTF-8, as sl_json_write_end() makes it; it stays the
 * caller's. Strings in it may hold anything: none of them can end the element that holds the
 * document. */
sl_status sl_profile_html_write(sl_outfile *f, const char *json, uint64_t len, sl_err *err);

#endif
