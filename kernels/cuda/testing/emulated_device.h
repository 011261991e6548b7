// The CUDA device on the emulated card, for tests of whatever drives a device.
#pragma once

#include <memory>

#include "kernels/cuda/emulator/emulator.h"
#include "kernels/cuda/nccl.h"
#include "kernels/device.h"
#include "kernels/device_set.h"
#include "kernels/factory/cuda_plugin.h"

namespace lodestar::cuda {

// Sets the process's one card up as `settings` says, without the error of an earlier test.
std::unique_ptr<kernels::Device> MakeEmulatedDevice(const factory::CudaPluginOptions& options,
                                                    const emulator::Settings& settings);

// settings.num_devices of them, as a group that finds NCCL if `load_nccl` does.
kernels::DeviceSet MakeEmulatedDevices(const factory::CudaPluginOptions& options,
                                       const emulator::Settings& settings,
                                       NcclLoader load_nccl = nullptr);

}  // namespace lodestar::cuda
