// SPDX-License-Identifier: Apache-2.0

#include "deploy/psctl/generate_command.h"

#include <algorithm>
#include <filesystem>
#include <memory>

#include "absl/strings/str_cat.h"
#include "common/output/output_file.h"
#include "common/runtime/file_io.h"
#include "common/runtime/status_macros.h"
#include "common/storage/file_system.h"
#include "kernels/factory/device_factory.h"
#include "worker/model/model_loader.h"
#include "worker/model/next_token_model.h"
#include "worker/model/text_generator.h"
#include "worker/model/tokenizer_files.h"

namespace lodestar::psctl {
namespace {

// Checks that the tokenizer in the model's folder has about as many tokens as the model. The model
// may have a few more, because vocabularies are padded for cards, for example from 50257 to 50304.
// Errors: FailedPrecondition.
absl::Status CheckTokenizerIsOfModel(const std::string& folder, const model::Tokenizer& tokenizer,
                                     int64_t vocabulary) {
  constexpr int64_t kMostUnused = 1024;
  const int64_t num_tokens = tokenizer.vocabulary();
  if (vocabulary - num_tokens <= std::min(kMostUnused, num_tokens / 2)) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "the tokenizer in ", folder, " has ", num_tokens, " tokens, but the model has ", vocabulary,
      ", so the tokenizer is probably of another model. Give --tokenizer=PATH with the tokenizer "
      "that the model was trained with. If this tokenizer is right, give its path as --tokenizer"));
}

// Returns the first of these tokenizers:
// - The one at --tokenizer.
// - The one in the folder of the model. If the model is a single file whose tokens are bytes, this
//   one is skipped, because it may belong to another model.
// - The one whose tokens are bytes, if the model's tokens are bytes.
absl::StatusOr<std::unique_ptr<model::Tokenizer>> ChooseTokenizer(const GenerateOptions& options,
                                                                  int64_t vocabulary) {
  constexpr int64_t kBytes = 256;
  storage::FileSystem& disk = storage::FileSystem::Real();
  if (!options.tokenizer.empty()) return model::OpenTokenizer(disk, options.tokenizer);
  const std::string parent = std::filesystem::path(options.model_path).parent_path();
  const bool is_folder = disk.IsDirectory(options.model_path);
  const std::string folder = is_folder ? options.model_path : parent.empty() ? "." : parent;
  if ((is_folder || vocabulary != kBytes) && model::HasTokenizer(disk, folder)) {
    ASSIGN_OR_RETURN(std::unique_ptr<model::Tokenizer> tokenizer,
                     model::OpenTokenizer(disk, folder));
    RETURN_IF_ERROR(CheckTokenizerIsOfModel(folder, *tokenizer, vocabulary));
    return tokenizer;
  }
  if (vocabulary == kBytes) return std::make_unique<model::ByteTokenizer>();
  return absl::FailedPreconditionError(
      absl::StrCat(options.model_path, " has a vocabulary of ", vocabulary, " tokens, but ", folder,
                   " has no tokenizer. Give --tokenizer=PATH with a tokenizer.json, or with a "
                   "folder that has tokenizer.json or both vocab.json and merges.txt"));
}

absl::Status CheckModelIsThere(const std::string& model_path) {
  const absl::Status there = CheckIsThere(model_path);
  if (there.ok()) return there;
  return absl::Status(there.code(),
                      absl::StrCat("--model: ", there.message(),
                                   "; give --model=PATH with a checkpoint (round-...), a file that "
                                   "psctl export wrote, or a folder in the form of Hugging Face"));
}

}  // namespace

absl::Status RunGenerate(const GenerateOptions& options) {
  RETURN_IF_ERROR(CheckModelIsThere(options.model_path));
  ASSIGN_OR_RETURN(const std::unique_ptr<kernels::Device> device,
                   factory::MakeDevice(options.device, options.threads, /*why_not_cuda=*/nullptr));
  ASSIGN_OR_RETURN(const std::unique_ptr<model::Model> model,
                   model::LoadModel(options.model_path, /*max_batch=*/1, device.get()));
  model::NextTokenModel* next_token_model = model->next_token_model();
  if (next_token_model == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat(options.model_path,
                     " is not a gpt, and psctl generate can only use a gpt; give another --model"));
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<model::Tokenizer> tokenizer,
                   ChooseTokenizer(options, next_token_model->vocabulary()));
  ASSIGN_OR_RETURN(
      const model::TextGenerator generator,
      model::TextGenerator::Create(
          next_token_model, tokenizer.get(),
          {.temperature = options.temperature, .top_k = options.top_k, .seed = options.seed}));
  RETURN_IF_ERROR(output::WriteToStandardOutput(options.prompt));
  RETURN_IF_ERROR(
      generator.Generate(options.prompt, options.num_bytes, &output::WriteToStandardOutput));
  return output::WriteToStandardOutput("\n");
}

}  // namespace lodestar::psctl
