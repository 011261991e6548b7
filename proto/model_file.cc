// SPDX-License-Identifier: Apache-2.0

#include "proto/model_file.h"

#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>
#include <sys/stat.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/runtime/file_io.h"
#include "common/runtime/peer_text.h"
#include "common/runtime/status_macros.h"
#include "proto/convert.h"
#include "proto/model.pb.h"

namespace lodestar::wire {
namespace {

// Maximum size of a file. A model spec has a few lines, so a larger file was named by mistake.
constexpr int64_t kMaxFileBytes = 1 << 20;

// Keeps only the first mistake, because later mistakes mostly follow from it.
class FirstError : public google::protobuf::io::ErrorCollector {
 public:
  explicit FirstError(absl::string_view source) : source_(source) {}

  void AddError(int line, int column, const std::string& message) override {
    if (!text_.empty()) return;
    // The parser counts lines and columns from zero.
    text_ = absl::StrCat(source_, ":", line + 1, ":", column + 1, ": ", PeerText(message));
    // If the parser has reached the end of the file, its message ends with "got: ".
    if (absl::EndsWith(message, "got: ")) text_ += "the end of the file; a '}' is missing";
  }
  const std::string& text() const { return text_; }

 private:
  const std::string source_;
  std::string text_;
};

}  // namespace

absl::StatusOr<params::ModelSpec> ParseModelSpec(const std::string& text,
                                                 absl::string_view source) {
  FirstError error(source);
  google::protobuf::TextFormat::Parser parser;
  parser.RecordErrorsTo(&error);
  v1::ModelSpec proto;
  absl::string_view without_mark = text;
  absl::ConsumePrefix(&without_mark, kByteOrderMark);
  if (!parser.ParseFromString(std::string(without_mark), &proto)) {
    return absl::InvalidArgumentError(
        absl::StrCat(error.text(), "; the format is ModelSpec in proto/model.proto"));
  }
  absl::StatusOr<params::ModelSpec> spec = FromProto(proto);
  if (!spec.ok()) {
    return absl::Status(spec.status().code(), absl::StrCat(source, ": ", spec.status().message()));
  }
  return spec;
}

absl::StatusOr<params::ModelSpec> LoadModelSpec(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadWholeFile(path, kMaxFileBytes);
  if (!text.ok()) {
    return absl::Status(text.status().code(),
                        absl::StrCat("model file: ", text.status().message()));
  }
  return ParseModelSpec(*text, path);
}

absl::StatusOr<params::ModelSpec> NamedModel(const std::string& model) {
  absl::StatusOr<params::ModelSpec> preset = params::ModelPreset(model);
  if (preset.ok()) return preset;
  absl::StatusOr<params::ModelSpec> file = LoadModelSpec(model);
  if (file.ok()) return file;
  if (absl::IsNotFound(file.status())) {
    return absl::InvalidArgumentError(
        absl::StrCat("--model=", model, " is neither a file nor a preset; presets: ",
                     absl::StrJoin(params::ModelPresetNames(), ", ")));
  }
  // The path is added only if it is not there yet: most errors begin with the path.
  const absl::string_view why = file.status().message();
  return absl::Status(file.status().code(),
                      absl::StrCat("--model", absl::StartsWith(why, model) ? "=" : ": ", why));
}

std::string HiddenModelFile(const std::string& model) {
  struct stat facts;
  const bool is_file = stat(model.c_str(), &facts) == 0 && S_ISREG(facts.st_mode);
  if (!is_file || !params::ModelPreset(model).ok()) return "";
  return absl::StrCat("--model=", model, " is the preset of that name, and the file ", model,
                      " in the working folder is not read; give --model=./", model,
                      " for the file");
}

}  // namespace lodestar::wire
