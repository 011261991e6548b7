// Parameters and gradients of a model in device memory: two flat vectors in the order of the
// layout.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/layout.h"
#include "kernels/device.h"
#include "worker/model/device_memory.h"

namespace lodestar {

// One tensor and its gradient.
struct Parameter {
  Buf value;
  Buf gradient;
};

class ParameterArena {
 public:
  // Contents are undefined. `owner` names the model in errors; `device` must outlive the arena.
  // Errors: ResourceExhausted naming owner and bytes, and what to change.
  static absl::StatusOr<std::unique_ptr<ParameterArena>> Create(const std::string& owner,
                                                                Layout layout, Device* device);

  const Layout& layout() const { return layout_; }
  Buf values() const { return values_; }
  Buf gradients() const { return gradients_; }
  // `name` must be in the layout: a model and BuildLayout() that disagree are a broken invariant,
  // and abort.
  Parameter Get(absl::string_view name) const;

 private:
  ParameterArena(Layout layout, DeviceMemory memory, DType dtype);

  Layout layout_;
  DeviceMemory memory_;  // [values | gradients]
  Buf values_;
  Buf gradients_;
};

}  // namespace lodestar
