// SPDX-License-Identifier: Apache-2.0

// The parameter space: all tensors of a model laid end to end as one flat fp32 vector. Pure data
// that does not change once built.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/params/model_spec.h"

namespace lodestar::params {

enum class InitializerKind : uint8_t { kZeros, kOnes, kNormal, kUniform };

// Initial values of a tensor. `scale` is the standard deviation of kNormal and the half-width of
// kUniform. The other kinds do not use it.
struct Initializer {
  InitializerKind kind = InitializerKind::kZeros;
  float scale = 0.0f;
};

struct TensorSpec {
  std::string name;
  std::vector<int64_t> shape;
  int64_t offset = 0;  // elements from the start of the parameter space
  int block = 0;       // backward and transfers go block by block; forward begins with block 0
  bool decay = false;  // true means that weight decay applies
  Initializer initializer;
  // True means that the tensor has no gradient, such as a running mean. Workers contribute its
  // values, and the servers keep the mean of them. A block must not mix averaged tensors with
  // others.
  bool averaged = false;
  // True means that the tensor is a table of which each sample uses few rows. Layout::hash()
  // ignores this mark.
  bool embedding = false;

  int64_t num_elements() const;
};

// The range [begin, end) of elements of the parameter space.
struct ElementRange {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
  friend bool operator==(const ElementRange&, const ElementRange&) = default;
};

class Layout {
 public:
  static constexpr int64_t kMaxElements = int64_t{1} << 40;
  static constexpr int kMaxTensors = 1 << 20;
  static constexpr int kMaxDimensions = 8;
  static constexpr int kMaxNameBytes = 512;

  Layout() = default;

  // Builds a layout from `tensors`, which are in the order of the parameter space. Sets the
  // offsets. Errors: InvalidArgument, which names the tensor and the limit, if:
  // - there are no tensors, or too many tensors, dimensions or elements;
  // - a name is bad or repeated;
  // - a dimension is below 1;
  // - the tensors' blocks are not 0, 1, 2, ... in non-decreasing order;
  // - a block mixes averaged tensors with others;
  // - an averaged tensor has weight decay.
  static absl::StatusOr<Layout> FromTensors(std::vector<TensorSpec> tensors);

  const std::vector<TensorSpec>& tensors() const { return tensors_; }
  int64_t num_elements() const { return num_elements_; }
  int num_blocks() const { return static_cast<int>(blocks_.size()); }
  ElementRange block(int index) const { return blocks_[index]; }
  // Returns true if the tensors of the block are averaged.
  bool is_averaged(int block) const { return is_averaged_[block]; }
  bool has_averaged() const;
  // Returns all elements that are not averaged, in as few ranges as possible.
  std::vector<ElementRange> TrainedRanges() const;
  // Returns 16 hex digits: a hash of names, shapes, offsets, blocks and the marks `decay` and
  // `averaged`. Initializers and the mark `embedding` are not part of the hash.
  const std::string& hash() const { return hash_; }
  // Returns the parts of `range` that belong to one tensor each, in order. The parts count elements
  // from the start of `range`. Parts of embeddings are left out.
  std::vector<ElementRange> TensorParts(ElementRange range) const;
  // Returns the tensor with this name, or null.
  const TensorSpec* Find(const std::string& name) const;
  // Returns the tensor that has this element of the parameter space. Requires: 0 <= element <
  // num_elements().
  const TensorSpec& TensorAt(int64_t element) const;

 private:
  std::vector<TensorSpec> tensors_;
  std::vector<ElementRange> blocks_;
  std::vector<bool> is_averaged_;  // indexed by block
  int64_t num_elements_ = 0;
  std::string hash_;
  std::vector<size_t> by_name_;  // indices of tensors_ in the order of their names
};

// Returns the layout of a known architecture. Pure: workers and servers get the same layout from
// the same spec. Errors: those of ValidateModelSpec(); InvalidArgument for a ClientModelSpec.
absl::StatusOr<Layout> BuildLayout(const ModelSpec& spec);

// A tensor of a gpt in the layout of earlier releases, which did not yet use the names of Hugging
// Face.
struct EarlierTensor {
  std::string name;
  bool is_transposed = false;  // true: the earlier matrix is [out, in] instead of [in, out]
};

// Returns the earlier form of the tensor that BuildLayout() calls `name` in a gpt. If the tensor
// had the same name in earlier releases, returns `name`, not transposed.
EarlierTensor EarlierGptTensor(absl::string_view name);

// Returns the layout that earlier releases used for the model. The order of the tensors, and so
// their offsets, are the same as in BuildLayout(). Errors: as BuildLayout().
absl::StatusOr<Layout> BuildEarlierLayout(const ModelSpec& spec);

// Returns BuildLayout() or BuildEarlierLayout(), whichever equals `other`. The result has
// initializers, which `other` need not have. Errors: those of BuildLayout(); those of
// CheckSameLayout() if neither layout equals `other`.
absl::StatusOr<Layout> RecognizeLayout(const ModelSpec& spec, const std::string& ours,
                                       const Layout& other, const std::string& theirs);

// A matrix that is [rows, columns] in the wanted layout, and [columns, rows] in the other layout.
// Both layouts have it at the same offset.
struct TransposedMatrix {
  ElementRange range;  // the elements of the matrix in the parameter space
  int64_t rows = 0;
  int64_t columns = 0;
  // Returns where the other layout has the value that the wanted layout has at `element`. Both
  // count elements of the parameter space.
  int64_t WrittenAt(int64_t element) const {
    const int64_t i = element - range.begin;
    return range.begin + i % columns * rows + i / columns;
  }
};

// Returns which matrices must be transposed when parameters that were written in the layout
// `written` are read in the layout `wanted`. The result is empty if the layouts are equal.
// Otherwise it has the matrices that earlier releases stored transposed (see EarlierTensor).
// Errors: as CheckSameLayout() if the layouts differ in another way.
absl::StatusOr<std::vector<TransposedMatrix>> TransposedBetween(const Layout& wanted,
                                                                const std::string& ours,
                                                                const Layout& written,
                                                                const std::string& theirs);

// Checks that the layouts are equal. `ours` and `theirs` name the sides in the message. Errors:
// FailedPrecondition with both hashes, the first tensor that differs, and how it differs.
absl::Status CheckSameLayout(const Layout& a, const std::string& ours, const Layout& b,
                             const std::string& theirs);

}  // namespace lodestar::params
