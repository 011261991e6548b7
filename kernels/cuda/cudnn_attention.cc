// SPDX-License-Identifier: Apache-2.0

#include "kernels/cuda/cudnn_attention.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace lodestar::cuda {
namespace {

using Tensor = CudnnGraph::Tensor;

constexpr int64_t kBf16Bytes = 2;
constexpr size_t kWorkspaceAlignment = 256;
// Older versions support only numbers of tokens that are a multiple of kTokensOfBlock.
constexpr size_t kFirstVersionOfAnyTokens = 91600;
constexpr int64_t kTokensOfBlock = 128;
constexpr float kMasked = -std::numeric_limits<float>::infinity();

size_t Aligned(size_t bytes) {
  return (bytes + kWorkspaceAlignment - 1) / kWorkspaceAlignment * kWorkspaceAlignment;
}

// The address at which a tensor of the graph begins: a memory and an offset.
struct Place {
  enum class In : uint8_t { kQkv, kY, kLogSumExp, kDy, kDqkv, kWorkspace };
  int64_t id;
  In in;
  int64_t offset_bytes = 0;
};

// The graph of one pass. cuDNN sees each tensor as [batch, heads, tokens, head_width]. Its strides
// say where the elements are in our tensors.
class AttentionGraph {
 public:
  AttentionGraph(std::shared_ptr<const CudnnTarget> target, const kernels::AttentionShape& shape)
      : graph_(std::move(target)), shape_(shape) {}

  void BuildForward();
  void BuildBackward(bool is_ordered);
  // own_bytes() is the number of bytes that the graph needs at the beginning of the workspace. The
  // workspace of the plan follows. Before a run, the caller must set the first zeroed_bytes() to 0.
  size_t own_bytes() const { return own_bytes_; }
  size_t zeroed_bytes() const { return zeroed_bytes_; }
  CudnnGraph& graph() { return graph_; }
  std::vector<Place> places() { return std::move(places_); }

 private:
  int64_t width() const { return shape_.heads * shape_.head_width; }
  CudnnLayout QkvLayout() const {
    return {{shape_.batch, shape_.heads, shape_.tokens, shape_.head_width},
            {3 * shape_.tokens * width(), shape_.head_width, 3 * width(), 1}};
  }
  CudnnLayout OutputLayout() const {
    return {{shape_.batch, shape_.heads, shape_.tokens, shape_.head_width},
            {shape_.tokens * width(), shape_.head_width, width(), 1}};
  }
  // Returns the layout of a tensor with one number per query and head.
  CudnnLayout RowLayout() const {
    return {{shape_.batch, shape_.heads, shape_.tokens, 1},
            {shape_.heads * shape_.tokens, shape_.tokens, 1, 1}};
  }
  CudnnLayout ScoreLayout() const {
    const int64_t matrix = shape_.tokens * shape_.tokens;
    return {{shape_.batch, shape_.heads, shape_.tokens, shape_.tokens},
            {shape_.heads * matrix, matrix, shape_.tokens, 1}};
  }
  // Returns queries (0), keys (1) or values (2) of `in`, or the gradients of these.
  Tensor PartOf(Place::In in, int part, const CudnnLayout& layout) {
    return At({.id = 0, .in = in, .offset_bytes = part * width() * kBf16Bytes}, layout,
              CUDNN_DATA_BFLOAT16, /*alignment=*/16);
  }
  Tensor At(Place place, const CudnnLayout& layout, cudnnDataType_t type, int64_t alignment) {
    const Tensor tensor = graph_.Stored(layout, type, alignment);
    place.id = tensor->id;
    places_.push_back(place);
    return tensor;
  }
  Tensor LogSumExp() {
    return At({.id = 0, .in = Place::In::kLogSumExp}, RowLayout(), CUDNN_DATA_FLOAT,
              alignof(float));
  }
  // Returns the scaled scores of all pairs of tokens.
  Tensor Scores(Tensor queries, Tensor keys_transposed);
  // Sets elements whose key comes after the query to -inf. `scores` are the scores, or the scores
  // minus another tensor.
  Tensor Masked(Tensor scores);
  Tensor Scaled(Tensor x) {
    return graph_.Binary(CUDNN_POINTWISE_MUL, x, graph_.Scalar(scale_), Scores());
  }
  Tensor Scores() { return graph_.Passing(ScoreLayout()); }
  Tensor Rows() { return graph_.Passing(RowLayout()); }
  // Returns the layout, without gaps, of a tensor that is internal to the graph.
  CudnnLayout DenseLayout() const {
    return {{shape_.batch, shape_.heads, shape_.tokens, shape_.head_width},
            {shape_.tokens * width(), shape_.tokens * shape_.head_width, shape_.head_width, 1}};
  }
  // Reserves `elements` floats of the workspace, after the memory that is already reserved. Returns
  // the offset in bytes.
  int64_t OwnMemory(int64_t elements) {
    const auto begin = static_cast<int64_t>(own_bytes_);
    own_bytes_ = Aligned(own_bytes_ + elements * sizeof(float));
    return begin;
  }
  // Returns the transpose of `scores`, in bf16, as a factor of a product.
  Tensor TransposedFactor(Tensor scores) {
    return graph_.Reshape(scores, graph_.Passing(ScoreLayout().Transposed(), CUDNN_DATA_BFLOAT16));
  }

