/* The least a test program needs: checks that count, a summary line, the exit code (0 passed, 1
 * failed, 77 cannot run here). */
#ifndef SL_LIB_TEST_H
#define SL_LIB_TEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Each check counts once; a failed one prints file, line, the expression and the message. Returns
 * whether it held. */
#define CHECK(cond, ...) test_check((cond), __FILE__, __LINE__, #cond, " " __VA_ARGS__)
bool test_check(bool ok, const char *file, int line, const char *expression, const char *format,
                ...) __attribute__((format(printf, 5, 6)));

/* Names the case that failed checks belong to (printed with them). */
void test_case(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Prints why and exits 77. */
_Noreturn void test_skip(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Prints "N checks, M failed"; returns the exit code. */
int test_end(void);

/* Path of a file in tests/data (SL_TEST_DATA overrides the folder); static storage of four rotating
 * buffers. */
const char *test_data(const char *name);
/* Whole file, malloc'ed, NUL appended; NULL when it cannot be read. */
char *test_read(const char *path, size_t *len);
/* xorshift64*: the same numbers on every machine. */
uint64_t test_random(uint64_t *state);
float test_random_float(uint64_t *state); /* about normal, deviation 1 */

#endif
