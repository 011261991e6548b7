#include "common/model_spec_json.h"

#include <limits>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "common/json.h"
#include "common/peer_text.h"
#include "common/status_macros.h"

namespace lodestar {
namespace {

void Write(const MlpSpec& mlp, Json& json) { json["mlp"]["widths"] = mlp.widths; }

void Write(const CnnSpec& cnn, Json& json) {
  Json& fields = json["cnn"];
  fields["image_height"] = cnn.image_height;
  fields["image_width"] = cnn.image_width;
  fields["image_channels"] = cnn.image_channels;
  fields["channels"] = cnn.channels;
  fields["hidden_width"] = cnn.hidden_width;
  fields["num_classes"] = cnn.num_classes;
}

void Write(const GptSpec& gpt, Json& json) {
  Json& fields = json["gpt"];
  fields["num_layers"] = gpt.num_layers;
  fields["num_heads"] = gpt.num_heads;
  fields["width"] = gpt.width;
  fields["context"] = gpt.context;
  fields["vocabulary"] = gpt.vocabulary;
  if (gpt.dropout != 0.0) fields["dropout"] = gpt.dropout;
}

void Write(const ClientModelSpec&, Json& json) { json["client"] = Json::object(); }

Json ToJson(const ModelSpec& spec) {
  Json json = Json::object();
  json["name"] = spec.name;
  std::visit([&](const auto& architecture) { Write(architecture, json); }, spec.architecture);
  return json;
}

absl::StatusOr<int> ToInt(int64_t value, absl::string_view what) {
  if (value < std::numeric_limits<int>::min() || value > std::numeric_limits<int>::max()) {
    return absl::InvalidArgumentError(absl::StrCat(what, " is ", value, ": out of range"));
  }
  return static_cast<int>(value);
}

absl::Status Read(const Json& object, absl::string_view key, int& out) {
  ASSIGN_OR_RETURN(const int64_t value, GetInt64(object, key));
  ASSIGN_OR_RETURN(out, ToInt(value, key));
  return absl::OkStatus();
}

absl::Status Read(const Json& object, absl::string_view key, std::vector<int>& out) {
  ASSIGN_OR_RETURN(const Json* const array, GetArray(object, key));
  for (const Json& item : *array) {
    ASSIGN_OR_RETURN(const int64_t value, AsInt64(item, key));
    ASSIGN_OR_RETURN(const int number, ToInt(value, key));
    out.push_back(number);
  }
  return absl::OkStatus();
}

absl::Status Read(const Json& fields, MlpSpec& mlp) { return Read(fields, "widths", mlp.widths); }

absl::Status Read(const Json& fields, CnnSpec& cnn) {
  RETURN_IF_ERROR(Read(fields, "image_height", cnn.image_height));
  RETURN_IF_ERROR(Read(fields, "image_width", cnn.image_width));
  RETURN_IF_ERROR(Read(fields, "image_channels", cnn.image_channels));
  RETURN_IF_ERROR(Read(fields, "channels", cnn.channels));
  RETURN_IF_ERROR(Read(fields, "hidden_width", cnn.hidden_width));
  return Read(fields, "num_classes", cnn.num_classes);
}

absl::Status Read(const Json& fields, GptSpec& gpt) {
  RETURN_IF_ERROR(Read(fields, "num_layers", gpt.num_layers));
  RETURN_IF_ERROR(Read(fields, "num_heads", gpt.num_heads));
  RETURN_IF_ERROR(Read(fields, "width", gpt.width));
  RETURN_IF_ERROR(Read(fields, "context", gpt.context));
  RETURN_IF_ERROR(Read(fields, "vocabulary", gpt.vocabulary));
  if (fields.contains("dropout")) {
    ASSIGN_OR_RETURN(gpt.dropout, GetDouble(fields, "dropout"));
  }
  return absl::OkStatus();
}

absl::Status Read(const Json&, ClientModelSpec&) { return absl::OkStatus(); }

// Reads the object under `key` into the architecture, if there is one; counts it.
template <typename Architecture>
absl::Status ReadIfPresent(const Json& json, absl::string_view key, ModelSpec& spec, int& count) {
  if (!json.contains(std::string(key))) return absl::OkStatus();
  ++count;
  ASSIGN_OR_RETURN(const Json* const fields, GetObject(json, key));
  Architecture architecture;
  RETURN_IF_ERROR(Read(*fields, architecture));
  spec.architecture = std::move(architecture);
  return absl::OkStatus();
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
  ASSIGN_OR_RETURN(const Json json, ParseJson(text, {.max_bytes = kMaxBytes}));
  ModelSpec spec;
  ASSIGN_OR_RETURN(const std::string name, GetString(json, "name"));
  spec.name = PeerText(name);
  int count = 0;
  RETURN_IF_ERROR(ReadIfPresent<MlpSpec>(json, "mlp", spec, count));
  RETURN_IF_ERROR(ReadIfPresent<CnnSpec>(json, "cnn", spec, count));
  RETURN_IF_ERROR(ReadIfPresent<GptSpec>(json, "gpt", spec, count));
  RETURN_IF_ERROR(ReadIfPresent<ClientModelSpec>(json, "client", spec, count));
  if (count != 1) {
    return absl::InvalidArgumentError(absl::StrCat("model '", PeerText(spec.name), "' has ", count,
                                                   " of mlp, cnn, gpt, client; expected one"));
  }
  RETURN_IF_ERROR(ValidateModelSpec(spec));
  return spec;
}

}  // namespace lodestar
