/* Replays files through a fuzz target: every argument is a file or a folder, which is walked.
 * Without arguments the empty input alone is tried. */
#include <errno.h>
#include <fts.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib_fuzz.h"

static unsigned long n_inputs;

/* The input is copied to memory of exactly its size, so that a sanitizer sees a read past its end.
 */
static int try_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        return 1;
    }
    long size = fseek(f, 0, SEEK_END) == 0 ? ftell(f) : -1;
    uint8_t *data = size >= 0 ? malloc(size > 0 ? (size_t)size : 1) : NULL;
    int bad = 1;
    if (data && fseek(f, 0, SEEK_SET) == 0 && fread(data, 1, (size_t)size, f) == (size_t)size)
        bad = 0;
    fclose(f);
    if (bad)
        fprintf(stderr, "%s: cannot be read\n", path);
    else
        LLVMFuzzerTestOneInput(data, (size_t)size);
    free(data);
    n_inputs++;
    return bad;
}

int main(int argc, char **argv)
{
    int bad = 0;
    LLVMFuzzerTestOneInput((const uint8_t *)"", 0);
    FTS *walk = argc > 1 ? fts_open(argv + 1, FTS_LOGICAL | FTS_NOCHDIR, NULL) : NULL;
    for (FTSENT *e; walk && (e = fts_read(walk)) != NULL;)
        if (e->fts_info == FTS_F)
            bad |= try_file(e->fts_path);
    if (walk)
        fts_close(walk);
    printf("%lu inputs\n", n_inputs);
    return bad;
}
