// SPDX-License-Identifier: Apache-2.0

// The CUDA device on the emulated card, for tests of code that uses a device.
#pragma once

#include <memory>

#include "kernels/cuda/emulator/emulator.h"
#include "kernels/cuda/nccl.h"
#include "kernels/device.h"
#include "kernels/device_set.h"
#include "kernels/factory/cuda_plugin.h"

namespace lodestar::cuda {

// Configures the emulated card with `settings`, clears the error of an earlier test, and makes a
// device.
std::unique_ptr<kernels::Device> MakeEmulatedDevice(const factory::CudaPluginOptions& options,
                                                    const emulator::Settings& settings);

// Makes settings.num_devices devices and their group. The group uses NCCL if `load_nccl` finds it.
kernels::DeviceSet MakeEmulatedDevices(const factory::CudaPluginOptions& options,
                                       const emulator::Settings& settings,
                                       NcclLoader load_nccl = nullptr);

}  // namespace lodestar::cuda