  CudnnGraph graph_;
  const kernels::AttentionShape shape_;
  const float scale_ = static_cast<float>(1.0 / std::sqrt(static_cast<double>(shape_.head_width)));
  std::vector<Place> places_;
  size_t own_bytes_ = 0;
  size_t zeroed_bytes_ = 0;
};

Tensor AttentionGraph::Scores(Tensor queries, Tensor keys_transposed) {
  return Scaled(graph_.Multiply(queries, keys_transposed, Scores()));
}

Tensor AttentionGraph::Masked(Tensor scores) {
  const auto indices = [&](int64_t axis) {
    return graph_.Index(scores, axis, graph_.Passing(ScoreLayout(), CUDNN_DATA_INT32));
  };
  const Tensor query = indices(2);
  const Tensor key = indices(3);
  const Tensor sees =
      graph_.IsAtLeast(query, key, graph_.Passing(ScoreLayout(), CUDNN_DATA_BOOLEAN));
  return graph_.Select(sees, scores, graph_.Scalar(kMasked), Scores());
}

void AttentionGraph::BuildForward() {
  const Tensor q = PartOf(Place::In::kQkv, 0, QkvLayout());
  const Tensor k = PartOf(Place::In::kQkv, 1, QkvLayout().Transposed());
  const Tensor v = PartOf(Place::In::kQkv, 2, QkvLayout());
  const Tensor y = PartOf(Place::In::kY, 0, OutputLayout());
  const Tensor log_sum_exp = LogSumExp();

  const Tensor scores = Masked(Scores(q, k));
  const Tensor largest = graph_.Reduce(CUDNN_REDUCE_TENSOR_MAX, scores, Rows());
  const Tensor below = graph_.Binary(CUDNN_POINTWISE_SUB, scores, largest, Scores());
  const Tensor weights = graph_.Unary(CUDNN_POINTWISE_EXP, below, Scores());
  const Tensor sum = graph_.Reduce(CUDNN_REDUCE_TENSOR_ADD, weights, Rows());
  const Tensor log_sum = graph_.Unary(CUDNN_POINTWISE_LOG, sum, Rows());
  graph_.Binary(CUDNN_POINTWISE_ADD, largest, log_sum, log_sum_exp);
  const Tensor probabilities = graph_.Binary(CUDNN_POINTWISE_DIV, weights, sum,
                                             graph_.Passing(ScoreLayout(), CUDNN_DATA_BFLOAT16));
  graph_.Multiply(probabilities, v, y);
}

// Builds the backward graph. dq is computed in one of two ways:
// - If `is_ordered` is false, the graph has a tensor for the sums of dq. cuDNN adds to it by
//   atomics, in any order.
// - If `is_ordered` is true, dq is one product of the scores' gradients, which are in cuDNN's
//   workspace. So equal calls give equal bits.
void AttentionGraph::BuildBackward(bool is_ordered) {
  const Tensor q = PartOf(Place::In::kQkv, 0, QkvLayout());
  const Tensor k = PartOf(Place::In::kQkv, 1, QkvLayout().Transposed());
  const Tensor v = PartOf(Place::In::kQkv, 2, QkvLayout().Transposed());
  const Tensor y = PartOf(Place::In::kY, 0, OutputLayout());
  const Tensor dy = PartOf(Place::In::kDy, 0, OutputLayout());
  const Tensor log_sum_exp = LogSumExp();
  const Tensor dq = PartOf(Place::In::kDqkv, 0, QkvLayout());
  const Tensor dk = PartOf(Place::In::kDqkv, 1, QkvLayout());
  const Tensor dv = PartOf(Place::In::kDqkv, 2, QkvLayout());

  Tensor dq_sum = nullptr;
  if (!is_ordered) {
    dq_sum = graph_.Accumulator(DenseLayout());
    places_.push_back({.id = dq_sum->id,
                       .in = Place::In::kWorkspace,
                       .offset_bytes = OwnMemory(shape_.batch * shape_.tokens * width())});
    zeroed_bytes_ = own_bytes_;
  }
  const Tensor products = graph_.Binary(CUDNN_POINTWISE_MUL, dy, y, graph_.Passing(DenseLayout()));
  const Tensor sums = graph_.Reduce(CUDNN_REDUCE_TENSOR_ADD, products, Rows());
  const Tensor delta = At({.id = 0,
                           .in = Place::In::kWorkspace,
                           .offset_bytes = OwnMemory(shape_.batch * shape_.heads * shape_.tokens)},
                          RowLayout(), CUDNN_DATA_FLOAT, /*alignment=*/16);
  graph_.Binary(CUDNN_POINTWISE_MUL, sums, graph_.Scalar(1.0f), delta);

  const Tensor below = graph_.Binary(CUDNN_POINTWISE_SUB, Scores(q, k), log_sum_exp, Scores());
  const Tensor probabilities = graph_.Unary(CUDNN_POINTWISE_EXP, Masked(below), Scores());
  graph_.Multiply(TransposedFactor(probabilities), dy, dv);

  const Tensor dprobabilities = graph_.Multiply(dy, v, Scores());
  const Tensor relative = graph_.Binary(CUDNN_POINTWISE_SUB, dprobabilities, delta, Scores());
  const Tensor unscaled = graph_.Binary(CUDNN_POINTWISE_MUL, relative, probabilities, Scores());
  const Tensor dscores = Scaled(unscaled);
  graph_.Multiply(TransposedFactor(dscores), q, dk);
  const Tensor k_again = graph_.Reshape(k, graph_.Passing(QkvLayout(), CUDNN_DATA_BFLOAT16));
  if (is_ordered) {
    graph_.Multiply(dscores, k_again, dq);
  } else {
    graph_.Multiply(dscores, k_again, dq_sum);
    graph_.Unary(CUDNN_POINTWISE_IDENTITY, dq_sum, dq);
  }
}

absl::Status InCudnn(const CudnnApi& api, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(CudnnName(api), ": ", status.message()));
}

