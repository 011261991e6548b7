// SPDX-License-Identifier: Apache-2.0

// BuildLayout(): the tensors of each known architecture and their initial values. Also the names
// that tensors of a gpt had before they got Hugging Face's names.
#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/params/layout.h"
#include "common/runtime/status_macros.h"

namespace lodestar::params {
namespace {

constexpr Initializer kZeros = {InitializerKind::kZeros, 0.0f};
constexpr Initializer kOnes = {InitializerKind::kOnes, 0.0f};

Initializer Normal(double standard_deviation) {
  return {InitializerKind::kNormal, static_cast<float>(standard_deviation)};
}

// Collects tensors. A tensor of two or more dimensions has weight decay, as in nanoGPT.
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
  void AddEmbedding(std::string name, std::vector<int64_t> shape, Initializer initializer) {
    Add(std::move(name), std::move(shape), initializer);
    tensors_.back().embedding = true;
  }
  // Adds a weight [out, in...] and a bias [out] that starts at zero.
  void AddLinear(const std::string& prefix, std::vector<int64_t> weight_shape,
                 Initializer initializer) {
    const int64_t out = weight_shape[0];
    Add(absl::StrCat(prefix, ".weight"), std::move(weight_shape), initializer);
    Add(absl::StrCat(prefix, ".bias"), {out}, kZeros);
  }
  // Adds a weight [in, out], as in the Conv1D of Hugging Face's GPT-2, and a bias [out].
  void AddConv1d(const std::string& prefix, int64_t in, int64_t out, Initializer initializer) {
    Add(absl::StrCat(prefix, ".weight"), {in, out}, initializer);
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

// He et al. 2015, eq. 10: keeps the variance through a ReLU. `fan_in` is the number of inputs of an
// output.
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

// Names, shapes and order are those of Hugging Face's GPT2Model. Standard deviations are those of
// GPT-2 (Radford et al. 2019, section 2.3): 0.02 divided by the square root of the number of
// residual layers for weights that write to the residual stream, and 0.02 for all others. Each
// layer of the model has two residual layers.
std::vector<TensorSpec> Tensors(const GptSpec& gpt) {
  const Initializer normal = Normal(0.02);
  const Initializer residual = Normal(0.02 / std::sqrt(2.0 * gpt.num_layers));
  const int64_t width = gpt.width;
  TensorList list;
  list.BeginBlock();
  list.AddEmbedding("wte.weight", {gpt.vocabulary, width}, normal);
  list.AddEmbedding("wpe.weight", {gpt.context, width}, normal);
  for (int layer = 0; layer < gpt.num_layers; ++layer) {
    const std::string prefix = absl::StrCat("h.", layer, ".");
    list.BeginBlock();
    list.AddNorm(prefix + "ln_1", width);
    list.AddConv1d(prefix + "attn.c_attn", width, 3 * width, normal);
    list.AddConv1d(prefix + "attn.c_proj", width, width, residual);
    list.AddNorm(prefix + "ln_2", width);
    list.AddConv1d(prefix + "mlp.c_fc", width, 4 * width, normal);
    list.AddConv1d(prefix + "mlp.c_proj", 4 * width, width, residual);
  }
  list.BeginBlock();
  list.AddNorm("ln_f", width);
  return std::move(list).Take();
}

std::vector<TensorSpec> Tensors(const ClientModelSpec&) { return {}; }

struct Renamed {
  absl::string_view name;  // name within the model or the layer
  absl::string_view earlier;
};

constexpr Renamed kRenamed[] = {
    {"wte.weight", "wte"},
    {"wpe.weight", "wpe"},
    {"attn.c_attn.weight", "attn.qkv.weight"},
    {"attn.c_attn.bias", "attn.qkv.bias"},
    {"attn.c_proj.weight", "attn.proj.weight"},
    {"attn.c_proj.bias", "attn.proj.bias"},
    {"mlp.c_fc.weight", "mlp.fc.weight"},
    {"mlp.c_fc.bias", "mlp.fc.bias"},
    {"mlp.c_proj.weight", "mlp.proj.weight"},
    {"mlp.c_proj.bias", "mlp.proj.bias"},
};

bool SameTensors(const Layout& a, const Layout& b) { return a.hash() == b.hash(); }

}  // namespace

EarlierTensor EarlierGptTensor(absl::string_view name) {
  absl::string_view in_layer = name;
  if (absl::ConsumePrefix(&in_layer, "h.")) {
    in_layer.remove_prefix(std::min(in_layer.find_first_not_of("0123456789"), in_layer.size()));
    absl::ConsumePrefix(&in_layer, ".");
  }
  for (const Renamed& renamed : kRenamed) {
    if (in_layer != renamed.name) continue;
    const absl::string_view layer = name.substr(0, name.size() - in_layer.size());
    const bool is_matrix_of_a_layer = !layer.empty() && absl::EndsWith(name, ".weight");
    return {absl::StrCat(layer, renamed.earlier), is_matrix_of_a_layer};
  }
  return {std::string(name), false};
}

absl::StatusOr<Layout> BuildEarlierLayout(const ModelSpec& spec) {
  ASSIGN_OR_RETURN(const Layout layout, BuildLayout(spec));
  if (!std::holds_alternative<GptSpec>(spec.architecture)) return layout;
  std::vector<TensorSpec> tensors = layout.tensors();
  for (TensorSpec& tensor : tensors) {
    EarlierTensor earlier = EarlierGptTensor(tensor.name);
    tensor.name = std::move(earlier.name);
    if (earlier.is_transposed) std::reverse(tensor.shape.begin(), tensor.shape.end());
  }
  return Layout::FromTensors(std::move(tensors));
}

absl::StatusOr<Layout> RecognizeLayout(const ModelSpec& spec, const std::string& ours,
                                       const Layout& other, const std::string& theirs) {
  ASSIGN_OR_RETURN(Layout layout, BuildLayout(spec));
  if (SameTensors(layout, other)) return layout;
  ASSIGN_OR_RETURN(Layout earlier, BuildEarlierLayout(spec));
  if (SameTensors(earlier, other)) return earlier;
  return CheckSameLayout(layout, ours, other, theirs);
}

absl::StatusOr<std::vector<TransposedMatrix>> TransposedBetween(const Layout& wanted,
                                                                const std::string& ours,
                                                                const Layout& written,
                                                                const std::string& theirs) {
  std::vector<TransposedMatrix> transposed;
  if (SameTensors(wanted, written)) return transposed;
  bool is_same = wanted.tensors().size() == written.tensors().size();
  for (size_t i = 0; is_same && i < wanted.tensors().size(); ++i) {
    const TensorSpec& tensor = wanted.tensors()[i];
    const TensorSpec& there = written.tensors()[i];
    const EarlierTensor earlier = EarlierGptTensor(tensor.name);
    std::vector<int64_t> shape = tensor.shape;
    if (earlier.is_transposed) std::reverse(shape.begin(), shape.end());
    is_same = there.name == earlier.name && there.shape == shape && there.offset == tensor.offset;
    if (!is_same || !earlier.is_transposed || shape.size() != 2) continue;
    transposed.push_back(
        {{tensor.offset, tensor.offset + tensor.num_elements()}, tensor.shape[0], tensor.shape[1]});
  }
  if (!is_same) return CheckSameLayout(wanted, ours, written, theirs);
  return transposed;
}

absl::StatusOr<Layout> BuildLayout(const ModelSpec& spec) {
  if (std::holds_alternative<ClientModelSpec>(spec.architecture)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "model '", spec.name,
        "' has no layout yet; the first program that joins the job defines the layout"));
  }
  RETURN_IF_ERROR(ValidateModelSpec(spec));
  return Layout::FromTensors(std::visit(
      [](const auto& architecture) { return Tensors(architecture); }, spec.architecture));
}

}  // namespace lodestar::params
