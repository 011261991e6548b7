// SPDX-License-Identifier: Apache-2.0

#include "common/params/model_spec_json.h"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "common/archive/json_archive.h"
#include "common/runtime/json.h"
#include "common/runtime/overloaded.h"
#include "common/runtime/peer_text.h"
#include "common/runtime/status_macros.h"

namespace lodestar::params {
namespace {

// A model in its stored form. Exactly one of the architectures is set.
struct StoredModel {
  std::string name;
  std::optional<MlpSpec> mlp = {};
  std::optional<CnnSpec> cnn = {};
  std::optional<GptSpec> gpt = {};
  std::optional<ClientModelSpec> client = {};
};

struct InModelFile {
  template <typename Archive>
  static void Fields(Archive& archive, MlpSpec& mlp) {
    archive("widths", mlp.widths);
  }
  template <typename Archive>
  static void Fields(Archive& archive, CnnSpec& cnn) {
    archive("image_height", cnn.image_height);
    archive("image_width", cnn.image_width);
    archive("image_channels", cnn.image_channels);
    archive("channels", cnn.channels);
    archive("hidden_width", cnn.hidden_width);
    archive("num_classes", cnn.num_classes);
  }
  template <typename Archive>
  static void Fields(Archive& archive, GptSpec& gpt) {
    archive("num_layers", gpt.num_layers);
    archive("num_heads", gpt.num_heads);
    archive("width", gpt.width);
    archive("context", gpt.context);
    archive("vocabulary", gpt.vocabulary);
    archive.Sparse("dropout", gpt.dropout);
  }
  template <typename Archive>
  static void Fields(Archive& /*archive*/, ClientModelSpec& /*client*/) {}
};

template <typename Archive>
void Describe(Archive& archive, StoredModel& model) {
  archive("name", model.name);
  archive.Sparse("mlp", archive::As<InModelFile>(model.mlp));
  archive.Sparse("cnn", archive::As<InModelFile>(model.cnn));
  archive.Sparse("gpt", archive::As<InModelFile>(model.gpt));
  archive.Sparse("client", archive::As<InModelFile>(model.client));
}

Json ToJson(const ModelSpec& spec) {
  StoredModel stored = {.name = spec.name};
  std::visit(Overloaded{[&](const MlpSpec& mlp) { stored.mlp = mlp; },
                        [&](const CnnSpec& cnn) { stored.cnn = cnn; },
                        [&](const GptSpec& gpt) { stored.gpt = gpt; },
                        [&](const ClientModelSpec& client) { stored.client = client; }},
             spec.architecture);
  return archive::RecordToJson(stored);
}

// Moves the architecture to `spec` if it is set. Returns 1 if it was set, else 0.
template <typename Architecture>
int Take(std::optional<Architecture>& architecture, ModelSpec& spec) {
  if (!architecture.has_value()) return 0;
  spec.architecture = *std::move(architecture);
  return 1;
}

}  // namespace

std::string ModelSpecToJson(const ModelSpec& spec) { return FormatJson(ToJson(spec)); }

std::string ModelSpecToModelFile(const ModelSpec& spec) {
  const Json json = ToJson(spec);
  std::string text = absl::StrCat("name: ", FormatJson(json["name"]));
  for (const auto& [architecture, fields] : json.items()) {
    if (!fields.is_object()) continue;
    absl::StrAppend(&text, " ", architecture, " {");
    for (const auto& [field, value] : fields.items()) {
      absl::StrAppend(&text, " ", field, ": ", FormatJson(value));
    }
    absl::StrAppend(&text, " }");
  }
  return text;
}

absl::StatusOr<ModelSpec> ModelSpecFromJson(absl::string_view text) {
  constexpr int64_t kMaxBytes = 1 << 20;
  constexpr size_t kMaxNameBytes = 1024;  // no file has a longer name
  ASSIGN_OR_RETURN(const Json json, ParseJson(text, {.max_bytes = kMaxBytes}));
  StoredModel stored;
  RETURN_IF_ERROR(archive::ReadRecord(json, stored));
  ModelSpec spec;
  spec.name = PeerText(stored.name, stored.name.size());
  if (spec.name.size() > kMaxNameBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("name has ", spec.name.size(), " bytes, allowed are ", kMaxNameBytes));
  }
  const int count = Take(stored.mlp, spec) + Take(stored.cnn, spec) + Take(stored.gpt, spec) +
                    Take(stored.client, spec);
  if (count != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("model '", PeerText(spec.name), "' has ", count,
                     " of the keys mlp, cnn, gpt and client; it must have exactly one"));
  }
  RETURN_IF_ERROR(ValidateModelSpec(spec));
  return spec;
}

}  // namespace lodestar::params
