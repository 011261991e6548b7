// SPDX-License-Identifier: Apache-2.0

#include "common/checkpoints/same_tensors.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/checkpoints/hugging_face.h"

namespace lodestar::checkpoints {
namespace {

std::string Describe(const params::TensorSpec& tensor) {
  return absl::StrCat("tensor '", tensor.name, "' [", absl::StrJoin(tensor.shape, ","), "]",
                      tensor.averaged ? ", averaged" : "");
}

}  // namespace

const params::TensorSpec* FindTensorOfProgram(const params::Layout& job, absl::string_view name) {
  const params::TensorSpec* const tensor = job.Find(std::string(name));
  if (tensor != nullptr || !absl::ConsumePrefix(&name, kHuggingFacePrefix)) return tensor;
  return job.Find(std::string(name));
}

absl::Status CheckSameTensors(const params::Layout& job, const std::string& ours,
                              const params::Layout& program, const std::string& theirs) {
  std::set<const params::TensorSpec*> found;
  for (const params::TensorSpec& tensor : program.tensors()) {
    const params::TensorSpec* const wanted = FindTensorOfProgram(job, tensor.name);
    if (wanted == nullptr) {
      return absl::FailedPreconditionError(
          absl::StrCat(theirs, " has ", Describe(tensor), ", which ", ours, " does not have"));
    }
    if (wanted->shape != tensor.shape || wanted->averaged != tensor.averaged) {
      return absl::FailedPreconditionError(absl::StrCat(theirs, " has ", Describe(tensor), ", but ",
                                                        ours, " has ", Describe(*wanted)));
    }
    if (!found.insert(wanted).second) {
      return absl::FailedPreconditionError(
          absl::StrCat(theirs, " has two tensors that are both ", Describe(*wanted), " of ", ours));
    }
  }
  for (const params::TensorSpec& tensor : job.tensors()) {
    if (found.contains(&tensor)) continue;
    return absl::FailedPreconditionError(
        absl::StrCat(ours, " has ", Describe(tensor), ", which ", theirs, " does not have"));
  }
  return absl::OkStatus();
}

std::string DifferingDecay(const params::Layout& job, const params::Layout& program) {
  int num_differing = 0;
  std::string text;
  for (const params::TensorSpec& tensor : program.tensors()) {
    const params::TensorSpec* const wanted = FindTensorOfProgram(job, tensor.name);
    if (wanted == nullptr || wanted->decay == tensor.decay) continue;
    ++num_differing;
    if (!text.empty()) continue;
    text = absl::StrCat("weight decay applies to '", tensor.name, "' ",
                        tensor.decay ? "in this program, and not in the job"
                                     : "in the job, and not in this program");
  }
  if (num_differing > 1)
    absl::StrAppend(&text, ", and ", num_differing - 1, " more tensors differ");
  return text;
}

}  // namespace lodestar::checkpoints
