#include "common/malloc_setup.h"

#include <climits>  // defines __GLIBC__ where it applies

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace lodestar {

void SetUpMalloc() {
#ifdef __GLIBC__
  constexpr int kMmapThresholdBytes = 1 << 30;
  constexpr int kTopPadBytes = 64 << 20;
  mallopt(M_MMAP_THRESHOLD, kMmapThresholdBytes);
  mallopt(M_TRIM_THRESHOLD, INT_MAX);
  mallopt(M_TOP_PAD, kTopPadBytes);
  mallopt(M_ARENA_MAX, 1);
#endif
}

}  // namespace lodestar
