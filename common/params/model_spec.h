// SPDX-License-Identifier: Apache-2.0

// The model that a job trains, as plain data. The wire form is proto/model.proto. BuildLayout()
// gives the tensors.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lodestar::params {

// Fully connected network with ReLU between layers. widths = {inputs, hidden..., classes}.
struct MlpSpec {
  std::vector<int> widths;
  friend bool operator==(const MlpSpec&, const MlpSpec&) = default;
};

// Stack of {3x3 convolution, stride 1, padding 1; ReLU; 2x2 max pooling, stride 2}, one per entry
// of `channels`, then a hidden fully connected layer with ReLU and a linear classifier.
struct CnnSpec {
  int image_height = 0;
  int image_width = 0;
  int image_channels = 1;
  std::vector<int> channels;
  int hidden_width = 0;
  int num_classes = 0;
  friend bool operator==(const CnnSpec&, const CnnSpec&) = default;
};

// GPT-2 architecture: learned positions, pre-norm, GELU (tanh form), head tied to the token
// embedding.
struct GptSpec {
  int num_layers = 0;
  int num_heads = 0;
  int width = 0;
  int context = 0;     // maximum number of tokens of a text
  int vocabulary = 0;  // number of different tokens
  // Share of the activations that training drops. Dropout is at the same places as in nanoGPT: at
  // the embeddings, at the attention's probabilities and at the output of every branch. 0 <=
  // dropout < 1.
  double dropout = 0.0;
  friend bool operator==(const GptSpec&, const GptSpec&) = default;
};

// A model that the first client brings, with its layout and weights. The servers know only its
// tensors.
struct ClientModelSpec {
  friend bool operator==(const ClientModelSpec&, const ClientModelSpec&) = default;
};

struct ModelSpec {
  std::string name;
  std::variant<MlpSpec, CnnSpec, GptSpec, ClientModelSpec> architecture;
  friend bool operator==(const ModelSpec&, const ModelSpec&) = default;
};

// Returns the preset with this name: mlp, cnn (both for 8x8 grey images of 10 classes), mlp-mnist,
// cnn-mnist (28x28), cnn-cifar10 (32x32x3), gpt-nano, gpt-mini (bytes), gpt2-124m, gpt2-355m,
// gpt2-774m, gpt2-1.5b, client. Errors: NotFound, naming the known presets.
absl::StatusOr<ModelSpec> ModelPreset(absl::string_view name);

// Returns the names that ModelPreset() knows, in the order to print them.
std::vector<std::string> ModelPresetNames();

// Returns "model NAME" for messages, or "the model" if the name is empty.
std::string ModelInWords(absl::string_view name);

// Checks every dimension: it is positive and within limits, heads divide the width, and the image
// is large enough for its pooling. Errors: InvalidArgument naming the field, the value and the
// limit.
absl::Status ValidateModelSpec(const ModelSpec& spec);

}  // namespace lodestar::params
