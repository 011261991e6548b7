#include "worker/model/parameter_arena.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"

namespace lodestar {
namespace {

// Gradients start at a multiple of this, as the values do.
constexpr int64_t kAlignmentElements = 64;

int64_t AlignedElements(const Layout& layout) {
  return (layout.num_elements() + kAlignmentElements - 1) / kAlignmentElements * kAlignmentElements;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ParameterArena>> ParameterArena::Create(const std::string& owner,
                                                                       Layout layout,
                                                                       Device* device) {
  const DType dtype = device->capabilities().compute;
  const size_t bytes = 2 * static_cast<size_t>(AlignedElements(layout)) * DTypeBytes(dtype);
  absl::StatusOr<DeviceMemory> memory = DeviceMemory::Allocate(device, bytes);
  if (!memory.ok()) {
    return absl::Status(memory.status().code(),
                        absl::StrCat("parameters and gradients of ", owner, " need ", bytes,
                                     " bytes on ", device->capabilities().name, ": ",
                                     memory.status().message(), "; choose a smaller model"));
  }
  return std::unique_ptr<ParameterArena>(
      new ParameterArena(std::move(layout), *std::move(memory), dtype));
}

ParameterArena::ParameterArena(Layout layout, DeviceMemory memory, DType dtype)
    : layout_(std::move(layout)), memory_(std::move(memory)) {
  const Buf both{memory_.data(), dtype, 2 * AlignedElements(layout_)};
  values_ = both.Slice(0, layout_.num_elements());
  gradients_ = both.Slice(AlignedElements(layout_), layout_.num_elements());
}

Parameter ParameterArena::Get(absl::string_view name) const {
  const TensorSpec* tensor = layout_.Find(std::string(name));
  LODESTAR_CHECK(tensor != nullptr) << "the layout has no tensor " << name;
  return {values_.Slice(tensor->offset, tensor->num_elements()),
          gradients_.Slice(tensor->offset, tensor->num_elements())};
}

}  // namespace lodestar
