// SPDX-License-Identifier: Apache-2.0

// Prints what a model and a tokenizer of ours compute, for hugging_face_test.py.
//   model_probe logits MODEL        stdin: a line of tokens; stdout: floats, the logits behind each
//   model_probe tokens TOKENIZER    stdin: lines of JSON strings; stdout: a line of tokens for each
#include <cstdio>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "common/runtime/json.h"
#include "common/runtime/status_macros.h"
#include "common/storage/file_system.h"
#include "kernels/factory/device_factory.h"
#include "worker/model/model_loader.h"
#include "worker/model/next_token_model.h"
#include "worker/model/tokenizer_files.h"

namespace lodestar {
namespace {

absl::Status WriteLogits(const std::string& path) {
  ASSIGN_OR_RETURN(const std::unique_ptr<kernels::Device> device,
                   factory::MakeDevice("cpu", /*num_threads=*/1, /*why_not_cuda=*/nullptr));
  ASSIGN_OR_RETURN(const std::unique_ptr<model::Model> model,
                   model::LoadModel(path, /*max_batch=*/1, device.get()));
  model::NextTokenModel* const next_token_model = model->next_token_model();
  if (next_token_model == nullptr) return absl::InvalidArgumentError("is no gpt");
  std::vector<int32_t> tokens;
  for (int32_t token; std::cin >> token;) tokens.push_back(token);
  std::vector<float> logits;
  for (size_t count = 1; count <= tokens.size(); ++count) {
    RETURN_IF_ERROR(
        next_token_model->NextTokenLogits(absl::MakeConstSpan(tokens).first(count), &logits));
    std::fwrite(logits.data(), sizeof(float), logits.size(), stdout);
  }
  return absl::OkStatus();
}

absl::Status WriteTokens(const std::string& path) {
  ASSIGN_OR_RETURN(const std::unique_ptr<model::Tokenizer> tokenizer,
                   model::OpenTokenizer(storage::FileSystem::Real(), path));
  for (std::string line; std::getline(std::cin, line);) {
    ASSIGN_OR_RETURN(const Json text, ParseJson(line));
    if (!text.is_string()) return absl::InvalidArgumentError(absl::StrCat(line, " is no string"));
    std::puts(absl::StrJoin(tokenizer->Encode(text.get<std::string>()), " ").c_str());
  }
  return absl::OkStatus();
}

absl::Status Run(const std::vector<std::string>& arguments) {
  if (arguments.size() == 2 && arguments[0] == "logits") return WriteLogits(arguments[1]);
  if (arguments.size() == 2 && arguments[0] == "tokens") return WriteTokens(arguments[1]);
  return absl::InvalidArgumentError("usage: model_probe logits MODEL | tokens TOKENIZER");
}

}  // namespace
}  // namespace lodestar

int main(int argc, char** argv) {
  const absl::Status status = lodestar::Run(std::vector<std::string>(argv + 1, argv + argc));
  if (!status.ok()) std::cerr << "model_probe: " << status.message() << "\n";
  return status.ok() ? 0 : 1;
}
