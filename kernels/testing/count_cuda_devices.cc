// Prints how many CUDA devices there are, or why none can be used; exit code 0 or 1.
#include <iostream>

#include "kernels/factory/cuda_plugin.h"

int main() {
  const auto count = lodestar::factory::CountCudaDevices();
  if (!count.ok()) {
    std::cout << count.status().message() << "\n";
    return 1;
  }
  std::cout << *count << "\n";
  return 0;
}
