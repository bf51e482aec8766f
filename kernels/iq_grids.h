/* The codebooks of the IQ weight types. An entry holds eight values (four in IQ3) as unsigned
 * bytes, the first one lowest; signs and deltas are stored in the blocks. Also the shuffles that
 * blocks need are here, so that all levels read the same bits. Constants: any thread. */
#ifndef SL_IQ_GRIDS_H
#define SL_IQ_GRIDS_H

#include <stdint.h>

extern const uint64_t sl_grid_iq2_xxs[256], sl_grid_iq2_xs[512], sl_grid_iq2_s[1024];
extern const uint64_t sl_grid_iq1[2048]; /* IQ1_S, IQ1_M: 8 * (grid value + 1): 0, 8, 16 */
extern const uint32_t sl_grid_iq3_xxs[256], sl_grid_iq3_s[512];

/* The same in 16 bits an entry, for vector code that looks up many at once: places in the type's
 * ascending list of values. IQ2, IQ1: eight of two bits, the first value's lowest. IQ3: four of
 * three bits, one in each nibble. */
extern const uint16_t sl_points_iq2_xxs[256], sl_points_iq2_xs[512], sl_points_iq2_s[1024];
extern const uint32_t sl_points_iq1[2048]; /* each twice */
extern const uint16_t sl_points_iq3_xxs[256], sl_points_iq3_s[512];

#endif
