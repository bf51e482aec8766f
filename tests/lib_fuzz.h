/* What a fuzz target is: one function that must survive any bytes. libFuzzer calls it with inputs
 * it makes up; lib_fuzz_main.c calls it with the files of a corpus. */
#ifndef SL_LIB_FUZZ_H
#define SL_LIB_FUZZ_H

#include <stddef.h>
#include <stdint.h>

/* Always returns 0; data is readable for size bytes and no further. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
