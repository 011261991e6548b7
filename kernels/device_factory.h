// Makes the Device that a process computes on. CUDA is a plugin, liblodestar_cuda.so, so that one
// binary runs with and without it; nothing here links against CUDA.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/device.h"

namespace lodestar {

// `kind` is one of
//   auto    CUDA if the plugin loads and finds a device, else the CPU,
//   cpu     fp32 on `threads` threads (0: one per core that this process may use),
//   cuda    the first CUDA device, or an error saying why there is none,
//   oracle  fp64, slow, one thread: the reference of the tests.
// With `auto`, *why_not_cuda (may be null) tells why the CPU was chosen; it is empty otherwise.
// Errors: InvalidArgument for another kind or threads out of range; NotFound or Unavailable for
// `cuda` without plugin or device.
absl::StatusOr<std::unique_ptr<Device>> MakeDevice(absl::string_view kind, int threads,
                                                   std::string* why_not_cuda);

}  // namespace lodestar