class CudnnAttentionPlan final : public AttentionPlan {
 public:
  // The first `own_bytes` of the workspace belong to the graph. The rest belongs to the plan.
  CudnnAttentionPlan(std::shared_ptr<const CudnnTarget> target, CudnnPlan plan,
                     std::vector<Place> places, std::vector<CudnnScalar> scalars, size_t own_bytes,
                     size_t zeroed_bytes)
      : target_(std::move(target)),
        plan_(std::move(plan)),
        places_(std::move(places)),
        scalars_(std::move(scalars)),
        own_bytes_(own_bytes),
        zeroed_bytes_(zeroed_bytes) {}

  size_t workspace_bytes() const override { return own_bytes_ + plan_.workspace_bytes; }
  size_t zeroed_bytes() const override { return zeroed_bytes_; }
  absl::Status Run(const AttentionTensors& tensors, void* workspace, cudaStream_t stream) override;

 private:
  const std::shared_ptr<const CudnnTarget> target_;
  const CudnnPlan plan_;
  const std::vector<Place> places_;
  std::vector<CudnnScalar> scalars_;
  const size_t own_bytes_;
  const size_t zeroed_bytes_;
};

void* BeginOf(const Place& place, const AttentionTensors& tensors, void* workspace) {
  const auto address = [&]() -> const void* {
    switch (place.in) {
      case Place::In::kQkv:
        return tensors.qkv;
      case Place::In::kY:
        return tensors.y;
      case Place::In::kLogSumExp:
        return tensors.log_sum_exp;
      case Place::In::kDy:
        return tensors.dy;
      case Place::In::kDqkv:
        return tensors.dqkv;
      case Place::In::kWorkspace:
        return workspace;
    }
    return nullptr;
  };
  // cuDNN uses the same pointer type for inputs and outputs, so this cast removes const.
  return const_cast<char*>(static_cast<const char*>(address())) + place.offset_bytes;
}

absl::Status CudnnAttentionPlan::Run(const AttentionTensors& tensors, void* workspace,
                                     cudaStream_t stream) {
  std::vector<int64_t> ids;
  std::vector<void*> pointers;
  for (const Place& place : places_) {
    ids.push_back(place.id);
    pointers.push_back(BeginOf(place, tensors, workspace));
  }
  for (CudnnScalar& scalar : scalars_) {
    ids.push_back(scalar.id);
    pointers.push_back(&scalar.value);
  }
  return InCudnn(target_->api(), RunCudnnPlan(*target_, plan_, ids, pointers,
                                              static_cast<char*>(workspace) + own_bytes_, stream));
}

}  // namespace

absl::StatusOr<std::unique_ptr<AttentionPlan>> CudnnAttention::Plan(
    AttentionPass pass, const kernels::AttentionShape& shape) {
  if (target_->api().get_version() < kFirstVersionOfAnyTokens &&
      shape.tokens % kTokensOfBlock != 0) {
    return absl::UnimplementedError(absl::StrCat(name(), " wants a multiple of ", kTokensOfBlock,
                                                 " tokens, and there are ", shape.tokens,
                                                 "; versions from 9.16 on take any number"));
  }
  AttentionGraph attention(target_, shape);
  pass == AttentionPass::kForward
      ? attention.BuildForward()
      : attention.BuildBackward(/*is_ordered=*/pass == AttentionPass::kBackward);
  absl::StatusOr<CudnnPlan> plan =
      attention.graph().Plan(/*repeats=*/pass != AttentionPass::kUnorderedBackward);
  if (!plan.ok()) return InCudnn(target_->api(), plan.status());
  return std::make_unique<CudnnAttentionPlan>(target_, *std::move(plan), attention.places(),
                                              attention.graph().scalars(), attention.own_bytes(),
                                              attention.zeroed_bytes());
}

}  // namespace lodestar::cuda
