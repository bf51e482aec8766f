/* How loops of vector code are compiled. */
#ifndef SL_INLINE_H
#define SL_INLINE_H

#define SL_INLINE static inline __attribute__((always_inline))
/* Arrays of vectors live in registers only when every loop over them is unrolled. */
#if defined(__clang__)
#define SL_UNROLL _Pragma("clang loop unroll(full)")
#define SL_ROLLED _Pragma("clang loop unroll(disable)")
#else
#define SL_UNROLL _Pragma("GCC unroll 32")
#define SL_ROLLED _Pragma("GCC unroll 1")
#endif

#endif
