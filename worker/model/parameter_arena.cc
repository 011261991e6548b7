// SPDX-License-Identifier: Apache-2.0

#include "worker/model/parameter_arena.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/runtime/check.h"

namespace lodestar::model {
namespace {

// Every vector starts at a multiple of this number of elements.
constexpr int64_t kAlignmentElements = 128;
// The address of vectors without memory. It must not be null, because null means an empty buffer.
// It is never read.
constexpr uintptr_t kNoMemory = 4096;

int64_t Aligned(int64_t num_elements) {
  return (num_elements + kAlignmentElements - 1) / kAlignmentElements * kAlignmentElements;
}

}  // namespace

ParameterArena::ParameterArena(params::Layout layout, int64_t padding_elements,
                               kernels::DType compute)
    : layout_(std::move(layout)),
      padded_elements_(Aligned(layout_.num_elements() + padding_elements)) {
  const int64_t n = layout_.num_elements();
  values_ = kernels::Buf{nullptr, kernels::StatisticsDType(compute), n};
  gradients_ = values_;
  narrow_ = kernels::Buf{nullptr, compute, n};
  const bool has_narrow = compute != values_.dtype;
  num_bytes_ =
      padded_elements_ * static_cast<int64_t>(2 * kernels::DTypeBytes(values_.dtype) +
                                              (has_narrow ? kernels::DTypeBytes(compute) : 0));
}

void ParameterArena::Place(void* memory) {
  char* const begin = static_cast<char*>(memory);
  const int64_t vector_bytes =
      padded_elements_ * static_cast<int64_t>(kernels::DTypeBytes(values_.dtype));
  values_.data = begin;
  gradients_.data = begin + vector_bytes;
  if (num_bytes_ > 2 * vector_bytes) narrow_.data = begin + 2 * vector_bytes;
}

absl::StatusOr<std::unique_ptr<ParameterArena>> ParameterArena::Create(const std::string& owner,
                                                                       params::Layout layout,
                                                                       int64_t padding_elements,
                                                                       kernels::Device* device) {
  auto arena = std::unique_ptr<ParameterArena>(
      new ParameterArena(std::move(layout), padding_elements, device->capabilities().compute));
  absl::StatusOr<DeviceMemory> memory =
      DeviceMemory::Allocate(device, static_cast<size_t>(arena->num_bytes_));
  if (!memory.ok()) {
    return absl::Status(
        memory.status().code(),
        absl::StrCat("parameters and gradients of ", owner, " need ", arena->num_bytes_,
                     " bytes on ", device->capabilities().name, ": ", memory.status().message(),
                     "; choose a smaller model, or a device with more memory"));
  }
  arena->memory_ = *std::move(memory);
  arena->Place(arena->memory_.data());
  const int64_t n = arena->layout_.num_elements();
  for (const kernels::Buf& vector : {arena->values_, arena->gradients_, arena->narrow_}) {
    if (vector) device->Fill(vector.Slice(n, arena->padded_elements_ - n), 0.0);
  }
  return arena;
}

std::unique_ptr<ParameterArena> ParameterArena::CreateUnallocated(params::Layout layout,
                                                                  int64_t padding_elements,
                                                                  kernels::DType compute) {
  auto arena = std::unique_ptr<ParameterArena>(
      new ParameterArena(std::move(layout), padding_elements, compute));
  arena->Place(reinterpret_cast<void*>(kNoMemory));
  return arena;
}

void ParameterArena::RefreshNarrowParameters(params::ElementRange range,
                                             kernels::Device* device) const {
  if (!narrow_) return;
  device->Cast(narrow_.Slice(range.begin, range.size()), values_.Slice(range.begin, range.size()),
               1.0, kernels::StreamKind::kCompute);
}

Parameter ParameterArena::Get(absl::string_view name, int64_t extra_elements) const {
  const params::TensorSpec* tensor = layout_.Find(std::string(name));
  LODESTAR_CHECK(tensor != nullptr) << "the layout of the model has no tensor " << name
                                    << ". This is a defect of Lodestar; report it";
  const int64_t count = tensor->num_elements() + extra_elements;
  LODESTAR_CHECK(tensor->offset + count <= padded_elements_);
  return {(narrow_ ? narrow_ : values_).Slice(tensor->offset, count),
          gradients_.Slice(tensor->offset, count)};
}

}  // namespace lodestar::model
