#include "common/float_setup.h"

#ifdef __SSE2__
#include <xmmintrin.h>
#endif

namespace lodestar {

void FlushDenormals() {
#ifdef __SSE2__
  _MM_SET_FLUSH_ZERO_MODE(_MM_FLUSH_ZERO_ON);
  // Of inputs; <pmmintrin.h> has the name, for SSE3 only.
  constexpr unsigned kDenormalsAreZero = 0x40;
  _mm_setcsr(_mm_getcsr() | kDenormalsAreZero);
#endif
}

}  // namespace lodestar
