// SPDX-License-Identifier: Apache-2.0

#include "proto/convert.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/runtime/peer_text.h"
#include "common/runtime/status_macros.h"

namespace lodestar::wire {
namespace {

// Maximum length of a model's name. Names are shown, and stored in file headers.
constexpr size_t kMaxModelNameBytes = 256;
constexpr size_t kMaxHashBytes = 64;

v1::MlpSpec ToProto(const params::MlpSpec& mlp) {
  v1::MlpSpec proto;
  proto.mutable_widths()->Add(mlp.widths.begin(), mlp.widths.end());
  return proto;
}

v1::CnnSpec ToProto(const params::CnnSpec& cnn) {
  v1::CnnSpec proto;
  proto.set_image_height(cnn.image_height);
  proto.set_image_width(cnn.image_width);
  proto.set_image_channels(cnn.image_channels);
  proto.mutable_channels()->Add(cnn.channels.begin(), cnn.channels.end());
  proto.set_hidden_width(cnn.hidden_width);
  proto.set_num_classes(cnn.num_classes);
  return proto;
}

v1::GptSpec ToProto(const params::GptSpec& gpt) {
  v1::GptSpec proto;
  proto.set_num_layers(gpt.num_layers);
  proto.set_num_heads(gpt.num_heads);
  proto.set_width(gpt.width);
  proto.set_context(gpt.context);
  proto.set_vocabulary(gpt.vocabulary);
  proto.set_dropout(gpt.dropout);
  return proto;
}

params::MlpSpec FromProto(const v1::MlpSpec& mlp) {
  return params::MlpSpec{{mlp.widths().begin(), mlp.widths().end()}};
}

params::CnnSpec FromProto(const v1::CnnSpec& cnn) {
  params::CnnSpec spec;
  spec.image_height = cnn.image_height();
  spec.image_width = cnn.image_width();
  spec.image_channels = cnn.image_channels();
  spec.channels.assign(cnn.channels().begin(), cnn.channels().end());
  spec.hidden_width = cnn.hidden_width();
  spec.num_classes = cnn.num_classes();
  return spec;
}

params::GptSpec FromProto(const v1::GptSpec& gpt) {
  return params::GptSpec{gpt.num_layers(), gpt.num_heads(),  gpt.width(),
                         gpt.context(),    gpt.vocabulary(), gpt.dropout()};
}

void SetArchitecture(const params::MlpSpec& mlp, v1::ModelSpec& proto) {
  *proto.mutable_mlp() = ToProto(mlp);
}
void SetArchitecture(const params::CnnSpec& cnn, v1::ModelSpec& proto) {
  *proto.mutable_cnn() = ToProto(cnn);
}
void SetArchitecture(const params::GptSpec& gpt, v1::ModelSpec& proto) {
  *proto.mutable_gpt() = ToProto(gpt);
}
void SetArchitecture(const params::ClientModelSpec&, v1::ModelSpec& proto) {
  proto.mutable_client();
}

}  // namespace

v1::ModelSpec ToProto(const params::ModelSpec& spec) {
  v1::ModelSpec proto;
  proto.set_name(spec.name);
  std::visit([&proto](const auto& architecture) { SetArchitecture(architecture, proto); },
             spec.architecture);
  return proto;
}

absl::StatusOr<params::ModelSpec> FromProto(const v1::ModelSpec& proto) {
  params::ModelSpec spec;
  // The name is stored with the escapes of PeerText(), and is shown and sent on in this form.
  // Escapes make a name longer, so the length is checked after them.
  spec.name = PeerText(proto.name(), kMaxModelNameBytes);
  if (spec.name.size() > kMaxModelNameBytes) {
    return absl::InvalidArgumentError(absl::StrCat("model spec: name has ", spec.name.size(),
                                                   " bytes; at most ", kMaxModelNameBytes,
                                                   " are allowed"));
  }
  switch (proto.architecture_case()) {
    case v1::ModelSpec::kMlp:
      spec.architecture = FromProto(proto.mlp());
      break;
    case v1::ModelSpec::kCnn:
      spec.architecture = FromProto(proto.cnn());
      break;
    case v1::ModelSpec::kGpt:
      spec.architecture = FromProto(proto.gpt());
      break;
    case v1::ModelSpec::kClient:
      spec.architecture = params::ClientModelSpec{};
      break;
    case v1::ModelSpec::ARCHITECTURE_NOT_SET:
      return absl::InvalidArgumentError(
          "model spec: architecture is missing or unknown; give one of mlp, cnn, gpt, client");
  }
  RETURN_IF_ERROR(params::ValidateModelSpec(spec));
  return spec;
}

v1::Layout ToProto(const params::Layout& layout) {
  v1::Layout proto;
  for (const params::TensorSpec& tensor : layout.tensors()) {
    v1::TensorSpec* out = proto.add_tensors();
    out->set_name(tensor.name);
    out->mutable_shape()->Add(tensor.shape.begin(), tensor.shape.end());
    out->set_block(tensor.block);
    out->set_decay(tensor.decay);
    out->set_averaged(tensor.averaged);
    out->set_embedding(tensor.embedding);
  }
  proto.set_hash(layout.hash());
  return proto;
}

absl::StatusOr<params::Layout> FromProto(const v1::Layout& proto) {
  // The number of tensors is checked before the conversion, because a native tensor takes more
  // memory than a tensor in a message.
  if (proto.tensors_size() > params::Layout::kMaxTensors) {
    return absl::InvalidArgumentError(absl::StrCat("layout: there are ", proto.tensors_size(),
                                                   " tensors; at most ",
                                                   params::Layout::kMaxTensors, " are allowed"));
  }
  std::vector<params::TensorSpec> tensors;
  tensors.reserve(proto.tensors_size());
  for (const v1::TensorSpec& in : proto.tensors()) {
    params::TensorSpec tensor;
    tensor.name = in.name();
    tensor.shape.assign(in.shape().begin(), in.shape().end());
    tensor.block = in.block();
    tensor.decay = in.decay();
    tensor.averaged = in.averaged();
    tensor.embedding = in.embedding();
    tensors.push_back(std::move(tensor));
  }
  ASSIGN_OR_RETURN(params::Layout layout, params::Layout::FromTensors(std::move(tensors)));
  if (!proto.hash().empty() && proto.hash() != layout.hash()) {
    return absl::InvalidArgumentError(
        absl::StrCat("layout: the given hash is ", PeerText(proto.hash(), kMaxHashBytes),
                     ", but its ", proto.tensors_size(), " tensors have the hash ", layout.hash(),
                     "; use the same version on both sides"));
  }
  return layout;
}

}  // namespace lodestar::wire
