// The parameter space: all tensors of a model laid end to end as one flat fp32 vector. Pure data;
// immutable once built.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/params/model_spec.h"

namespace lodestar {

enum class InitializerKind : uint8_t { kZeros, kOnes, kNormal, kUniform };

// How a tensor starts. `scale` is the standard deviation of kNormal, the half-width of kUniform,
// unused otherwise.
struct Initializer {
  InitializerKind kind = InitializerKind::kZeros;
  float scale = 0.0f;
};

struct TensorSpec {
  std::string name;
  std::vector<int64_t> shape;
  int64_t offset = 0;  // elements from the start of the parameter space
  int block = 0;       // unit of backward and of transfer: 0 is the block that forward uses first
  bool decay = false;  // weight decay applies
  Initializer initializer;
  // No gradient belongs to it, as to a running mean: workers contribute its values, and what the
  // servers have is their mean. All tensors of a block are averaged, or none.
  bool averaged = false;
  // A table of which a sample touches few rows. Not in the hash, as the initialiser is not.
  bool embedding = false;

  int64_t num_elements() const;
};

// [begin, end) in elements of the parameter space.
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

  // Takes tensors in order of the parameter space; assigns the offsets (those given are ignored).
  // Errors: InvalidArgument for an empty list, bad or repeated names, dimensions below 1 or too
  // many, products that overflow, blocks that are not 0,1,2,... in non-decreasing order or of which
  // only a part is averaged, averaged tensors that decay. Names the tensor and the limit.
  static absl::StatusOr<Layout> FromTensors(std::vector<TensorSpec> tensors);

  const std::vector<TensorSpec>& tensors() const { return tensors_; }
  int64_t num_elements() const { return num_elements_; }
  int num_blocks() const { return static_cast<int>(blocks_.size()); }
  ElementRange block(int index) const { return blocks_[index]; }
  // Whether the tensors of the block are averaged.
  bool is_averaged(int block) const { return is_averaged_[block]; }
  bool has_averaged() const;
  // All but what is averaged, in as few ranges as there are.
  std::vector<ElementRange> TrainedRanges() const;
  // 16 hex digits over names, shapes, offsets, blocks and the marks of what decays and is averaged;
  // initialisers and the mark of embeddings are not part of it.
  const std::string& hash() const { return hash_; }
  // The parts of `range` that belong to one tensor each, in order, relative to its start; without
  // those of embeddings.
  std::vector<ElementRange> TensorParts(ElementRange range) const;
  // Null if there is none of that name.
  const TensorSpec* Find(const std::string& name) const;
  // That has this element of the parameter space, which must be in [0, num_elements()).
  const TensorSpec& TensorAt(int64_t element) const;

 private:
  std::vector<TensorSpec> tensors_;
  std::vector<ElementRange> blocks_;
  std::vector<bool> is_averaged_;  // by block
  int64_t num_elements_ = 0;
  std::string hash_;
  std::vector<size_t> by_name_;  // indices of tensors_ in the order of their names
};

// Tensors of a known architecture. Pure: both sides get the same layout from the same spec.
// Errors: those of ValidateModelSpec(); InvalidArgument for a ClientModelSpec.
absl::StatusOr<Layout> BuildLayout(const ModelSpec& spec);

// A tensor of a gpt as releases before the names of Hugging Face had it.
struct EarlierTensor {
  std::string name;
  bool is_transposed = false;  // a matrix [out, in] instead of [in, out]
};

// `name`: of a tensor of a gpt in BuildLayout(). One that has kept its name comes back as it is.
EarlierTensor EarlierGptTensor(absl::string_view name);

// The layout in which those releases trained the model. The order of the tensors, and so their
// offsets, are those of BuildLayout(). Errors: as BuildLayout().
absl::StatusOr<Layout> BuildEarlierLayout(const ModelSpec& spec);

// BuildLayout() or BuildEarlierLayout(): the one that is equal to `other`, with initialisers, which
// do not travel. Errors: as BuildLayout(); as CheckSameLayout() if neither is.
absl::StatusOr<Layout> RecognizeLayout(const ModelSpec& spec, const std::string& ours,
                                       const Layout& other, const std::string& theirs);

// A matrix that is [rows, columns] in one layout and lies as [columns, rows] at the same place of
// another.
struct TransposedMatrix {
  ElementRange range;  // elements of the parameter space
  int64_t rows = 0;
  int64_t columns = 0;
  // Where element `element` of the wanted layout lies in the other, both of the parameter space.
  int64_t WrittenAt(int64_t element) const {
    const int64_t i = element - range.begin;
    return range.begin + i % columns * rows + i / columns;
  }
};

// What must be moved where parameters `written` in one layout are read in the `wanted` one: nothing
// if they are equal, else the matrices that releases before the names of Hugging Face had
// transposed. Errors: as CheckSameLayout() if they differ otherwise.
absl::StatusOr<std::vector<TransposedMatrix>> TransposedBetween(const Layout& wanted,
                                                                const std::string& ours,
                                                                const Layout& written,
                                                                const std::string& theirs);

// OK if equal; else FailedPrecondition with both hashes and the first tensor that differs, and how.
// `ours` and `theirs` name the sides in the message.
absl::Status CheckSameLayout(const Layout& a, const std::string& ours, const Layout& b,
                             const std::string& theirs);

}  // namespace lodestar
