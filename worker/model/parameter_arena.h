// Parameters and gradients of a model in device memory: flat vectors in the order of the layout.
// Where the device computes in a narrow type, parameters are also there in that type, for
// forward and backward to read.
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

// One tensor, in the compute dtype, and its gradient, in StatisticsDType.
struct Parameter {
  kernels::Buf value;
  kernels::Buf gradient;
};

class ParameterArena {
 public:
  // Contents are undefined. `owner` names the model in errors; `device` must outlive the arena.
  // `padding_elements` of every vector lie behind its last tensor, and are zero.
  // Errors: ResourceExhausted naming owner and bytes, and what to change.
  static absl::StatusOr<std::unique_ptr<ParameterArena>> Create(const std::string& owner,
                                                                Layout layout,
                                                                int64_t padding_elements,
                                                                kernels::Device* device);
  // Without memory, to plan with: all addresses are invalid.
  static std::unique_ptr<ParameterArena> CreateUnallocated(Layout layout, int64_t padding_elements,
                                                           kernels::DType compute);

  const Layout& layout() const { return layout_; }
  // StatisticsDType, layout().num_elements() each.
  kernels::Buf values() const { return values_; }
  kernels::Buf gradients() const { return gradients_; }
  // The values in the compute dtype; empty where that is the dtype of values().
  kernels::Buf narrow_parameters() const { return narrow_; }
  // Brings a range of them up to date, on the compute stream.
  void RefreshNarrowParameters(ElementRange range, kernels::Device* device) const;
  // `name` must be in the layout: a model and BuildLayout() that disagree are a broken invariant,
  // and abort. The buffers end `extra_elements` behind the tensor, in what follows it.
  Parameter Get(absl::string_view name, int64_t extra_elements = 0) const;

  int64_t num_bytes() const { return num_bytes_; }

 private:
  ParameterArena(Layout layout, int64_t padding_elements, kernels::DType compute);
  // Tells the vectors where they are.
  void Place(void* memory);

  Layout layout_;
  int64_t padded_elements_;  // of each vector
  int64_t num_bytes_;
  DeviceMemory memory_;  // [values | gradients | narrow]
  kernels::Buf values_;
  kernels::Buf gradients_;
  kernels::Buf narrow_;
};

}  // namespace lodestar::model
