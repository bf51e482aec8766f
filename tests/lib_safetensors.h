/* Reads tensors of a safetensors file that is in memory: enough for test data. */
#ifndef SL_LIB_SAFETENSORS_H
#define SL_LIB_SAFETENSORS_H

#include <stddef.h>

/* The bytes of tensor name in the file's text (as test_read() gives it), and their number in
 * *bytes. NULL when the file is not well-formed or has no such tensor. */
const void *test_tensor(const char *file_text, size_t len, const char *name, size_t *bytes);

#endif
