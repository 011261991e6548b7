// Devices by name, with the CUDA device on its emulated card.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/model_spec.h"
#include "kernels/device.h"
#include "kernels/device_set.h"

namespace lodestar {

// "cpu", "oracle", "cuda-fp32", "cuda-bf16"; `threads` are those of the CPU. Of the last two one at
// a time.
std::unique_ptr<Device> MakeTestDevice(const std::string& name, int threads);

// So many cards in fp32 that compute parts of one step, without fusion; one real card may be
// several of them.
DeviceSet MakeTestCards(int count);

// Models that are too large to be trained on the emulated card, but not on this one.
std::vector<ModelSpec> SpecsOfTestCards();

}  // namespace lodestar
