/* A file in memory under a name with the ending that a parser expects, for fuzz targets. */
#ifndef SL_LIB_FUZZ_FILE_H
#define SL_LIB_FUZZ_FILE_H

#include <stddef.h>
#include <stdint.h>

enum { FUZZ_PATH = 64 };

/* Makes (or makes anew) the file called name in this process's own folder, which goes when the
 * process ends. path gets its name. The same name overwrites. Aborts when the system refuses. */
void fuzz_file(const char *name, const void *data, size_t size, char path[FUZZ_PATH]);
/* Removes it; no harm when it is not there. */
void fuzz_file_remove(const char *name);

#endif
