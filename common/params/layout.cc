// SPDX-License-Identifier: Apache-2.0

#include "common/params/layout.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/runtime/status_macros.h"

namespace lodestar::params {
namespace {

// FNV-1a, 64 bits (Fowler, Noll, Vo). Every field is added with a fixed width or after its length,
// so that two different layouts never add the same bytes.
class FieldHash {
 public:
  void Add(uint64_t value) {
    for (int i = 0; i < 8; ++i) AddByte(static_cast<uint8_t>(value >> (8 * i)));
  }
  void Add(const std::string& text) {
    Add(text.size());
    for (char c : text) AddByte(static_cast<uint8_t>(c));
  }
  std::string Hex() const { return absl::StrFormat("%016x", state_); }

 private:
  void AddByte(uint8_t byte) {
    constexpr uint64_t kPrime = 0x100000001b3;
    state_ = (state_ ^ byte) * kPrime;
  }
  uint64_t state_ = 0xcbf29ce484222325;
};

std::string ShapeText(const TensorSpec& tensor) {
  return absl::StrCat("[", absl::StrJoin(tensor.shape, ","), "]");
}

absl::Status CheckName(const TensorSpec& tensor, size_t index) {
  if (tensor.name.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("layout: tensor ", index, " has no name"));
  }
  if (tensor.name.size() > Layout::kMaxNameBytes) {
    return absl::InvalidArgumentError(absl::StrCat("layout: the name of tensor ", index, " has ",
                                                   tensor.name.size(), " bytes, allowed are ",
                                                   Layout::kMaxNameBytes));
  }
  for (unsigned char c : tensor.name) {
    if (c <= 0x20 || c >= 0x7f) {
      return absl::InvalidArgumentError(
          absl::StrCat("layout: tensor ", index, " has the name '", absl::CHexEscape(tensor.name),
                       "'; allowed are printable ASCII characters except the space"));
    }
  }
  return absl::OkStatus();
}

// Returns the number of elements of `tensor`, at most kMaxElements.
absl::StatusOr<int64_t> CheckShape(const TensorSpec& tensor) {
  if (tensor.shape.size() > Layout::kMaxDimensions) {
    return absl::InvalidArgumentError(absl::StrCat("layout: tensor '", tensor.name, "' has ",
                                                   tensor.shape.size(), " dimensions, allowed are ",
                                                   Layout::kMaxDimensions));
  }
  int64_t elements = 1;
  for (int64_t dimension : tensor.shape) {
    if (dimension < 1) {
      return absl::InvalidArgumentError(absl::StrCat("layout: tensor '", tensor.name,
                                                     "' has shape ", ShapeText(tensor),
                                                     "; every dimension must be at least 1"));
    }
    if (dimension > Layout::kMaxElements / elements) {
      return absl::InvalidArgumentError(absl::StrCat("layout: tensor '", tensor.name, "' of shape ",
                                                     ShapeText(tensor), " has more than ",
                                                     Layout::kMaxElements, " elements"));
    }
    elements *= dimension;
  }
  return elements;
}

std::string DescribeTensor(const TensorSpec& tensor) {
  return absl::StrCat("'", tensor.name, "' ", ShapeText(tensor), " at offset ", tensor.offset,
                      " in block ", tensor.block, tensor.decay ? " with decay" : " without decay",
                      tensor.averaged ? ", averaged" : "");
}

bool SameInHash(const TensorSpec& a, const TensorSpec& b) {
  return a.name == b.name && a.shape == b.shape && a.offset == b.offset && a.block == b.block &&
         a.decay == b.decay && a.averaged == b.averaged;
}

absl::Status CheckMarks(const TensorSpec& tensor, bool is_block_averaged) {
  if (tensor.averaged && tensor.decay) {
    return absl::InvalidArgumentError(absl::StrCat(
        "layout: tensor '", tensor.name,
        "' is averaged and has weight decay; an averaged tensor must have no weight decay"));
  }
  if (tensor.averaged == is_block_averaged) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("layout: tensor '", tensor.name, "' is ", tensor.averaged ? "" : "not ",
                   "averaged, but other tensors of block ", tensor.block, " are",
                   is_block_averaged ? "" : " not", "; put averaged tensors into separate blocks"));
}

std::string HashOf(const std::vector<TensorSpec>& tensors) {
  FieldHash hash;
  hash.Add(tensors.size());
  for (const TensorSpec& tensor : tensors) {
    hash.Add(tensor.name);
    hash.Add(tensor.shape.size());
    for (int64_t dimension : tensor.shape) hash.Add(static_cast<uint64_t>(dimension));
    hash.Add(static_cast<uint64_t>(tensor.offset));
    hash.Add(static_cast<uint64_t>(tensor.block));
    hash.Add(tensor.averaged ? 2 : tensor.decay ? 1 : 0);
  }
  return hash.Hex();
}

}  // namespace

int64_t TensorSpec::num_elements() const {
  int64_t elements = 1;
  for (int64_t dimension : shape) elements *= dimension;
  return elements;
}

