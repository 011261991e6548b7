// BuildLayout(): which tensors each known architecture has, and how they start.
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/layout.h"
#include "common/status_macros.h"

namespace lodestar {
namespace {

constexpr Initializer kZeros = {InitializerKind::kZeros, 0.0f};
constexpr Initializer kOnes = {InitializerKind::kOnes, 0.0f};

Initializer Normal(double standard_deviation) {
  return {InitializerKind::kNormal, static_cast<float>(standard_deviation)};
}

// Appends tensors; a tensor of two or more dimensions decays, as in nanoGPT.
class TensorList {
 public:
  void BeginBlock() { ++block_; }
  void Add(std::string name, std::vector<int64_t> shape, Initializer initializer) {
    TensorSpec tensor;
    tensor.name = std::move(name);
    tensor.shape = std::move(shape);
    tensor.block = block_;
    tensor.decay = tensor.shape.size() >= 2;
    tensor.initializer = initializer;
    tensors_.push_back(std::move(tensor));
  }
  // A weight [out, in...] and a bias [out] that starts at zero.
  void AddLinear(const std::string& prefix, std::vector<int64_t> weight_shape,
                 Initializer initializer) {
    const int64_t out = weight_shape[0];
    Add(absl::StrCat(prefix, ".weight"), std::move(weight_shape), initializer);
    Add(absl::StrCat(prefix, ".bias"), {out}, kZeros);
  }
  void AddNorm(const std::string& prefix, int64_t width) {
    Add(absl::StrCat(prefix, ".weight"), {width}, kOnes);
    Add(absl::StrCat(prefix, ".bias"), {width}, kZeros);
  }
  std::vector<TensorSpec> Take() && { return std::move(tensors_); }

 private:
  int block_ = -1;
  std::vector<TensorSpec> tensors_;
};

// He et al. 2015, eq. 10: keeps the variance through a ReLU.
Initializer BeforeRelu(int64_t fan_in) { return Normal(std::sqrt(2.0 / fan_in)); }
Initializer BeforeLoss(int64_t fan_in) { return Normal(std::sqrt(1.0 / fan_in)); }

std::vector<TensorSpec> Tensors(const MlpSpec& mlp) {
  TensorList list;
  const size_t num_layers = mlp.widths.size() - 1;
  for (size_t i = 0; i < num_layers; ++i) {
    const int64_t in = mlp.widths[i];
    list.BeginBlock();
    list.AddLinear(absl::StrCat("fc", i), {mlp.widths[i + 1], in},
                   i + 1 < num_layers ? BeforeRelu(in) : BeforeLoss(in));
  }
  return std::move(list).Take();
}

std::vector<TensorSpec> Tensors(const CnnSpec& cnn) {
  constexpr int64_t kKernelSide = 3;
  TensorList list;
  int64_t height = cnn.image_height;
  int64_t width = cnn.image_width;
  int64_t in = cnn.image_channels;
  for (size_t i = 0; i < cnn.channels.size(); ++i) {
    list.BeginBlock();
    list.AddLinear(absl::StrCat("conv", i), {cnn.channels[i], in, kKernelSide, kKernelSide},
                   BeforeRelu(in * kKernelSide * kKernelSide));
    in = cnn.channels[i];
    height /= 2;
    width /= 2;
  }
  const int64_t features = in * height * width;
  list.BeginBlock();
  list.AddLinear("fc0", {cnn.hidden_width, features}, BeforeRelu(features));
  list.BeginBlock();
  list.AddLinear("fc1", {cnn.num_classes, cnn.hidden_width}, BeforeLoss(cnn.hidden_width));
  return std::move(list).Take();
}

// Standard deviations of GPT-2 (Radford et al. 2019, section 2.3): 0.02, and weights that write to
// the residual stream divided by the square root of the number of residual layers, two per layer.
std::vector<TensorSpec> Tensors(const GptSpec& gpt) {
  const Initializer normal = Normal(0.02);
  const Initializer residual = Normal(0.02 / std::sqrt(2.0 * gpt.num_layers));
  const int64_t width = gpt.width;
  TensorList list;
  list.BeginBlock();
  list.Add("wte", {gpt.vocabulary, width}, normal);
  list.Add("wpe", {gpt.context, width}, normal);
  for (int layer = 0; layer < gpt.num_layers; ++layer) {
    const std::string prefix = absl::StrCat("h.", layer, ".");
    list.BeginBlock();
    list.AddNorm(prefix + "ln_1", width);
    list.AddLinear(prefix + "attn.qkv", {3 * width, width}, normal);
    list.AddLinear(prefix + "attn.proj", {width, width}, residual);
    list.AddNorm(prefix + "ln_2", width);
    list.AddLinear(prefix + "mlp.fc", {4 * width, width}, normal);
    list.AddLinear(prefix + "mlp.proj", {width, 4 * width}, residual);
  }
  list.BeginBlock();
  list.AddNorm("ln_f", width);
  return std::move(list).Take();
}

std::vector<TensorSpec> Tensors(const ClientModelSpec&) { return {}; }

}  // namespace

absl::StatusOr<Layout> BuildLayout(const ModelSpec& spec) {
  if (std::holds_alternative<ClientModelSpec>(spec.architecture)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "model '", spec.name, "' has no layout of its own: the first client brings it"));
  }
  RETURN_IF_ERROR(ValidateModelSpec(spec));
  return Layout::FromTensors(std::visit(
      [](const auto& architecture) { return Tensors(architecture); }, spec.architecture));
}

}  // namespace lodestar
