#include "lib_safetensors.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Copies the header, which has no end mark of its own. NULL: not well-formed, or out of memory. */
static char *header_of(const char *file_text, size_t len, uint64_t *header_len)
{
    if (len < sizeof *header_len)
        return NULL;
    memcpy(header_len, file_text, sizeof *header_len);
    if (*header_len > len - sizeof *header_len)
        return NULL;
    char *header = malloc((size_t)*header_len + 1);
    if (header) {
        memcpy(header, file_text + sizeof *header_len, (size_t)*header_len);
        header[*header_len] = 0;
    }
    return header;
}

/* The text behind key and a colon, or NULL. */
static const char *behind(const char *text, const char *key)
{
    char quoted[128];
    const int n = snprintf(quoted, sizeof quoted, "\"%s\":", key);
    const char *at = text ? strstr(text, quoted) : NULL;
    return at ? at + n + strspn(at + n, " ") : NULL;
}

/* Plain text search, not JSON: test data has no escapes, and the kernel tests must build for other
 * CPUs, where no JSON library may be. */
const void *test_tensor(const char *file_text, size_t len, const char *name, size_t *bytes)
{
    uint64_t header_len, begin = 1, end = 0;
    char *header = header_of(file_text, len, &header_len);
    if (!header)
        return NULL;
    const char *at = behind(header, name);
    while (at && *at != '{') /* a line of the metadata with this name */
        at = behind(at, name);
    at = behind(at, "data_offsets");
    if (at && *at == '[') {
        char *after;
        begin = strtoull(at + 1, &after, 10);
        end = *after == ',' ? strtoull(after + 1, NULL, 10) : 0;
    }
    free(header);
    const uint64_t data_len = len - sizeof header_len - header_len;
    if (!(begin <= end && end <= data_len))
        return NULL;
    *bytes = (size_t)(end - begin);
    return file_text + sizeof header_len + header_len + begin;
}