absl::StatusOr<Layout> Layout::FromTensors(std::vector<TensorSpec> tensors) {
  if (tensors.empty()) return absl::InvalidArgumentError("layout: there are no tensors");
  if (tensors.size() > kMaxTensors) {
    return absl::InvalidArgumentError(
        absl::StrCat("layout: there are ", tensors.size(), " tensors, allowed are ", kMaxTensors));
  }
  Layout layout;
  for (size_t i = 0; i < tensors.size(); ++i) {
    TensorSpec& tensor = tensors[i];
    RETURN_IF_ERROR(CheckName(tensor, i));
    ASSIGN_OR_RETURN(const int64_t elements, CheckShape(tensor));
    if (elements > kMaxElements - layout.num_elements_) {
      return absl::InvalidArgumentError(absl::StrCat("layout: with tensor '", tensor.name,
                                                     "' there are more than ", kMaxElements,
                                                     " elements in all"));
    }
    const int last_block = layout.num_blocks() - 1;
    if (tensor.block < std::max(last_block, 0) || tensor.block > last_block + 1) {
      return absl::InvalidArgumentError(absl::StrCat(
          "layout: tensor '", tensor.name, "' is in block ", tensor.block, ", expected ",
          last_block < 0 ? "0" : absl::StrCat(last_block, " or ", last_block + 1),
          ". Number the blocks from 0, without gaps, in the order of the tensors"));
    }
    tensor.offset = layout.num_elements_;
    layout.num_elements_ += elements;
    if (tensor.block > last_block) {
      layout.blocks_.push_back({tensor.offset, tensor.offset});
      layout.is_averaged_.push_back(tensor.averaged);
    }
    RETURN_IF_ERROR(CheckMarks(tensor, layout.is_averaged_.back()));
    layout.blocks_.back().end = layout.num_elements_;
  }
  const auto name_of = [&tensors](size_t index) -> const std::string& {
    return tensors[index].name;
  };
  layout.by_name_.resize(tensors.size());
  std::iota(layout.by_name_.begin(), layout.by_name_.end(), size_t{0});
  std::ranges::sort(layout.by_name_, {}, name_of);
  const auto repeated = std::ranges::adjacent_find(layout.by_name_, {}, name_of);
  if (repeated != layout.by_name_.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("layout: two tensors have the name '", name_of(*repeated), "'"));
  }
  layout.hash_ = HashOf(tensors);
  layout.tensors_ = std::move(tensors);
  return layout;
}

bool Layout::has_averaged() const {
  return std::find(is_averaged_.begin(), is_averaged_.end(), true) != is_averaged_.end();
}

std::vector<ElementRange> Layout::TrainedRanges() const {
  std::vector<ElementRange> ranges;
  for (size_t block = 0; block < blocks_.size(); ++block) {
    if (is_averaged_[block]) continue;
    if (!ranges.empty() && ranges.back().end == blocks_[block].begin) {
      ranges.back().end = blocks_[block].end;
    } else {
      ranges.push_back(blocks_[block]);
    }
  }
  return ranges;
}

std::vector<ElementRange> Layout::TensorParts(ElementRange range) const {
  std::vector<ElementRange> parts;
  auto tensor = std::prev(std::ranges::upper_bound(tensors_, range.begin, {}, &TensorSpec::offset));
  for (; tensor != tensors_.end() && tensor->offset < range.end; ++tensor) {
    if (tensor->embedding) continue;
    parts.push_back({std::max(tensor->offset, range.begin) - range.begin,
                     std::min(tensor->offset + tensor->num_elements(), range.end) - range.begin});
  }
  return parts;
}

const TensorSpec* Layout::Find(const std::string& name) const {
  const auto name_of = [this](size_t index) -> const std::string& { return tensors_[index].name; };
  const auto entry = std::ranges::lower_bound(by_name_, name, {}, name_of);
  if (entry == by_name_.end() || name_of(*entry) != name) return nullptr;
  return &tensors_[*entry];
}

const TensorSpec& Layout::TensorAt(int64_t element) const {
  const auto behind = std::ranges::upper_bound(tensors_, element, {}, &TensorSpec::offset);
  return *std::prev(behind);
}

absl::Status CheckSameLayout(const Layout& a, const std::string& ours, const Layout& b,
                             const std::string& theirs) {
  if (a.hash() == b.hash()) return absl::OkStatus();
  const std::string prefix =
      absl::StrCat("layouts differ: ", ours, " has the layout with hash ", a.hash(), ", ", theirs,
                   " has the one with hash ", b.hash(), "; ");
  const size_t count = std::min(a.tensors().size(), b.tensors().size());
  for (size_t i = 0; i < count; ++i) {
    if (SameInHash(a.tensors()[i], b.tensors()[i])) continue;
    return absl::FailedPreconditionError(
        absl::StrCat(prefix, "the first difference is at tensor ", i, ": ", ours, " has ",
                     DescribeTensor(a.tensors()[i]), ", but ", theirs, " has ",
                     DescribeTensor(b.tensors()[i]), "; give both the same model"));
  }
  return absl::FailedPreconditionError(absl::StrCat(
      prefix, "the first ", count, " tensors agree, but ", ours, " has ", a.tensors().size(),
      " tensors and ", theirs, " has ", b.tensors().size(), "; give both the same model"));
}

}  // namespace lodestar::params
