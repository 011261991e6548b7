// SPDX-License-Identifier: Apache-2.0

#include "common/storage/safetensors_format.h"

#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "common/runtime/peer_text.h"

namespace lodestar::storage::safetensors_format {
namespace {

struct Dtype {
  absl::string_view name;
  int bits;
};

constexpr Dtype kDtypes[] = {
    {"F32", 32},    {"BF16", 16},   {"F16", 16},        {"F64", 64},        {"BOOL", 8},
    {"U8", 8},      {"I8", 8},      {"U16", 16},        {"I16", 16},        {"U32", 32},
    {"I32", 32},    {"U64", 64},    {"I64", 64},        {"C64", 64},        {"F8_E5M2", 8},
    {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E5M2FNUZ", 8}, {"F8_E4M3FNUZ", 8}, {"F6_E2M3", 6},
    {"F6_E3M2", 6}, {"F4", 4},
};

}  // namespace

absl::StatusOr<TensorSize> SizeOf(const std::string& dtype, const std::vector<int64_t>& shape) {
  const Dtype* known = nullptr;
  for (const Dtype& candidate : kDtypes) {
    if (candidate.name == dtype) known = &candidate;
  }
  if (known == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("dtype '", PeerText(dtype), "' is unknown"));
  }
  const std::string shape_text = absl::StrCat("[", PeerText(absl::StrJoin(shape, ",")), "]");
  int64_t num_elements = 1;
  for (int64_t dimension : shape) {
    if (dimension < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("shape ", shape_text, " has a dimension below 0"));
    }
    if (__builtin_mul_overflow(num_elements, dimension, &num_elements)) {
      return absl::InvalidArgumentError(
          absl::StrCat("shape ", shape_text, " has more elements than a 63-bit number can count"));
    }
  }
  int64_t num_bits = 0;
  if (__builtin_mul_overflow(num_elements, int64_t{known->bits}, &num_bits)) {
    return absl::InvalidArgumentError(
        absl::StrCat("shape ", shape_text, " has more bits than a 63-bit number can count"));
  }
  if (num_bits % 8 != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("shape ", shape_text, " of ", dtype, " does not fill whole bytes"));
  }
  return TensorSize{num_elements, num_bits / 8};
}

}  // namespace lodestar::storage::safetensors_format
