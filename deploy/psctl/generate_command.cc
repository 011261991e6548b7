#include "deploy/psctl/generate_command.h"

#include <memory>

#include "absl/strings/str_cat.h"
#include "common/output_file.h"
#include "common/status_macros.h"
#include "kernels/device_factory.h"
#include "worker/model/model_loader.h"
#include "worker/model/next_token_model.h"
#include "worker/model/text_generator.h"

namespace lodestar {

absl::Status RunGenerate(const GenerateOptions& options) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Device> device,
                   MakeDevice(options.device, options.threads, /*why_not_cuda=*/nullptr));
  ASSIGN_OR_RETURN(const std::unique_ptr<Model> model,
                   LoadModel(options.model_path, /*max_batch=*/1, device.get()));
  NextTokenModel* next_token_model = model->next_token_model();
  if (next_token_model == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat(options.model_path, " is not a gpt; only those write text"));
  }
  ASSIGN_OR_RETURN(const TextGenerator generator,
                   TextGenerator::Create(next_token_model, {.temperature = options.temperature,
                                                            .top_k = options.top_k,
                                                            .seed = options.seed}));
  RETURN_IF_ERROR(WriteToStandardOutput(options.prompt));
  RETURN_IF_ERROR(generator.Generate(options.prompt, options.num_bytes, [](char byte) {
    return WriteToStandardOutput({&byte, 1});
  }));
  return WriteToStandardOutput("\n");
}

}  // namespace lodestar
