#include "kernels/codec/codec_loops.h"

namespace lodestar::codec {

namespace avx512 {
Loops MakeLoops();
}
namespace avx2 {
Loops MakeLoops();
}
namespace sse2 {
Loops MakeLoops();
}

namespace {

constexpr int kMaxSets = 3;

// Widest first.
struct Sets {
  Loops loops[kMaxSets];
  int count = 0;

  Sets() {
    __builtin_cpu_init();
    if (__builtin_cpu_supports("x86-64-v4")) loops[count++] = avx512::MakeLoops();
    if (__builtin_cpu_supports("x86-64-v3")) loops[count++] = avx2::MakeLoops();
    loops[count++] = sse2::MakeLoops();
  }
};

const Sets& AllSets() {
  static const Sets sets;
  return sets;
}

}  // namespace

const Loops& BestLoops() { return AllSets().loops[0]; }

const Loops* SupportedLoops(int index) {
  return index < AllSets().count ? &AllSets().loops[index] : nullptr;
}

}  // namespace lodestar::codec
