/* A file to measure a disk with: one that is there, or a temporary one that nobody else sees. Main
 * thread only. */
#ifndef SL_TEST_FILE_H
#define SL_TEST_FILE_H

#include "../stream/file.h"

enum {
    SL_TEST_FILE_GOOD = 64 << 20,  /* a file of a folder that is at least this large will do */
    SL_TEST_FILE_LEAST = 16 << 20, /* the smallest temporary one */
    SL_TEST_FILE_USUAL = 1 << 30
};

typedef struct sl_test_file {
    sl_file *file;
    bool temporary; /* has no name: gone when it is closed, however the program ends */
} sl_test_file;

/* path: a file, or a folder, of which the largest file is taken if it is large enough; otherwise,
 * or if bytes is not 0, a temporary file of so many bytes (0: SL_TEST_FILE_USUAL, at most a quarter
 * of what is free) is written there, of random bytes, for at most seconds (then it is shorter).
 * Errors name path and cause: no such path, no permission, too little room, a disk that is full.
 * SL_ECANCELLED: interrupted. */
sl_status sl_test_file_open(const char *path, uint64_t bytes, double seconds, sl_test_file *out,
                            sl_err *err);
void sl_test_file_close(sl_test_file *t);

#endif
