// SPDX-License-Identifier: Apache-2.0

// Prints the number of CUDA devices and exits with 0. If no device can be used, prints the reason
// and exits with 1.
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
