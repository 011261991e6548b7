// Settings of floating point arithmetic for processes that train.
#pragma once

namespace lodestar {

// Treats numbers below 2^-126 as zero, as GPUs can. They carry nothing that training needs, but x86
// takes a hundred cycles for each: gradients and moments that die away made matrix products 10
// times slower. Threads inherit it: called once at the top of main(), before any thread.
void FlushDenormals();

}  // namespace lodestar
