// SPDX-License-Identifier: Apache-2.0

// ParameterArena holds parameters and gradients of a model in device memory, as flat vectors in the
// order of the layout. If the device computes in a narrow dtype, it also holds the parameters in
// that dtype, for forward and backward.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/params/layout.h"
#include "kernels/device.h"
#include "worker/model/device_memory.h"

namespace lodestar::model {

// One tensor: its value in the compute dtype, and its gradient in StatisticsDType.
struct Parameter {
  kernels::Buf value;
  kernels::Buf gradient;
};

class ParameterArena {
 public:
  // Allocates the vectors. Their contents are undefined, except for `padding_elements` behind the
  // last tensor of each vector, which are zero. `owner` names the model in errors. `device` must
  // outlive the arena. Errors: ResourceExhausted naming owner, bytes and what to change.
  static absl::StatusOr<std::unique_ptr<ParameterArena>> Create(const std::string& owner,
                                                                params::Layout layout,
                                                                int64_t padding_elements,
                                                                kernels::Device* device);
  // Makes an arena without memory, for planning. Its addresses must not be used.
  static std::unique_ptr<ParameterArena> CreateUnallocated(params::Layout layout,
                                                           int64_t padding_elements,
                                                           kernels::DType compute);

  const params::Layout& layout() const { return layout_; }
  // Vectors of layout().num_elements() in StatisticsDType.
  kernels::Buf values() const { return values_; }
  kernels::Buf gradients() const { return gradients_; }
  // The values in the compute dtype. Empty if values() have that dtype.
  kernels::Buf narrow_parameters() const { return narrow_; }
  // Updates a range of narrow_parameters() from values(), on the compute stream.
  void RefreshNarrowParameters(params::ElementRange range, kernels::Device* device) const;
  // Returns the tensor `name`. Aborts the program if the layout does not have it, because then the
  // model and BuildLayout() disagree. The buffers also include `extra_elements` behind the tensor.
  Parameter Get(absl::string_view name, int64_t extra_elements = 0) const;

  int64_t num_bytes() const { return num_bytes_; }

 private:
  ParameterArena(params::Layout layout, int64_t padding_elements, kernels::DType compute);
  // Sets the addresses of all vectors.
  void Place(void* memory);

  params::Layout layout_;
  int64_t padded_elements_;  // Size of each vector.
  int64_t num_bytes_;
  DeviceMemory memory_;  // [values | gradients | narrow]
  kernels::Buf values_;
  kernels::Buf gradients_;
  kernels::Buf narrow_;
};

}  // namespace lodestar::model
