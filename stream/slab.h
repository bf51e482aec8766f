/* One region of memory that slots are cut from: 2 MiB-aligned, of huge pages where the kernel lets
 * us. Not charged until touched, and never charged beyond its length: the part after the last whole
 * 2 MiB is made of small pages. */
#ifndef SL_SLAB_H
#define SL_SLAB_H

#include "base.h"

enum {
    SL_SLAB_PAGE = 4096,    /* lengths are rounded up to this */
    SL_SLAB_PIECE = 2 << 20 /* a huge page: what can be given back */
};

typedef struct sl_slab {
    uint8_t *memory; /* NULL when bytes is 0 */
    uint64_t bytes;
    bool huge;
} sl_slab;

sl_status sl_slab_open(sl_slab *s, uint64_t bytes, bool refuse_huge, sl_err *err);
void sl_slab_close(sl_slab *s);
/* The whole 2 MiB pieces between two offsets go back to the kernel; what is there then reads as
 * zeros and is charged again when it is touched. Returns their bytes. */
uint64_t sl_slab_give_back(sl_slab *s, uint64_t from, uint64_t to);

#endif
